"""The catalog over SQLAlchemy Core: SQLite embedded, PostgreSQL shared."""

from cm_delta_dagster.catalog.sql.catalog import SqlCatalog
from cm_delta_dagster.catalog.sql.database import IfMissing

__all__ = ["IfMissing", "SqlCatalog"]
