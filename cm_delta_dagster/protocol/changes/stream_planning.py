"""Which files a stream emits, in which order and in which portions (section STREAM).

A stream gives the files of an initial snapshot, then those that each later commit added with a change of data. The rules are
those of delta-spark's source. Everything here is a pure plan over parsed commits; nothing is read.
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
from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.protocol.changes.schema_compatibility import TableDefinition, incompatibility
from cm_delta_dagster.protocol.changes.stream_offset import BEFORE_FIRST, StreamOffset
from cm_delta_dagster.protocol.features.table_features import check_readable

DEFAULT_MAX_FILES = 1000
"""Files of one batch where nothing else is said (``maxFilesPerTrigger``)."""


class ChangeHandling(StrEnum):
    """What a stream does at a commit that removes rows (delta-spark's options of the same names).

    A stream tells of rows that came, never of rows that went, so by default such a commit stops it.
    """

    FAIL = "fail"
    """Stop with an error."""
    IGNORE_DELETES = "ignoreDeletes"
    """Go on after a commit that only removes; stop at one that writes rows again."""
    IGNORE_CHANGES = "ignoreChanges"
    """Go on, and emit all rows of the files that such a commit writes: rows that only moved come again."""
    SKIP_CHANGE_COMMITS = "skipChangeCommits"
    """Go on, and emit nothing of such a commit, also no row that it inserts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """What still fits into a batch; None for any number.

    ``max_bytes`` is soft: the file that goes over it still belongs to the batch, so that every batch has at least one file.
    """

    max_files: int | None = DEFAULT_MAX_FILES
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("files", self.max_files), ("bytes", self.max_bytes)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidArgumentError(f"The most {name} of a batch are {value!r}; give a whole number, or None.")

    @property
    def is_open(self) -> bool:
        return (self.max_files is None or self.max_files > 0) and (self.max_bytes is None or self.max_bytes > 0)

    def admit(self, sizes: pa.ChunkedArray) -> tuple[int, "AdmissionLimits"]:
        """How many of the first files of these ``sizes`` (bytes) fit, and what is left after them."""
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
    """Files of one version, columns of ``ADD_SCHEMA``, in the order in which they are counted."""

    version: int
    files: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One batch: the files after ``start`` up to ``end``.

    Attributes:
        reading: the definition by which all of them are read.
        current: the definition at ``end``, with which the next batch goes on.
    """

    start: StreamOffset
    end: StreamOffset
    reading: TableDefinition
    current: TableDefinition
    parts: tuple[StreamPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """What a stream was told, and what messages call its table."""

    table: str
    changes: ChangeHandling = ChangeHandling.FAIL


def plan_batch(
    commits: Iterable[CommitActions],
    *,
    start: StreamOffset,
    reading: TableDefinition,
    current: TableDefinition,
    rules: StreamRules,
    initial: pa.Table | None = None,
    limits: AdmissionLimits = UNBOUNDED,
    until: StreamOffset | None = None,
) -> StreamPlan:
    """The next batch after ``start`` (STREAM-1 to STREAM-4).

    It ends before a commit that gives the table columns which ``reading`` does not have; a batch that begins there is read by
    the new definition. It also ends before a commit that stops the stream, so that the rows before it are not held back.

    Args:
        commits: successive versions from that of ``start`` on, or from the one after it if ``start`` is in the initial snapshot.
            No more of them are taken than fit.
        reading: the definition that rows are to be read by.
        current: the definition that holds at ``start``.
        initial: live files of the initial snapshot in the order of :func:`initial_files`, if ``start`` is in it.
        until: where the batch ends, if that was decided before.

    Raises:
        StreamSourceChangedError: a commit removes rows and ``rules`` do not say what to do then, or replaces the table.
        SchemaMismatchError: a commit changes the schema in a way that rows before and after it cannot be read by one schema.
        UnsupportedFeatureError: a commit makes the table need a reader feature that is not supported.
        InvalidArgumentError: ``until`` is no position after ``start``.
    """
    if until is not None and until.position < start.position:
        raise InvalidArgumentError(
            f"The offset {until.to_json()} of {rules.table} lies before {start.to_json()}, after which it is to be read."
        )
    _check_readable_by(current, reading, rules.table)
    plan = StreamPlan(start=start, end=start, reading=reading, current=current, parts=())
    if start.is_initial:
        plan, limits = _with_initial(plan, initial, limits, until)
        if plan.end.is_initial:
            return plan
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
            return plan  # What came before is emitted first; the next batch begins with the error.
    if until is not None and plan.end.position < until.position:
        raise CorruptLogError(
            f"The stream of {rules.table} cannot be read up to {until.to_json()}: it ends at {plan.end.to_json()}. The log is not "
            "the one that the offset was made of; start a new stream."
        )
    return plan


def initial_files(files: pa.Table) -> pa.Table:
    """The files of a snapshot in the order in which a stream counts them: by modification time, then path (delta-spark's)."""
    keys = pa.table([files["modificationTime"], files["path"], dv_ids(files)], names=["time", "path", "vector"])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return files.take(order)


def emitted_files(commit: CommitActions, rules: StreamRules) -> pa.Table:
    """The files that a stream emits of ``commit``, in the order of its actions (STREAM-2, STREAM-3).

    Raises:
        StreamSourceChangedError: it removes rows, and ``rules`` do not say what to do then.
    """
    added = _with_data_change(commit.adds)
    removed = _with_data_change(commit.removes)
    if not removed.num_rows:
        return added
    match rules.changes:
        case ChangeHandling.SKIP_CHANGE_COMMITS:
            return added.slice(0, 0)
        case ChangeHandling.IGNORE_CHANGES:
            return added
        case ChangeHandling.IGNORE_DELETES if not added.num_rows:
            return added
    operation = commit.commit_info.operation if commit.commit_info is not None else None
    does = "rewrites or deletes rows" if added.num_rows else "deletes rows"
    remedies = [] if added.num_rows else [f"{ChangeHandling.IGNORE_DELETES} passes over commits that only delete"]
    remedies += [
        f"{ChangeHandling.SKIP_CHANGE_COMMITS} passes over it, with all that it inserts",
        f"{ChangeHandling.IGNORE_CHANGES} emits the files it writes, whose other rows come again",
    ]
    raise StreamSourceChangedError(
        f"Version {commit.version} of {rules.table} ({operation or 'an unknown operation'}) {does}, e.g. of the file "
        f"{removed['path'][0].as_py()!r}; a stream cannot tell of rows that are gone, so it stopped before. Choose how "
        f"changes are handled: {'; '.join(remedies)}. Or start a new stream."
    )


# --- steps of a plan --------------------------------------------------------------------------------------------------


def _with_initial(
    plan: StreamPlan, files: pa.Table | None, limits: AdmissionLimits, until: StreamOffset | None
) -> tuple[StreamPlan, AdmissionLimits]:
    assert files is not None, "the files of the snapshot are needed"
    taken, limits = _portion(plan.end, files, limits, until)
    return _moved(plan, plan.end.version, files, taken, is_initial=True), limits


def _with_commit(
    plan: StreamPlan, commit: CommitActions, rules: StreamRules, limits: AdmissionLimits, until: StreamOffset | None
) -> tuple[StreamPlan, AdmissionLimits]:
    files = emitted_files(commit, rules)
    taken, limits = _portion(plan.end, files, limits, until)
    return _moved(plan, commit.version, files, taken, is_initial=False), limits


def _portion(
    position: StreamOffset, files: pa.Table, limits: AdmissionLimits, until: StreamOffset | None
) -> tuple[pa.Table, AdmissionLimits]:
    """Of the ``files`` of the version of ``position``, those after it that fit and do not lie after ``until``."""
    first = position.index + 1
    if first > files.num_rows:
        raise InvalidArgumentError(
            f"The offset {position.to_json()} lies after the {files.num_rows} files that its version has for this stream. It was "
            "made with another handling of changes, or of another table; start a new stream."
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
            f"Version {commit.version} of {rules.table} gives the table columns, or nullability, that the stream does not have, "
            f"and lies inside of the batch up to {until.to_json()}. Start the stream again, so that it takes the present schema."
        )


# --- definitions ------------------------------------------------------------------------------------------------------


def _defined(plan: StreamPlan, commit: CommitActions, rules: StreamRules) -> StreamPlan | None:
    """``plan`` with what ``commit`` says of the table; None if a batch of its own has to begin with it."""
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
            f"Version {commit.version} of {rules.table} makes it another table: its id was {plan.start.table_id} and is now "
            f"{current.metadata.id}. Start a new stream."
        )
    check_readable(current.protocol, f"{rules.table} at version {current.version}", metadata=current.metadata)
    _check_readable_by(current, plan.reading, rules.table)
    if current.version <= plan.reading.version or incompatibility(current, plan.reading) is None:
        return replace(plan, current=current)
    return replace(plan, current=current, reading=current) if plan.end == plan.start else None


def _check_readable_by(current: TableDefinition, reading: TableDefinition, table: str) -> None:
    """Refuse a change of the schema between the two that is more than columns that come (STREAM-4)."""
    older, newer = (current, reading) if current.version <= reading.version else (reading, current)
    reason = incompatibility(older, newer)
    if reason is None:
        return
    if newer is reading:
        raise SchemaMismatchError(
            f"The stream of {table} is at version {current.version}, whose rows cannot be read by the schema of version "
            f"{reading.version}: {reason}. Start a new stream at a version after that change, or with a snapshot."
        )
    raise SchemaMismatchError(
        f"Version {current.version} of {table} changes the schema so that the stream cannot go on: {reason}. All rows before it "
        f"were read; to read on with that schema, restart the stream, from its offset or from starting version {current.version}."
    )


def _with_data_change(files: pa.Table) -> pa.Table:
    return files.filter(pc.fill_null(files["dataChange"], True))
