"""From a catalog's answer and the bytes of ``_delta_log`` to a table state (protocol "Reading catalog-managed tables").

Room: client. Which files make a version is decided in ``protocol.log_segment``; what they mean in ``protocol``. Here they are
only fetched. Guarantee: the state of exactly the asked version, or an error; never an older one, never a file above it.
"""

import logging
import os
import threading
import typing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.protocol import action_json, checkpoints, last_checkpoint, log_files
from cm_delta_dagster.protocol.action_json import CommitActions
from cm_delta_dagster.protocol.checkpoints import CheckpointContent
from cm_delta_dagster.protocol.checksum import VersionChecksum
from cm_delta_dagster.protocol.checksum import decode as decode_checksum
from cm_delta_dagster.protocol.last_checkpoint import LastCheckpoint
from cm_delta_dagster.protocol.log_segment import (
    CheckpointSource,
    CommitSource,
    CompactedCommits,
    InlineCommit,
    LogSegment,
    PublishedCommit,
    RatifiedSource,
    StagedCommit,
    build_log_segment,
    plan_log_segment,
)
from cm_delta_dagster.protocol.path_encoding import decode_path
from cm_delta_dagster.protocol.reconciliation import TableState, replay, state_from_checkpoint
from cm_delta_dagster.storage.parquet import decode_parquet, leaf_columns
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


_MAX_PROBES = 1000
"""Commits missing in a listing that are looked for one by one before a gap is reported (LIST-5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """A state and what is known of the time of its last commit, in epoch milliseconds.

    Attributes:
        in_commit_timestamp: from the commit, or from the checksum where the commit is gone; None if neither has it.
        txn_id: the transaction that made the commit, if it says so.
        has_commit: whether the commit itself is still there.
        modification_time: of the commit file, or of the checkpoint where that is gone; None for a commit of a catalog.
    """

    state: TableState
    in_commit_timestamp: int | None
    txn_id: str | None = None
    has_commit: bool = True
    modification_time: int | None = None


def ratified_source(location: str, commit: RatifiedCommit) -> RatifiedSource:
    """Where the ratified content of ``commit`` is: in the catalog's answer, or in its staged file."""
    if commit.content is not None and commit.mode is CommitMode.INLINE:
        return InlineCommit(version=commit.version, content=commit.content)
    file = staged_source(location, commit)
    if commit.content is not None and _is_copy(commit, commit.content):
        return InlineCommit(version=commit.version, content=commit.content, file=file)
    return file


def kept_sources(location: str, kept: Sequence[RatifiedCommit]) -> dict[int, InlineCommit]:
    """Content of published commits by version, where it can be trusted; the published file says the same."""
    return {
        commit.version: InlineCommit(
            version=commit.version, content=commit.content, file=published_source(location, commit.version)
        )
        for commit in kept
        if commit.content is not None and _is_copy(commit, commit.content)
    }


def _is_copy(commit: RatifiedCommit, content: bytes) -> bool:
    """Whether ``content`` is what was ratified as ``commit``; if not, the file decides."""
    if len(content) != commit.file_size:
        return False
    # As this client writes it; within a text the quotes would be escaped.
    if f'"txnId":"{commit.txn_id}"'.encode() in content[: content.find(b"\n")]:
        return True
    info = action_json.decode_commit_info(content)
    return info is not None and info.txn_id == commit.txn_id


def staged_source(location: str, commit: RatifiedCommit) -> StagedCommit:
    """Where the ratified content of ``commit`` is stored."""
    directory = log_files.staged_commits_directory(location)
    return StagedCommit(
        version=commit.version, location=f"{directory}/{commit.file_name}", size=commit.file_size or None
    )


def published_source(location: str, version: int) -> PublishedCommit:
    """Where the published content of ``version`` is stored."""
    name = log_files.commit_file_name(version)
    return PublishedCommit(version=version, location=f"{log_files.log_directory(location)}/{name}")


def commit_sources(
    location: str,
    *,
    start: int,
    end: int,
    ratified: Sequence[RatifiedCommit],
    kept: Sequence[RatifiedCommit] = (),
) -> tuple[CommitSource, ...]:
    """Sources of versions ``start..end``: the catalog's own where it names one, else the published file (CM-R3, CM-R4).

    Args:
        kept: published commits with content, which saves the look into their files.
    """
    sources: dict[int, CommitSource] = dict(kept_sources(location, kept))
    sources.update((commit.version, ratified_source(location, commit)) for commit in ratified)
    return tuple(sources.get(version) or published_source(location, version) for version in range(start, end + 1))


