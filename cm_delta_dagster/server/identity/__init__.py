"""Callers that an identity provider knows: its settings, its keys, and who sends a JWT of it."""
