"""A catalog-managed table: snapshots, time travel, transactions. Reads and writes the log, not rows."""

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from cm_delta_dagster.catalog.commit_policy import BARRIER_OPERATION
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.commit_lock import CommitLock
from cm_delta_dagster.client.commits.committer import TableCommitter
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.put_if_absent import ratified_commits
from cm_delta_dagster.client.commits.transaction import Committed, Committer, Transaction
from cm_delta_dagster.client.commits.written_data import WrittenData
from cm_delta_dagster.client.post_commit.hook_services import HookServices
from cm_delta_dagster.client.post_commit.hooks import PostCommitHooks
from cm_delta_dagster.client.services import Services
from cm_delta_dagster.client.snapshots.commit_log import CommitLog, LoadedCommit, removed_by_cleanup
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.history import data_version, find_transaction
from cm_delta_dagster.client.snapshots.log_reader import LoadedState, load_state
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance
from cm_delta_dagster.client.snapshots.unreadable_versions import newest_managed, without_time
from cm_delta_dagster.client.snapshots.version_lookup import VersionLookup
from cm_delta_dagster.client.storage_guard import StorageGuard
from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    NotCatalogManagedError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.in_commit_timestamps import InCommitTimestampPeriod, in_commit_timestamp_period
from cm_delta_dagster.protocol.features.metadata_validation import check_metadata
from cm_delta_dagster.protocol.features.table_features import check_readable, is_catalog_managed
from cm_delta_dagster.protocol.log import log_files, log_segment
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.storage.store import Store


class _HasVersion(typing.Protocol):
    @property
    def version(self) -> int: ...


_Versioned = typing.TypeVar("_Versioned", bound=_HasVersion)


