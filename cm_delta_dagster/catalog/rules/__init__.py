"""Kinds of commit rules: one module for each kind, and the table of them (``kinds``). Pure functions over one commit."""
