"""From a catalog's answer and the bytes of ``_delta_log`` to a table state (protocol "Reading catalog-managed tables").

Room: client. Which files make a version is decided in ``protocol.log_segment``; what they mean in ``protocol``. Here they are
only fetched. Guarantee: the state of exactly the asked version, or an error; never an older one, never a file above it.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cm_delta_dagster.catalog.catalog import RatifiedCommit
from cm_delta_dagster.errors import CorruptLogError, ObjectNotFoundError
from cm_delta_dagster.protocol import action_json, checkpoints, last_checkpoint, log_files
from cm_delta_dagster.protocol.action_json import CommitActions
from cm_delta_dagster.protocol.checkpoints import CheckpointContent
from cm_delta_dagster.protocol.log_segment import (
    CheckpointSource,
    CommitSource,
    LogSegment,
    PublishedCommit,
    StagedCommit,
    build_log_segment,
)
from cm_delta_dagster.protocol.reconciliation import TableState, replay, state_from_checkpoint
from cm_delta_dagster.storage.parquet import decode_parquet, populated_columns
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """A state and the in-commit timestamp of its last commit (None where that commit carries none)."""

    state: TableState
    in_commit_timestamp: int | None


def staged_source(location: str, commit: RatifiedCommit) -> StagedCommit:
    """Where the ratified content of ``commit`` is stored."""
    directory = log_files.staged_commits_directory(location)
    return StagedCommit(version=commit.version, location=f"{directory}/{commit.file_name}")


def published_source(location: str, version: int) -> PublishedCommit:
    """Where the published content of ``version`` is stored."""
    name = log_files.commit_file_name(version)
    return PublishedCommit(version=version, location=f"{log_files.log_directory(location)}/{name}")


def commit_sources(
    location: str, *, start: int, end: int, ratified: Sequence[RatifiedCommit]
) -> tuple[CommitSource, ...]:
    """Sources of versions ``start..end``: the catalog's own where it names one, else the published file (CM-R3, CM-R4)."""
    named = {commit.version: commit for commit in ratified}
    return tuple(
        staged_source(location, named[version]) if version in named else published_source(location, version)
        for version in range(start, end + 1)
    )


def read_commits(store: Store, sources: Sequence[CommitSource], *, threads: int) -> tuple[CommitActions, ...]:
    """Fetch and parse commits, in the order given. Raises ObjectNotFoundError naming the missing file."""

    def read_one(source: CommitSource) -> CommitActions:
        return action_json.decode_commit(store.read(source.location), version=source.version)

    if len(sources) <= 2:
        return tuple(read_one(source) for source in sources)
    with ThreadPoolExecutor(max_workers=min(threads, len(sources))) as pool:
        return tuple(pool.map(read_one, sources))


def load_state(
    store: Store, *, location: str, version: int, ratified: Sequence[RatifiedCommit], threads: int
) -> LoadedState:
    """Build the state of ``version`` from the newest usable checkpoint and the commits after it.

    Raises:
        CorruptLogError: a commit between the checkpoint and ``version`` is missing, or a file cannot be understood.
        ObjectNotFoundError: a file named by the catalog or seen in the listing has gone.
    """
    staged = tuple(staged_source(location, commit) for commit in ratified if commit.version <= version)
    directory = log_files.log_directory(location)
    start = _listing_start(store, directory, version)
    names = [status.name for status in store.list_from(directory, start=start)]
    excluded: frozenset[CheckpointSource] = frozenset()
    while True:
        try:
            segment = build_log_segment(
                location=location, names=names, ratified=staged, version=version, excluded_checkpoints=excluded
            )
        except CorruptLogError:
            if not start:
                raise
            # The hint may point past what is needed or to a checkpoint that has gone: the full listing decides (LASTCP-4).
            start = ""
            names = [status.name for status in store.list_from(directory)]
            continue
        try:
            return _read_segment(store, segment, location=location, threads=threads)
        except _UnusableCheckpointError as error:
            _log.warning("Checkpoint %s of %s is not usable: %s", error.source.version, location, error)
            excluded |= {error.source}
            start = ""
            names = [status.name for status in store.list_from(directory)]


class _UnusableCheckpointError(Exception):
    """A checkpoint could not be read; another one or the commits may still do (CKPT-17)."""

    def __init__(self, source: CheckpointSource, reason: str) -> None:
        super().__init__(reason)
        self.source = source


def _listing_start(store: Store, directory: str, version: int) -> str:
    """First name to list: that of the hinted checkpoint, or "" without a usable hint (LASTCP-3, LASTCP-4)."""
    try:
        text = store.read(f"{directory}/{log_files.LAST_CHECKPOINT_FILE_NAME}")
    except ObjectNotFoundError:
        return ""
    hint = last_checkpoint.decode(text)
    if hint is None or hint.version > version:
        return ""
    return f"{hint.version:020d}"


def _read_segment(store: Store, segment: LogSegment, *, location: str, threads: int) -> LoadedState:
    base: TableState | None = None
    if segment.checkpoint is not None:
        base = _read_checkpoint(store, segment.checkpoint, location=location, threads=threads)
    sources: list[CommitSource] = [*segment.compactions, *segment.commits]
    commits = sorted(read_commits(store, sources, threads=threads), key=lambda commit: commit.version)
    state = replay(base, commits, location=location) if commits else base
    if state is None:
        raise CorruptLogError(
            f"The log of {location} holds neither a checkpoint nor a commit for version {segment.version}."
        )
    return LoadedState(state=state, in_commit_timestamp=_last_timestamp(store, segment, commits, location))


def _last_timestamp(store: Store, segment: LogSegment, commits: Sequence[CommitActions], location: str) -> int | None:
    last = next((commit for commit in commits if commit.version == segment.version), None)
    if last is not None and last.commit_info is not None:
        return last.commit_info.in_commit_timestamp
    try:
        # The checkpoint or a compaction covers the version itself; neither keeps commitInfo (REC-11).
        data = store.read(published_source(location, segment.version).location)
    except ObjectNotFoundError:
        return None
    info = action_json.decode_commit_info(data)
    return None if info is None else info.in_commit_timestamp


def _read_checkpoint(store: Store, source: CheckpointSource, *, location: str, threads: int) -> TableState:
    try:
        contents = [read_checkpoint_file(store, part) for part in source.locations]
        sidecars = [sidecar for content in contents for sidecar in content.sidecars]
        directory = log_files.sidecars_directory(location)
        names = [sidecar.path.rpartition("/")[2] for sidecar in sidecars]
        if names:
            with ThreadPoolExecutor(max_workers=min(threads, len(names))) as pool:
                contents += pool.map(lambda name: read_checkpoint_file(store, f"{directory}/{name}"), names)
        return state_from_checkpoint(contents, version=source.version, location=location)
    except (CorruptLogError, ObjectNotFoundError) as error:
        raise _UnusableCheckpointError(source, str(error)) from error


def read_checkpoint_file(store: Store, location: str) -> CheckpointContent:
    """One file of a checkpoint or one sidecar. Raises ObjectNotFoundError, CorruptLogError."""
    data = store.read(location)
    if location.endswith(".json"):
        return checkpoints.read_checkpoint_json(data)
    # Parsed statistics and partition values repeat what the text columns say; they are read only where the text is missing.
    return checkpoints.read_checkpoint(decode_parquet(data, checkpoints.columns_to_read(populated_columns(data))))
