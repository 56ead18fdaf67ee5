"""A table that a catalog manages: snapshots, time travel, transactions. Room: client. Log only, no rows."""

import typing
from collections.abc import Callable, Mapping

from cm_delta_dagster.catalog.catalog import MaintenanceDecision, MaintenanceKind, RatifiedCommits, TableIdentifier
from cm_delta_dagster.client.after_commit import AfterCommit, BackgroundWork
from cm_delta_dagster.client.committer import TableCommitter, advance, changes_data
from cm_delta_dagster.client.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.log_reader import LoadedState, commit_sources, load_state, read_commits
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshot import Snapshot
from cm_delta_dagster.client.time_travel import earliest_version, version_as_of
from cm_delta_dagster.client.transaction import Transaction
from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    NotCatalogManagedError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.table_features import check_readable, is_catalog_managed
from cm_delta_dagster.storage.store import Store

if typing.TYPE_CHECKING:
    from cm_delta_dagster.catalog.catalog import Catalog


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

    def cached_snapshot(self, table_id: str) -> Snapshot | None: ...
    def remember_snapshot(self, snapshot: Snapshot) -> None: ...


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
        self._committer = TableCommitter(
            store=store,
            catalog=services.catalog,
            settings=services.settings,
            after_commit=AfterCommit(
                store=store,
                catalog=services.catalog,
                background=services.background,
                now_ms=services.now_ms,
                remember=services.remember_snapshot,
            ),
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
        ratified = self.catalog.get_ratified_commits(self.table_id)
        if timestamp_ms is not None:
            version = version_as_of(self, ratified, timestamp_ms)
        if version is None or version == ratified.latest_version:
            return self._latest(ratified)
        if not 0 <= version <= ratified.latest_version:
            raise VersionNotFoundError(
                f"Version {version} of {self.identifier} does not exist; the catalog's versions are 0 to "
                f"{ratified.latest_version}."
            )
        try:
            return self._load(ratified, version)
        except CorruptLogError as error:
            oldest = earliest_version(self, ratified)
            if version >= oldest:
                raise
            raise VersionNotFoundError(
                f"Version {version} of {self.identifier} was removed by metadata cleanup; the oldest readable version is "
                f"{oldest}."
            ) from error

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> Transaction:
        """A write that builds on ``snapshot``, which must be one of this table.

        Raises:
            UnsupportedFeatureError: the table needs a writer feature that this client does not have (PROT-7).
        """
        return Transaction(
            snapshot=snapshot, committer=self._committer, operation=operation, parameters=parameters, context=context
        )

    def maintenance_decision(self, kind: MaintenanceKind) -> MaintenanceDecision:
        """Ask the catalog whether that maintenance is permitted on this table now (CM-M5)."""
        return self.catalog.maintenance_decision(self.identifier, kind)

    def _latest(self, ratified: RatifiedCommits) -> Snapshot:
        cached = self.services.cached_snapshot(self.table_id)
        behind = ratified.latest_version - cached.version if cached is not None else -1
        if cached is None or not 0 <= behind <= self.services.settings.incremental_refresh_limit:
            snapshot = self._load(ratified, ratified.latest_version)
        else:
            snapshot = self._refresh(cached, ratified)
        self.services.remember_snapshot(snapshot)
        return snapshot

    def _refresh(self, cached: Snapshot, ratified: RatifiedCommits) -> Snapshot:
        """``cached`` brought up to the catalog's latest version by reading only what is newer (CACHE-4)."""
        sources = commit_sources(
            self.location, start=cached.version + 1, end=ratified.latest_version, ratified=ratified.commits
        )
        try:
            commits = read_commits(self.store, sources, threads=self.services.settings.read_threads)
        except ObjectNotFoundError:
            return self._load(ratified, ratified.latest_version)
        snapshot = advance(cached, commits, published_version=ratified.published_version)
        if any(commit.protocol is not None or commit.metadata is not None for commit in commits):
            self._check(snapshot)
        return snapshot

    def _load(self, ratified: RatifiedCommits, version: int) -> Snapshot:
        loaded = self._load_state(ratified, version)
        if loaded.in_commit_timestamp is None:
            raise CorruptLogError(
                f"Version {version} of {self.identifier} carries no inCommitTimestamp, which every commit of a "
                "catalog-managed table must have; the commit is corrupt or is not one of this catalog."
            )
        snapshot = Snapshot(
            identifier=str(self.identifier),
            table_id=self.table_id,
            location=self.location,
            version=version,
            published_version=min(ratified.published_version, version),
            data_version=self._data_version(ratified, version),
            timestamp_ms=loaded.in_commit_timestamp,
            state=loaded.state,
        )
        self._check(snapshot)
        return snapshot

    def _data_version(self, ratified: RatifiedCommits, version: int) -> int:
        """Newest version at or before ``version`` that changed data: the catalog knows it for the latest one only."""
        if ratified.latest_data_version <= version:
            return ratified.latest_data_version
        sources = commit_sources(self.location, start=0, end=version, ratified=ratified.commits)
        for source in reversed(sources):
            try:
                (commit,) = read_commits(self.store, (source,), threads=1)
            except ObjectNotFoundError:
                break  # Metadata cleanup removed it; this version is then the best that is known.
            if changes_data(commit):
                return commit.version
        return version

    def _load_state(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        try:
            return self._read(ratified, version)
        except ObjectNotFoundError:
            # A commit may have been published and its staged file cleaned since the answer: ask once more (CM-R10).
            again = self.catalog.get_ratified_commits(self.table_id)
        try:
            return self._read(again, version)
        except ObjectNotFoundError as error:
            raise CorruptLogError(
                f"Version {version} of {self.identifier} cannot be built: {error} The catalog lists it, so storage lost it; "
                "restore that file from a backup. No older version is shown in its place."
            ) from error

    def _read(self, ratified: RatifiedCommits, version: int) -> LoadedState:
        return load_state(
            self.store,
            location=self.location,
            version=version,
            ratified=ratified.commits,
            threads=self.services.settings.read_threads,
        )

    def _check(self, snapshot: Snapshot) -> None:
        check_readable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
        if not is_catalog_managed(snapshot.protocol):
            raise NotCatalogManagedError(
                f"The catalog manages {self.identifier}, but its log at {self.location} does not list the feature catalogManaged. "
                "Catalog and log disagree; nothing is read. Check that the location belongs to this table."
            )
