"""Planning of streams over a table: where a stream begins, and what its next batch is.

Shared by the Spark source and the Arrow reader. This module reads no rows, and importing it needs no Spark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError, VersionNotFoundError
from cm_delta_dagster.operations.reading.table_definitions import definition_of
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.changes.batch_planning import (
    DEFAULT_MAX_FILES,
    UNBOUNDED,
    AdmissionLimits,
    ChangeHandling,
    StreamPlan,
    StreamRules,
    build_stream_plan,
    initial_files,
)
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition, incompatibility
from cm_delta_dagster.protocol.changes.stream_offset import BEFORE_FIRST, StreamOffset
from cm_delta_dagster.protocol.schema.selection import select_fields
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.remedies import RepeatWithOption

LATEST = "latest"
"""Starting version of a stream that begins after the latest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream, named as those of delta-spark.

    Attributes:
        starting_version: the first version whose new rows are emitted, or ``LATEST`` to emit rows added from now on. Without a
            starting version or timestamp, the stream begins with all rows of the latest version.
        starting_timestamp_ms: begin with the first commit at or after that time, epoch milliseconds.
        max_files: maximum number of files of a batch; None for no limit.
        max_bytes: no file is added to a batch that has this size or more; a batch has at least one file. None for no limit.
        changes: what to do at a commit that deletes or rewrites rows, a :class:`ChangeHandling` or its value.
        fail_on_data_loss: False continues with the oldest remaining commit if the next commits were cleaned up.
    """

    starting_version: int | str | None = None
    starting_timestamp_ms: int | None = None
    max_files: int | None = DEFAULT_MAX_FILES
    max_bytes: int | None = None
    changes: ChangeHandling | str = ChangeHandling.FAIL
    fail_on_data_loss: bool = True

    def check(self) -> None:
        """Raise InvalidArgumentError if an option has an invalid value."""
        if self.starting_version is not None and self.starting_timestamp_ms is not None:
            raise InvalidArgumentError("Give a starting version or a starting timestamp, not both.")
        version = self.starting_version
        if version not in (None, LATEST) and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
            raise InvalidArgumentError(f"starting_version is {version!r}; give a version of at least 0, or {LATEST!r}.")
        for name, limit in (("max_files", self.max_files), ("max_bytes", self.max_bytes)):
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
                raise InvalidArgumentError(f"{name} is {limit!r}; give a number of at least 1, or None.")
        if self.changes not in list(ChangeHandling):
            known = ", ".join(repr(kind.value) for kind in ChangeHandling)
            raise InvalidArgumentError(f"changes is {self.changes!r}; give one of {known}.")

    @property
    def limits(self) -> AdmissionLimits:
        return AdmissionLimits(max_files=self.max_files, max_bytes=self.max_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The position of a stream.

    Attributes:
        reading: the definition that rows are read by.
        current: the definition of the table at ``offset``.
        initial: files of the initial snapshot in their order, if ``offset`` is in it.
    """

    offset: StreamOffset
    reading: VersionDefinition
    current: VersionDefinition
    initial: pa.Table | None = None


