"""Drop, undrop, rename and purge of tables.

Protocol heading "Creating and Dropping Catalog-managed Tables". Nothing here deletes files.
"""

from dataclasses import replace

import sqlalchemy as sa

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import now_of
from cm_delta_dagster.catalog.sql.database.parts import reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    APPLICATION_IDS,
    COMMITS,
    DEFINITIONS,
    DROPPED,
    MAINTENANCE_LEASES,
    PURGED,
    PURGING,
    STAGING,
    TABLES,
    VERSION_PINS,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.policies import maintenance
from cm_delta_dagster.catalog.sql.rows import definitions, locations, names, rule_lock, table_names
from cm_delta_dagster.catalog.sql.rows.errors import name_taken, no_such_name, unknown_table
from cm_delta_dagster.catalog.sql.rules import commit_rules
from cm_delta_dagster.catalog.sql.tables import clones, loading, namespaces, registered_paths
from cm_delta_dagster.catalog.sql.tables.warehouse_part import WarehousePart
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
_DROP = (
    sa.update(TABLES)
    .where(table_names.OF_NAME)
    .values(state=DROPPED, dropped_ms=sa.bindparam("now_ms"))
    .returning(TABLES.c.table_id)
)
_DROP_EXACTLY = _DROP.where(TABLES.c.table_id == sa.bindparam("of_table"))
_IS_DROPPED = sa.select(TABLES.c.table_id).where(
    TABLES.c.table_id == sa.bindparam("of_table"), TABLES.c.state == DROPPED
)


