"""Reservation, registration, resolution and drop of tables.

Protocol heading "Creating and Dropping Catalog-managed Tables". Functions over an open connection; the caller opens the
transaction. They do not touch files.
"""

import uuid
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.grantees import of_user
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    COMMITS,
    DEFINITIONS,
    DROPPED,
    IS_ACTIVE,
    MAINTENANCE_LEASES,
    NAME_COLUMNS,
    STAGING,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.policies import commit_policies
from cm_delta_dagster.catalog.sql.ratification import commits
from cm_delta_dagster.catalog.sql.rows import definitions, locations, locked_heads
from cm_delta_dagster.catalog.sql.rows.commits import COMMIT_COLUMNS, ratified_commits_of
from cm_delta_dagster.catalog.sql.rows.effective_policy import EFFECTIVE_POLICY
from cm_delta_dagster.catalog.sql.rows.errors import name_taken, no_such_name, unknown_table
from cm_delta_dagster.catalog.sql.rows.table_names import HOLDER, OF_NAME, name_parameters
from cm_delta_dagster.catalog.sql.tables import namespaces, registered_paths
from cm_delta_dagster.catalog.tables import StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol

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
_ACTIVATE = (
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(
        state=ACTIVE,
        published_version=0,
        catalog_name=sa.bindparam("of_catalog"),
        schema_name=sa.bindparam("of_schema"),
        table_name=sa.bindparam("of_name"),
        created_ms=sa.bindparam("now_ms"),
        owner=sa.bindparam("of_owner"),
    )
)
_DROP = (
    sa.update(TABLES)
    .where(OF_NAME)
    .values(state=DROPPED, dropped_ms=sa.bindparam("now_ms"))
    .returning(TABLES.c.table_id)
)
_DROP_EXACTLY = _DROP.where(TABLES.c.table_id == sa.bindparam("of_table"))
_IS_DROPPED = sa.select(TABLES.c.table_id).where(
    TABLES.c.table_id == sa.bindparam("of_table"), TABLES.c.state == DROPPED
)


def create_staging_table(
    connection: sa.Connection, identifier: TableIdentifier, *, warehouse: str, now_ms: int
) -> StagingTable:
    """Insert a row in state STAGING, to which no name resolves, with a unique location below the warehouse."""
    location = f"{warehouse}/{identifier.catalog}/{identifier.schema}/{identifier.table}-{uuid.uuid4().hex[:12]}"
    return _reserve(connection, identifier, location=location, is_external=False, now_ms=now_ms)


def reserve_at(connection: sa.Connection, identifier: TableIdentifier, *, location: str, now_ms: int) -> StagingTable:
    """Same as :func:`create_staging_table`, with a location that the caller has chosen."""
    other = connection.execute(sa.select(TABLES).where(locations.taken(location))).first()
    if other is not None:
        raise TableAlreadyExistsError(
            f"{identifier} was not created: {identifier_of(other)} (table id {other.table_id}, {other.state}) is at "
            f"{other.location}, and the location {location} is not free for another table. Choose another location."
        )
    try:
        return _reserve(connection, identifier, location=location, is_external=True, now_ms=now_ms)
    except sa.exc.IntegrityError as error:
        raise TableAlreadyExistsError(
            f"{identifier} was not created: another client has just reserved the location {location}. Choose another location."
        ) from error


def _reserve(
    connection: sa.Connection, identifier: TableIdentifier, *, location: str, is_external: bool, now_ms: int
) -> StagingTable:
    guard.require(connection, Operation.CREATE, identifier)
    if connection.execute(HOLDER, name_parameters(identifier)).first() is not None:
        raise name_taken(identifier)
    registered_paths.refuse_registered(connection, identifier)
    table_id = str(uuid.uuid4())
    connection.execute(
        sa.insert(TABLES).values(
            table_id=table_id,
            catalog_name=identifier.catalog,
            schema_name=identifier.schema,
            table_name=identifier.table,
            location=location,
            state=STAGING,
            latest_version=-1,
            published_version=-1,
            latest_data_version=-1,
            latest_in_commit_timestamp=-1,
            reserved_ms=now_ms,
            is_external=is_external,
        )
    )
    return StagingTable(table_id=table_id, location=location, is_external=is_external)


