"""Predicates: expressions, SQL text, literals."""