class Table(VersionLookup):
    """Handle of one table, bound to its id: after a drop and re-creation under the same name its methods raise errors."""

    def __init__(
        self, *, services: Services, identifier: TableIdentifier, table_id: str, location: str, store: Store
    ) -> None:
        self.identifier = identifier
        self.table_id = table_id
        self.location = location
        self.store = store
        self.services = services
        self.time_zone = as_zone(services.settings.time_zone)
        self.reader = CommitReader(
            store,
            location,
            records=CatalogRecords(services.coordinator, table_id),
            threads=services.settings.read_threads,
        )
        self._storage = StorageGuard(
            identifier=identifier,
            table_id=table_id,
            reader=self.reader,
            registry=services.registry,
            catalog_answer=self.catalog_answer,
            stores=services.stores,
            tables_behind=services.tables_behind,
        )
        self.post_commit = PostCommitHooks(
            HookServices(
                store=store,
                coordinator=services.coordinator,
                maintenance_policies=services.maintenance_policies,
                background=services.background,
                now_ms=services.now_ms,
                delay_seconds=services.settings.publish_delay.total_seconds(),
                tables_behind=services.tables_behind,
                compact=services.compact,
            ),
            remember=services.note_commit,
        )
        self.committer = TableCommitter(
            store=store,
            coordinator=services.coordinator,
            settings=services.settings,
            now_ms=services.now_ms,
            post_commit=self.post_commit,
            lock=CommitLock(services.coordinator, services.settings),
            catalog_id=services.warehouse.catalog_id,
        )

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The table at its latest version, at ``version``, or as of ``timestamp_ms`` (epoch milliseconds).

        One call to the catalog; storage is read only for what is not cached.

        Raises:
            VersionNotFoundError: the table has no such version, or it was removed.
            CorruptLogError: a commit that is needed is missing or unreadable.
        """
        if version is not None and timestamp_ms is not None:
            raise InvalidArgumentError("Give a version or a timestamp, not both.")
        cached = self.services.cached_snapshot(self.table_id)
        latest = version is None and timestamp_ms is None
        # Older versions are read from the log, not from content in the catalog.
        ratified = self.catalog_answer(
            content_from_version=None if not latest else 0 if cached is None else cached.version + 1
        )
        if timestamp_ms is not None:
            log = self._commit_log(ratified)
            version = log.version_at_or_before(timestamp_ms, oldest=log.earliest_readable)
        if version is None or version == ratified.latest_version:
            return self._latest(ratified, cached).in_time_zone(self.time_zone)
        if not 0 <= version <= ratified.latest_version:
            raise VersionNotFoundError(
                f"Version {version} of {self.identifier} does not exist; the catalog's versions are 0 to "
                f"{ratified.latest_version}."
            )
        try:
            return self._load(ratified, version).in_time_zone(self.time_zone)
        except CorruptLogError as error:
            removed = removed_by_cleanup(
                self.store,
                self.location,
                identifier=self.identifier,
                version=version,
                latest=ratified.latest_version,
                ratified=ratified.commits,
            )
            if removed is None:
                raise
            raise removed from error

    def snapshot_of(self, ratified: RatifiedCommits) -> Snapshot:
        """The latest version of ``ratified``, an earlier answer of the catalog, even if there are newer versions now."""
        cached = self.services.cached_snapshot(self.table_id)
        if cached is not None and cached.version > ratified.latest_version:
            return self._load(ratified, ratified.latest_version).in_time_zone(self.time_zone)
        return self._latest(ratified, cached).in_time_zone(self.time_zone)

    def commit_log(self) -> CommitLog:
        """The commits that exist now, unpublished ones included, up to the catalog's latest version."""
        return self._commit_log(self.catalog_answer())

    def commits(self, start: int, end: int) -> Iterator[LoadedCommit]:
        """Every version of ``start..end`` exactly once, oldest first; compactions are not used.

        Raises:
            VersionNotFoundError: a commit of the range does not exist or was removed.
            CorruptLogError: a commit in between is missing or unreadable.
        """
        return self._with_retry(lambda first: self.commit_log().load(first, end), start, end)

    def latest_version(self) -> int:
        """The catalog's latest version."""
        return self.catalog_answer().latest_version

    def commit_actions(self, start: int, end: int) -> Iterator[CommitActions]:
        """See :meth:`ReadableTable.commit_actions`; never beyond the catalog's latest version."""
        return self._with_retry(lambda first: self._log(self.catalog_answer(), None).actions(first, end), start, end)

    def _with_retry(self, load: Callable[[int], Iterator[_Versioned]], start: int, end: int) -> Iterator[_Versioned]:
        done = start - 1
        try:
            for commit in load(start):
                yield commit
                done = commit.version
        except CorruptLogError as error:
            if not isinstance(error.__cause__, ObjectNotFoundError):
                raise
        if done < end:
            # A commit may have been published and its staged file deleted since the catalog answered: query it again.
            yield from load(done + 1)

    def find_transaction(self, *, app_id: str, version: int) -> int | None:
        """See :func:`~cm_delta_dagster.client.snapshots.history.find_transaction`."""
        return find_transaction(self, app_id=app_id, version=version)

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitProperties = NO_PROPERTIES,
        committer: Committer | None = None,
    ) -> Transaction:
        """Start a write that is based on ``snapshot`` of this table. Checks once whether the table's storage exists.

        Args:
            committer: what commits the transaction; None for this table.

        Raises:
            UnsupportedFeatureError: the table needs a writer feature that this client does not support.
            TableStorageMissingError: the newest published commit is missing in the table's log.
            CatalogBehindStorageError: storage holds commits above the catalog's latest version.
        """
        self.refuse_if_known_behind()
        self.require_storage(snapshot.published_version)
        context = context.with_defaults(self.services.context)
        return Transaction(
            snapshot=snapshot,
            committer=committer or self,
            operation=operation,
            parameters=parameters,
            context=context,
        )

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`: the commit of several tables with this one alone."""
        commit = MultiTableCommit(
            [TableCommit(committer=self.committer, transaction=transaction)],
            coordinator=self.services.coordinator,
            settings=self.services.settings,
        )
        return commit.finish(commit.ratify())[0]

    def commit_write(self, transaction: Transaction, data: WrittenData) -> Committed:
        """Commit a transaction of this table. Raises as :meth:`Transaction.commit`."""
        return transaction.commit()

    def maintenance_decision(self, kind: MaintenanceKind) -> MaintenanceDecision:
        """Ask the catalog whether it permits that maintenance on this table now."""
        return self.services.maintenance_policies.maintenance_decision(self.identifier, kind, table_id=self.table_id)

    def commit_barrier(self, snapshot: Snapshot) -> None:
        """Try once to create the empty commit after ``snapshot`` that ends put-if-absent mode.

        Used to change the commit policy; the caller asks the catalog afterwards whether the commit exists.
        """
        self.committer.create(self.start_transaction(snapshot, operation=BARRIER_OPERATION), snapshot)

    def ratified(self) -> RatifiedCommits:
        """The catalog's state, after delayed publications and reports, with put-if-absent commits that it had not recorded."""
        self.post_commit.publication.flush()
        self.services.background.flush(self.table_id)
        return self.catalog_answer()

    def catalog_answer(self, *, content_from_version: int | None = None) -> RatifiedCommits:
        """As :meth:`ratified`, without waiting for publications and reports of this client."""
        return ratified_commits(
            self.services.coordinator,
            self.store,
            table_id=self.table_id,
            location=self.location,
            content_from_version=content_from_version,
        )

    def _commit_log(self, ratified: RatifiedCommits) -> CommitLog:
        try:
            latest: Snapshot | TableState = self._latest(ratified, self.services.cached_snapshot(self.table_id))
        except (CorruptLogError, UnsupportedFeatureError, NotCatalogManagedError):
            # The times of older versions do not depend on whether this client can read the latest one.
            latest = newest_managed(lambda at: self._load_state(ratified, at).state, latest=ratified.latest_version)
        return self._log(ratified, in_commit_timestamp_period(latest.protocol, latest.metadata))

    def _log(self, ratified: RatifiedCommits, period: InCommitTimestampPeriod | None) -> CommitLog:
        """The commits that exist now; without a period their commit times are not known, and no snapshot is needed."""
        return CommitLog(
            identifier=self.identifier,
            reader=self.reader,
            latest=ratified.latest_version,
            period=period,
            ratified=ratified.commits,
            only_kept=True,
        )

    def _latest(self, ratified: RatifiedCommits, cached: Snapshot | None) -> Snapshot:
        """The snapshot of the catalog's latest version, refreshed from ``cached`` if that is of the same history.

        ``ratified`` was requested with ``content_from_version`` right after ``cached``, or without it.
        """
        behind = ratified.latest_version - cached.version if cached is not None else -1
        limit = self.services.settings.incremental_refresh_limit
        if cached is None or not 0 <= behind <= limit or not self._is_same_history(cached, ratified):
            snapshot = self._load(ratified, ratified.latest_version)
            if cached is not None:
                # The catalog may not have the cached version any more.
                self.services.replace_snapshot(snapshot)
                return snapshot
        else:
            snapshot = self._refresh(cached, ratified)
        self.services.remember_snapshot(snapshot)
        return snapshot

    def _is_same_history(self, cached: Snapshot, ratified: RatifiedCommits) -> bool:
        """Whether the catalog's commit of the cached version is the cached one; false after writes to a restored catalog."""
        if cached.version == ratified.latest_version:
            known = ratified.latest_in_commit_timestamp
        else:
            known = ratified.preceding_timestamp
            if known is None:  # Only a request for newer commits returns it.
                records = self.reader.records_of(cached.version)
                known = records[0].in_commit_timestamp if records else None
        return known in (None, cached.timestamp_ms)

    def _refresh(self, cached: Snapshot, ratified: RatifiedCommits) -> Snapshot:
        """``cached`` brought up to the catalog's latest version by reading only newer commits."""
        sources = commit_sources(
            self.location,
            start=cached.version + 1,
            end=ratified.latest_version,
            ratified=ratified.commits,
            cached=ratified.cached_commits,
        )
        try:
            commits = self.reader.decode_all(sources)
        except ObjectNotFoundError:
            return self._load(ratified, ratified.latest_version)
        self.post_commit.note_winners(commits, published_version=ratified.published_version)
        snapshot = replace(
            advance(cached, commits, published_version=ratified.published_version),
            commit_policy=ratified.commit_policy,
        )
        if any(commit.protocol is not None or commit.metadata is not None for commit in commits):
            self._check(snapshot)
        return snapshot

    def require_storage(self, published_version: int) -> None:
        """See :meth:`StorageGuard.require_storage`."""
        self._storage.require_storage(published_version)

    def refuse_if_known_behind(self) -> None:
        """See :meth:`StorageGuard.refuse_if_known_behind`."""
        self._storage.refuse_if_known_behind()

    def refuse_if_behind(self) -> None:
        """See :meth:`StorageGuard.refuse_if_behind`."""
        self._storage.refuse_if_behind()

    def _load(self, ratified: RatifiedCommits, version: int) -> Snapshot:
        loaded = self._load_state(ratified, version)
        policy = self.services.settings.on_catalog_behind_storage
        self._storage.check_load(loaded.newest_listed, ratified, policy=policy)
        newest = self._newest_definition(ratified, loaded.state) if version < ratified.latest_version else None
        snapshot = Snapshot(
            identifier=str(self.identifier),
            table_id=self.table_id,
            location=self.location,
            version=version,
            published_version=min(ratified.published_version, version),
            data_version=data_version(self.reader, ratified, version),
            commit_time=self._time(loaded, ratified, newest),
            state=loaded.state,
            commit_policy=ratified.commit_policy,
        )
        if newest is not None:
            self._check_readable(snapshot)
        else:
            self._check(snapshot)
        return snapshot

    def _newest_definition(self, ratified: RatifiedCommits, state: TableState) -> tuple[Protocol, Metadata] | None:
        """Definition of the latest version, for a version at which the table was not catalog-managed; else None.

        The latest version decides whether the table is catalog-managed and which commits have an in-commit timestamp. This client
        need not be able to read it.
        """
        if is_catalog_managed(state.protocol):
            return None
        try:
            latest = self._latest(ratified, self.services.cached_snapshot(self.table_id))
        except UnsupportedFeatureError:
            newest = self._load_state(ratified, ratified.latest_version).state
            return newest.protocol, newest.metadata
        return latest.protocol, latest.metadata

    def _time(
        self, loaded: LoadedState, ratified: RatifiedCommits, newest: tuple[Protocol, Metadata] | None
    ) -> int | Callable[[], int]:
        """Commit time of the loaded version in epoch milliseconds, by the rule of :class:`CommitLog`."""
        period = None if newest is None else in_commit_timestamp_period(*newest)
        if newest is not None and (period is None or not period.covers(loaded.state.version)):
            log = self._log(ratified, None)
            default = loaded.modification_time or 0
            return lambda: log.file_time(loaded.state.version, default=default)
        if loaded.in_commit_timestamp is not None:
            return loaded.in_commit_timestamp
        if not is_catalog_managed(loaded.state.protocol):
            return loaded.modification_time or 0  # The check of the snapshot refuses it.
        raise without_time(loaded.state.version, self.identifier, loaded.commit_info, "of a catalog-managed table")

    def _load_state(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        try:
            return self._read_with_retry(ratified, version)
        except CorruptLogError as error:
            behind = self._storage.find_behind(ratified)
            if behind is not None and version == ratified.latest_version:
                raise behind.error(self.identifier, self.location) from error
            if error.version is None:
                raise
            names = [status.name for status in self.store.list_from(log_files.log_directory(self.location))]
            listed = [commit.version for commit in ratified.commits]
            below = log_segment.readable_below(names, ratified=listed, version=min(error.version, version))
            readable = (
                f"Versions {below.start} to {below[-1]} can still be read."
                if below
                else "No older version can be read."
            )
            text = f"{self.identifier}: {error.message} {readable}"
            fault = CorruptLogError(text, version=error.version, action=error.action, field=error.field)
            raise fault.with_remedy(error.remedy, table=self.identifier) from error

    def _read_with_retry(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        try:
            return self._read(ratified, version)
        except ObjectNotFoundError:
            # A commit may have been published and its staged file deleted since the catalog answered: query it again.
            again = self.catalog_answer()
        try:
            return self._read(again, version)
        except ObjectNotFoundError as error:
            raise CorruptLogError(
                f"Version {version} of {self.identifier} cannot be built: {error} The catalog lists it, so storage must have "
                "lost it; restore that file from a backup. No older version is returned instead.",
                version=error.version,
                action=None if error.version is None else "",
            ) from error

    def _read(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        return load_state(self.reader, version=version, ratified=ratified.commits, cached=ratified.cached_commits)

    def _check_readable(self, snapshot: Snapshot) -> None:
        name = f"{snapshot.identifier} at version {snapshot.version}"
        check_readable(snapshot.protocol, name)
        check_metadata(snapshot.metadata, name, version=snapshot.state.metadata_version)

    def _check(self, snapshot: Snapshot) -> None:
        self._check_readable(snapshot)
        if not is_catalog_managed(snapshot.protocol):
            raise NotCatalogManagedError(
                f"The catalog manages {self.identifier}, but its log at {self.location} does not list the feature catalogManaged. "
                "Catalog and log disagree; nothing is read. Check that the location belongs to this table."
            )