def register_table(
    connection: sa.Connection,
    table_id: str,
    identifier: TableIdentifier,
    *,
    summary: CommitSummary,
    initial: InitialCommit | None,
    now_ms: int,
) -> TableEntry:
    """Name and version 0 in one transaction. The unique index over active names admits one of several concurrent calls."""
    row = connection.execute(LOCKED, {"of_table": table_id}).one_or_none()
    if row is None or row.state not in (STAGING, ACTIVE):
        raise TableNotFoundError(
            f"{identifier} was not registered: the table id {table_id} was never reserved here, or its table was "
            "dropped, or its reservation was purged. Create the table again."
        )
    if row.state == ACTIVE:
        if identifier_of(row) != identifier:
            raise TableAlreadyExistsError(
                f"The table id {table_id} is already registered as {identifier_of(row)} and cannot "
                f"be registered as {identifier}. Rename the table instead."
            )
        return load_table(connection, identifier)
    guard.require(connection, Operation.CREATE, identifier)
    registered_paths.refuse_registered(connection, identifier)
    namespaces.ensure_schema(connection, identifier)
    try:
        connection.execute(
            _ACTIVATE,
            {
                "of_table": table_id,
                "now_ms": now_ms,
                "of_owner": of_user(caller_of(connection)),
                **name_parameters(identifier),
            },
        )
    except sa.exc.IntegrityError as error:
        raise name_taken(identifier) from error
    commit_policies.adopt(connection, table_id)
    commits.insert_initial_commit(connection, table_id, identifier, summary=summary, initial=initial)
    return load_table(connection, identifier)


def load_table(
    connection: sa.Connection, identifier: TableIdentifier, *, requires: guard.Operation | None = None
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
    connection: sa.Connection, identifiers: Iterable[TableIdentifier], *, requires: guard.Operation | None = None
) -> tuple[TableEntry, ...]:
    """The entries of the names that tables have; as :func:`load_table`."""
    names = sorted({(name.catalog, name.schema, name.table) for name in identifiers})
    if not names:
        return ()
    rows = connection.execute(_LOAD_SEVERAL, {"names": names}).all()
    _require(connection, requires, rows)
    return tuple(_entry(tuple(group)) for _, group in groupby(rows, key=lambda row: row.table_id))


def load_table_by_id(
    connection: sa.Connection, table_id: str, *, requires: guard.Operation | None = None
) -> TableEntry:
    """Same as :func:`load_table`, by id."""
    rows = connection.execute(_LOAD_BY_ID, {"of_table": table_id}).all()
    if not rows:
        raise unknown_table(table_id)
    _require(connection, requires, rows)
    return _entry(rows)


def _require(connection: sa.Connection, operation: guard.Operation | None, rows: Sequence[Any]) -> None:
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


def set_definition(
    connection: sa.Connection, table_id: str, *, version: int, metadata: Metadata, protocol: Protocol
) -> bool:
    """Compare the version and store the definition under the lock of the table's row, which excludes commits."""
    head = locked_heads.locked_head(connection, table_id)
    if head is None:
        raise unknown_table(table_id)
    guard.require_on_table(connection, Operation.REPAIR, table_id)
    if head.latest_version != version:
        return False
    definitions.record(
        connection,
        table_id,
        metadata=metadata,
        protocol=protocol,
        version=version,
        in_commit_timestamp=head.latest_in_commit_timestamp,
        changed_by_commit=False,
    )
    return True


def drop_table(
    connection: sa.Connection, identifier: TableIdentifier, *, table_id: str | None = None, now_ms: int
) -> None:
    """Remove the name; the row, the commits and every file stay."""
    guard.require_on_scope(connection, Operation.DROP, str(identifier))
    parameters = {"now_ms": now_ms, **name_parameters(identifier)}
    if table_id is None:
        dropped = connection.execute(_DROP, parameters).scalar_one_or_none()
    else:
        dropped = connection.execute(_DROP_EXACTLY, {"of_table": table_id, **parameters}).scalar_one_or_none()
        if dropped is None and connection.execute(_IS_DROPPED, {"of_table": table_id}).first() is not None:
            return
    if dropped is None:
        raise no_such_name(identifier)
    connection.execute(sa.delete(MAINTENANCE_LEASES).where(MAINTENANCE_LEASES.c.table_id == dropped))
    entries.append_event(connection, FeedKind.TABLE_DROPPED, dropped, now_ms=now_ms)


def list_tables(connection: sa.Connection, parts: tuple[str, ...]) -> tuple[TableIdentifier, ...]:
    """Registered names that begin with ``parts``, sorted by code point, independent of the database's collation."""
    conditions = [column == part for column, part in zip(NAME_COLUMNS, parts, strict=False)]
    rows = connection.execute(sa.select(*NAME_COLUMNS).where(IS_ACTIVE, *conditions)).all()
    return tuple(sorted(identifier_of(row) for row in rows))
