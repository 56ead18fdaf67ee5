"""Entries of tables, and the lock of a table's row. Functions over an open connection."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    COMMITS,
    DEFINITIONS,
    DROPPED,
    IS_ACTIVE,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows import definitions, name_order
from cm_delta_dagster.catalog.sql.rows.commits import COMMIT_COLUMNS, ratified_commits_of
from cm_delta_dagster.catalog.sql.rows.effective_policy import EFFECTIVE_POLICY
from cm_delta_dagster.catalog.sql.rows.errors import no_such_name, unknown_table
from cm_delta_dagster.catalog.sql.rows.table_names import OF_NAME, in_order, name_parameters
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier, TablePage

_ENTRY = (
    sa.select(
        *(column for column in TABLES.c if column.name != "commit_policy"),
        EFFECTIVE_POLICY,
        *COMMIT_COLUMNS[:-1],
        sa.case((COMMITS.c.mode == CommitMode.INLINE.value, COMMITS.c.content)).label("content"),
        *definitions.COLUMNS,
        guard.IS_ENABLED,
    )
    .select_from(
        TABLES.outerjoin(
            COMMITS,
            sa.and_(COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version > TABLES.c.published_version),
        ).outerjoin(
            DEFINITIONS,
            sa.and_(
                DEFINITIONS.c.table_id == TABLES.c.table_id,
                # Only the last row carries the definition, which can be long.
                sa.or_(COMMITS.c.version.is_(None), COMMITS.c.version == TABLES.c.latest_version),
            ),
        )
    )
    .order_by(COMMITS.c.version)
)
_LOAD = _ENTRY.where(OF_NAME)
_LOAD_BY_ID = _ENTRY.where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
_LOAD_REGISTERED = _ENTRY.where(TABLES.c.table_id == sa.bindparam("of_table"), TABLES.c.state.in_((ACTIVE, DROPPED)))
_LOAD_SEVERAL = (
    _ENTRY.where(sa.tuple_(*NAME_COLUMNS).in_(sa.bindparam("names", expanding=True)), IS_ACTIVE)
    .order_by(None)
    .order_by(TABLES.c.table_id, COMMITS.c.version)
)
LOCKED = sa.select(TABLES).where(TABLES.c.table_id == sa.bindparam("of_table")).with_for_update()


def load_table(
    connection: sa.Connection, identifier: TableIdentifier, *, requires: Operation | None = None
) -> TableEntry:
    """Entry with the served commits, in one statement unless grants are enabled.

    Args:
        requires: the operation for which the caller needs the privilege.
    """
    rows = connection.execute(_LOAD, name_parameters(identifier)).all()
    if not rows:
        raise no_such_name(identifier)
    _require(connection, requires, rows)
    return _entry(rows)


def load_tables(
    connection: sa.Connection, identifiers: Iterable[TableIdentifier], *, requires: Operation | None = None
) -> tuple[TableEntry, ...]:
    """The entries of the names that tables have; as :func:`load_table`."""
    names = sorted({(name.catalog, name.schema, name.table) for name in identifiers})
    if not names:
        return ()
    rows = connection.execute(_LOAD_SEVERAL, {"names": names}).all()
    _require(connection, requires, rows)
    return tuple(_entry(tuple(group)) for _, group in groupby(rows, key=lambda row: row.table_id))


def readable_tables(
    connection: sa.Connection, scope: str, *, after: TableIdentifier | None, limit: int | None
) -> TablePage:
    """The tables of a part of the names in a scope that the caller may read, sorted, in one statement."""
    name_order.check_limit(limit)
    part = in_order(
        connection, sa.select(TABLES.c.table_id), scope=scope, after=after, limit=None if limit is None else limit + 1
    )
    names = name_order.in_order(connection, NAME_COLUMNS)
    entries = _ENTRY.add_columns(guard.MAY_READ).where(TABLES.c.table_id.in_(part)).order_by(None)
    rows = connection.execute(entries.order_by(*names, COMMITS.c.version), guard.caller_parameters(connection)).all()
    groups = [tuple(group) for _, group in groupby(rows, key=lambda row: row.table_id)]
    shown = groups[:limit]
    return TablePage(
        entries=tuple(_entry(group) for group in shown if group[0].may_read),
        last=identifier_of(shown[-1][0]) if len(groups) > len(shown) else None,
    )


def load_table_by_id(connection: sa.Connection, table_id: str, *, requires: Operation | None = None) -> TableEntry:
    """Same as :func:`load_table`, by id."""
    rows = connection.execute(_LOAD_BY_ID, {"of_table": table_id}).all()
    if not rows:
        raise unknown_table(table_id)
    _require(connection, requires, rows)
    return _entry(rows)


def _require(connection: sa.Connection, operation: Operation | None, rows: Sequence[Any]) -> None:
    if operation is None or not any(row.grants_enabled for row in rows):
        return
    for table_id in dict.fromkeys(row.table_id for row in rows):
        guard.require_on_table(connection, operation, table_id)


def load_registered(connection: sa.Connection, table_id: str) -> TableEntry | None:
    """Same as :func:`load_table_by_id`, for a dropped table too; None for another one."""
    rows = connection.execute(_LOAD_REGISTERED, {"of_table": table_id}).all()
    return _entry(rows) if rows else None


def _entry(rows: Sequence[Any]) -> TableEntry:
    head = rows[-1]
    identifier = identifier_of(head)
    return TableEntry(
        identifier=identifier,
        table_id=head.table_id,
        location=head.location,
        ratified=ratified_commits_of(head, rows),
        created_ms=head.created_ms,
        etag=definitions.etag(head),
        definition=definitions.definition(head, identifier),
    )
