"""The catalog over SQLAlchemy Core: SQLite for one machine, PostgreSQL for several."""

from cm_delta_dagster.catalog.sql.catalog import SqlCatalog
from cm_delta_dagster.catalog.sql.database.database import IfMissing

__all__ = ["IfMissing", "SqlCatalog"]