class TableLifecycle(WarehousePart):
    """The methods of the registry that change the state or the name of a table.

    A row changes from DROPPED or STAGING to PURGING, under its lock, before the first file is deleted, and never back.
    """

    @writes
    def drop_table(
        self, connection: sa.Connection, identifier: TableIdentifier, *, table_id: str | None = None
    ) -> None:
        """Remove the name; the row, the commits and every file stay. Raises TableNotFoundError."""
        guard.require_on_scope(connection, Operation.DROP, str(identifier))
        parameters = {"now_ms": now_of(connection), **table_names.name_parameters(identifier)}
        if table_id is None:
            dropped = connection.execute(_DROP, parameters).scalar_one_or_none()
        else:
            dropped = connection.execute(_DROP_EXACTLY, {"of_table": table_id, **parameters}).scalar_one_or_none()
            if dropped is None and connection.execute(_IS_DROPPED, {"of_table": table_id}).first() is not None:
                return
        if dropped is None:
            raise no_such_name(identifier)
        connection.execute(sa.delete(MAINTENANCE_LEASES).where(MAINTENANCE_LEASES.c.table_id == dropped))
        entries.append_event(connection, FeedKind.TABLE_DROPPED, dropped)

    @reads
    def inactive_tables(self, connection: sa.Connection, scope: str = "") -> tuple[InactiveTable, ...]:
        """Reserved, dropped and purging tables, oldest first. Raises InvalidArgumentError for a malformed scope."""
        tables = [_inactive(row) for row in connection.execute(_INACTIVE.where(table_names.in_scope(scope)))]
        return tuple(sorted(tables, key=lambda table: (table.since_ms, table.identifier, table.table_id)))

    @writes
    def undrop_table(self, connection: sa.Connection, table_id: str) -> TableEntry:
        """DROPPED to ACTIVE. The unique index over active names admits one of several concurrent calls.

        Raises TableNotFoundError, TableAlreadyExistsError.
        """
        rule_lock.acquire(connection)
        row = _locked(connection, Operation.UNDROP, table_id)
        identifier = identifier_of(row)
        if row.state == ACTIVE:
            return loading.load_table(connection, identifier)
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
        entries.append_event(connection, FeedKind.TABLE_RESTORED, table_id)
        return loading.load_table(connection, identifier)

    @writes
    def rename_table(self, connection: sa.Connection, table_id: str, identifier: TableIdentifier) -> TableEntry:
        """Give an active table another name. Commit rules of the old name, and what it denies of maintenance, hold for the
        new name too.

        Raises TableNotFoundError, TableAlreadyExistsError, InvalidArgumentError.
        """
        names.check_identifier(identifier)
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
            renaming = {"from": str(before), "to": str(identifier)}
            entries.append_event(connection, FeedKind.TABLE_RENAMED, table_id, details=renaming)
        return loading.load_table(connection, identifier)

    @writes
    def begin_purge(self, connection: sa.Connection, table_id: str, *, min_age_ms: int) -> InactiveTable:
        """To PURGING, if the table has no name, is old enough, its location is its own and inside the managed root, and the
        rules allow it.

        Raises TableNotFoundError, PurgeRefusedError, MaintenanceNotPermittedError, RetentionTooShortError, InvalidArgumentError.
        """
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
            _check_location(connection, row.location, table_id=table_id, what=what, warehouse=self._warehouse)
        if table.state is not InactiveState.PURGING:
            age_ms = now_of(connection) - table.since_ms
            if age_ms < min_age_ms:
                raise PurgeRefusedError(
                    f"{what} was not purged: it has been {_state_text(row.state)} for only {age_ms} ms of the requested "
                    f"{min_age_ms} ms. Wait, or request a shorter age."
                )
            maintenance.require_purge(connection, table_id, table.purge_kind, min_age_ms=min_age_ms)
            connection.execute(_SET_STATE, {"of_table": table_id, "to_state": PURGING})
        return replace(table, state=InactiveState.PURGING)

    @writes
    def finish_purge(self, connection: sa.Connection, table_id: str) -> None:
        """PURGING to PURGED, which keeps the commits for the feed. The row of a table without commits is deleted.

        Raises PurgeRefusedError.
        """
        row = connection.execute(loading.LOCKED, {"of_table": table_id}).one_or_none()
        if row is None or row.state == PURGED:
            return
        guard.require(connection, Operation.PURGE, identifier_of(row), table_id=table_id)
        if row.state != PURGING:
            raise PurgeRefusedError(
                f"The purge of table {table_id} was not finished: it was never begun; the table is {_state_text(row.state)}. "
                "Nothing was changed. Begin the purge first."
            )
        delete_dependents(connection, table_id)
        if connection.execute(_HAS_COMMITS, {"of_table": table_id}).first() is None:
            connection.execute(sa.delete(TABLES).where(TABLES.c.table_id == table_id))
        else:
            connection.execute(_SET_STATE, {"of_table": table_id, "to_state": PURGED})
            entries.append_event(connection, FeedKind.TABLE_PURGED, table_id)


def delete_dependents(connection: sa.Connection, table_id: str) -> None:
    """Delete what the catalog knows of a table that is purged or released, except its commits."""
    clones.forget(connection, table_id)
    for dependent in (MAINTENANCE_LEASES, VERSION_PINS, DEFINITIONS, APPLICATION_IDS):
        connection.execute(sa.delete(dependent).where(dependent.c.table_id == table_id))


def _locked(connection: sa.Connection, operation: Operation, table_id: str) -> sa.Row[tuple[object, ...]]:
    guard.require_on_table(connection, operation, table_id)
    row = connection.execute(loading.LOCKED, {"of_table": table_id}).one_or_none()
    if row is None:
        raise unknown_table(table_id)
    return row


def _refuse_source(connection: sa.Connection, table_id: str, what: str) -> None:
    """Refuse a table whose files shallow clones may read. The caller holds the lock of its row."""
    readers = [f"{clone.identifier} (table id {clone.table_id})" for clone in clones.clones_of(connection, table_id)]
    if readers:
        raise PurgeRefusedError(
            f"{what} was not purged: the shallow {'clone' if len(readers) == 1 else 'clones'} {', '.join(readers)} may read its "
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
