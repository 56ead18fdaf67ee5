"""The catalog over SQLAlchemy Core: SQLite embedded, PostgreSQL shared."""

from cm_delta_dagster.catalog.sql.catalog import SqlCatalog

__all__ = ["SqlCatalog"]
