"""The commits of a table and their times (protocol heading "In-Commit Timestamps").

For history, change data and time travel; compactions are never used. The latest version says which commits have an in-commit
timestamp: none if it is disabled, those from the enablement version on if it is enabled. It is read from the first line of the
commit. The time of any other commit is the modification time of its file, adjusted to increase strictly, also if the commit has an
in-commit timestamp of an earlier time in which they were enabled.
"""

import bisect
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source, ratified_source
from cm_delta_dagster.client.snapshots.unreadable_versions import without_time
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError, VersionNotFoundError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import CommitInfo
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.in_commit_timestamps import InCommitTimestampPeriod
from cm_delta_dagster.protocol.log import log_files, log_segment
from cm_delta_dagster.protocol.log.commit_times import monotonic_times
from cm_delta_dagster.protocol.log.log_files import CommitFile, parse_log_file
from cm_delta_dagster.protocol.log.log_segment import InlineCommit, PublishedCommit, RatifiedSource
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.storage.store import ObjectStatus, Store

_FIRST_LINE_BYTES = 16 * 1024
_DIGESTS_PER_QUERY = 1024
_WINDOW = 16
"""Number of commits read ahead; limits the memory that a long range needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCommit:
    """One commit with its time in epoch milliseconds: its in-commit timestamp if it has one, else file time."""

    version: int
    actions: CommitActions
    timestamp_ms: int


@dataclass(frozen=True, kw_only=True)
class CommitLog:
    """The commits of one table that exist at one moment.

    Attributes:
        identifier: name of the table in messages.
        reader: reads and verifies the commits.
        latest: latest version; later commits are ignored.
        ratified: the catalog's commits, which take precedence over published ones of the same version.
        only_kept: in a log without version 0, ignore commits below the oldest checkpoint. Cleanup deleted the ratified commits
            there; a file that remains may be from a writer that was too late.
        period: the commits that have an in-commit timestamp; None if there are none.
        listed: the files of ``_delta_log``, if they have been listed.
    """

    identifier: object
    reader: CommitReader
    latest: int
    period: InCommitTimestampPeriod | None
    ratified: Sequence[RatifiedCommit] = ()
    only_kept: bool = False
    listed: tuple[ObjectStatus, ...] | None = None

    @property
    def location(self) -> str:
        """Absolute URI of the table root."""
        return self.reader.location

    @property
    def store(self) -> Store:
        """Where the log is."""
        return self.reader.store

    @cached_property
    def listing(self) -> tuple[ObjectStatus, ...]:
        """Files of ``_delta_log``."""
        if self.listed is not None:
            return self.listed
        return tuple(self.store.list_from(log_files.log_directory(self.location)))

    @cached_property
    def first(self) -> int:
        """The oldest version from which on all commits exist."""
        oldest = self._oldest_kept
        version = self.latest
        while version - 1 in self._sources and version > oldest:
            version -= 1
        return version

    @cached_property
    def earliest_readable(self) -> int:
        """The oldest version whose state can be built."""
        names = [status.name for status in self.listing]
        return log_segment.earliest_version(
            names, ratified=[commit.version for commit in self.ratified], latest=self.latest
        )

    def source(self, version: int) -> PublishedCommit | RatifiedSource:
        """Source of the commit of ``version``, which may be missing."""
        named = self._ratified.get(version)
        return published_source(self.location, version, sha256=self._digest(version)) if named is None else named

    def _digest(self, version: int) -> str | None:
        """The catalog's digest of ``version``; one query fetches many digests."""
        records = self.reader.records
        if records is None:
            return None
        start = version - version % _DIGESTS_PER_QUERY
        with self._digests_lock:
            if start not in self._digests:
                self._digests[start] = records.digests(start, start + _DIGESTS_PER_QUERY - 1)
            return self._digests[start].get(version)

    @cached_property
    def _digests(self) -> dict[int, Mapping[int, str]]:
        return {}

    @cached_property
    def _digests_lock(self) -> threading.Lock:
        return threading.Lock()

    def time_of(self, version: int, data: bytes | None = None) -> int:
        """Commit time of ``version`` in epoch milliseconds.

        Args:
            data: content of the commit, if the caller has read it already.

        Raises:
            CorruptLogError: the commit is missing, or has no in-commit timestamp and must have one.
        """
        if self.period is None or not self.period.covers(version):
            time = self._file_times.get(version)
            if time is None:
                raise self._missing(version)
            return time
        return self._own_time(
            version, commit_json.decode_commit_info(self._first_line(version) if data is None else data)
        )

    def file_time(self, version: int, *, default: int) -> int:
        """Modification time of the commit file of ``version``, adjusted to increase strictly; ``default`` if it is missing."""
        return self._file_times.get(version, default)

    def read(self, version: int) -> bytes:
        """Content of the commit of ``version``. Raises ObjectNotFoundError."""
        return self.reader.read(self.source(version))

    def load(self, start: int, end: int) -> Iterator[LoadedCommit]:
        """The commits ``start..end``, oldest first; reads a few ahead.

        Raises:
            VersionNotFoundError: ``end`` is above the latest version, or ``start`` below the oldest commit.
            CorruptLogError: a commit is missing or cannot be understood.
        """
        return (self._with_time(commit) for commit in self._commits(start, end))

    def actions(self, start: int, end: int) -> Iterator[CommitActions]:
        """:meth:`load` without the commit times. Needs no ``period``, and usually no listing."""
        if self.only_kept and start <= end and not self._is_kept(start):
            raise VersionNotFoundError(
                f"The commit of version {start} of {self.identifier} was deleted by metadata cleanup; a file with its name "
                f"is not that commit. The oldest commit without a gap after it is that of version {self.first}."
            )
        return self._commits(start, end)

    def _is_kept(self, version: int) -> bool:
        """Whether cleanup, which deletes in ascending order, has not reached ``version``."""
        if version == 0 or version in self._ratified or version - 1 in self._ratified:
            return True
        try:
            self.store.stat(published_source(self.location, version - 1).location)
        except ObjectNotFoundError:
            return version >= self.first
        return True

    def _commits(self, start: int, end: int) -> Iterator[CommitActions]:
        if end > self.latest or start < 0:
            raise VersionNotFoundError(
                f"{self.identifier} has no versions {start} to {end}: its versions are {max(0, self.first)} to "
                f"{self.latest}."
            )
        return self._in_windows(start, end)

    def _in_windows(self, start: int, end: int) -> Iterator[CommitActions]:
        with ThreadPoolExecutor(max_workers=min(self.reader.threads, _WINDOW)) as pool:
            for low in range(start, end + 1, _WINDOW):
                window = range(low, min(low + _WINDOW, end + 1))
                try:
                    commits: Iterable[CommitActions] = self.reader.decode_in(pool, [self.source(at) for at in window])
                except (CorruptLogError, ObjectNotFoundError):
                    commits = map(self._decode, window)  # Returns those before the damaged one, and names its version.
                yield from commits

    def _decode(self, version: int) -> CommitActions:
        try:
            return self.reader.decode(self.source(version))
        except ObjectNotFoundError as error:
            if version < self.first:
                raise VersionNotFoundError(
                    f"The commit of version {version} of {self.identifier} does not exist any more: {error} The oldest "
                    f"commit without a gap after it is that of version {self.first}."
                ) from error
            raise self._missing(version) from error

    def _with_time(self, actions: CommitActions) -> LoadedCommit:
        version = actions.version
        if self.period is not None and self.period.covers(version):
            time = self._own_time(version, actions.commit_info)
        else:
            time = self.time_of(version)
        return LoadedCommit(version=version, actions=actions, timestamp_ms=time)

    def version_at_or_before(self, timestamp_ms: int, *, oldest: int | None = None) -> int:
        """The newest version whose commit time is <= ``timestamp_ms``.

        Args:
            oldest: lowest version to consider, instead of that of the oldest commit.

        Raises:
            VersionNotFoundError: the time is before the oldest or after the latest commit.
        """
        low = self.first if oldest is None else max(oldest, self.first)
        last = self.time_of(self.latest)
        if timestamp_ms > last:
            raise VersionNotFoundError(
                f"{self.identifier} has no version as of {utc_text(timestamp_ms)}: its latest version {self.latest} is of "
                f"{utc_text(last)}. Leave the timestamp out to read the latest version."
            )
        candidates = self._candidates(timestamp_ms, low)
        position = bisect.bisect_right(candidates, timestamp_ms, key=self.time_of)
        if not position:
            raise VersionNotFoundError(
                f"{self.identifier} has no version as of {utc_text(timestamp_ms)}: its oldest readable version {low} is of "
                f"{utc_text(self.time_of(low))}."
            )
        return candidates[position - 1]

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """The oldest version that has a commit with a time >= ``timestamp_ms``.

        Raises:
            VersionNotFoundError: the time is after the latest commit.
        """
        last = self.time_of(self.latest)
        if timestamp_ms > last:
            raise VersionNotFoundError(
                f"{self.identifier} has no version at or after {utc_text(timestamp_ms)}: its latest version {self.latest} is of "
                f"{utc_text(last)}."
            )
        candidates = self._candidates(timestamp_ms, self.first)
        position = bisect.bisect_left(candidates, timestamp_ms, key=self.time_of)
        # The time is after the last file time and before the commit that enabled in-commit timestamps: the result is that commit.
        return (
            candidates[position] if position < len(candidates) else (candidates[-1] + 1 if candidates else self.first)
        )

    def _candidates(self, timestamp_ms: int, low: int) -> range:
        """The versions to search: those before or those from the commit that enabled in-commit timestamps."""
        period = self.period
        if period is None or period.first_version <= low:
            return range(low, self.latest + 1)
        enabled_at = period.first_timestamp
        if enabled_at is None:
            enabled_at = self.time_of(period.first_version)
        if timestamp_ms >= enabled_at:
            return range(period.first_version, self.latest + 1)
        return range(low, period.first_version)

    @cached_property
    def _oldest_kept(self) -> int:
        """Version of the oldest checkpoint, below which commits are ignored; 0 if none are."""
        if not self.only_kept or 0 in self._sources:
            return 0
        names = [status.name for status in self.listing]
        return log_segment.oldest_checkpoint(names, latest=self.latest) or 0

    @cached_property
    def _ratified(self) -> Mapping[int, RatifiedSource]:
        return {
            commit.version: ratified_source(self.location, commit)
            for commit in self.ratified
            if commit.version <= self.latest
        }

    @cached_property
    def _published_times(self) -> Mapping[int, int]:
        return {
            file.version: status.modification_time
            for status in self.listing
            if isinstance(file := parse_log_file(status.name), CommitFile) and file.version <= self.latest
        }

    @cached_property
    def _sources(self) -> frozenset[int]:
        return frozenset(self._published_times) | frozenset(self._ratified)

    @cached_property
    def _file_times(self) -> Mapping[int, int]:
        times = dict(self._published_times)
        times.update((commit.version, commit.file_modification_time) for commit in self.ratified)
        versions = sorted(version for version in times if version <= self.latest)
        adjusted = monotonic_times([times[version] for version in versions])
        return dict(zip(versions, adjusted, strict=True))

    def _first_line(self, version: int) -> bytes:
        source = self.source(version)
        if isinstance(source, InlineCommit):
            return source.content
        if source.sha256 is not None:
            try:
                return self.reader.read(source)  # Only the whole commit can be compared with its digest.
            except ObjectNotFoundError as error:
                raise self._missing(version) from error
        length = _FIRST_LINE_BYTES
        while True:
            try:
                data = self.store.read_range(source.location, offset=0, length=length)
            except ObjectNotFoundError as error:
                raise self._missing(version) from error
            if b"\n" in data or len(data) < length:
                return data
            length *= 8

    def _own_time(self, version: int, info: CommitInfo | None) -> int:
        if info is not None and info.in_commit_timestamp is not None:
            return info.in_commit_timestamp
        ratified = self.ratified_time(version)
        if ratified is not None:
            return ratified
        since = f"since version {self.period.first_version if self.period else 0}"
        raise without_time(version, self.identifier, info, since)

    def ratified_time(self, version: int) -> int | None:
        """The in-commit timestamp with which the catalog ratified ``version``; None without a record."""
        return next((record.in_commit_timestamp for record in self.reader.records_of(version)), None)

    def is_unpublished(self, version: int) -> bool:
        """Whether the catalog has the commit as ratified and not published, so that log cleanup cannot have removed it."""
        return version in self._ratified

    def _missing(self, version: int) -> CorruptLogError:
        return CorruptLogError(
            f"The commit of version {version} of {self.identifier} is missing at {self.location}/_delta_log, and the versions "
            f"up to {self.latest} exist; restore that file from a backup."
        )


def removed_by_cleanup(
    store: Store,
    location: str,
    *,
    identifier: object,
    version: int,
    latest: int,
    ratified: Sequence[RatifiedCommit] = (),
) -> VersionNotFoundError | None:
    """The error for a version that metadata cleanup removed; None if the log fails for another reason."""
    names = [status.name for status in store.list_from(log_files.log_directory(location))]
    oldest = log_segment.version_after_cleanup(
        names, ratified=[commit.version for commit in ratified], version=version, latest=latest
    )
    if oldest is None:
        return None
    return VersionNotFoundError(
        f"Version {version} of {identifier} was removed by metadata cleanup; the oldest readable version is {oldest}."
    )