def read_source(store: Store, source: CommitSource) -> bytes:
    """The content of one commit or compaction.

    Raises:
        ObjectNotFoundError: it is not there.
        CorruptLogError: a staged file has another size than the catalog ratified: a part of it is lost.
    """
    if isinstance(source, InlineCommit):
        return source.content
    data = store.read(source.location)
    if isinstance(source, StagedCommit) and source.size is not None and len(data) != source.size:
        raise CorruptLogError(
            f"{source.location} has {len(data)} bytes, and the commit that the catalog ratified as version "
            f"{source.version} has {source.size}; restore the file from a backup."
        )
    return data


def decode_source(store: Store, source: CommitSource) -> CommitActions:
    """One commit or compaction, parsed. Raises ObjectNotFoundError, CorruptLogError; both name the file."""
    return _decoded(store, read_source(store, source), source)


def _decoded(store: Store, data: bytes, source: CommitSource) -> CommitActions:
    try:
        return action_json.decode_commit(data, version=source.version)
    except CorruptLogError as error:
        file = source.file if isinstance(source, InlineCommit) else source
        if file is None:
            raise CorruptLogError(f"The catalog's answer cannot be read: {error}") from error
        if file is source:
            raise CorruptLogError(f"{file.location} cannot be read: {error}") from error
        _log.warning(
            "The catalog's copy of version %d is damaged: %s %s is read.", source.version, error, file.location
        )
        return decode_source(store, file)


def _decoded_together(store: Store, sources: Sequence[InlineCommit]) -> tuple[CommitActions, ...]:
    try:
        return action_json.decode_commits([(source.version, source.content) for source in sources])
    except CorruptLogError:
        return tuple(decode_source(store, source) for source in sources)  # Which one is it?


def read_commits(store: Store, sources: Sequence[CommitSource], *, threads: int) -> tuple[CommitActions, ...]:
    """Fetch and parse commits, in the order given. Raises ObjectNotFoundError naming the missing file."""
    here = [source for source in sources if isinstance(source, InlineCommit)]
    if len(here) == len(sources) and all(len(source.content) < action_json.LARGE_COMMIT_BYTES for source in here):
        return _decoded_together(store, here)
    if len(sources) <= 2 or _interpreter_ends():
        return tuple(decode_source(store, source) for source in sources)
    # Many may wait for the store at once. To have as many parse large commits would only cost memory, which each thread keeps.
    with (
        ThreadPoolExecutor(max_workers=min(threads, os.cpu_count() or 1)) as parsers,
        ThreadPoolExecutor(max_workers=min(threads, len(sources))) as readers,
    ):

        def read_one(source: CommitSource) -> CommitActions:
            data = read_source(store, source)
            if len(data) < action_json.LARGE_COMMIT_BYTES:
                return _decoded(store, data, source)
            return parsers.submit(_decoded, store, data, source).result()

        return tuple(readers.map(read_one, sources))


def _interpreter_ends() -> bool:
    """What is read or written in an exit handler has no pool of threads to use."""
    return not threading.main_thread().is_alive()


def load_state(
    store: Store,
    *,
    location: str,
    version: int,
    ratified: Sequence[RatifiedCommit],
    kept: Sequence[RatifiedCommit] = (),
    threads: int,
) -> LoadedState:
    """Build the state of ``version`` from the newest usable checkpoint and the commits after it.

    Args:
        kept: published commits with content. If the catalog has served the content of every version, storage is not asked;
            otherwise the log alone says which files make the version, and content stands in for files that it names.

    Raises:
        CorruptLogError: a commit between the checkpoint and ``version`` is missing, or a file cannot be understood.
        ObjectNotFoundError: a file named by the catalog or seen in the listing has gone.
    """
    ratified_sources = tuple(ratified_source(location, commit) for commit in ratified if commit.version <= version)
    contents = kept_sources(location, kept)
    served = [
        *(contents[kept_version] for kept_version in sorted(contents) if kept_version <= version),
        *ratified_sources,
    ]
    held = [source.version for source in served if isinstance(source, InlineCommit)]
    if len(held) == version + 1 and held == list(range(version + 1)):
        all_commits = read_commits(store, served, threads=threads)
        state = replay(None, all_commits, location=location)
        return _with_times(store, location, state, commits=all_commits, ratified=ratified_sources, times={})
    directory = log_files.log_directory(location)
    start = _listing_start(store, directory, version)
    names = _list_log(store, directory, start)
    unusable: dict[CheckpointSource | CompactedCommits, str] = {}
    while True:
        segment, missing = plan_log_segment(
            location=location,
            names=names,
            ratified=ratified_sources,
            version=version,
            excluded_checkpoints=frozenset(item for item in unusable if isinstance(item, CheckpointSource)),
            excluded_compactions=frozenset(item for item in unusable if isinstance(item, CompactedCommits)),
        )
        if missing and start:
            # The hint may point past what is needed or to a checkpoint that has gone: the full listing decides (LASTCP-4).
            start = ""
            names = _list_log(store, directory)
            continue
        if missing:
            found = _probe(store, directory, missing)
            names |= found
            if len(found) < sum(gap.stop - gap.start for gap in missing):
                _refuse_gap(location, names, ratified_sources, version, unusable)
            continue
        try:
            state, commits = _read_segment(store, segment, contents, location=location, threads=threads)
        except _UnusableError as error:
            _log.warning("Version %d of %s is read without a file that could not be used: %s", version, location, error)
            unusable[error.source] = str(error)
            start = ""
            names = _list_log(store, directory)
            continue
        return _with_times(store, location, state, commits=commits, ratified=ratified_sources, times=names)


