"""Plans which files VACUUM and metadata cleanup delete (protocol headings "Metadata Cleanup", "VACUUM Protocol Check").

A plan is also the result of a dry run. The caller lists, reads and deletes files, asks the catalog for permission and checks
that the client supports the table's writer features.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.paths import file_keys, hive_escape, normalise_location
from cm_delta_dagster.protocol.log.checkpoint_files import complete_checkpoints, newest_checkpoint
from cm_delta_dagster.protocol.log.log_files import (
    ChecksumFile,
    ClassicCheckpointFile,
    CommitFile,
    CompactionFile,
    LogFile,
    MultiPartCheckpointFile,
    StagedCommitFile,
    V2CheckpointFile,
    parse_log_file,
)
from cm_delta_dagster.protocol.schema.types import TRANSACTION_COLUMN

_DAY_MS = 24 * 60 * 60 * 1000

FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modification_time", pa.int64()),
    ]
)
"""Listed files: decoded path relative to the table root, size in bytes, modification time in epoch milliseconds. A path that ends
with a slash is an object that stands for a directory.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreferencedFiles:
    """Files that VACUUM may delete: decoded paths relative to the table root, ascending, and their total size in bytes."""

    paths: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleanupPlan:
    """Log files to delete.

    Invariants: ``log_names`` contains no file of ``cut_off_version`` or later except compactions, which are redundant.
    ``log_names`` ascend by version, so that an interrupted cleanup leaves a readable log.

    Attributes:
        cut_off_version: version of the checkpoint that becomes the oldest; None if nothing may be deleted.
        cut_off_checkpoint: names of its files. The caller must read them successfully before it deletes anything.
        log_names: names in ``_delta_log``.
        staged_names: names in ``_staged_commits``.
        kept_checkpoints: names of all remaining checkpoint files; their sidecars must be kept.
    """

    cut_off_version: int | None = None
    cut_off_checkpoint: tuple[str, ...] = ()
    log_names: tuple[str, ...] = ()
    staged_names: tuple[str, ...] = ()
    kept_checkpoints: tuple[str, ...] = ()


def needed_files(
    location: str, *, adds: pa.Table, tombstones: pa.Table, deletion_vector_files: Collection[str]
) -> pa.Array:
    """Keys of the files that the table at ``location`` needs.

    Args:
        adds: live files of the latest version.
        tombstones: as of :func:`unexpired_tombstones`.
        deletion_vector_files: absolute decoded locations of the deletion vectors of both.
    """
    vectors = pa.array([normalise_location(file) for file in deletion_vector_files], pa.string())
    return pa.concat_arrays([file_keys(location, adds["path"]), file_keys(location, tombstones["path"]), vectors])


def unlisted_files(needed: pa.Array, files: pa.Table, *, location: str) -> pa.Array:
    """Those of the ``needed`` files that are not among the listed ``files`` of the table under the location that they have."""
    return needed.filter(pc.invert(pc.is_in(needed, value_set=_listed_keys(location, files["path"]))))


def unreferenced_files(
    files: pa.Table,
    *,
    location: str,
    needed: pa.Array,
    kept: Collection[str] = (),
    partition_columns: Sequence[str],
    now_ms: int,
    retention_ms: int,
) -> UnreferencedFiles:
    """Select the listed files that are neither needed nor young.

    Args:
        files: all files below the table root, columns of :data:`FILES_SCHEMA`.
        location: absolute URI of the table root.
        needed: keys, as of :func:`needed_files`.
        kept: further paths of ``files`` that stay.
        partition_columns: names as in directories, i.e. physical names in tables with column mapping.
        now_ms: current time in epoch milliseconds.
        retention_ms: files younger than this many milliseconds are kept.
    """
    expired = files.filter(pc.less(files["modification_time"], now_ms - retention_ms))
    visible = expired.filter(_is_candidate(expired, partition_columns))
    unreferenced = visible.filter(pc.invert(pc.is_in(_listed_keys(location, visible["path"]), value_set=needed)))
    if kept:
        stays = pc.is_in(unreferenced["path"], value_set=pa.array(sorted(kept), pa.string()))
        unreferenced = unreferenced.filter(pc.invert(stays))
    unreferenced = _without_needed_directories(files, unreferenced).sort_by("path")
    return UnreferencedFiles(
        paths=tuple(unreferenced["path"].to_pylist()), size_bytes=int(pc.sum(unreferenced["size"], min_count=0).as_py())
    )


