"""References of shallow clones to the tables whose files they read.

A reference is inserted under the lock of the source's row, so that it excludes a concurrent ``begin_purge`` of the source.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    CLONES,
    COMMITS,
    DROPPED,
    PURGED,
    PURGING,
    STAGING,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.sql.tables import loading
from cm_delta_dagster.catalog.tables import InactiveState, RelatedTable

_LIVING = (STAGING, ACTIVE, DROPPED)
"""States of clones that may read files of their source. A table in the state PURGING can never be read again."""

_OF_SOURCE = CLONES.c.source_id == sa.bindparam("of_table")
_CLONES = (
    sa.select(TABLES)
    .join(CLONES, CLONES.c.clone_id == TABLES.c.table_id)
    .where(_OF_SOURCE, TABLES.c.state.in_(_LIVING))
    .order_by(TABLES.c.table_id)
)
_CLONED = sa.select(COMMITS.c.table_id).where(COMMITS.c.operation == "CLONE")
_FROM_THE_START = sa.select(COMMITS.c.table_id).where(COMMITS.c.version == 0)
_WITH_FILES_ELSEWHERE = (
    sa.select(TABLES)
    .where(
        TABLES.c.state.in_((ACTIVE, DROPPED)),
        sa.or_(TABLES.c.is_external, TABLES.c.table_id.in_(_CLONED), TABLES.c.table_id.not_in(_FROM_THE_START)),
    )
    .order_by(TABLES.c.table_id)
)
_SOURCES = (
    sa.select(TABLES)
    .join(CLONES, CLONES.c.source_id == TABLES.c.table_id)
    .where(CLONES.c.clone_id == sa.bindparam("of_table"))
    .order_by(TABLES.c.table_id)
)
_SOURCE_IDS = sa.select(CLONES.c.source_id).where(CLONES.c.clone_id == sa.bindparam("of_table"))
_TABLE_ID = sa.select(TABLES.c.table_id).where(TABLES.c.table_id == sa.bindparam("of_table"))
_ABANDON = (
    sa.update(TABLES)
    .where(TABLES.c.state == STAGING, TABLES.c.table_id.in_(sa.select(CLONES.c.clone_id).where(_OF_SOURCE)))
    .values(state=PURGING)
)
_FORGET = sa.delete(CLONES).where(sa.or_(CLONES.c.clone_id == sa.bindparam("of_table"), _OF_SOURCE))


class CloneReferences(Part):
    """The methods of the registry for shallow clones."""

    @reads
    def clones_of(self, connection: sa.Connection, table_id: str) -> tuple[RelatedTable, ...]:
        """The clones that may read files of the table, by id; those with commits also with their head and served commits.

        Raises OperationRefusedError.
        """
        guard.require_on_table(connection, Operation.READ, table_id)
        return clones_of(connection, table_id)

    @reads
    def sources_of(self, connection: sa.Connection, table_id: str) -> tuple[RelatedTable, ...]:
        """The tables whose files the clone may read, by id, in any state but purged. Raises OperationRefusedError."""
        guard.require_on_table(connection, Operation.READ, table_id)
        rows = connection.execute(_SOURCES, _of(table_id)).all()
        return tuple(related(row) for row in rows if row.state != PURGED)

    @writes
    def abandon_clones(self, connection: sa.Connection, table_id: str) -> None:
        """Make it impossible to register the reserved clones of the table."""
        connection.execute(loading.LOCKED, _of(table_id))
        guard.require_on_table(connection, Operation.MAINTAIN, table_id)
        connection.execute(_ABANDON, _of(table_id))


def lock_source(connection: sa.Connection, table_id: str) -> None:
    """Lock the row of an active table that the caller may clone. Raises TableNotFoundError, PermissionDeniedError."""
    source = connection.execute(loading.LOCKED, _of(table_id)).one_or_none()
    if source is None or source.state != ACTIVE:
        raise unknown_table(table_id)
    guard.require_on_table(connection, Operation.CLONE, table_id)


def record_clone(connection: sa.Connection, clone_id: str, *, source_id: str) -> None:
    """Record that a new table will read files of ``source_id``, whose row is locked, and of the tables that it reads."""
    further = connection.execute(_SOURCE_IDS, _of(source_id)).scalars().all()
    _insert(connection, clone_id, {source_id, *further})


def clones_of(connection: sa.Connection, table_id: str) -> tuple[RelatedTable, ...]:
    """As :meth:`CloneReferences.clones_of`."""
    return tuple(_with_commits(connection, row) for row in connection.execute(_CLONES, _of(table_id)).all())


def with_files_elsewhere(connection: sa.Connection) -> tuple[RelatedTable, ...]:
    """The tables that may name files outside of their location, by id, with their head and served commits."""
    return tuple(_with_commits(connection, row) for row in connection.execute(_WITH_FILES_ELSEWHERE).all())


def record(connection: sa.Connection, table_id: str, locations: Collection[str]) -> tuple[RelatedTable, ...]:
    """Insert the missing references of a clone to the tables at ``locations``; returns these tables.

    Raises TableNotFoundError: no table has the id.
    """
    if connection.execute(_TABLE_ID, _of(table_id)).one_or_none() is None:
        raise unknown_table(table_id)
    rows = _at(connection, locations)
    known = {table_id, *connection.execute(_SOURCE_IDS, _of(table_id)).scalars()}
    _insert(connection, table_id, {row.table_id for row in rows} - known)
    return tuple(related(row) for row in rows if row.table_id != table_id)


def require_read(connection: sa.Connection, table_id: str, locations: Collection[str]) -> None:
    """Refuse a caller that may not read the tables at ``locations``, which could not be purged then.

    The sources of a clone that it may read need no privilege of their own: their files are those of the clone.

    Raises:
        OperationRefusedError: names a table.
    """
    if not guard.is_enabled(connection):
        return
    sources = _at(connection, locations)
    others = {row.table_id for row in sources} - {table_id}
    readable = {other for other in others if guard.may_on_table(connection, Operation.READ, other)}
    through_clones = {source for clone in readable for source in connection.execute(_SOURCE_IDS, _of(clone)).scalars()}
    for other in sorted(others - readable - through_clones):
        guard.require_on_table(connection, Operation.READ, other)


def _at(connection: sa.Connection, locations: Collection[str]) -> Sequence[Any]:
    return connection.execute(sa.select(TABLES).where(TABLES.c.location.in_(locations), TABLES.c.state != PURGED)).all()


def forget(connection: sa.Connection, table_id: str) -> None:
    """Delete the references of a table that is purged."""
    connection.execute(_FORGET, _of(table_id))


def _insert(connection: sa.Connection, clone_id: str, source_ids: Collection[str]) -> None:
    if source_ids:
        rows = [{"clone_id": clone_id, "source_id": source} for source in sorted(source_ids)]
        connection.execute(sa.insert(CLONES), rows)


def _with_commits(connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> RelatedTable:
    """The table of a row with its commits, but not with content that the caller may not read."""
    entry = None if row.state == STAGING else loading.load_registered(connection, row.table_id)
    if entry is None:
        return related(row)
    ratified = entry.ratified
    if not guard.may_on_table(connection, Operation.READ, row.table_id):
        ratified = replace(ratified, commits=tuple(replace(commit, content=None) for commit in ratified.commits))
    return replace(related(row), ratified=ratified)


def related(row: Any) -> RelatedTable:
    """The value of a row of ``TABLES``, without commits."""
    return RelatedTable(
        identifier=identifier_of(row),
        table_id=row.table_id,
        location=row.location,
        state=None if row.state == ACTIVE else InactiveState(row.state),
    )


def _of(table_id: str) -> dict[str, str]:
    return {"of_table": table_id}
