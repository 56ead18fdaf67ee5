"""Commit rules, and held commits."""