def unexpired_tombstones(removes: pa.Table, *, now_ms: int, retention_ms: int) -> pa.Table:
    """The tombstones whose files must be kept. A missing ``deletionTimestamp`` counts as 0."""
    return removes.filter(pc.greater_equal(pc.fill_null(removes["deletionTimestamp"], 0), now_ms - retention_ms))


def cut_off_timestamp(now_ms: int, retention_ms: int) -> int:
    """Midnight UTC of the day of ``now_ms - retention_ms``, in epoch milliseconds."""
    moment = now_ms - retention_ms
    return moment - moment % _DAY_MS


def next_cut_off(timestamp: int, *, retention_ms: int) -> int:
    """The earliest time at which a commit of ``timestamp`` has expired; all in epoch milliseconds."""
    return timestamp + -timestamp % _DAY_MS + retention_ms


def log_cleanup_plan(
    names: Iterable[str],
    *,
    staged_names: Iterable[str],
    commit_timestamps: Mapping[int, int],
    published_version: int,
    now_ms: int,
    retention_ms: int,
    unusable_checkpoints: frozenset[str] = frozenset(),
) -> LogCleanupPlan:
    """Select the log files whose retention has expired.

    The cut-off is the newest complete checkpoint at or before the newest expired commit.

    Args:
        names: names of all files directly in ``_delta_log``.
        staged_names: names of all files in ``_staged_commits``.
        commit_timestamps: commit time in epoch milliseconds by version. A version without one is not expired.
        published_version: the newest published version according to the catalog.
        now_ms: current time in epoch milliseconds.
        retention_ms: log retention in milliseconds.
        unusable_checkpoints: names of checkpoint files that are unreadable or lack a sidecar.
    """
    parsed = [(name, file) for name in names if (file := parse_log_file(name)) is not None]
    limit = cut_off_timestamp(now_ms, retention_ms)
    published = {file.version for _, file in parsed if isinstance(file, CommitFile)}
    old = [
        version
        for version in published
        if version <= published_version and version in commit_timestamps and commit_timestamps[version] <= limit
    ]
    if not old:
        return LogCleanupPlan()
    usable = complete_checkpoints(name for name, _ in parsed if name not in unusable_checkpoints)
    checkpoint = newest_checkpoint(candidate for candidate in usable if candidate.version <= max(old))
    if checkpoint is None:
        return LogCleanupPlan()
    cut_off = checkpoint.version
    deleted = sorted((*_deletion_rank(file), name) for name, file in parsed if _is_before(file, cut_off))
    gone = {name for _, _, name in deleted}
    return LogCleanupPlan(
        cut_off_version=cut_off,
        cut_off_checkpoint=checkpoint.locations,
        log_names=tuple(name for _, _, name in deleted),
        staged_names=_staged_up_to(staged_names, cut_off),
        kept_checkpoints=tuple(sorted(name for name, file in parsed if _is_checkpoint(file) and name not in gone)),
    )


def sidecar_cleanup_plan(
    sidecars: Iterable[tuple[str, int]], *, referenced: Collection[str] | None, now_ms: int
) -> tuple[str, ...]:
    """Names of the sidecars that no remaining checkpoint refers to.

    Args:
        sidecars: name and modification time (epoch milliseconds) of all files in ``_sidecars``.
        referenced: paths in the ``sidecar`` actions of all remaining checkpoints; None if a checkpoint could not be read, in
            which case nothing is deleted.
        now_ms: current time in epoch milliseconds.
    """
    if referenced is None:
        return ()
    # A reference is a file name or an absolute path; both refer to the file of that name.
    protected = {path.rpartition("/")[2] for path in referenced}
    # Sidecars of a checkpoint that is being written are not referenced yet, so young sidecars are kept.
    oldest_kept = cut_off_timestamp(now_ms, _DAY_MS)
    return tuple(sorted(name for name, modified in sidecars if modified < oldest_kept and name not in protected))


def orphaned_staged_commits(
    staged: Iterable[tuple[str, int]],
    *,
    ratified_names: Collection[str],
    published_version: int,
    now_ms: int,
    safety_age_ms: int,
) -> tuple[str, ...]:
    """Names of staged commits that were not ratified: their version is published and the catalog does not report them.

    Args:
        staged: name and modification time (epoch milliseconds) of all files in ``_staged_commits``.
        ratified_names: names of all staged files that the catalog reports.
        published_version: the newest published version; staged files of later versions are kept.
        now_ms: current time in epoch milliseconds.
        safety_age_ms: younger files are kept, because a reader or publisher may use an older response of the catalog.
    """
    kept = frozenset(ratified_names)
    return tuple(
        sorted(
            name
            for name, modified in staged
            if isinstance(file := parse_log_file(name), StagedCommitFile)
            and file.version <= published_version
            and name not in kept
            and modified < now_ms - safety_age_ms
        )
    )


