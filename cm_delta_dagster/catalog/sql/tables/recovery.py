"""Recovery and relocation: records of commits and tables that storage has and the catalog does not."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.ratification import CommitProposal, RatifiedCommit
from cm_delta_dagster.catalog.recovery import FEED_GAP, AdoptedState, AdoptedTable, CommitHistory, HistoryStart
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.grantees import of_user
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    COMMITS,
    DROPPED,
    FEED,
    PURGED,
    TABLES,
    VERSION_PINS,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.policies import commit_policies
from cm_delta_dagster.catalog.sql.ratification import proposal_check
from cm_delta_dagster.catalog.sql.rows import definitions, locations, locked_heads, marks, names
from cm_delta_dagster.catalog.sql.rows.commits import COMMIT_COLUMNS, values_of
from cm_delta_dagster.catalog.sql.rows.errors import name_taken, unknown_table
from cm_delta_dagster.catalog.sql.tables import clones, lifecycle, loading, namespaces, registered_paths
from cm_delta_dagster.catalog.tables import RelatedTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import RecoveryError, TableNotFoundError
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

_OF_TABLE = COMMITS.c.table_id == sa.bindparam("of_table")
_ABOVE = sa.and_(_OF_TABLE, COMMITS.c.version > sa.bindparam("above"))
_TXN_IDS_ABOVE = sa.select(COMMITS.c.version, COMMITS.c.txn_id).where(_ABOVE).order_by(COMMITS.c.version)
_DATA_VERSION = sa.select(COMMITS.c.data_version, COMMITS.c.in_commit_timestamp).where(
    _OF_TABLE, COMMITS.c.version == sa.bindparam("at")
)
_DELETE_CONTENT = (
    sa.update(COMMITS)
    .where(_OF_TABLE, COMMITS.c.version <= sa.bindparam("up_to"), COMMITS.c.content.is_not(None))
    .values(content=None)
)
_THE_COMMIT = sa.and_(_OF_TABLE, COMMITS.c.version == sa.bindparam("at"))
_RECORD = sa.select(*COMMIT_COLUMNS).where(_THE_COMMIT)


class SqlRecovery(Part):
    """Implements :class:`~cm_delta_dagster.catalog.recovery.RecoverableCatalog`. No method but ``back_up`` touches a file."""

    def back_up(self, target: Path) -> int:
        """Copy the database to the new file ``target`` while it is in use, and check the copy; the bytes of the copy.

        Raises:
            InvalidArgumentError: the file exists, or its directory does not.
            CatalogError: the copy failed, or this is a PostgreSQL catalog; the message then gives the command.
        """
        return self._database.shared.back_up(target)

    @writes
    def take_in_commits(
        self,
        connection: sa.Connection,
        table_id: str,
        history: CommitHistory,
        *,
        after: int,
        replaces: Sequence[str] = (),
    ) -> bool:
        """Record commits that storage holds, under the lock of the table's row.

        Raises RecoveryError, TableNotFoundError, CommitRejectedError.
        """
        for proposal in history.proposals:
            proposal_check.check_recovered(proposal)
        guard.require(connection, Operation.RECOVER, WHOLE_CATALOG)
        head = locked_heads.required_head(connection, table_id)
        known = connection.execute(_TXN_IDS_ABOVE, {"of_table": table_id, "above": after}).all()
        own = tuple(row.txn_id for row in known)
        recovered = tuple(proposal.summary.txn_id for proposal in history.proposals)
        if own and own == recovered:
            return False
        if own != tuple(replaces) or head.latest_version < after:
            raise RecoveryError(
                f"The commits of table {table_id} were not recorded: the catalog's latest version is {head.latest_version} now, "
                f"with {len(own)} commits above version {after} where {len(replaces)} were expected. Another client has committed "
                "since the plan was made. Make a new plan."
            )
        before = connection.execute(_DATA_VERSION, {"of_table": table_id, "at": after}).one_or_none()
        if before is None:
            raise RecoveryError(
                f"The commits of table {table_id} were not recorded: the catalog has no version {after}. Make a new plan."
            )
        first, data_version = after + 1, before.data_version
        if history.start is HistoryStart.AFTER_CLEANUP:
            # Any version without a record may have changed data: the first recorded version counts as data-changing for them.
            first = data_version = max(first, history.proposals[0].version)
        _check_order(history.proposals, first=first, follows_ms=before.in_commit_timestamp)
        if own:
            connection.execute(sa.delete(COMMITS).where(_ABOVE), {"of_table": table_id, "above": after})
            connection.execute(sa.delete(FEED).where(FEED.c.table_id == table_id, FEED.c.version > after))
            pins = sa.delete(VERSION_PINS).where(VERSION_PINS.c.table_id == table_id, VERSION_PINS.c.version > after)
            connection.execute(pins)
        _record(connection, table_id, history, data_version=data_version)
        return True

    @writes
    def replace_commit(
        self,
        connection: sa.Connection,
        table_id: str,
        proposal: CommitProposal,
        *,
        replaces: RatifiedCommit,
        data_change: bool,
        reason: str,
    ) -> bool:
        """Record other content of a version that no reader can use, under the lock of the table's row.

        Raises RecoveryError, PermissionDeniedError, TableNotFoundError.
        """
        proposal_check.check_recovered(proposal)
        guard.require_on_table(connection, Operation.RECOVER, table_id)
        name = str(identifier_of(locked_heads.required_head(connection, table_id)))
        which = {"of_table": table_id, "at": proposal.version}
        row = connection.execute(_RECORD, which).one_or_none()
        if row is not None and row.sha256 == proposal.sha256 and row.txn_id == proposal.summary.txn_id:
            return False
        expected = (replaces.txn_id, replaces.file_name, replaces.file_size, replaces.sha256)
        if row is None or (row.txn_id, row.file_name, row.file_size, row.sha256) != expected:
            raise RecoveryError(
                f"Version {proposal.version} of {name} was not replaced: the catalog's record of it has changed since the table "
                "was checked. Run doctor again."
            )
        values = {
            "mode": CommitMode.STAGED.value,
            "file_name": proposal.file_name,
            "file_size": proposal.file_size,
            "file_modification_time": proposal.file_modification_time,
            "sha256": proposal.sha256,
            "data_change": data_change,
            # The catalog serves the content of consecutive versions.
            "content": None if row.content is None else proposal.content,
            "num_rows": None,
            "num_files": None,
            "size_bytes": None,
        }
        connection.execute(sa.update(COMMITS).where(_THE_COMMIT).values(**values), which)
        connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(**marks.UNKNOWN))
        change = audit.Change(
            action="take back commit",
            scope=name,
            before=f"version {proposal.version}, SHA-256 {replaces.sha256 or 'unknown'}",
            after=f"version {proposal.version}, SHA-256 {proposal.sha256}",
            reason=reason,
            table_id=table_id,
        )
        audit.record(connection, change)
        return True

    @writes
    def check_adoption(self, connection: sa.Connection, identifier: TableIdentifier, *, location: str) -> None:
        """Refuse a caller that may not insert the entry of an adopted table; inserts nothing.

        Raises PermissionDeniedError, InvalidArgumentError.
        """
        names.check_identifier(identifier)
        guard.require(connection, Operation.ADOPT, identifier)
        # A database checks the right to insert, also if there is no row to insert.
        nothing = sa.select(*TABLES.c).where(sa.false())
        connection.execute(sa.insert(TABLES).from_select(list(TABLES.c), nothing, include_defaults=False))

    @writes
    def adopt_table(self, connection: sa.Connection, table: AdoptedTable) -> TableEntry | None:
        """Insert the table with its commits.

        Raises TableAlreadyExistsError, RecoveryError, InvalidArgumentError, CommitRejectedError.
        """
        names.check_identifier(table.identifier)
        for proposal in table.history.proposals:
            proposal_check.check_recovered(proposal)
        guard.require(connection, Operation.ADOPT, table.identifier)
        last = table.history.proposals[-1]
        row = connection.execute(loading.LOCKED, {"of_table": table.table_id}).one_or_none()
        if row is not None:
            if (row.location, row.latest_version) != (table.location, last.version) or row.state not in (
                ACTIVE,
                DROPPED,
            ):
                raise RecoveryError(
                    f"{table.identifier} was not adopted: the catalog has table {table.table_id} already, {row.state} at "
                    f"{row.location} with version {row.latest_version}, and not at {table.location} with version {last.version}. "
                    "Make a new plan."
                )
            return loading.load_table_by_id(connection, table.table_id) if row.state == ACTIVE else None
        _refuse_shared(connection, table.location, table_id=table.table_id)
        _check_order(table.history.proposals, first=table.history.proposals[0].version, follows_ms=-1)
        name, now_ms = table.identifier, now_of(connection)
        if table.state is AdoptedState.ACTIVE:
            _prepare_name(connection, name, location=table.location)
        values = {
            "table_id": table.table_id,
            "catalog_name": name.catalog,
            "schema_name": name.schema,
            "table_name": name.table,
            "location": table.location,
            "state": ACTIVE if table.state is AdoptedState.ACTIVE else DROPPED,
            "latest_version": last.version,
            "published_version": table.history.published_version,
            "latest_data_version": last.version,
            "latest_in_commit_timestamp": last.summary.in_commit_timestamp,
            "reserved_ms": now_ms,
            "created_ms": now_ms,
            "dropped_ms": None if table.state is AdoptedState.ACTIVE else now_ms,
            "is_external": table.is_external,
            "owner": of_user(caller_of(connection)),
        }
        try:
            connection.execute(sa.insert(TABLES), values)
        except sa.exc.IntegrityError as error:
            raise name_taken(name) from error
        commit_policies.adopt(connection, table.table_id)
        if table.sources:
            clones.record(connection, table.table_id, table.sources)
        _record(connection, table.table_id, table.history, data_version=table.history.proposals[0].version)
        entries.append_event(connection, FeedKind.TABLE_ADOPTED, table.table_id)
        return loading.load_table_by_id(connection, table.table_id) if table.state is AdoptedState.ACTIVE else None

    @reads
    def overlapping_tables(self, connection: sa.Connection, location: str) -> tuple[RelatedTable, ...]:
        """Tables at, above or below ``location``, except purged ones. Raises OperationRefusedError."""
        guard.require_anywhere(connection, Operation.LOCATE)
        rows = connection.execute(sa.select(TABLES).where(TABLES.c.state != PURGED, locations.taken(location))).all()
        return tuple(clones.related(row) for row in sorted(rows, key=lambda row: str(row.table_id)))

    @reads
    def tables_with_files_elsewhere(self, connection: sa.Connection) -> tuple[RelatedTable, ...]:
        """Tables that may name files outside of their location. Raises OperationRefusedError."""
        guard.require_anywhere(connection, Operation.ADOPT)
        return clones.with_files_elsewhere(connection)

    @writes
    def check_release(self, connection: sa.Connection, table_id: str) -> None:
        """Refuse a caller that may not remove the entry of the table; changes nothing. Raises PermissionDeniedError."""
        guard.require_on_table(connection, Operation.RELEASE, table_id)
        connection.execute(sa.update(TABLES).where(sa.false()).values(state=PURGED))

    @writes
    def release_table(self, connection: sa.Connection, table_id: str) -> None:
        """ACTIVE to PURGED, with another location, so that another table can get the location; no file is deleted.

        Raises TableNotFoundError, RecoveryError.
        """
        guard.require_on_table(connection, Operation.RELEASE, table_id)
        row = connection.execute(loading.LOCKED, {"of_table": table_id}).one_or_none()
        if row is not None and row.state == PURGED:
            return
        if row is None or row.state != ACTIVE:
            raise unknown_table(table_id)
        readers = [str(clone.identifier) for clone in clones.clones_of(connection, table_id)]
        if readers:
            raise RecoveryError(
                f"The entry of {identifier_of(row)} was not removed: the shallow clones {', '.join(readers)} may read its files, "
                "which other writers could delete. Drop and purge the clones, and release the table again."
            )
        lifecycle.delete_dependents(connection, table_id)
        former = {"state": PURGED, "location": f"{row.location}#{table_id}"}
        connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(**former))
        entries.append_event(connection, FeedKind.TABLE_RELEASED, table_id)

    @writes
    def record_sources(
        self, connection: sa.Connection, table_id: str, locations: Collection[str]
    ) -> tuple[RelatedTable, ...]:
        """Record that the table may read files of the tables at ``locations``.

        Raises OperationRefusedError, TableNotFoundError.
        """
        guard.require_on_table(connection, Operation.CLONE, table_id)
        clones.require_read(connection, table_id, locations)
        return clones.record(connection, table_id, locations)

    @writes
    def relocate_table(self, connection: sa.Connection, table_id: str, *, location: str, moved_from: str) -> None:
        """Set the location of a table. Raises RecoveryError, TableNotFoundError."""
        guard.require(connection, Operation.RECOVER, WHOLE_CATALOG)
        row = connection.execute(loading.LOCKED, {"of_table": table_id}).one_or_none()
        if row is None or row.state == PURGED:
            raise TableNotFoundError(
                f"The catalog has no table with the id {table_id}; it may have been purged. Make a new plan."
            )
        if row.location == location:
            return
        if row.location != moved_from:
            raise RecoveryError(
                f"{identifier_of(row)} was not relocated from {moved_from} to {location}: the catalog has it at "
                f"{row.location} now. Make a new plan."
            )
        if clones.clones_of(connection, table_id):
            raise RecoveryError(
                f"{identifier_of(row)} was not relocated to {location}: shallow clones name its files at {row.location}. Drop and "
                "purge the clones first."
            )
        _refuse_shared(connection, location, table_id=table_id)
        connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(location=location))


def _check_order(proposals: Sequence[CommitProposal], *, first: int, follows_ms: int) -> None:
    """Refuse versions with a gap and in-commit timestamps that do not increase."""
    previous_ms = follows_ms
    for version, proposal in enumerate(proposals, start=first):
        if proposal.version != version or proposal.summary.in_commit_timestamp <= previous_ms:
            raise RecoveryError(
                f"Version {proposal.version} with the in-commit timestamp {utc_text(proposal.summary.in_commit_timestamp)} cannot "
                f"be recorded as version {version} after {utc_text(previous_ms)}: versions must have no gap and timestamps must "
                "increase. Nothing was changed."
            )
        previous_ms = proposal.summary.in_commit_timestamp


def _record(connection: sa.Connection, table_id: str, history: CommitHistory, *, data_version: int) -> None:
    """Insert the commits, advance the head of the table and set its definition. The caller holds the lock of its row."""
    proposals = history.proposals
    entries.skip_positions(connection, FEED_GAP)
    rows: list[dict[str, Any]] = []
    for proposal in proposals:
        if proposal.summary.data_change:
            data_version = proposal.version
        values = values_of(connection, table_id, proposal)
        rows.append({**values, "data_version": data_version})
    connection.execute(sa.insert(COMMITS), rows)
    for proposal in proposals:
        entries.append(connection, entries.of_commit(connection, table_id, proposal.version))
    last = proposals[-1]
    head = {
        "latest_version": last.version,
        "latest_data_version": data_version,
        "latest_in_commit_timestamp": last.summary.in_commit_timestamp,
        "published_version": history.published_version,
        # Clients read published commits from storage: the catalog keeps no content of them.
        "content_from": last.version + 1,
        **marks.after_history(history.definition.metadata, history.row_id_mark),
    }
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(**head))
    connection.execute(_DELETE_CONTENT, {"of_table": table_id, "up_to": history.published_version})
    definition = history.definition
    definitions.record(
        connection,
        table_id,
        metadata=definition.metadata,
        protocol=definition.protocol,
        version=definition.version,
        in_commit_timestamp=definition.in_commit_timestamp,
        changed_by_commit=True,
    )


def _prepare_name(connection: sa.Connection, name: TableIdentifier, *, location: str) -> None:
    """Delete a registered path of that name and location, and create the schema. Raises TableAlreadyExistsError."""
    registered_paths.replace_registered(connection, name, location=location)
    namespaces.ensure_schema(connection, name)


def _refuse_shared(connection: sa.Connection, location: str, *, table_id: str) -> None:
    """Refuse a location at, above or below that of another table."""
    others = sa.select(TABLES).where(TABLES.c.table_id != table_id, locations.taken(location))
    other = connection.execute(others).first()
    if other is not None:
        raise RecoveryError(
            f"Table {table_id} cannot have the location {location}: {identifier_of(other)} (table id {other.table_id}, "
            f"{other.state}) is at {other.location}. Nothing was changed. Choose another location."
        )
