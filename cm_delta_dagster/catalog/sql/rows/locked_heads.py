"""The head of a table, whose row a transaction locks. Functions over an open connection."""

from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.prepared import Prepared
from cm_delta_dagster.catalog.sql.database.schema import NAME_COLUMNS, TABLES
from cm_delta_dagster.catalog.sql.rows.commits import HEAD_COLUMNS, THE_TABLE
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table

_MARKS = (TABLES.c.row_id_mark, TABLES.c.identity_marks)
LOCKED_HEAD = Prepared(sa.select(*HEAD_COLUMNS, *NAME_COLUMNS, *_MARKS).where(THE_TABLE).with_for_update())


def locked_head(connection: sa.Connection, table_id: str) -> Any | None:
    """The head of the table, whose row is locked until the transaction ends; None for an unknown or dropped table."""
    rows = LOCKED_HEAD.rows(connection, {"of_table": table_id})
    return rows[0] if rows else None


def required_head(connection: sa.Connection, table_id: str) -> Any:
    """The locked head of the table. Raises TableNotFoundError."""
    head = locked_head(connection, table_id)
    if head is None:
        raise unknown_table(table_id)
    return head
