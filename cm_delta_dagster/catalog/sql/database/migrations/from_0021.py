"""From revision 0021 to 0022: PostgreSQL gets an index in the order in which lists of tables are read."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import ONLY_ON, TABLES_IN_ORDER


def upgrade(connection: sa.Connection) -> None:
    """On SQLite, an index has that order already."""
    if connection.dialect.name == TABLES_IN_ORDER.info[ONLY_ON]:
        TABLES_IN_ORDER.create(connection)
