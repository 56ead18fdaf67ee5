"""From revision 0004, that of release 0.1.0, to 0021: what ``schema`` has and the database lacks is added, but for newer indexes.

All columns that were added since have a default or are NULL in older rows: tables had no owner, commits no digest and no
principal, maintenance rules no conditions. The marks of identity columns are those of the stored metadata.
"""

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from cm_delta_dagster.catalog.sql.database.migrations import from_0017, identity_marks
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, METADATA, VERSION_PINS

_FEED_OF_COMMITS = """
INSERT INTO cm_delta_feed (position, kind, at_ms, table_id, version)
SELECT position, CASE version WHEN 0 THEN 'TABLE_CREATED' ELSE 'COMMIT' END, ratified_ms, table_id, version
FROM cm_delta_commits ORDER BY position
"""
_PINS = VERSION_PINS.name


def upgrade(connection: sa.Connection) -> None:
    """Commits keep their positions in the feed, so that the cursors of readers stay valid. Pins hold for every principal."""
    METADATA.create_all(connection)
    _add_columns(connection)
    from_0017.fill(connection)
    identity_marks.fill(connection)
    connection.exec_driver_sql(_FEED_OF_COMMITS)
    if connection.dialect.name == "sqlite":
        for table in (COMMITS, VERSION_PINS):
            _copy(connection, table)
        return
    connection.exec_driver_sql(f"ALTER TABLE {COMMITS.name} DROP COLUMN position")
    connection.exec_driver_sql(f"ALTER TABLE {_PINS} DROP CONSTRAINT {_PINS}_pkey")
    connection.exec_driver_sql(f"ALTER TABLE {_PINS} ADD PRIMARY KEY (owner, table_id, principal)")


def _add_columns(connection: sa.Connection) -> None:
    inspector = sa.inspect(connection)
    for table in METADATA.sorted_tables:
        present = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in present:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")


def _copy(connection: sa.Connection, table: sa.Table) -> None:
    """SQLite can neither drop a unique column nor change a primary key: create the table again, with the same rows."""
    for index in table.indexes:
        connection.exec_driver_sql(f"DROP INDEX {index.name}")
    connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO cm_delta_old_rows")
    table.create(connection)
    names = ", ".join(column.name for column in table.columns)
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM cm_delta_old_rows")
    connection.exec_driver_sql("DROP TABLE cm_delta_old_rows")