def stream_columns(schema: StructType, columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """``columns`` as they are spelled in the schema; None for all. Raises InvalidArgumentError for an unknown column."""
    if columns is None:
        return None
    fields = select_fields(
        schema,
        columns,
        missing=lambda name: (
            f"The stream cannot be read: there is no column {name!r}. The columns are {', '.join(schema.names)}."
        ),
    )
    return tuple(item.name for item in fields)


def open_stream(
    table: ReadableTable,
    options: StreamOptions,
    offset: StreamOffset | None = None,
    *,
    reading: VersionDefinition | None = None,
) -> StreamState:
    """A stream at ``offset`` or, without one, at the start that ``options`` give.

    Args:
        reading: the definition to read rows by. For None that of the latest version; or that at the start, if its rows cannot be
            read by the latest one, so that the stream ends before the change.

    Raises:
        VersionNotFoundError: the starting version or time does not exist, or the log does not reach back to the offset.
        InvalidArgumentError: an option is invalid, or the offset belongs to another table.
    """
    options.check()
    latest = table.snapshot()
    if offset is None:
        offset = _first_offset(table, options, latest)
    elif not isinstance(offset, StreamOffset):
        raise InvalidArgumentError(
            f"The offset is {offset!r}; give the offset of a batch, or its JSON text. To begin at a version, give starting_version."
        )
    elif offset.table_id != latest.metadata.id:
        raise InvalidArgumentError(
            f"The offset belongs to the table with id {offset.table_id}, but {table.identifier} has the id "
            f"{latest.metadata.id}: it is another table, or was replaced. Start a new stream."
        )
    _check_not_ahead(table, offset, latest.version)
    initial = None
    try:
        if offset.is_initial:
            at = latest if offset.version >= latest.version else table.snapshot(version=offset.version)
            current, initial = definition_of(at), initial_files(at.files)
        else:
            current = (
                definition_of(latest) if offset.version >= latest.version else _definition_at(table, offset.version)
            )
    except VersionNotFoundError as error:
        current = _after_loss(table, options, offset, error)
        offset = replace(offset, version=current.version, index=BEFORE_FIRST)
    if reading is None:
        reading = definition_of(latest)
        if incompatibility(current, reading) is not None:
            reading = current
    return StreamState(offset=offset, reading=reading, current=current, initial=initial)


def next_batch(
    table: ReadableTable,
    state: StreamState,
    options: StreamOptions,
    *,
    limits: AdmissionLimits = UNBOUNDED,
    bound: int | None = None,
    until: StreamOffset | None = None,
) -> tuple[StreamPlan, StreamState]:
    """The next batch and the state after it. If no more rows are available, the batch ends where it starts.

    Args:
        bound: the last version to include; the latest for None.
        until: where the batch ends, if it was planned before.

    Raises:
        As ``build_stream_plan``; and VersionNotFoundError if the next commits were cleaned up, CorruptLogError if the log is
        damaged.
    """
    latest = table.latest_version() if bound is None else bound
    _check_not_ahead(table, state.offset, latest)
    try:
        plan = _plan(table, state, options, limits=limits, latest=latest, until=until)
    except VersionNotFoundError as error:
        current = _after_loss(table, options, state.offset, error)
        offset = replace(state.offset, version=current.version, index=BEFORE_FIRST)
        state = replace(state, offset=offset, current=current, initial=None)
        plan = _plan(table, state, options, limits=limits, latest=latest, until=until)
    return plan, StreamState(
        offset=plan.end,
        reading=plan.reading,
        current=plan.current,
        initial=state.initial if plan.end.is_initial else None,
    )


def _plan(
    table: ReadableTable,
    state: StreamState,
    options: StreamOptions,
    *,
    limits: AdmissionLimits,
    latest: int,
    until: StreamOffset | None,
) -> StreamPlan:
    start = state.offset
    first = start.version + 1 if start.is_initial else start.version
    commits: Iterable[CommitActions] = table.commit_actions(first, latest) if first <= latest else ()
    return build_stream_plan(
        commits,
        start=start,
        reading=state.reading,
        current=state.current,
        rules=StreamRules(table=str(table.identifier), changes=ChangeHandling(options.changes)),
        initial=state.initial,
        limits=limits,
        until=until,
    )


def _first_offset(table: ReadableTable, options: StreamOptions, latest: Snapshot) -> StreamOffset:
    start = StreamOffset(table_id=latest.metadata.id, version=latest.version, is_initial=True)
    version = options.starting_version
    if options.starting_timestamp_ms is not None:
        version = table.version_at_or_after(options.starting_timestamp_ms)
    if version is None:
        return start
    if isinstance(version, str):
        return replace(start, version=latest.version + 1, is_initial=False)
    if version > latest.version:
        raise VersionNotFoundError(
            f"{table.identifier} cannot be streamed from version {version} on: its latest version is {latest.version}. Give "
            f"{LATEST!r} to begin after it."
        )
    return replace(start, version=version, is_initial=False)


def _check_not_ahead(table: ReadableTable, offset: StreamOffset, latest: int) -> None:
    if offset.version > latest + 1 or (offset.version == latest + 1 and offset.index != BEFORE_FIRST):
        raise VersionNotFoundError(
            f"The stream is at version {offset.version} of {table.identifier}, whose latest version is {latest}: the table was "
            "rolled back or replaced after the offset was written. Start a new stream."
        )


def _after_loss(
    table: ReadableTable, options: StreamOptions, offset: StreamOffset, error: VersionNotFoundError
) -> VersionDefinition:
    """The definition at the oldest commit that remains. Raises VersionNotFoundError if the stream must not skip commits."""
    current = _oldest_definition(table)
    oldest = current.version
    if options.fail_on_data_loss or offset.is_initial or oldest <= offset.version:
        what = "initial snapshot" if offset.is_initial else "next commit"
        raise VersionNotFoundError(
            f"The stream of {table.identifier} needs version {offset.version} for its {what}, and metadata cleanup removed it: "
            f"{error} Rows that were added and not read yet may be lost. Start a new stream, or continue this one at version "
            f"{oldest}, without these rows."
        ).with_remedy(RepeatWithOption(option="fail_on_data_loss", value=False)) from error
    return current


def _oldest_definition(table: ReadableTable) -> VersionDefinition:
    """The definition at the oldest commit at which a stream can continue."""
    log = table.commit_log()
    try:
        return _definition_at(table, log.first)
    except VersionNotFoundError:
        return _definition_at(table, max(log.first, log.earliest_readable))


def _definition_at(table: ReadableTable, version: int) -> VersionDefinition:
    """The definition at ``version``, even if only its commit remains. Raises VersionNotFoundError."""
    try:
        return definition_of(table.snapshot(version=version))
    except VersionNotFoundError:
        # Metadata cleanup by other writers may remove commits up to any version. The following commits then remain, but the
        # table cannot be rebuilt at their versions.
        log = table.commit_log()
        rebuilt = log.earliest_readable
        if not log.first <= version < rebuilt or _is_redefined(table, version + 1, rebuilt):
            raise
        return replace(definition_of(table.snapshot(version=rebuilt)), version=version)


def _is_redefined(table: ReadableTable, first: int, last: int) -> bool:
    commits = table.commit_actions(first, last)
    return any(commit.metadata is not None or commit.protocol is not None for commit in commits)
