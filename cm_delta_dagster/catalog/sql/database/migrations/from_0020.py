"""From revision 0020 to 0021: commits that wait for an approval become holds, which may have several tables."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import HELD_COMMITS

_OLD, _NEW = "cm_delta_approvals", HELD_COMMITS.name
_ON_POSTGRES = (
    f"ALTER TABLE {_OLD} RENAME TO {_NEW}",
    f"ALTER TABLE {_NEW} RENAME COLUMN approval_id TO hold_id",
    f"ALTER TABLE {_NEW} ADD COLUMN waits_for TEXT NOT NULL DEFAULT 'approval'",
    f"ALTER TABLE {_NEW} DROP CONSTRAINT {_OLD}_pkey",
    f"ALTER TABLE {_NEW} ADD PRIMARY KEY (hold_id, table_id)",
    f"ALTER TABLE {_NEW} RENAME CONSTRAINT {_OLD}_table_id_fkey TO {_NEW}_table_id_fkey",
    f"ALTER INDEX {_OLD}_table RENAME TO {_NEW}_table",
)


def upgrade(connection: sa.Connection) -> None:
    """Each request keeps its id and becomes a hold of one table that waits for an approval."""
    if connection.dialect.name == "postgresql":  # Rights on the table stay.
        for statement in _ON_POSTGRES:
            connection.exec_driver_sql(statement)
        return
    HELD_COMMITS.create(connection)
    names = [column.name for column in HELD_COMMITS.columns if column.name not in ("hold_id", "waits_for")]
    columns = ", ".join(names)
    connection.exec_driver_sql(
        f"INSERT INTO {_NEW} (hold_id, waits_for, {columns}) SELECT approval_id, 'approval', {columns} FROM {_OLD}"
    )
    connection.exec_driver_sql(f"DROP TABLE {_OLD}")
