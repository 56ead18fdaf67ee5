"""The rows of tables that a transaction locks before it ratifies a proposal. Functions over an open connection."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import check_reads
from cm_delta_dagster.catalog.sql.check_reads import CheckReads
from cm_delta_dagster.catalog.sql.commit_rows import HEAD_COLUMNS, THE_TABLE, unknown_table
from cm_delta_dagster.catalog.sql.prepared import Prepared, has_pipeline, run_in_order
from cm_delta_dagster.catalog.sql.schema import NAME_COLUMNS

_LOCKED_HEAD = Prepared(sa.select(*HEAD_COLUMNS, *NAME_COLUMNS).where(THE_TABLE).with_for_update())


def locked_for_checks(connection: sa.Connection, table_ids: Sequence[str]) -> dict[str, tuple[Any, CheckReads]]:
    """The locked head of each table, with what its checks read; that is read at once if it takes no further round trip.

    The server locks the rows in the order of ``table_ids``, and begins the reads afterwards. Raises TableNotFoundError.
    """
    if not has_pipeline(connection):
        return {
            table_id: (required_head(connection, table_id), CheckReads(connection, table_id)) for table_id in table_ids
        }
    locks = [(_LOCKED_HEAD, {"of_table": table_id}) for table_id in table_ids]
    reads = {table_id: check_reads.statements(connection, table_id) for table_id in table_ids}
    answers = iter(run_in_order(connection, [*locks, *chain.from_iterable(reads.values())]))
    heads = dict(zip(table_ids, islice(answers, len(locks)), strict=True))
    for table_id, rows in heads.items():
        if not rows:
            raise unknown_table(table_id)
    return {
        table_id: (heads[table_id][0], CheckReads(connection, table_id, list(islice(answers, len(calls)))))
        for table_id, calls in reads.items()
    }


def locked_head(connection: sa.Connection, table_id: str) -> Any | None:
    """The head of the table, whose row is locked until the transaction ends; None for an unknown or dropped table."""
    rows = _LOCKED_HEAD.rows(connection, {"of_table": table_id})
    return rows[0] if rows else None


def required_head(connection: sa.Connection, table_id: str) -> Any:
    """The locked head of the table. Raises TableNotFoundError."""
    head = locked_head(connection, table_id)
    if head is None:
        raise unknown_table(table_id)
    return head
