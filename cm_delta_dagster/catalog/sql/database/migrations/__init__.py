"""Alembic environment of the catalog database."""
