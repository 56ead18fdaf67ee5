"""Automation conditions for assets that are downstream of tables."""
