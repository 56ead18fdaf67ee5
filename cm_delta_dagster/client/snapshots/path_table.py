"""Tables opened by location, of any Delta writer. Read-only.

A catalog-managed table is refused, because only its catalog knows its latest version.
"""

import logging
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import tzinfo

from cm_delta_dagster.client.snapshots.commit_log import CommitLog, LoadedCommit, removed_by_cleanup
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.log_reader import (
    LoadedState,
    LogListing,
    list_log,
    load_state,
    read_checksum,
    read_hint,
)
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.snapshots.unreadable_versions import newest_readable, without_time
from cm_delta_dagster.client.snapshots.version_lookup import VersionLookup
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    CorruptLogError,
    InvalidArgumentError,
    ObjectNotFoundError,
    TableNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.features.in_commit_timestamps import InCommitTimestampPeriod, in_commit_timestamp_period
from cm_delta_dagster.protocol.features.metadata_validation import check_metadata
from cm_delta_dagster.protocol.features.table_features import check_readable, is_catalog_managed
from cm_delta_dagster.protocol.log import log_files, log_segment
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.storage.store import Store, StoreRegistry

_log = logging.getLogger(__name__)

_READ_THREADS = 8
_HEAD_BYTES = 64 * 1024

_ProtocolAndMetadata: typing.TypeAlias = tuple[Protocol, Metadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What was seen of the log before its latest version was loaded. ``head`` is the beginning of the newest commit."""

    listing: LogListing
    head: bytes


class PathTable(VersionLookup):
    """The table at one location. Implements :class:`~cm_delta_dagster.client.snapshots.readable_table.ReadableTable`.

    Each call lists the log, because another writer may change the table at any time. The latest version is loaded again unless
    the listing and the beginning of the newest commit are the same as before. A caller that needs a consistent view takes one
    snapshot. Use :func:`open_path_table`, which finds the store.

    Args:
        location: absolute URI of the table root or an absolute local path.
        time_zone: of times that state none, in partition values and conditions; None for the default of the reader.
    """

    def __init__(
        self, *, location: str, store: Store, threads: int = _READ_THREADS, time_zone: tzinfo | None = None
    ) -> None:
        self.time_zone = time_zone
        self.location = normalise_location(location).rstrip("/")
        self.store = store
        self._reader = CommitReader(store, self.location, threads=threads)
        self._loaded: list[
            tuple[_Seen, LoadedState]
        ] = []  # Of the latest version, at most one; copies of the table share it.

    @property
    def identifier(self) -> str:
        return self.location

    @property
    def table_id(self) -> str:
        """``id`` of the latest metadata."""
        return self.snapshot().table_id

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The table at its latest version, at ``version``, or as of ``timestamp_ms`` (epoch milliseconds).

        Raises:
            TableNotFoundError: there is no Delta log at the location.
            CatalogManagedAccessError: the table is catalog-managed.
            VersionNotFoundError: no such version or time.
            UnsupportedFeatureError: the table needs a reader feature that this client does not support.
            CorruptLogError: a commit that is needed is missing or unreadable.
        """
        if version is not None and timestamp_ms is not None:
            raise InvalidArgumentError("Give a version or a timestamp, not both.")
        if timestamp_ms is not None:
            log = self.commit_log()
            version = log.version_at_or_before(timestamp_ms, oldest=log.earliest_readable)
        latest, listing = self._latest()
        if version is None or version == latest:
            return self._snapshot(self._load_latest(latest, listing))
        if not 0 <= version <= latest:
            raise VersionNotFoundError(
                f"Version {version} of {self.identifier} does not exist; the latest version is {latest}."
            )
        try:
            loaded = load_state(self._reader, version=version)
        except CorruptLogError as error:
            removed = removed_by_cleanup(
                self.store, self.location, identifier=self.identifier, version=version, latest=latest
            )
            if removed is None:
                raise
            raise removed from error
        return self._snapshot(loaded, newest=self._newest_definition(version, latest, listing))

    def check_readable_by_path(self) -> None:
        """Raise an error unless there is a Delta table that no catalog manages. The latest version need not be readable.

        Raises:
            TableNotFoundError: there is no Delta log at the location.
            CatalogManagedAccessError: the table is catalog-managed.
        """
        latest, listing = self._latest()
        with suppress(CorruptLogError, ObjectNotFoundError):
            self._newest_definition(-1, latest, listing)

    def commit_log(self) -> CommitLog:
        """The commits that exist now, up to the latest version, also if that version cannot be read by this client.

        Raises CorruptLogError if commits of the latest version are missing.
        """
        latest, listing = self._latest()
        # A long log without a checkpoint takes long to load. What was loaded before costs less than the check.
        if not self._loaded and self._has_file_times(latest):
            names = [status.name for status in listing.files]
            log_segment.build_log_segment(location=self.location, names=names, ratified=(), version=latest)
            return self._log(latest, None, listing)

        def load(version: int) -> TableState:
            if version == latest:
                return self._load_latest(latest, listing).state
            return load_state(self._reader, version=version).state

        state = newest_readable(load, latest=latest)
        self._refuse_catalog_managed(state.protocol)
        return self._log(latest, in_commit_timestamp_period(state.protocol, state.metadata), listing)

    def _has_file_times(self, latest: int) -> bool:
        """Whether the commits of the table have no in-commit timestamps, as the newest one shows without the state of the table.

        While the timestamps are enabled, each commit has one. A catalog-managed table has them enabled.
        """
        try:
            info = commit_json.find_commit_info(self.store.read(published_source(self.location, latest).location))
        except (CorruptLogError, ObjectNotFoundError):
            return False
        return info is not None and info.in_commit_timestamp is None

    def _log(self, latest: int, period: InCommitTimestampPeriod | None, listing: LogListing | None = None) -> CommitLog:
        listed = listing.files if listing is not None and not listing.start else None
        return CommitLog(identifier=self.identifier, reader=self._reader, latest=latest, period=period, listed=listed)

    def commits(self, start: int, end: int) -> Iterator[LoadedCommit]:
        """See :meth:`ReadableTable.commits`."""
        return self.commit_log().load(start, end)

    def latest_version(self) -> int:
        """See :meth:`ReadableTable.latest_version`."""
        return self._latest()[0]

    def commit_actions(self, start: int, end: int) -> Iterator[CommitActions]:
        """See :meth:`ReadableTable.commit_actions`.

        Raises:
            CatalogManagedAccessError: at a commit that makes the table catalog-managed, unless a later one ends that.
        """
        latest, listing = self._latest()
        for commit in self._log(latest, None, listing).actions(start, end):
            protocol = commit.protocol
            if protocol is not None and is_catalog_managed(protocol):
                self._refuse_unless_ended(protocol, commit.version, latest, listing)
            yield commit

    def _latest(self) -> tuple[int, LogListing]:
        """The newest version, and the listing that shows it: from the hinted checkpoint on, else of all files."""
        directory = log_files.log_directory(self.location)
        hint = read_hint(self.store, directory)
        for start in ([f"{hint.version:020d}"] if hint is not None else []) + [""]:
            listing = list_log(self.store, directory, start=start)
            latest = log_segment.latest_version([status.name for status in listing.files])
            if latest is not None:
                return latest, listing
        raise TableNotFoundError(
            f"There is no Delta table at {self.location}: its _delta_log holds neither a commit nor a complete checkpoint."
        )

    def _load_latest(self, latest: int, listing: LogListing) -> LoadedState:
        """The state of the latest version, which ``listing`` shows; the one that was loaded before if the log is the same.

        The times of a listing may have a resolution of a second, in which a table can be deleted and another one created whose
        files have the same names and sizes. Their newest commits differ in the ids, times or file names that they begin with.
        """
        newest = published_source(self.location, latest).location
        try:
            seen = _Seen(listing=listing, head=self.store.read_range(newest, offset=0, length=_HEAD_BYTES))
        except ObjectNotFoundError:
            return load_state(self._reader, version=latest, listing=listing)  # Only a checkpoint is left.
        for before, loaded in tuple(self._loaded):
            if before == seen:
                return loaded
        loaded = load_state(self._reader, version=latest, listing=listing)
        self._loaded[:] = [(seen, loaded)]
        return loaded

    def _snapshot(self, loaded: LoadedState, *, newest: _ProtocolAndMetadata | None = None) -> Snapshot:
        """The snapshot of a state; ``newest`` is the definition of the latest version, if that is another one."""
        state = loaded.state
        if newest is None:  # Otherwise no catalog manages the table any more, and all of its versions are published.
            self._refuse_catalog_managed(state.protocol)
        name = f"{self.identifier} at version {state.version}"
        check_readable(state.protocol, name)
        check_metadata(state.metadata, name, version=state.metadata_version)
        self._compare_with_checksum(loaded)
        return Snapshot(
            identifier=self.identifier,
            table_id=state.metadata.id,
            location=self.location,
            version=state.version,
            published_version=state.version,
            data_version=state.version,
            commit_time=self._time(loaded, newest or (state.protocol, state.metadata)),
            state=state,
        ).in_time_zone(self.time_zone)

    def _newest_definition(self, version: int, latest: int, listing: LogListing) -> _ProtocolAndMetadata | None:
        """Protocol and metadata of the latest version, or of the newest one above ``version`` that can be read; None if none can.

        Raises:
            CatalogManagedAccessError: the table has become catalog-managed since ``version``.
        """
        checksum = read_checksum(self.store, self.location, latest)
        if checksum is not None and not is_catalog_managed(checksum.protocol):
            return checksum.protocol, checksum.metadata
        try:
            state = self._load_latest(latest, listing).state
            self._refuse_catalog_managed(state.protocol)
            return state.protocol, state.metadata
        except CorruptLogError:
            pass  # The requested version is intact; damage in a newer one does not affect it.
        for newer in range(latest, version, -1):
            with suppress(ObjectNotFoundError, CorruptLogError):
                commit = self._reader.decode(published_source(self.location, newer))
                if commit.protocol is not None:
                    self._refuse_catalog_managed(commit.protocol)
                    break
        return None

    def _refuse_unless_ended(self, protocol: Protocol, version: int, latest: int, listing: LogListing) -> None:
        """Refuse a catalog-managed version, unless the latest one is not catalog-managed: then all commits are published."""
        if self._newest_definition(version, latest, listing) is None:
            self._refuse_catalog_managed(protocol)

    def _refuse_catalog_managed(self, protocol: Protocol) -> None:
        if is_catalog_managed(protocol):
            raise CatalogManagedAccessError(
                f"The table at {self.location} is catalog-managed: its files do not say which commits are ratified. Open it "
                "by its name through the catalog that manages it."
            )

    def _compare_with_checksum(self, loaded: LoadedState) -> None:
        """Log a warning if the checksum of the same transaction does not agree with the log, which decides."""
        state = loaded.state
        checksum = None if loaded.txn_id is None else read_checksum(self.store, self.location, state.version)
        if checksum is None or checksum.txn_id != loaded.txn_id:
            return
        differing = [
            f"{name} is {expected} in the checksum and {actual} in the log"
            for name, expected, actual in (
                ("numFiles", checksum.num_files, state.files.num_files),
                ("tableSizeBytes", checksum.table_size_bytes, state.files.size_bytes),
            )
            if expected != actual
        ]
        if differing:
            _log.warning(
                "Version %d of %s does not agree with its checksum %s, which the same transaction wrote: %s. The version is read "
                "as the log has it. If a part of the log was lost or changed, restore it; if the checksum is wrong, delete it.",
                state.version,
                self.identifier,
                log_files.checksum_file_name(state.version),
                ", ".join(differing),
            )

    def _time(self, loaded: LoadedState, newest: _ProtocolAndMetadata) -> int | Callable[[], int]:
        """The commit time by the rule of :class:`CommitLog`; a function that lists the log where it is a file's time."""
        version = loaded.state.version
        period = in_commit_timestamp_period(*newest)
        if period is not None and period.covers(version):
            if loaded.in_commit_timestamp is not None:
                return loaded.in_commit_timestamp
            if loaded.has_commit:
                raise without_time(
                    version, self.identifier, loaded.commit_info, "made while delta.enableInCommitTimestamps is true"
                )
        log = self._log(version, None)
        return lambda: log.file_time(version, default=loaded.modification_time or 0)


def open_path_table(stores: StoreRegistry, location: str, *, time_zone: tzinfo | None = None) -> PathTable:
    """The table at ``location``; nothing is read yet. Raises StoreNotSupportedError.

    Args:
        time_zone: as in :class:`PathTable`.
    """
    root = normalise_location(location)
    return PathTable(location=root, store=stores.store_for(root), time_zone=time_zone)
