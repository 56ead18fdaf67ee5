"""The lock that changes of grants, roles, rules and commit modes hold: each of them depends on the others.

On SQLite a transaction that writes excludes every other one.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import IDENTITY

_LOCK = sa.select(IDENTITY.c.row_id).where(IDENTITY.c.row_id == 1).with_for_update()


def acquire(connection: sa.Connection) -> None:
    """Wait until no other transaction changes rules.

    Call it before the row of a table is locked, and before what is changed is read.
    """
    connection.execute(_LOCK)