def _listed_keys(location: str, paths: pa.ChunkedArray) -> pa.Array:
    """Keys of listed files in the form of ``file_keys``. Listed paths are decoded, paths in the log are percent-encoded."""
    prefix = normalise_location(location) + "/"
    array = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    return pc.binary_join_element_wise(pa.scalar(prefix), array.cast(pa.string()), pa.scalar(""))


def _is_candidate(files: pa.Table, partition_columns: Sequence[str]) -> pa.ChunkedArray:
    """Whether a file is visible; of objects that stand for directories, those of transactions that are empty."""
    of_transaction = pc.match_substring_regex(files["path"], rf"^{_quoted(TRANSACTION_COLUMN)}=[0-9a-f]+/")
    is_directory = pc.ends_with(files["path"], "/")
    can_go = pc.and_(of_transaction, pc.equal(files["size"], 0))
    return pc.if_else(is_directory, can_go, _is_visible(files["path"], partition_columns))


def _without_needed_directories(files: pa.Table, unreferenced: pa.Table) -> pa.Table:
    """``unreferenced`` without the directories in which a file stays."""
    is_directory = pc.ends_with(unreferenced["path"], "/")
    if not pc.any(is_directory, min_count=0).as_py():
        return unreferenced
    stays = pc.invert(pc.or_(pc.ends_with(files["path"], "/"), pc.is_in(files["path"], value_set=unreferenced["path"])))
    parents = pc.unique(pc.replace_substring_regex(files["path"].filter(stays), "[^/]*$", "")).to_pylist()
    needed: set[str] = set()
    for parent in parents:
        while parent and parent not in needed:
            needed.add(parent)
            parent = parent[:-1].rpartition("/")[0]
            parent = f"{parent}/" if parent else ""
    return unreferenced.filter(
        pc.invert(pc.is_in(unreferenced["path"], value_set=pa.array(sorted(needed), pa.string())))
    )


def _is_visible(paths: pa.ChunkedArray, partition_columns: Sequence[str]) -> pa.ChunkedArray:
    """Whether no segment of the path is hidden. Partition directories and ``_change_data`` are never hidden."""
    exempt = ["_change_data/", *(f"{hive_escape(name)}=" for name in partition_columns if name[:1] in ("_", "."))]
    shown = paths
    for start in exempt:
        # Renames the directory so that only the segments below it can make the path hidden.
        shown = pc.replace_substring_regex(shown, rf"(^|/){_quoted(start)}", r"\1x")
    # Spark writes to _temporary and moves finished files; files that remain there belong to writers that were killed.
    shown = pc.replace_substring_regex(
        shown, rf"^({_quoted(TRANSACTION_COLUMN)}=[0-9a-f]+)/_temporary/[0-9]+/(_temporary/)?", r"\1/x/"
    )
    return pc.invert(pc.match_substring_regex(shown, r"(^|/)[_.]"))


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)


def _is_checkpoint(file: LogFile) -> bool:
    return isinstance(file, ClassicCheckpointFile | MultiPartCheckpointFile | V2CheckpointFile)


def _is_before(file: LogFile, cut_off: int) -> bool:
    if isinstance(file, CompactionFile):
        return file.start <= cut_off
    if isinstance(file, CommitFile | ChecksumFile) or _is_checkpoint(file):
        return bool(_version(file) < cut_off)
    return False


def _version(file: LogFile) -> int:
    return file.start if isinstance(file, CompactionFile) else getattr(file, "version", 0)


def _deletion_rank(file: LogFile) -> tuple[int, int]:
    """Order of deletion: ascending by version; within a version compactions first and checkpoints last."""
    kind = 0 if isinstance(file, CompactionFile) else 2 if _is_checkpoint(file) else 1
    return _version(file), kind


def _staged_up_to(names: Iterable[str], cut_off: int) -> tuple[str, ...]:
    staged = [
        (file.version, name)
        for name in names
        if isinstance(file := parse_log_file(name), StagedCommitFile) and file.version <= cut_off
    ]
    return tuple(name for _, name in sorted(staged))
