"""A table that a catalog manages: snapshots, time travel, transactions. Log only, no rows."""

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from cm_delta_dagster.catalog.commit_policy import BARRIER_OPERATION
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableIdentifier
from cm_delta_dagster.client.commits.committer import TableCommitter
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.commits.put_if_absent import ratified_commits
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.post_commit.hook_services import HookServices
from cm_delta_dagster.client.post_commit.hooks import PostCommitHooks
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork
from cm_delta_dagster.client.settings import ClientSettings, OnCatalogBehind
from cm_delta_dagster.client.snapshots.commit_log import CommitLog, LoadedCommit
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.log_reader import LoadedState, load_state
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance, changes_data
from cm_delta_dagster.client.snapshots.storage_check import (
    CatalogBehind,
    TablesBehind,
    compare_with_listing,
    has_commit,
    refuse_missing,
    warn_behind,
)
from cm_delta_dagster.client.warehouse import WarehouseGuard
from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    NotCatalogManagedError,
    ObjectNotFoundError,
    TableStorageMissingError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.in_commit_timestamps import in_commit_timestamp_period
from cm_delta_dagster.protocol.features.metadata_validation import check_metadata
from cm_delta_dagster.protocol.features.table_features import check_readable, is_catalog_managed
from cm_delta_dagster.protocol.log import log_files, log_segment
from cm_delta_dagster.storage.store import Store, StoreRegistry

if typing.TYPE_CHECKING:
    from cm_delta_dagster.catalog.catalog import Catalog


class _HasVersion(typing.Protocol):
    @property
    def version(self) -> int: ...


_Versioned = typing.TypeVar("_Versioned", bound=_HasVersion)


class Services(typing.Protocol):
    """What a table needs of the client it belongs to."""

    @property
    def catalog(self) -> "Catalog": ...
    @property
    def settings(self) -> ClientSettings: ...
    @property
    def now_ms(self) -> Callable[[], int]: ...
    @property
    def background(self) -> BackgroundWork: ...
    @property
    def warehouse(self) -> WarehouseGuard: ...
    @property
    def stores(self) -> StoreRegistry: ...
    @property
    def tables_behind(self) -> TablesBehind: ...

    def cached_snapshot(self, table_id: str) -> Snapshot | None: ...
    def remember_snapshot(self, snapshot: Snapshot) -> None: ...
    def replace_snapshot(self, snapshot: Snapshot) -> None: ...


