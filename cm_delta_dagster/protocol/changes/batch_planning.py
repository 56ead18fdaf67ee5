"""Plans the batches of a stream: which files it emits, in which order, and where a batch ends.

A stream emits the files of an initial snapshot, then the files that each later commit adds with ``dataChange`` true. The rules
are those of delta-spark's source. Plans from decoded commits; the caller reads commits and rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import (
    CorruptLogError,
    InvalidArgumentError,
    SchemaMismatchError,
    StreamSourceChangedError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import dv_ids, with_data_change
from cm_delta_dagster.protocol.changes.schema_compatibility import (
    VersionDefinition,
    incompatibility,
    non_additive_change,
)
from cm_delta_dagster.protocol.changes.stream_offset import BEFORE_FIRST, StreamOffset
from cm_delta_dagster.protocol.features.table_features import check_readable
from cm_delta_dagster.remedies import ResumeArrowStream

DEFAULT_MAX_FILES = 1000
"""Default limit of files per batch (``maxFilesPerTrigger``)."""


class ChangeHandling(StrEnum):
    """What a stream does with a commit that removes rows (delta-spark's options of the same names).

    A stream emits inserted rows only and cannot represent removed rows. By default such a commit stops it.
    """

    FAIL = "fail"
    """Stop with an error."""
    IGNORE_DELETES = "ignoreDeletes"
    """Ignore commits that only remove files; stop at commits that also add files."""
    IGNORE_CHANGES = "ignoreChanges"
    """Emit all rows of the files that the commit adds, including rows that were emitted before."""
    SKIP_CHANGE_COMMITS = "skipChangeCommits"
    """Skip the commit, including rows that it inserts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Limits of what is added to a batch; None for no limit.

    ``max_bytes`` is a soft limit: the file that exceeds it is part of the batch, so that a batch has at least one file.
    """

    max_files: int | None = DEFAULT_MAX_FILES
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("files", self.max_files), ("bytes", self.max_bytes)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidArgumentError(
                    f"The limit of {name} per batch is {value!r}; pass a whole number, or None for no limit."
                )

    @property
    def is_open(self) -> bool:
        return (self.max_files is None or self.max_files > 0) and (self.max_bytes is None or self.max_bytes > 0)

    def admit(self, sizes: pa.ChunkedArray) -> tuple[int, "AdmissionLimits"]:
        """How many of the first files with these ``sizes`` (bytes) fit, and the remaining limits."""
        count = len(sizes) if self.max_files is None else min(len(sizes), max(0, self.max_files))
        sizes = sizes.slice(0, count)
        if self.max_bytes is not None and count:
            before = pc.subtract(pc.cumulative_sum(sizes), sizes)
            count = min(count, pc.sum(pc.less(before, self.max_bytes), min_count=0).as_py())
        taken = pc.sum(sizes.slice(0, count), min_count=0).as_py()
        return count, AdmissionLimits(
            max_files=None if self.max_files is None else self.max_files - count,
            max_bytes=None if self.max_bytes is None else self.max_bytes - taken,
        )


UNBOUNDED = AdmissionLimits(max_files=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """Files of one version, columns of ``ADD_SCHEMA``, in the order of their indexes in offsets."""

    version: int
    files: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One batch: the files after ``start`` up to ``end``.

    Attributes:
        reading: the definition with which all of them are read.
        current: the definition at ``end``; the next batch starts with it.
    """

    start: StreamOffset
    end: StreamOffset
    reading: VersionDefinition
    current: VersionDefinition
    parts: tuple[StreamPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """Options of a stream, and the name of its table in messages."""

    table: str
    changes: ChangeHandling = ChangeHandling.FAIL


def build_stream_plan(
    commits: Iterable[CommitActions],
    *,
    start: StreamOffset,
    reading: VersionDefinition,
    current: VersionDefinition,
    rules: StreamRules,
    initial: pa.Table | None = None,
    limits: AdmissionLimits = UNBOUNDED,
    until: StreamOffset | None = None,
) -> StreamPlan:
    """Plan the batch after ``start``.

    It ends before a commit that adds columns which ``reading`` does not have; a batch that starts there is read with the new
    definition. It also ends before a commit that stops the stream, so that the rows before that commit are emitted.

    Args:
        commits: successive versions from that of ``start`` on, or from the next one if ``start`` is in the initial snapshot.
            Consumed only as far as needed.
        reading: the definition with which rows are read.
        current: the definition at ``start``.
        initial: live files of the initial snapshot in the order of :func:`initial_files`, if ``start`` is in it.
        until: the end of the batch, if it is already determined.

    Raises:
        StreamSourceChangedError: a commit removes rows, which ``rules`` do not allow, or replaces the table.
        SchemaMismatchError: a commit changes the schema so that no schema can read the rows before and after it.
        UnsupportedFeatureError: a commit makes the table require an unsupported reader feature.
        InvalidArgumentError: ``until`` precedes ``start``.
    """
    _check_order(start, until, rules)
    _check_readable_by(current, reading, start, rules.table)
    plan = StreamPlan(start=start, end=start, reading=reading, current=current, parts=())
    if start.is_initial:
        plan, limits = _with_initial(plan, initial, limits, until)
        if plan.end.is_initial:
            return plan
    return _with_commits(plan, commits, rules, limits, until)


def _check_order(start: StreamOffset, until: StreamOffset | None, rules: StreamRules) -> None:
    if until is not None and until.position < start.position:
        raise InvalidArgumentError(
            f"The end offset {until.to_json()} of {rules.table} lies before the start offset {start.to_json()}."
        )


def _check_reached(plan: StreamPlan, until: StreamOffset | None, rules: StreamRules) -> None:
    if until is not None and plan.end.position < until.position:
        raise CorruptLogError(
            f"The stream of {rules.table} cannot be read up to {until.to_json()}: it ends at {plan.end.to_json()}. The offset "
            "belongs to another log; start a new stream."
        )


def initial_files(files: pa.Table) -> pa.Table:
    """The files of a snapshot in the order in which a stream emits them: by modification time, then path, as in delta-spark."""
    keys = pa.table([files["modificationTime"], files["path"], dv_ids(files)], names=["time", "path", "vector"])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return files.take(order)


def emitted_files(commit: CommitActions, rules: StreamRules) -> pa.Table:
    """The files of ``commit`` that a stream emits, in the order of its actions.

    Raises:
        StreamSourceChangedError: the commit removes rows, which ``rules`` do not allow.
    """
    added = with_data_change(commit.adds)
    removed = with_data_change(commit.removes)
    if _is_skipped(commit, rules):
        return added.slice(0, 0)
    if not removed.num_rows:
        return added
    match rules.changes:
        case ChangeHandling.IGNORE_CHANGES:
            return added
        case ChangeHandling.IGNORE_DELETES if not added.num_rows:
            return added
    operation = commit.commit_info.operation if commit.commit_info is not None else None
    does = "rewrites or deletes rows" if added.num_rows else "deletes rows"
    remedies = [] if added.num_rows else [f"{ChangeHandling.IGNORE_DELETES} ignores commits that only delete"]
    remedies += [
        f"{ChangeHandling.SKIP_CHANGE_COMMITS} skips the commit, including rows that it inserts",
        f"{ChangeHandling.IGNORE_CHANGES} emits all rows of the files it adds, including rows emitted before",
    ]
    raise StreamSourceChangedError(
        f"Version {commit.version} of {rules.table} ({operation or 'an unknown operation'}) {does}, e.g. of the file "
        f"{removed['path'][0].as_py()!r}; a stream cannot represent deleted rows, so it stopped before this version. Choose "
        f"how changes are handled: {'; '.join(remedies)}. Or start a new stream."
    )


def _is_skipped(commit: CommitActions, rules: StreamRules) -> bool:
    """Whether a stream skips ``commit`` with all of its files."""
    return rules.changes is ChangeHandling.SKIP_CHANGE_COMMITS and with_data_change(commit.removes).num_rows > 0


# --- steps of a plan --------------------------------------------------------------------------------------------------


def _with_initial(
    plan: StreamPlan, files: pa.Table | None, limits: AdmissionLimits, until: StreamOffset | None
) -> tuple[StreamPlan, AdmissionLimits]:
    assert files is not None, "the files of the snapshot are needed"
    taken, limits = _portion(plan.end, files, limits, until)
    return _moved(plan, plan.end.version, files, taken, is_initial=True), limits


def _with_commits(
    plan: StreamPlan,
    commits: Iterable[CommitActions],
    rules: StreamRules,
    limits: AdmissionLimits,
    until: StreamOffset | None,
) -> StreamPlan:
    rest = iter(commits)
    while limits.is_open and (until is None or plan.end.position < until.position):
        commit = next(rest, None)
        if commit is None:
            break
        try:
            following = _defined(plan, commit, rules)
            if following is None:
                _refuse_inside(until, commit, rules)
                return plan
            plan, limits = _with_commit(following, commit, rules, limits, until)
        except (StreamSourceChangedError, SchemaMismatchError, UnsupportedFeatureError):
            if plan.end == plan.start or until is not None:
                raise
            return plan  # Emits the files before the commit; the next batch raises the error.
    _check_reached(plan, until, rules)
    return plan


def _with_commit(
    plan: StreamPlan, commit: CommitActions, rules: StreamRules, limits: AdmissionLimits, until: StreamOffset | None
) -> tuple[StreamPlan, AdmissionLimits]:
    files = emitted_files(commit, rules)
    if _is_skipped(commit, rules):
        # The position may be among files of the commit, if the stream did not skip it before.
        end = replace(plan.end, version=commit.version + 1, index=BEFORE_FIRST, is_initial=False)
        return replace(plan, end=end), limits
    taken, limits = _portion(plan.end, files, limits, until)
    return _moved(plan, commit.version, files, taken, is_initial=False), limits


def _portion(
    position: StreamOffset, files: pa.Table, limits: AdmissionLimits, until: StreamOffset | None
) -> tuple[pa.Table, AdmissionLimits]:
    """The ``files`` of one version after ``position`` that are within the limits and not after ``until``."""
    first = position.index + 1
    if first > files.num_rows:
        raise InvalidArgumentError(
            f"The offset {position.to_json()} lies after the {files.num_rows} files that this stream emits for its version. It was "
            "created with another handling of changes, or for another table; start a new stream."
        )
    last = files.num_rows
    if until is not None and until.version == position.version:
        last = min(last, until.index + 1)
    candidates = files.slice(first, last - first)
    count, limits = limits.admit(pc.fill_null(candidates["size"], 0))
    return candidates.slice(0, count), limits


def _moved(plan: StreamPlan, version: int, files: pa.Table, taken: pa.Table, *, is_initial: bool) -> StreamPlan:
    index = plan.end.index + taken.num_rows
    if index + 1 == files.num_rows:
        end = replace(plan.end, version=version + 1, index=BEFORE_FIRST, is_initial=False)
    else:
        end = replace(plan.end, version=version, index=index, is_initial=is_initial)
    parts = (*plan.parts, StreamPart(version=version, files=taken)) if taken.num_rows else plan.parts
    return replace(plan, end=end, parts=parts)


def _refuse_inside(until: StreamOffset | None, commit: CommitActions, rules: StreamRules) -> None:
    if until is not None:
        raise SchemaMismatchError(
            f"Version {commit.version} of {rules.table} adds columns or drops NOT NULL, which the schema of the stream does not "
            f"have, and lies inside of the batch up to {until.to_json()}. Restart the stream so that it uses the current schema."
        )


# --- definitions ------------------------------------------------------------------------------------------------------


def _defined(plan: StreamPlan, commit: CommitActions, rules: StreamRules) -> StreamPlan | None:
    """``plan`` after the metadata and protocol of ``commit``; None if a new batch must start with ``commit``."""
    if commit.version != plan.end.version:
        raise CorruptLogError(
            f"The commit of version {plan.end.version} of {rules.table} is missing: the one after it in the stream is "
            f"{commit.version}."
        )
    if commit.metadata is None and commit.protocol is None:
        return plan
    current = plan.current.after(commit)
    if current.metadata.id != plan.start.table_id:
        raise StreamSourceChangedError(
            f"Version {commit.version} of {rules.table} replaces the table: its id was {plan.start.table_id} and is now "
            f"{current.metadata.id}. Start a new stream."
        )
    check_readable(current.protocol, f"{rules.table} at version {current.version}")
    _check_readable_by(current, plan.reading, plan.end, rules.table)
    if current.version <= plan.reading.version or non_additive_change(current, plan.reading) is None:
        return replace(plan, current=current)
    return replace(plan, current=current, reading=current) if plan.end == plan.start else None


def _check_readable_by(
    current: VersionDefinition, reading: VersionDefinition, position: StreamOffset, table: str
) -> None:
    """Check that ``reading`` represents the rows of ``current``.

    A stream that was started after a change of the schema maps the rows before it to the new schema. One that runs when the
    schema changes stops, unless the change only adds to it: its consumer expects the columns that it had when it was started.
    """
    is_restarted = current.version <= reading.version
    reason = incompatibility(current, reading) if is_restarted else non_additive_change(reading, current)
    if reason is None:
        return
    if is_restarted:
        raise SchemaMismatchError(
            f"The stream of {table} is at version {current.version}, whose rows cannot be read with the schema of version "
            f"{reading.version}: {reason}. Start a new stream with a snapshot, or at the version of the change after the rows "
            f"before it have been read from the offset {position.to_json()}."
        ).with_remedy(ResumeArrowStream(offset=position.to_json()))
    raise SchemaMismatchError(
        f"Version {current.version} of {table} changes the schema incompatibly: {reason}. The stream has emitted all rows before "
        f"it. To continue with the new schema, restart the stream from its offset or from starting version {current.version}."
    )