def _list_log(store: Store, directory: str, start: str = "") -> dict[str, int]:
    """Names in the log from ``start`` on, with their modification times."""
    return {status.name: status.modification_time for status in store.list_from(directory, start=start)}


def _probe(store: Store, directory: str, gaps: Sequence[range]) -> dict[str, int]:
    """Those commits of ``gaps`` that are there although a listing does not show them (LIST-5)."""
    found: dict[str, int] = {}
    for version in islice(chain.from_iterable(gaps), _MAX_PROBES):
        name = log_files.commit_file_name(version)
        try:
            found[name] = store.stat(f"{directory}/{name}").modification_time
        except ObjectNotFoundError:
            break  # One hole is enough for a refusal.
    return found


def _refuse_gap(
    location: str,
    names: Iterable[str],
    ratified: Sequence[RatifiedSource],
    version: int,
    unusable: Mapping[CheckpointSource | CompactedCommits, str],
) -> typing.NoReturn:
    try:
        build_log_segment(
            location=location,
            names=names,
            ratified=ratified,
            version=version,
            excluded_checkpoints=frozenset(item for item in unusable if isinstance(item, CheckpointSource)),
            excluded_compactions=frozenset(item for item in unusable if isinstance(item, CompactedCommits)),
        )
    except CorruptLogError as error:
        raise CorruptLogError(" ".join([str(error), *unusable.values()])) from error
    raise AssertionError("a gap was found before")


class _UnusableError(Exception):
    """A checkpoint or compaction could not be read; another one or the commits may still do (CKPT-17, LC-5)."""

    def __init__(self, source: CheckpointSource | CompactedCommits, error: Exception) -> None:
        file = source.locations[0] if isinstance(source, CheckpointSource) else source.location
        super().__init__(f"{file} was not usable: {error}")
        self.source = source


def read_hint(store: Store, directory: str) -> LastCheckpoint | None:
    """The ``_last_checkpoint`` of the log in ``directory``; None if there is none that can be trusted (LASTCP-4)."""
    try:
        return last_checkpoint.decode(store.read(f"{directory}/{log_files.LAST_CHECKPOINT_FILE_NAME}"))
    except ObjectNotFoundError:
        return None


def hinted_version(store: Store, location: str) -> int:
    """Version of the newest checkpoint of the table at ``location`` according to its hint; -1 without a usable one."""
    hint = read_hint(store, log_files.log_directory(location))
    return -1 if hint is None else hint.version


def _listing_start(store: Store, directory: str, version: int) -> str:
    """First name to list: that of the hinted checkpoint, or "" without a usable hint (LASTCP-3, LASTCP-4)."""
    hint = read_hint(store, directory)
    return "" if hint is None or hint.version > version else f"{hint.version:020d}"


def _read_segment(
    store: Store, segment: LogSegment, contents: Mapping[int, InlineCommit], *, location: str, threads: int
) -> tuple[TableState, Sequence[CommitActions]]:
    base: TableState | None = None
    if segment.checkpoint is not None:
        base = _read_checkpoint(store, segment.checkpoint, location=location, threads=threads)
    compacted = [_read_compaction(store, source) for source in segment.compactions]
    sources = [
        contents.get(commit.version, commit) if isinstance(commit, PublishedCommit) else commit
        for commit in segment.commits
    ]
    published = read_commits(store, sources, threads=threads)
    commits = sorted([*compacted, *published], key=lambda commit: commit.version)
    state = replay(base, commits, location=location) if commits else base
    if state is None:
        raise CorruptLogError(
            f"The log of {location} holds neither a checkpoint nor a commit for version {segment.version}."
        )
    return state, published


