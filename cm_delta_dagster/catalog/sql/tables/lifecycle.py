"""Rename, undrop and purge of tables.

Protocol heading "Creating and Dropping Catalog-managed Tables". Functions over an open connection; the caller opens the
transaction. They do not delete files. A row changes from DROPPED or STAGING to PURGING, under its lock, before the first file is
deleted, and never back.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    APPLICATION_IDS,
    COMMITS,
    DEFINITIONS,
    DROPPED,
    MAINTENANCE_LEASES,
    NAME_COLUMNS,
    PURGED,
    PURGING,
    STAGING,
    TABLES,
    VERSION_PINS,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.policies import maintenance
from cm_delta_dagster.catalog.sql.rows import definitions, locations, rule_lock, table_names
from cm_delta_dagster.catalog.sql.rows.errors import name_taken, unknown_table
from cm_delta_dagster.catalog.sql.rules import commit_rules
from cm_delta_dagster.catalog.sql.tables import clones, namespaces, registered_paths, registry
from cm_delta_dagster.catalog.tables import InactiveState, InactiveTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, PurgeRefusedError, TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.remedies import RenameTable

_INACTIVE = sa.select(TABLES).where(TABLES.c.state.in_((STAGING, DROPPED, PURGING)))
_SAME = TABLES.c.table_id == sa.bindparam("of_table")
_SET_STATE = sa.update(TABLES).where(_SAME).values(state=sa.bindparam("to_state"))
_UNDROP = sa.update(TABLES).where(_SAME).values(state=ACTIVE, dropped_ms=None)
_RENAME = (
    sa.update(TABLES)
    .where(_SAME)
    .values(
        catalog_name=sa.bindparam("of_catalog"),
        schema_name=sa.bindparam("of_schema"),
        table_name=sa.bindparam("of_name"),
    )
)
_HAS_COMMITS = sa.select(COMMITS.c.version).where(COMMITS.c.table_id == sa.bindparam("of_table")).limit(1)


def inactive_tables(connection: sa.Connection, parts: tuple[str, ...]) -> tuple[InactiveTable, ...]:
    """Staging, dropped and purging tables whose names begin with ``parts``, oldest first."""
    conditions = [column == part for column, part in zip(NAME_COLUMNS, parts, strict=False)]
    found = [_inactive(row) for row in connection.execute(_INACTIVE.where(*conditions))]
    return tuple(sorted(found, key=lambda table: (table.since_ms, table.identifier, table.table_id)))


def undrop_table(connection: sa.Connection, table_id: str, *, now_ms: int) -> TableEntry:
    """DROPPED to ACTIVE. The unique index over active names admits one of several concurrent calls."""
    rule_lock.acquire(connection)
    row = _locked(connection, Operation.UNDROP, table_id)
    identifier = identifier_of(row)
    if row.state == ACTIVE:
        return registry.load_table(connection, identifier)
    if row.state != DROPPED:
        raise TableNotFoundError(
            f"{identifier} (table id {table_id}) cannot be restored: it is {_state_text(row.state)}. Create a new table."
        )
    registered_paths.refuse_registered(connection, identifier)
    namespaces.ensure_schema(connection, identifier)
    try:
        connection.execute(_UNDROP, {"of_table": table_id})
    except sa.exc.IntegrityError as error:
        raise TableAlreadyExistsError(
            f"{identifier} (table id {table_id}) was not restored: another table has the name now."
        ).with_remedy(RenameTable(table=str(identifier))) from error
    commit_rules.check_covered(connection, table_id, identifier)
    entries.append_event(connection, FeedKind.TABLE_RESTORED, table_id, now_ms=now_ms)
    return registry.load_table(connection, identifier)


def rename_table(connection: sa.Connection, table_id: str, identifier: TableIdentifier, *, now_ms: int) -> TableEntry:
    """Give an active table another name. Commit rules of the old name, and what it denies of maintenance, hold for the
    new name too.
    """
    rule_lock.acquire(connection)
    row = _locked(connection, Operation.RENAME, table_id)
    if row.state != ACTIVE:
        raise unknown_table(table_id)
    before = identifier_of(row)
    if before != identifier:
        guard.require(connection, Operation.CREATE, identifier)
        registered_paths.refuse_registered(connection, identifier)
        namespaces.ensure_schema(connection, identifier)
        try:
            connection.execute(_RENAME, {"of_table": table_id, **table_names.name_parameters(identifier)})
        except sa.exc.IntegrityError as error:
            raise name_taken(identifier) from error
        definitions.change_etag(connection, table_id)
        maintenance.carry_denials(connection, before, identifier)
        commit_rules.carry(connection, before, identifier)
        commit_rules.check_covered(connection, table_id, identifier)
        names = {"from": str(before), "to": str(identifier)}
        entries.append_event(connection, FeedKind.TABLE_RENAMED, table_id, now_ms=now_ms, details=names)
    return registry.load_table(connection, identifier)


def begin_purge(
    connection: sa.Connection, table_id: str, *, warehouse: str | None, min_age_ms: int, now_ms: int
) -> InactiveTable:
    """To PURGING, if the table has no name, is old enough, and its location is its own and inside the managed root."""
    if min_age_ms < 0:
        raise InvalidArgumentError(f"min_age_ms is {min_age_ms}; give the milliseconds to wait, at least 0.")
    row = _locked(connection, Operation.PURGE, table_id)
    what = f"{identifier_of(row)} (table id {table_id})"
    if row.state == PURGED:
        raise unknown_table(table_id)
    if row.state == ACTIVE:
        raise PurgeRefusedError(f"{what} was not purged: it is in use under that name. Drop it first.")
    table = _inactive(row)
    if row.is_external and table.registered:
        raise PurgeRefusedError(
            f"{what} was not purged: the catalog did not choose its location {row.location}, and the files there are not the "
            "catalog's own. Nothing was deleted. Undrop and release the table to make it a table by path again."
        )
    _refuse_source(connection, table_id, what)
    if not row.is_external:
        _check_location(connection, row.location, table_id=table_id, what=what, warehouse=warehouse)
    if table.state is not InactiveState.PURGING:
        if table.since_ms > now_ms - min_age_ms:
            raise PurgeRefusedError(
                f"{what} was not purged: it has been {_state_text(row.state)} for only {now_ms - table.since_ms} ms of the "
                f"requested {min_age_ms} ms. Wait, or request a shorter age."
            )
        connection.execute(_SET_STATE, {"of_table": table_id, "to_state": PURGING})
    return InactiveTable(
        identifier=table.identifier,
        table_id=table_id,
        location=table.location,
        state=InactiveState.PURGING,
        since_ms=table.since_ms,
        registered=table.registered,
        latest_version=table.latest_version,
        is_external=table.is_external,
    )


def finish_purge(connection: sa.Connection, table_id: str, *, now_ms: int) -> None:
    """PURGING to PURGED, which keeps the commits for the feed. The row of a table without commits is deleted."""
    row = connection.execute(registry.LOCKED, {"of_table": table_id}).one_or_none()
    if row is None or row.state == PURGED:
        return
    guard.require(connection, Operation.PURGE, identifier_of(row), table_id=table_id)
    if row.state != PURGING:
        raise PurgeRefusedError(
            f"The purge of table {table_id} was not finished: it was never begun; the table is {_state_text(row.state)}. "
            "Nothing was changed. Begin the purge first."
        )
    clones.forget(connection, table_id)
    for dependent in (MAINTENANCE_LEASES, VERSION_PINS, DEFINITIONS, APPLICATION_IDS):
        connection.execute(sa.delete(dependent).where(dependent.c.table_id == table_id))
    if connection.execute(_HAS_COMMITS, {"of_table": table_id}).first() is None:
        connection.execute(sa.delete(TABLES).where(TABLES.c.table_id == table_id))
    else:
        connection.execute(_SET_STATE, {"of_table": table_id, "to_state": PURGED})
        entries.append_event(connection, FeedKind.TABLE_PURGED, table_id, now_ms=now_ms)


def _locked(connection: sa.Connection, operation: Operation, table_id: str) -> sa.Row[tuple[object, ...]]:
    guard.require_on_table(connection, operation, table_id)
    row = connection.execute(registry.LOCKED, {"of_table": table_id}).one_or_none()
    if row is None:
        raise unknown_table(table_id)
    return row


def _refuse_source(connection: sa.Connection, table_id: str, what: str) -> None:
    """Refuse a table whose files shallow clones may read. The caller holds the lock of its row."""
    names = [f"{clone.identifier} (table id {clone.table_id})" for clone in clones.clones_of(connection, table_id)]
    if names:
        raise PurgeRefusedError(
            f"{what} was not purged: the shallow {'clone' if len(names) == 1 else 'clones'} {', '.join(names)} may read its "
            "files. No file was deleted. Drop and purge the clones first, or keep the table."
        )


def _check_location(
    connection: sa.Connection, location: str, *, table_id: str, what: str, warehouse: str | None
) -> None:
    """Refuse a location outside of the managed root, or at or below which another table has files."""
    inside = warehouse is not None and location.startswith(f"{warehouse}/")
    if not inside or ".." in location.split("/") or location.endswith("/") or "%" in location:
        raise PurgeRefusedError(
            f"{what} was not purged: {location} is not inside the managed root "
            f"{warehouse or '(this catalog client has none)'}. Connect with the warehouse in which it was created."
        )
    others = sa.select(TABLES.c.table_id, TABLES.c.location).where(
        TABLES.c.table_id != table_id,
        TABLES.c.state != PURGED,
        locations.nested(location),
    )
    other = connection.execute(others).first()
    if other is not None:
        raise PurgeRefusedError(
            f"{what} was not purged: table {other.table_id} at {other.location} shares files with {location}."
        )


def _inactive(row: sa.Row[tuple[object, ...]]) -> InactiveTable:
    return InactiveTable(
        identifier=identifier_of(row),
        table_id=row.table_id,
        location=row.location,
        state=InactiveState(row.state),
        since_ms=row.reserved_ms if row.dropped_ms is None else row.dropped_ms,
        registered=row.created_ms is not None,
        latest_version=row.latest_version,
        is_external=row.is_external,
    )


def _state_text(state: str) -> str:
    return {STAGING: "reserved", ACTIVE: "in use", DROPPED: "dropped", PURGING: "being purged"}.get(state, "purged")
