"""``SqlCatalog``: the catalog in one SQL database.

This module opens the connection or transaction of each operation. The operations themselves are in the other modules of this
package.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest
from cm_delta_dagster.catalog.ratification import (
    MAX_CLOCK_DIFFERENCE_MS,
    CommitOutcome,
    CommitProposal,
    CommitSummary,
    InitialCommit,
    MultiTableOutcome,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.catalog.recovery import AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.application_ids import SqlApplicationIds
from cm_delta_dagster.catalog.sql.access.audit import SqlAuditLog
from cm_delta_dagster.catalog.sql.access.grants import SqlAccessControl
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.callers import environment_principal
from cm_delta_dagster.catalog.sql.database.database import Database, IfMissing
from cm_delta_dagster.catalog.sql.feed.feed import SqlFeed
from cm_delta_dagster.catalog.sql.policies.commit_policies import SqlCommitPolicies
from cm_delta_dagster.catalog.sql.policies.leases import SqlLeases
from cm_delta_dagster.catalog.sql.policies.maintenance import SqlMaintenancePolicies
from cm_delta_dagster.catalog.sql.policies.pins import SqlVersionPins
from cm_delta_dagster.catalog.sql.ratification import commits, replacement, validation
from cm_delta_dagster.catalog.sql.ratification.coordinator import SqlCommitCoordinator
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.sql.rules.approvals import SqlApprovals
from cm_delta_dagster.catalog.sql.rules.commit_rules import SqlCommitRules
from cm_delta_dagster.catalog.sql.tables import clones, lifecycle, recovery, registered_paths, registry
from cm_delta_dagster.catalog.sql.tables.namespaces import SqlNamespaces
from cm_delta_dagster.catalog.tables import (
    CatalogIdentity,
    InactiveTable,
    RelatedTable,
    StagingTable,
    TableEntry,
    TableIdentifier,
)
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.remedies import ConnectWithWarehouse

_READ = guard.Operation.READ


class SqlCatalog:
    """Implements :class:`~cm_delta_dagster.catalog.catalog.Catalog` over SQLite (one machine) or PostgreSQL (shared).

    The first use opens the database, and creates or migrates it. Thread-safe. Each ratification is one SQL transaction. Close
    the catalog, or use it as a context manager.

    Args:
        url: ``sqlite:////absolute/path.db`` or ``postgresql://user:password@host/database``.
        warehouse: location under which new tables are placed, e.g. ``s3://bucket/warehouse`` or a local directory; None
            for a client that creates no tables.
        if_missing: whether a missing catalog is created; with REFUSE the first use raises CatalogError.
        now_ms: clock, epoch milliseconds; by default the server's, for SQLite the machine's.
        max_clock_difference_ms: commits whose in-commit timestamp is further ahead of that clock are refused.
        principal: who uses this client: the name of a user or a pipeline; by default that of the environment variable
            CM_DELTA_PRINCIPAL, and without it on PostgreSQL the role that logs in.

    Raises:
        InvalidArgumentError: the URL or the warehouse is malformed.
    """

    def __init__(
        self,
        url: str,
        *,
        warehouse: str | None = None,
        if_missing: IfMissing = IfMissing.CREATE,
        now_ms: Callable[[], int] | None = None,
        max_clock_difference_ms: int = MAX_CLOCK_DIFFERENCE_MS,
        principal: str | None = None,
    ) -> None:
        shared = Database(url, if_missing=if_missing)
        self._closes_database = True
        self._warehouse = None if warehouse is None else names.checked_warehouse(warehouse)
        self._max_clock_difference_ms = max_clock_difference_ms
        self._now_ms = shared.now_ms if now_ms is None else now_ms
        database = CallerDatabase(
            shared, principal or environment_principal(), now_ms=self._now_ms, record_refusal=audit.record_refusal
        )
        self._open_parts(database)

    def _open_parts(self, database: CallerDatabase) -> None:
        self._database = database
        self.coordinator = SqlCommitCoordinator(database, max_ahead_ms=self._max_clock_difference_ms)
        self.feed = self.events = SqlFeed(database)
        self.namespaces = SqlNamespaces(database)
        self.commit_policies = SqlCommitPolicies(database)
        self.commit_rules = SqlCommitRules(database)
        self.approvals = SqlApprovals(database)
        self.maintenance_policies = SqlMaintenancePolicies(database)
        self.leases = SqlLeases(database)
        self.pins = SqlVersionPins(database)
        self.access = SqlAccessControl(database)
        self.application_ids = SqlApplicationIds(database)
        self.audit_log = SqlAuditLog(database)

    def acting_as(self, principal: str | None) -> "SqlCatalog":
        """The same catalog by the same connections, for the calls of ``principal``. Raises InvalidArgumentError."""
        other = object.__new__(type(self))  # copy() would open other connections, as __reduce__ says.
        vars(other).update(vars(self))
        other._closes_database = False
        other._open_parts(self._database.acting_as(principal))
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same database with its own connections, and does not create it."""
        create = partial(
            SqlCatalog,
            self._database.shared.url_text,
            warehouse=self._warehouse,
            if_missing=IfMissing.REFUSE,
            max_clock_difference_ms=self._max_clock_difference_ms,
            principal=self._database.principal,
        )
        return create, ()

    def __repr__(self) -> str:
        return f"SqlCatalog({self._database.shared.shown_url!r})"

    def __enter__(self) -> "SqlCatalog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now_ms(self) -> int:
        """The clock given to the constructor, else the server's; for SQLite the machine's. Raises CatalogUnavailableError."""
        return self._now_ms()

    def create_staging_table(
        self, identifier: TableIdentifier, *, clone_of: str | None = None, location: str | None = None
    ) -> StagingTable:
        """Reserve an id and a location. Raises TableAlreadyExistsError, TableNotFoundError."""
        names.check_identifier(identifier)
        now_ms = self._now_ms()
        if location is not None:
            return self._database.write(
                lambda connection: registry.reserve_at(connection, identifier, location=location, now_ms=now_ms)
            )
        warehouse = self._warehouse
        if warehouse is None:
            raise InvalidArgumentError(
                f"{identifier} was not created: this connection has no warehouse, so it has no place for new tables."
            ).with_remedy(ConnectWithWarehouse())
        if clone_of is not None:
            return self._database.write(
                lambda connection: clones.reserve(
                    connection, identifier, source_id=clone_of, warehouse=warehouse, now_ms=now_ms
                )
            )
        return self._database.write(
            lambda connection: registry.create_staging_table(connection, identifier, warehouse=warehouse, now_ms=now_ms)
        )

    def register_table(
        self,
        table_id: str,
        identifier: TableIdentifier,
        *,
        summary: CommitSummary,
        initial: InitialCommit | None = None,
    ) -> TableEntry:
        """Give the staging table its name. Raises TableAlreadyExistsError, TableNotFoundError, CommitRejectedError."""
        names.check_identifier(identifier)
        now_ms = self._now_ms()
        commits.check_timestamp(
            table_id, 0, summary, previous=None, now_ms=now_ms, max_ahead_ms=self._max_clock_difference_ms
        )
        checked = validation.check_initial(self._database, table_id, initial, operation=summary.operation)
        return self._database.write(
            lambda connection: registry.register_table(
                connection, table_id, identifier, summary=summary, initial=checked, now_ms=now_ms
            )
        )

    def load_table(self, identifier: TableIdentifier) -> TableEntry:
        """Resolve a name, in one statement. Raises TableNotFoundError."""
        return self._database.read(lambda connection: registry.load_table(connection, identifier, requires=_READ))

    def load_tables(self, identifiers: Iterable[TableIdentifier]) -> tuple[TableEntry, ...]:
        """Resolve several names, in one statement."""
        wanted = tuple(identifiers)
        return self._database.read(lambda connection: registry.load_tables(connection, wanted, requires=_READ))

    def load_table_by_id(self, table_id: str) -> TableEntry:
        """Load a table by id, in one statement. Raises TableNotFoundError."""
        return self._database.read(lambda connection: registry.load_table_by_id(connection, table_id, requires=_READ))

    def set_definition(self, table_id: str, *, version: int, metadata: Metadata, protocol: Protocol) -> bool:
        """Store the definition at ``version``, unless there is a later version. Raises TableNotFoundError."""
        return self._database.write(
            lambda connection: registry.set_definition(
                connection, table_id, version=version, metadata=metadata, protocol=protocol
            )
        )

    def drop_table(self, identifier: TableIdentifier, *, table_id: str | None = None) -> None:
        """Remove the name; log and data stay. Raises TableNotFoundError."""
        now_ms = self._now_ms()
        self._database.write(
            lambda connection: registry.drop_table(connection, identifier, table_id=table_id, now_ms=now_ms)
        )

    def inactive_tables(self, scope: str = "") -> tuple[InactiveTable, ...]:
        """Reserved, dropped and purging tables. Raises InvalidArgumentError for a malformed scope."""
        parts = names.scope_parts(scope) if scope else ()
        return self._database.read(lambda connection: lifecycle.inactive_tables(connection, parts))

    def undrop_table(self, table_id: str) -> TableEntry:
        """Restore a dropped table. Raises TableNotFoundError, TableAlreadyExistsError."""
        now_ms = self._now_ms()
        return self._database.write(lambda connection: lifecycle.undrop_table(connection, table_id, now_ms=now_ms))

    def register_path(self, identifier: TableIdentifier, location: str) -> None:
        """Name a table that is read by path. Raises TableAlreadyExistsError, InvalidArgumentError."""
        names.check_identifier(identifier)
        self._database.write(lambda connection: registered_paths.register(connection, identifier, location))

    def unregister_path(self, identifier: TableIdentifier) -> None:
        """Delete the name of a path. Raises TableNotFoundError."""
        self._database.write(lambda connection: registered_paths.unregister(connection, identifier))

    def registered_path(self, identifier: TableIdentifier) -> str | None:
        """The location that the name stands for."""
        return self._database.read(lambda connection: registered_paths.find(connection, identifier))

    def registered_paths(self, scope: str = "") -> Mapping[TableIdentifier, str]:
        """Registered names under ``scope`` with their locations. Raises InvalidArgumentError for a malformed scope."""
        parts = names.scope_parts(scope) if scope else ()
        return self._database.read(lambda connection: registered_paths.list_paths(connection, parts))

    def rename_table(self, table_id: str, identifier: TableIdentifier) -> TableEntry:
        """Rename a table. Raises TableNotFoundError, TableAlreadyExistsError, InvalidArgumentError."""
        names.check_identifier(identifier)
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: lifecycle.rename_table(connection, table_id, identifier, now_ms=now_ms)
        )

    def begin_purge(self, table_id: str, *, min_age_ms: int) -> InactiveTable:
        """Begin the purge of a table. Raises TableNotFoundError, PurgeRefusedError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: lifecycle.begin_purge(
                connection, table_id, warehouse=self._warehouse, min_age_ms=min_age_ms, now_ms=now_ms
            )
        )

    def finish_purge(self, table_id: str) -> None:
        """Finish the purge of a table. Raises PurgeRefusedError."""
        now_ms = self._now_ms()
        self._database.write(lambda connection: lifecycle.finish_purge(connection, table_id, now_ms=now_ms))

    def clones_of(self, table_id: str) -> tuple[RelatedTable, ...]:
        """Shallow clones that may read files of the table."""
        return self._database.read(lambda connection: clones.clones_of(connection, table_id))

    def sources_of(self, table_id: str) -> tuple[RelatedTable, ...]:
        """Tables whose files the table may read."""
        return self._database.read(lambda connection: clones.sources_of(connection, table_id))

    def abandon_clones(self, table_id: str) -> None:
        """Prevent the registration of reserved clones of the table."""
        self._database.write(lambda connection: clones.abandon(connection, table_id))

    def list_tables(self, scope: str = "") -> tuple[TableIdentifier, ...]:
        """Names under ``scope``, sorted. Raises InvalidArgumentError for a malformed scope."""
        parts = names.scope_parts(scope) if scope else ()
        return self._database.read(lambda connection: registry.list_tables(connection, parts))

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        return self.coordinator.commit(table_id, proposal)

    def commit_together(self, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
        return self.coordinator.commit_together(proposals)

    def request_approval(self, table_id: str, proposal: CommitProposal, request: ApprovalRequest) -> Approval | None:
        return self.coordinator.request_approval(table_id, proposal, request)

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        return self.coordinator.commit_lock(table_id, seconds=seconds)

    def record_published(self, table_id: str, proposal: CommitProposal) -> Ratified | VersionTaken:
        return self.coordinator.record_published(table_id, proposal)

    def get_ratified_commits(
        self,
        table_id: str,
        *,
        start: int | None = None,
        end: int | None = None,
        content_from_version: int | None = None,
    ) -> RatifiedCommits:
        return self.coordinator.get_ratified_commits(
            table_id, start=start, end=end, content_from_version=content_from_version
        )

    def commit_records(self, table_id: str, *, start: int, end: int) -> tuple[RatifiedCommit, ...]:
        return self.coordinator.commit_records(table_id, start=start, end=end)

    def commit_digests(self, table_id: str, *, start: int, end: int) -> Mapping[int, str]:
        return self.coordinator.commit_digests(table_id, start=start, end=end)

    def set_published_version(self, table_id: str, version: int) -> None:
        self.coordinator.set_published_version(table_id, version)

    def back_up(self, target: Path) -> int:
        """Copy the database to the new file ``target`` while it is in use, and check the copy.

        Returns:
            Bytes of the copy.

        Raises:
            InvalidArgumentError: the file exists, or its directory does not.
            CatalogError: the copy failed, or this is a PostgreSQL catalog; the message then gives the command.
        """
        return self._database.shared.back_up(target)

    def identity(self) -> CatalogIdentity:
        """Id and warehouse of the catalog, in one statement."""
        return CatalogIdentity(catalog_id=self._database.read(recovery.catalog_id), warehouse=self._warehouse)

    def take_in_commits(
        self, table_id: str, history: CommitHistory, *, after: int, replaces: Sequence[str] = ()
    ) -> bool:
        """Record commits that storage holds. Raises RecoveryError, TableNotFoundError, CommitRejectedError."""
        for proposal in history.proposals:
            names.check_recovered(proposal)
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: recovery.take_in_commits(
                connection, table_id, history, after=after, replaces=replaces, now_ms=now_ms
            )
        )

    def replace_commit(
        self, table_id: str, proposal: CommitProposal, *, replaces: RatifiedCommit, data_change: bool, reason: str
    ) -> bool:
        """Record other content of a version. Raises RecoveryError, PermissionDeniedError, TableNotFoundError."""
        names.check_recovered(proposal)
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: replacement.replace_commit(
                connection, table_id, proposal, replaces=replaces, data_change=data_change, reason=reason, now_ms=now_ms
            )
        )

    def check_adoption(self, identifier: TableIdentifier) -> None:
        """Check the rights of the caller. Raises PermissionDeniedError, InvalidArgumentError."""
        names.check_identifier(identifier)
        self._database.write(lambda connection: recovery.check_adoption(connection, identifier))

    def adopt_table(self, table: AdoptedTable) -> TableEntry | None:
        """Create the entry. Raises TableAlreadyExistsError, RecoveryError, InvalidArgumentError, CommitRejectedError."""
        names.check_identifier(table.identifier)
        for proposal in table.history.proposals:
            names.check_recovered(proposal)
        now_ms = self._now_ms()
        return self._database.write(lambda connection: recovery.adopt_table(connection, table, now_ms=now_ms))

    def overlapping_tables(self, location: str) -> tuple[RelatedTable, ...]:
        """Tables at, above or below a location."""
        return self._database.read(lambda connection: recovery.overlapping_tables(connection, location))

    def tables_with_files_elsewhere(self) -> tuple[RelatedTable, ...]:
        """Tables that may name files outside of their location."""
        return self._database.read(clones.with_files_elsewhere)

    def check_release(self, table_id: str) -> None:
        """Check the rights of the caller. Raises PermissionDeniedError."""
        self._database.write(lambda connection: recovery.check_release(connection, table_id))

    def release_table(self, table_id: str) -> None:
        """Remove the entry of a table. Raises TableNotFoundError, RecoveryError."""
        now_ms = self._now_ms()
        self._database.write(lambda connection: recovery.release_table(connection, table_id, now_ms=now_ms))

    def record_sources(self, table_id: str, locations: Collection[str]) -> tuple[RelatedTable, ...]:
        """Record that the table may read files of the tables at ``locations``."""
        return self._database.write(lambda connection: clones.record(connection, table_id, locations))

    def relocate_table(self, table_id: str, *, location: str, moved_from: str) -> None:
        """Set the location of a table. Raises RecoveryError, TableNotFoundError."""
        self._database.write(
            lambda connection: recovery.relocate_table(connection, table_id, location=location, moved_from=moved_from)
        )

    def close(self) -> None:
        """Close the connections; those of :meth:`acting_as` stay open until the catalog that it was called on is closed."""
        if self._closes_database:
            self._database.shared.close()