def _read_compaction(store: Store, source: CompactedCommits) -> CommitActions:
    try:
        # A cut-off compaction would be a state with too little in it; the commits it stands for are there to be read.
        if not store.read(source.location).endswith(b"\n"):
            raise CorruptLogError(f"{source.location} does not end with a whole line.")
        return decode_source(store, source)
    except (CorruptLogError, ObjectNotFoundError) as error:
        raise _UnusableError(source, error) from error


def _with_times(
    store: Store,
    location: str,
    state: TableState,
    *,
    commits: Sequence[CommitActions],
    ratified: Sequence[RatifiedSource],
    times: Mapping[str, int],
) -> LoadedState:
    """``state`` with the time of its last commit; checkpoints and compactions hold no commitInfo (REC-11)."""
    version = state.version
    time = times.get(log_files.commit_file_name(version))
    last = next((commit for commit in commits if commit.version == version), None)
    if last is not None:
        info = last.commit_info
        return LoadedState(
            state=state,
            in_commit_timestamp=None if info is None else info.in_commit_timestamp,
            txn_id=None if info is None else info.txn_id,
            modification_time=time,
        )
    source: CommitSource = next(
        (commit for commit in ratified if commit.version == version), published_source(location, version)
    )
    try:
        info = action_json.decode_commit_info(read_source(store, source))
        return LoadedState(
            state=state,
            in_commit_timestamp=None if info is None else info.in_commit_timestamp,
            txn_id=None if info is None else info.txn_id,
            modification_time=time,
        )
    except ObjectNotFoundError:
        pass
    checksum = read_checksum(store, location, version)
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
    )


def read_checksum(store: Store, location: str, version: int) -> VersionChecksum | None:
    """The checksum of ``version``, or None if there is none that can be understood (CRC-9)."""
    try:
        return decode_checksum(
            store.read(f"{log_files.log_directory(location)}/{log_files.checksum_file_name(version)}")
        )
    except ObjectNotFoundError:
        return None


def _read_checkpoint(store: Store, source: CheckpointSource, *, location: str, threads: int) -> TableState:
    try:
        contents = _read_checkpoint_files(store, source.locations, threads=threads)
        sidecars = [sidecar for content in contents for sidecar in content.sidecars]
        directory = log_files.sidecars_directory(location)
        # Whatever the path looks like, the file of that name in the table's own directory is meant (V2ACT-2).
        names = [decode_path(sidecar.path.rpartition("/")[2]) for sidecar in sidecars]
        contents += _read_checkpoint_files(store, [f"{directory}/{name}" for name in names], threads=threads)
        state = state_from_checkpoint(contents, version=source.version, location=location)
        if source.locations[0].endswith(".json"):
            _refuse_shortened(store, source, state, location=location)
        return state
    except (CorruptLogError, ObjectNotFoundError) as error:
        raise _UnusableError(source, error) from error


def _read_checkpoint_files(store: Store, locations: Sequence[str], *, threads: int) -> list[CheckpointContent]:
    """Parts or sidecars, in their order; several at a time, as most of the time goes into waiting for a store."""
    if len(locations) < 2 or _interpreter_ends():
        return [read_checkpoint_file(store, location) for location in locations]
    with ThreadPoolExecutor(max_workers=min(threads, len(locations))) as pool:
        return list(pool.map(lambda location: read_checkpoint_file(store, location), locations))


def _refuse_shortened(store: Store, source: CheckpointSource, state: TableState, *, location: str) -> None:
    """Text cut off at the end of a line cannot be told from whole text, except by the checksum of that version."""
    checksum = read_checksum(store, location, source.version)
    if checksum is not None and (checksum.num_files, checksum.table_size_bytes) != (
        state.files.num_files,
        state.files.size_bytes,
    ):
        raise CorruptLogError(
            f"{source.locations[0]} has {state.files.num_files} files, and the checksum of version {source.version} has "
            f"{checksum.num_files}."
        )


def read_checkpoint_file(store: Store, location: str) -> CheckpointContent:
    """One file of a checkpoint or one sidecar. Raises ObjectNotFoundError, CorruptLogError; both name the file."""
    data = store.read(location)
    try:
        if location.endswith(".json"):
            return checkpoints.read_checkpoint_json(data)
        paths = leaf_columns(data)
        content = checkpoints.read_checkpoint(decode_parquet(data, checkpoints.columns_to_read(paths)))
        if checkpoints.needs_parsed_statistics(content, paths):
            content = checkpoints.read_checkpoint(
                decode_parquet(data, checkpoints.columns_with_parsed_statistics(paths))
            )
        return content
    except CorruptLogError as error:
        raise CorruptLogError(f"{location}: {error}") from error
