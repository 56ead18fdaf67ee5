"""Validation of commits, and conflicts between them."""
