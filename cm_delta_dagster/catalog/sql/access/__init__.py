"""Callers, grants and roles, and the audit."""