class Table:
    """Handle of one table, fenced by its id: after a drop and re-creation under the same name it gives errors (CM-D8)."""

    def __init__(
        self, *, services: Services, identifier: TableIdentifier, table_id: str, location: str, store: Store
    ) -> None:
        self.identifier = identifier
        self.table_id = table_id
        self.location = location
        self.store = store
        self.services = services
        self.reader = CommitReader(
            store,
            location,
            records=CatalogRecords(services.catalog, table_id),
            threads=services.settings.read_threads,
        )
        self.post_commit = PostCommitHooks(
            HookServices(
                store=store,
                catalog=services.catalog,
                background=services.background,
                now_ms=services.now_ms,
                delay_seconds=services.settings.publish_delay_seconds,
                tables_behind=services.tables_behind,
            ),
            remember=services.remember_snapshot,
        )
        self._committer = TableCommitter(
            store=store,
            catalog=services.catalog,
            settings=services.settings,
            now_ms=services.now_ms,
            post_commit=self.post_commit,
        )

    @property
    def catalog(self) -> "Catalog":
        return self.services.catalog

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The table at its latest version, at ``version``, or as of ``timestamp_ms`` (epoch milliseconds).

        One call to the catalog; storage is touched only for what is not in memory yet.

        Raises:
            VersionNotFoundError: the version or time lies outside of what the catalog and the log hold.
            CorruptLogError: a commit of the chain is missing or unreadable.
        """
        if version is not None and timestamp_ms is not None:
            raise InvalidArgumentError("Give a version or a timestamp, not both.")
        cached = self.services.cached_snapshot(self.table_id)
        latest = version is None and timestamp_ms is None
        # Versions of the past are what the log still holds of them, whatever the catalog keeps.
        ratified = self.catalog_answer(
            content_from_version=None if not latest else 0 if cached is None else cached.version + 1
        )
        if timestamp_ms is not None:
            log = self._commit_log(ratified)
            version = log.version_at_or_before(timestamp_ms, oldest=log.earliest_readable)
        if version is None or version == ratified.latest_version:
            return self._latest(ratified, cached)
        if not 0 <= version <= ratified.latest_version:
            raise VersionNotFoundError(
                f"Version {version} of {self.identifier} does not exist; the catalog's versions are 0 to "
                f"{ratified.latest_version}."
            )
        try:
            return self._load(ratified, version)
        except CorruptLogError as error:
            names = [status.name for status in self.store.list_from(log_files.log_directory(self.location))]
            oldest = log_segment.version_after_cleanup(
                names,
                ratified=[commit.version for commit in ratified.commits],
                version=version,
                latest=ratified.latest_version,
            )
            if oldest is None:
                raise
            raise VersionNotFoundError(
                f"Version {version} of {self.identifier} was removed by metadata cleanup; the oldest readable version is "
                f"{oldest}."
            ) from error

    def commit_log(self) -> CommitLog:
        """The commits that can be had now, ratified ones included, up to the catalog's latest version (CM-R9)."""
        return self._commit_log(self.catalog_answer())

    def commits(self, start: int, end: int) -> Iterator[LoadedCommit]:
        """Every version of ``start..end`` exactly once, oldest first; compactions are never used (LC-8).

        Raises:
            VersionNotFoundError: the range lies outside of the commits that are still there.
            CorruptLogError: a commit in between is missing or unreadable.
        """
        return self._asking_twice(lambda first: self.commit_log().load(first, end), start, end)

    def latest_version(self) -> int:
        """The catalog's latest version."""
        return self.catalog_answer().latest_version

    def commit_actions(self, start: int, end: int) -> Iterator[CommitActions]:
        """See :meth:`ReadableTable.commit_actions`; never beyond the catalog's latest version (CM-R9)."""
        return self._asking_twice(lambda first: self._commit_tail().actions(first, end), start, end)

    def _commit_tail(self) -> CommitLog:
        """:meth:`commit_log` without what it takes to tell times."""
        ratified = self.catalog_answer()
        return CommitLog(
            identifier=self.identifier,
            reader=self.reader,
            latest=ratified.latest_version,
            period=None,
            ratified=ratified.commits,
            only_kept=True,
        )

    def _asking_twice(self, load: Callable[[int], Iterator[_Versioned]], start: int, end: int) -> Iterator[_Versioned]:
        done = start - 1
        try:
            for commit in load(start):
                yield commit
                done = commit.version
        except CorruptLogError as error:
            if not isinstance(error.__cause__, ObjectNotFoundError):
                raise
        if done < end:
            # A commit may have been published and its staged file cleaned since the answer: ask once more (CM-R10).
            yield from load(done + 1)

    def version_range(self) -> tuple[int, int]:
        """The oldest version that can be rebuilt (TT-5), and the catalog's latest."""
        log = self.commit_log()
        return log.earliest_readable, log.latest

    def version_at_or_before(self, timestamp_ms: int) -> int:
        """See :meth:`ReadableTable.version_at_or_before`."""
        return self.commit_log().version_at_or_before(timestamp_ms)

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """See :meth:`ReadableTable.version_at_or_after`."""
        return self.commit_log().version_at_or_after(timestamp_ms)

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> Transaction:
        """A write that builds on ``snapshot``, which must be one of this table. Storage is asked once whether the table is there.

        Raises:
            UnsupportedFeatureError: the table needs a writer feature that this client does not have (PROT-7).
            TableStorageMissingError: the table's log is not where the catalog says.
            CatalogBehindStorageError: storage holds commits above the catalog's latest version.
        """
        self.refuse_if_known_behind()
        self.require_storage(snapshot.published_version)
        return Transaction(
            snapshot=snapshot, committer=self._committer, operation=operation, parameters=parameters, context=context
        )

    def maintenance_decision(self, kind: MaintenanceKind) -> MaintenanceDecision:
        """Ask the catalog whether that maintenance is permitted on this table now (CM-M5)."""
        return self.catalog.maintenance_decision(self.identifier, kind, table_id=self.table_id)

    def commit_barrier(self, snapshot: Snapshot) -> None:
        """Try once to create the empty commit after ``snapshot`` that ends a time of put-if-absent commits.

        Only for the change of the commit policy, which asks the catalog afterwards whether it is there.
        """
        self._committer.create(self.start_transaction(snapshot, operation=BARRIER_OPERATION), snapshot)

    def ratified(self) -> RatifiedCommits:
        """What the catalog says of the table now, commits that only storage knew included (CM-C6).

        What this client has put off to publish, or to tell the catalog of it, is done before.
        """
        self.post_commit.publication.flush()
        self.services.background.flush(self.table_id)
        return self.catalog_answer()

    def catalog_answer(self, *, content_from_version: int | None = None) -> RatifiedCommits:
        """As :meth:`ratified`, at once: the mark and the publication of this handle's last commits may still be under way."""
        return ratified_commits(
            self.catalog,
            self.store,
            table_id=self.table_id,
            location=self.location,
            content_from_version=content_from_version,
        )

    def _commit_log(self, ratified: RatifiedCommits) -> CommitLog:
        latest = self._latest(ratified, self.services.cached_snapshot(self.table_id))
        return CommitLog(
            identifier=self.identifier,
            reader=self.reader,
            latest=latest.version,
            period=in_commit_timestamp_period(latest.protocol, latest.metadata),
            ratified=ratified.commits,
            only_kept=True,
        )

    def _latest(self, ratified: RatifiedCommits, cached: Snapshot | None) -> Snapshot:
        """The catalog's latest version, from ``cached`` if that is of the same history.

        ``ratified`` was either asked with ``content_from_version`` right after ``cached``, or without it.
        """
        behind = ratified.latest_version - cached.version if cached is not None else -1
        limit = self.services.settings.incremental_refresh_limit
        if cached is None or not 0 <= behind <= limit or not self._is_same_history(cached, ratified):
            snapshot = self._load(ratified, ratified.latest_version)
            if cached is not None:
                # The cached one may be of a version that the catalog does not have any more.
                self.services.replace_snapshot(snapshot)
                return snapshot
        else:
            snapshot = self._refresh(cached, ratified)
        self.services.remember_snapshot(snapshot)
        return snapshot

    def _is_same_history(self, cached: Snapshot, ratified: RatifiedCommits) -> bool:
        """Whether the catalog's commit of the cached version is the one that was read; not so after a restored catalog was
        written to."""
        if cached.version == ratified.latest_version:
            known = ratified.latest_in_commit_timestamp
        else:
            known = ratified.preceding_timestamp
            if known is None:  # The answer was to another question: for the past, or for the whole log.
                records = self.reader.records_of(cached.version)
                known = records[0].in_commit_timestamp if records else None
        return known in (None, cached.timestamp_ms)

    def _refresh(self, cached: Snapshot, ratified: RatifiedCommits) -> Snapshot:
        """``cached`` brought up to the catalog's latest version by reading only what is newer (CACHE-4)."""
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
        """Refuse a table whose newest published commit is not there. One existence check where it is.

        Raises TableStorageMissingError, CatalogBehindStorageError.
        """
        if has_commit(self.store, self.location, published_version):
            return
        self.refuse_if_behind()  # Storage went on without the catalog, and cleanup has removed that version since.
        try:
            refuse_missing(self.store, self.identifier, self.location, published_version=published_version)
        except TableStorageMissingError as error:
            warehouse = self.catalog.identity().warehouse
            old, *parts = self.location.rsplit("/", LEVELS_BELOW_WAREHOUSE)
            moved = "/".join([warehouse or old, *parts])
            is_moved = moved != self.location and self.services.stores.store_for(moved).list_from(
                log_files.log_directory(moved)
            )
            if not is_moved:
                raise
            raise TableStorageMissingError(
                f"{error} A log is at {moved}, in the warehouse of this client: if that is the table, run `cm-delta relocate "
                f"--from {old} --to {warehouse} --apply`."
            ) from error

    def refuse_if_known_behind(self) -> None:
        """Refuse if this process has found that the catalog is behind the storage of this table; the catalog is asked again.

        Raises CatalogBehindStorageError.
        """
        found = self.services.tables_behind.get(self.table_id)
        if found is not None:
            self.refuse_if_behind()

    def refuse_if_behind(self) -> None:
        """Compare the listing of ``_delta_log`` with the catalog, as everything that deletes has to before it begins.

        Raises CatalogBehindStorageError.
        """
        found = self._behind(self.catalog_answer())
        if found is not None:
            raise found.error(self.identifier, self.location)

    def _behind(self, ratified: RatifiedCommits) -> CatalogBehind | None:
        """Commits in ``_delta_log`` that the catalog, asked again after the listing, does not know."""
        found = compare_with_listing(self.reader, ratified)
        if found is not None and not found.is_forked:
            # Others may have committed since the first answer: what the listing shows was ratified before this one.
            known = self.catalog_answer()
            current = known.latest_version >= found.last_version
            found = None if current else compare_with_listing(self.reader, known)
        self.services.tables_behind.note(self.table_id, found)
        return found

    def _compare_with_storage(self, newest_listed: int | None, ratified: RatifiedCommits) -> None:
        """After a load: warn or refuse if storage holds commits above the catalog's latest version.

        Args:
            newest_listed: newest commit in the listing that the load has made; None if it made none.
        """
        if newest_listed is not None and newest_listed <= ratified.latest_version:
            return
        found = self._behind(ratified)
        if found is None:
            return
        if self.services.settings.on_catalog_behind_storage is OnCatalogBehind.REFUSE:
            raise found.error(self.identifier, self.location)
        warn_behind(self.identifier, self.location, found)

    def _load(self, ratified: RatifiedCommits, version: int) -> Snapshot:
        loaded = self._load_state(ratified, version)
        self._compare_with_storage(loaded.newest_listed, ratified)
        snapshot = Snapshot(
            identifier=str(self.identifier),
            table_id=self.table_id,
            location=self.location,
            version=version,
            published_version=min(ratified.published_version, version),
            data_version=self._data_version(ratified, version),
            timestamp_ms=self._time(loaded),
            state=loaded.state,
            commit_policy=ratified.commit_policy,
        )
        if version < ratified.latest_version and not is_catalog_managed(snapshot.protocol):
            # An older version may be of the time before a catalog managed the table; the latest one decides (TT-4).
            self._latest(ratified, self.services.cached_snapshot(self.table_id))
            self._check_readable(snapshot)
        else:
            self._check(snapshot)
        return snapshot

    def _time(self, loaded: LoadedState) -> int:
        """Commit time of the loaded version (ICT-10, ICT-12)."""
        if loaded.in_commit_timestamp is not None:
            return loaded.in_commit_timestamp
        period = in_commit_timestamp_period(loaded.state.protocol, loaded.state.metadata)
        before = period is None or not period.covers(loaded.state.version)
        if before and not is_catalog_managed(loaded.state.protocol) and loaded.modification_time is not None:
            return loaded.modification_time
        raise CorruptLogError(
            f"Version {loaded.state.version} of {self.identifier} carries no inCommitTimestamp, which every commit of a "
            "catalog-managed table must have; the commit is corrupt, missing, or is not one of this catalog."
        )

    def _data_version(self, ratified: RatifiedCommits, version: int) -> int:
        """Newest version at or before ``version`` that changed data: the catalog knows it for the latest one only."""
        if ratified.latest_data_version <= version:
            return ratified.latest_data_version
        sources = commit_sources(self.location, start=0, end=version, ratified=ratified.commits)
        for source in reversed(sources):
            try:
                (commit,) = self.reader.decode_all((source,))
            except ObjectNotFoundError:
                break  # Metadata cleanup removed it; this version is then the best that is known.
            if changes_data(commit):
                return commit.version
        return version

    def _load_state(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        try:
            return self._load_or_ask_again(ratified, version)
        except CorruptLogError as error:
            behind = self._behind(ratified)
            if behind is not None and version == ratified.latest_version:
                raise behind.error(self.identifier, self.location) from error
            if error.version is None:
                raise
            names = [status.name for status in self.store.list_from(log_files.log_directory(self.location))]
            held = [commit.version for commit in ratified.commits]
            below = log_segment.readable_below(names, ratified=held, version=min(error.version, version))
            readable = (
                f"Versions {below.start} to {below[-1]} can still be read."
                if below
                else "No older version can be read."
            )
            raise CorruptLogError(f"{self.identifier}: {error} {readable}", version=error.version) from error

    def _load_or_ask_again(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        try:
            return self._read(ratified, version)
        except ObjectNotFoundError:
            # A commit may have been published and its staged file cleaned since the answer: ask once more (CM-R10).
            again = self.catalog_answer()
        try:
            return self._read(again, version)
        except ObjectNotFoundError as error:
            raise CorruptLogError(
                f"Version {version} of {self.identifier} cannot be built: {error} The catalog lists it, so storage lost it; "
                "restore that file from a backup. No older version is shown in its place."
            ) from error

    def _read(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        return load_state(self.reader, version=version, ratified=ratified.commits, cached=ratified.cached_commits)

    def _check_readable(self, snapshot: Snapshot) -> None:
        name = f"{snapshot.identifier} at version {snapshot.version}"
        check_readable(snapshot.protocol, name, metadata=snapshot.metadata)
        check_metadata(snapshot.metadata, name)

    def _check(self, snapshot: Snapshot) -> None:
        self._check_readable(snapshot)
        if not is_catalog_managed(snapshot.protocol):
            raise NotCatalogManagedError(
                f"The catalog manages {self.identifier}, but its log at {self.location} does not list the feature catalogManaged. "
                "Catalog and log disagree; nothing is read. Check that the location belongs to this table."
            )
