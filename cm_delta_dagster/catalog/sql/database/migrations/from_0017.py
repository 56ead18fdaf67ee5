"""From revision 0017 to 0018: catalogs and schemas have rows."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import NAMESPACES

_NAMES = """
  SELECT catalog_name, schema_name, COALESCE(created_ms, reserved_ms) AS created_ms FROM cm_delta_tables
  WHERE state IN ('active', 'dropped')
  UNION ALL SELECT catalog_name, schema_name, NULL FROM cm_delta_registered_paths
"""
_INSERT = "INSERT INTO cm_delta_namespaces (name, catalog_name, created_ms)"
_CATALOGS = f"{_INSERT} SELECT catalog_name, NULL, MIN(created_ms) FROM ({_NAMES}) names GROUP BY catalog_name"
_SCHEMAS = f"""
{_INSERT} SELECT catalog_name || '.' || schema_name, catalog_name, MIN(created_ms) FROM ({_NAMES}) names
GROUP BY catalog_name, schema_name
"""


def upgrade(connection: sa.Connection) -> None:
    """Create the table and fill it."""
    NAMESPACES.create(connection)
    fill(connection)


def fill(connection: sa.Connection) -> None:
    """Every table that has or had a name, and every registered path, is in a catalog and a schema."""
    connection.exec_driver_sql(_CATALOGS)
    connection.exec_driver_sql(_SCHEMAS)
