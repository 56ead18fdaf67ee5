"""Builds a table state from the catalog's answer and the files of ``_delta_log``.

Protocol heading "Reading Catalog-managed Tables". ``protocol.log.log_segment`` decides which files make a version; this module
reads them. The result is the state of exactly the requested version, or an error.
"""

import logging
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.snapshots.checkpoint_reader import read_checkpoint
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import (
    cached_sources,
    published_source,
    ratified_source,
)
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError, TableStorageMissingError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import CommitInfo
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import last_checkpoint, log_files, log_segment
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay
from cm_delta_dagster.protocol.log.checkpoint_files import CheckpointSource
from cm_delta_dagster.protocol.log.last_checkpoint import LastCheckpoint
from cm_delta_dagster.protocol.log.log_segment import (
    CommitSource,
    CompactedCommits,
    InlineCommit,
    LogSegment,
    PublishedCommit,
    RatifiedSource,
    build_log_segment,
    plan_log_segment,
)
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum, differences
from cm_delta_dagster.protocol.log.version_checksum import decode as decode_checksum
from cm_delta_dagster.remedies import CheckTable, RelocateTables
from cm_delta_dagster.storage.store import ObjectStatus, Store

_log = logging.getLogger(__name__)


_NO_LIMIT = 2**63
_MAX_PROBES = 1000
"""Commits missing in a listing that are looked up one by one before a gap is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """A state, and the time of its last commit in epoch milliseconds, as far as it is known.

    Attributes:
        in_commit_timestamp: from the commit, or from the checksum if the commit was removed; None if neither has it.
        commit_info: of the commit; None if it has none or was removed.
        has_commit: whether the commit exists.
        modification_time: of the commit file, or of the checkpoint if the file was removed; None for a commit from the catalog.
        newest_listed: version of the newest commit file in ``_delta_log``, which may be above the loaded one; None if the log
            was not listed or has no commit file.
    """

    state: TableState
    in_commit_timestamp: int | None
    commit_info: CommitInfo | None = None
    has_commit: bool = True
    modification_time: int | None = None
    newest_listed: int | None = None

    @property
    def txn_id(self) -> str | None:
        """The transaction that made the commit; None if the commit does not say."""
        return None if self.commit_info is None else self.commit_info.txn_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """The files of ``_delta_log`` at one moment whose name is >= ``start``; all of them if ``start`` is empty."""

    start: str
    files: tuple[ObjectStatus, ...]


def list_log(store: Store, directory: str, *, start: str = "") -> LogListing:
    """The files of the log in ``directory`` from the name ``start`` on."""
    return LogListing(start=start, files=tuple(store.list_from(directory, start=start)))


def load_state(
    reader: CommitReader,
    *,
    version: int,
    ratified: Sequence[RatifiedCommit] = (),
    cached: Sequence[RatifiedCommit] = (),
    listing: LogListing | None = None,
) -> LoadedState:
    """Build the state of ``version`` from the newest usable checkpoint and the commits after it.

    Args:
        cached: published commits with content. If the catalog returned the content of every version, storage is not read;
            otherwise the listing decides which files make the version, and content replaces reads of files in it.
        listing: of the log, if the caller has listed it; it must begin at or below the checkpoint to use.

    Raises:
        CorruptLogError: a commit between the checkpoint and ``version`` is missing, a file cannot be understood, or what was
            read contradicts the digests or the version checksum.
        ObjectNotFoundError: a file named by the catalog or in the listing was deleted.
        TableStorageMissingError: the log of a catalog-managed table is empty.
    """
    store, location = reader.store, reader.location
    ratified_sources = tuple(ratified_source(location, commit) for commit in ratified if commit.version <= version)
    contents = cached_sources(location, cached)
    served = _sources_with_content(contents, ratified_sources, version)
    if served is not None:
        all_commits = reader.decode_all(served)
        state = replay(None, all_commits, location=location)
        return _with_times(reader, state, commits=all_commits, ratified=ratified_sources, times={})
    directory = log_files.log_directory(location)
    listing = listing or list_log(store, directory, start=_listing_start(store, directory, version))
    start, names = listing.start, _modification_times(listing)
    unusable: dict[CheckpointSource | CompactedCommits, str] = {}
    while True:
        segment, missing = plan_log_segment(
            location=location, names=names, ratified=ratified_sources, version=version, **_excluded(unusable)
        )
        if missing and start:
            # The hint may point to a checkpoint that was deleted or cannot be used: read the full listing.
            start = ""
            names = _modification_times(list_log(store, directory))
            continue
        if missing:
            unlisted = _probe(store, directory, missing)
            names |= unlisted
            if len(unlisted) < sum(gap.stop - gap.start for gap in missing):
                copies = _copies(reader, names, missing, version)
                ratified_sources += copies
                if not copies:
                    _refuse_gap(reader, names, ratified_sources, version, unusable)
            continue
        try:
            state, commits, unproven = _read_segment(reader, segment, contents)
        except _UnusableError as error:
            _log.warning("Version %d of %s is read without a file that could not be used: %s", version, location, error)
            unusable[error.source] = str(error)
            start = ""
            names = _modification_times(list_log(store, directory))
            continue
        if unproven is not None:
            _refuse_contradiction(reader, unproven, state, names)
        return _with_times(reader, state, commits=commits, ratified=ratified_sources, times=names)


class _Excluded(typing.TypedDict):
    excluded_checkpoints: frozenset[CheckpointSource]
    excluded_compactions: frozenset[CompactedCommits]


def _excluded(unusable: Iterable[CheckpointSource | CompactedCommits]) -> _Excluded:
    """The unusable files, as ``plan_log_segment`` takes them."""
    files = tuple(unusable)
    return {
        "excluded_checkpoints": frozenset(file for file in files if isinstance(file, CheckpointSource)),
        "excluded_compactions": frozenset(file for file in files if isinstance(file, CompactedCommits)),
    }


def _sources_with_content(
    contents: Mapping[int, InlineCommit], ratified: Sequence[RatifiedSource], version: int
) -> Sequence[CommitSource] | None:
    """The commits ``0..version`` if the catalog returned the content of each; otherwise None."""
    served = [*(contents[cached] for cached in sorted(contents) if cached <= version), *ratified]
    versions = [source.version for source in served if isinstance(source, InlineCommit)]
    return served if len(versions) == version + 1 and versions == list(range(version + 1)) else None


def _modification_times(listing: LogListing) -> dict[str, int]:
    """The listed names with their modification times."""
    return {status.name: status.modification_time for status in listing.files}


def _probe(store: Store, directory: str, gaps: Sequence[range]) -> dict[str, int]:
    """The commits of ``gaps`` that exist although the listing does not show them."""
    modification_times: dict[str, int] = {}
    for version in islice(chain.from_iterable(gaps), _MAX_PROBES):
        name = log_files.commit_file_name(version)
        try:
            modification_times[name] = store.stat(f"{directory}/{name}").modification_time
        except ObjectNotFoundError:
            break  # A single missing commit fails the read.
    return modification_times


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unproven:
    """Parts of a state: the state of a checkpoint, and the commits and compactions from version ``first`` on."""

    base: TableState | None
    first: int
    commits: Sequence[CommitActions]
    compactions: Sequence[CompactedCommits]


def _copies(
    reader: CommitReader, names: Iterable[str], gaps: Sequence[range], version: int
) -> tuple[InlineCommit, ...]:
    """Intact copies of lost commits; none if metadata cleanup removed the commits or the whole log is missing."""
    listed = list(names)
    oldest = log_segment.oldest_checkpoint(listed, latest=_NO_LIMIT)
    was_cleaned = gaps[0].start == 0 and oldest is not None and oldest > version
    if not listed or was_cleaned or sum(gap.stop - gap.start for gap in gaps) > _MAX_PROBES:
        return ()
    return reader.copies(gaps)


def _refuse_gap(
    reader: CommitReader,
    names: Iterable[str],
    ratified: Sequence[RatifiedSource],
    version: int,
    unusable: Mapping[CheckpointSource | CompactedCommits, str],
) -> typing.NoReturn:
    names = list(names)
    if reader.is_managed and not names:
        raise storage_missing(reader.location, version)
    try:
        build_log_segment(
            location=reader.location,
            names=names,
            ratified=ratified,
            version=version,
            excluded_checkpoints=frozenset(item for item in unusable if isinstance(item, CheckpointSource)),
            excluded_compactions=frozenset(item for item in unusable if isinstance(item, CompactedCommits)),
        )
    except CorruptLogError as error:
        text = " ".join([error.message, *unusable.values()])
        raise CorruptLogError(text, version=error.version).with_remedy(error.remedy) from error
    raise AssertionError("a gap was found before")


def storage_missing(location: str, version: int) -> TableStorageMissingError:
    """The error for a table whose log is missing although ``version`` is published."""
    return TableStorageMissingError(
        f"The catalog knows version {version} of the table at {location} as published, and there is no log at that location. "
        "Nothing was written. Likely causes: the volume is not mounted, the warehouse was moved, or the directory was deleted "
        "(restore it from a backup)."
    ).with_remedy(RelocateTables())


def _refuse_contradiction(reader: CommitReader, segment: _Unproven, state: TableState, names: Iterable[str]) -> None:
    """Compare commits without a digest, and compactions, with the newest checksum that one of their transactions wrote."""
    covered = [(file.start, file.version) for file in segment.compactions]
    versions = [
        file.version
        for name in names
        if isinstance(file := log_files.parse_log_file(name), log_files.ChecksumFile)
        and segment.first <= file.version <= state.version
        and not any(start <= file.version < end for start, end in covered)
    ]
    for version in sorted(versions, reverse=True):
        checksum = read_checksum(reader.store, reader.location, version)
        info = next((commit.commit_info for commit in segment.commits if commit.version == version), None)
        # A checksum counts only if the transaction that made the version wrote it.
        if checksum is None or info is None or checksum.txn_id is None or checksum.txn_id != info.txn_id:
            continue
        commits = [commit for commit in segment.commits if commit.version <= version]
        replayed = state if version == state.version else replay(segment.base, commits, location=reader.location)
        wrong = differences(checksum, replayed)
        if wrong:
            raise CorruptLogError(
                f"Version {version} of the table at {reader.location} differs from its checksum "
                f"{log_files.checksum_file_name(version)} in {', '.join(wrong)}: a commit of the log was altered after it was "
                "written, or the checksum is wrong.",
                version=version,
            ).with_remedy(CheckTable())
        return


class _UnusableError(Exception):
    """A checkpoint or compaction could not be read; another checkpoint or the commits may replace it."""

    def __init__(self, source: CheckpointSource | CompactedCommits, error: Exception) -> None:
        file = source.locations[0] if isinstance(source, CheckpointSource) else source.location
        super().__init__(f"{file} was not usable: {error}")
        self.source = source


def read_hint(store: Store, directory: str) -> LastCheckpoint | None:
    """The ``_last_checkpoint`` of the log in ``directory``; None if it is missing or unusable."""
    try:
        return last_checkpoint.decode(store.read(f"{directory}/{log_files.LAST_CHECKPOINT_FILE_NAME}"))
    except ObjectNotFoundError:
        return None


def hinted_version(store: Store, location: str) -> int:
    """Version of the newest checkpoint of the table at ``location`` according to its hint; -1 without a usable one."""
    hint = read_hint(store, log_files.log_directory(location))
    return -1 if hint is None else hint.version


def _listing_start(store: Store, directory: str, version: int) -> str:
    """First name to list: that of the hinted checkpoint, or "" without a usable hint."""
    hint = read_hint(store, directory)
    return "" if hint is None or hint.version > version else f"{hint.version:020d}"


def _read_segment(
    reader: CommitReader, segment: LogSegment, contents: Mapping[int, InlineCommit]
) -> tuple[TableState, Sequence[CommitActions], _Unproven | None]:
    """State, commits, and the parts of the state unless digests or content of the catalog verify every commit."""
    base: TableState | None = None
    if segment.checkpoint is not None:
        base = _read_checkpoint(reader, segment.checkpoint)
    compacted = [_read_compaction(reader, source) for source in segment.compactions]
    sources = reader.with_digests(
        [
            contents.get(commit.version, commit) if isinstance(commit, PublishedCommit) else commit
            for commit in segment.commits
        ]
    )
    published = reader.decode_all(sources)
    commits = sorted([*compacted, *published], key=lambda commit: commit.version)
    state = replay(base, commits, location=reader.location) if commits else base
    if state is None:
        raise CorruptLogError(
            f"The log of {reader.location} holds neither a checkpoint nor a commit for version {segment.version}."
        )
    proven = not compacted and all(
        isinstance(source, InlineCommit) or (not isinstance(source, CompactedCommits) and source.sha256 is not None)
        for source in sources
    )
    if proven or not reader.is_managed:
        return state, published, None
    first = 0 if base is None else base.version + 1
    return state, published, _Unproven(base=base, first=first, commits=commits, compactions=segment.compactions)


def _read_compaction(reader: CommitReader, source: CompactedCommits) -> CommitActions:
    try:
        # A truncated compaction would lose actions; its commits are read instead.
        if not reader.read(source).endswith(b"\n"):
            raise CorruptLogError(f"{source.location} does not end with a whole line.")
        return reader.decode(source)
    except (CorruptLogError, ObjectNotFoundError) as error:
        raise _UnusableError(source, error) from error


def _with_times(
    reader: CommitReader,
    state: TableState,
    *,
    commits: Sequence[CommitActions],
    ratified: Sequence[RatifiedSource],
    times: Mapping[str, int],
) -> LoadedState:
    """``state`` with the time of its last commit; checkpoints and compactions have no commitInfo."""
    version = state.version
    newest = max(
        (file.version for name in times if isinstance(file := log_files.parse_log_file(name), log_files.CommitFile)),
        default=None,
    )
    time = times.get(log_files.commit_file_name(version))
    last = next((commit for commit in commits if commit.version == version), None)
    has_commit = True
    if last is not None:
        info = last.commit_info
    else:
        named = next((commit for commit in ratified if commit.version == version), None)
        (source,) = reader.with_digests([named or published_source(reader.location, version)])
        try:
            info = commit_json.decode_commit_info(reader.read(source))
        except ObjectNotFoundError:
            has_commit = False
    if has_commit:
        return LoadedState(
            state=state,
            in_commit_timestamp=None if info is None else info.in_commit_timestamp,
            commit_info=info,
            modification_time=time,
            newest_listed=newest,
        )
    checksum = read_checksum(reader.store, reader.location, version)
    of_checkpoint = [
        modified
        for name, modified in times.items()
        if (file := log_files.parse_log_file(name)) is not None
        and not isinstance(file, log_files.CompactionFile | log_files.LastCheckpointFile)
        and file.version == version
    ]
    return LoadedState(
        state=state,
        in_commit_timestamp=None if checksum is None else checksum.in_commit_timestamp,
        has_commit=False,
        modification_time=max(of_checkpoint, default=None),
        newest_listed=newest,
    )


def read_checksum(store: Store, location: str, version: int) -> VersionChecksum | None:
    """The checksum of ``version``, or None if it is missing or cannot be decoded."""
    try:
        return decode_checksum(
            store.read(f"{log_files.log_directory(location)}/{log_files.checksum_file_name(version)}")
        )
    except ObjectNotFoundError:
        return None


def _read_checkpoint(reader: CommitReader, source: CheckpointSource) -> TableState:
    try:
        state = read_checkpoint(reader, version=source.version, locations=source.locations)
        if reader.is_managed or source.locations[0].endswith(".json"):
            _refuse_shortened(reader.store, source.locations[0], state, location=reader.location)
        return state
    except (CorruptLogError, ObjectNotFoundError) as error:
        raise _UnusableError(source, error) from error


def proven_checkpoint(reader: CommitReader, *, version: int, locations: Sequence[str]) -> TableState:
    """The state in a checkpoint, compared with the checksum of its version.

    Args:
        locations: of its top-level files.

    Raises:
        ObjectNotFoundError: a file is missing.
        CorruptLogError: a file is damaged, or the checkpoint contradicts the checksum.
    """
    state = read_checkpoint(reader, version=version, locations=locations)
    _refuse_shortened(reader.store, locations[0], state, location=reader.location)
    return state


def _refuse_shortened(store: Store, file: str, state: TableState, *, location: str) -> None:
    """Compare a checkpoint with the checksum of its version: JSON that was truncated at a line end parses, and a checkpoint
    may have been made from a damaged log.
    """
    checksum = read_checksum(store, location, state.version)
    if file.endswith(".parquet") and checksum is not None and checksum.txn_id is None:
        return  # It is unknown whether a transaction of this table wrote the checksum.
    if checksum is not None and (checksum.num_files, checksum.table_size_bytes) != (
        state.files.num_files,
        state.files.size_bytes,
    ):
        raise CorruptLogError(
            f"{file} has {state.files.num_files} files of {state.files.size_bytes} bytes, and the checksum of version "
            f"{state.version} has {checksum.num_files} of {checksum.table_size_bytes}."
        )
