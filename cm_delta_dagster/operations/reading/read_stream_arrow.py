"""Reading a table as a stream of Arrow batches, without a JVM (section STREAM).

A table is a queue for any number of consumers: each keeps an offset of its own, and gets what was added after it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.operations.reading.stream_planning import (
    StreamOptions,
    StreamState,
    change_handling,
    next_batch,
    open_stream,
    stream_columns,
)
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset, parse_offset
from cm_delta_dagster.protocol.changes.stream_planning import DEFAULT_MAX_FILES, ChangeHandling, StreamPlan
from cm_delta_dagster.protocol.predicates.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """Rows that were added to the table between two offsets. Immutable; they are read when they are asked for.

    Attributes:
        offset: after the batch. Keep it with what was made of the rows, and give it to the next stream.
    """

    table: ReadableTable
    plan: StreamPlan
    columns: tuple[str, ...] | None = None
    where: Predicate | str | None = None

    @property
    def offset(self) -> StreamOffset:
        return self.plan.end

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that the rows are of; that of the snapshot for the initial ones."""
        return tuple(part.version for part in self.plan.parts)

    @property
    def files(self) -> pa.Table:
        """The data files, one row each, in the order of their versions."""
        return pa.concat_tables([ADD_SCHEMA.empty_table(), *(part.files for part in self.plan.parts)])

    def to_arrow(self) -> pa.Table:
        """The rows in memory. Raises as :meth:`to_arrow_batches`."""
        return self.to_arrow_batches().read_all()

    def to_arrow_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, in the order of their commits.

        Raises:
            InvalidArgumentError: an unknown column, or a condition that only Spark can evaluate.
            CorruptLogError, ObjectNotFoundError: a file is damaged or missing; also while the stream is read.
        """
        reading = self.plan.reading
        schema = reading.schema
        return scan_batches(
            store=self.table.store,
            location=self.table.location,
            schema=schema,
            partition_columns=reading.metadata.partition_columns,
            files=self.files,
            mapping=reading.mapping,
            columns=self.columns,
            predicate=as_predicate(self.where, schema),
        )


class TableStream:
    """The rows that are added to a table, in batches, from an offset on.

    ``for batch in stream`` gives what there is up to the latest version at its beginning; another ``for`` goes on with what came
    since. A batch counts as read when the next one is asked for, so one whose loop was left comes again.
    """

    def __init__(
        self,
        table: ReadableTable,
        options: StreamOptions,
        state: StreamState,
        *,
        columns: tuple[str, ...] | None = None,
        where: Predicate | str | None = None,
    ) -> None:
        self._table = table
        self._options = options
        self._state = state
        self._columns = columns
        self._where = where

    def __repr__(self) -> str:
        return f"TableStream({str(self._table.identifier)!r}, {self.offset.to_json()})"

    @property
    def offset(self) -> StreamOffset:
        """After the last batch that counts as read; before the first one where the stream begins."""
        return self._state.offset

    def __iter__(self) -> Iterator[StreamBatch]:
        bound = self._table.latest_version()
        while True:
            plan, state = next_batch(self._table, self._state, self._options, room=self._options.room, bound=bound)
            if plan.end == plan.start:
                return
            yield StreamBatch(table=self._table, plan=plan, columns=self._columns, where=self._where)
            self._state = state


@names_table
def stream_arrow(
    table: ReadableTable,
    *,
    offset: StreamOffset | str | None = None,
    starting_version: int | str | None = None,
    starting_timestamp_ms: int | None = None,
    max_files: int | None = DEFAULT_MAX_FILES,
    max_bytes: int | None = None,
    changes: ChangeHandling | str = ChangeHandling.FAIL,
    fail_on_data_loss: bool = True,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> TableStream:
    """The rows that are in the table, and those that are added to it, each once and in the order of their commits (STREAM-1).

    Rewrites that change no data emit nothing. New columns of the table are in the batches from the commit on that brought them.

    Args:
        offset: where an earlier stream had come to, as a value or as its JSON; the other places to start at do not count then.
        starting_version: emit what this version and later ones added, or ``"latest"`` for what is added from now on.
        starting_timestamp_ms: the same for the first version made at or after that time, epoch milliseconds.
        max_files: most files of a batch; None for any number.
        max_bytes: from so many bytes on no further file is added to a batch, which always has one; None for any number.
        changes: what to do at a commit that deletes or rewrites rows.
        fail_on_data_loss: False goes on with the oldest commit there is where those that come next were cleaned up.
        columns: columns to return, in this order, found ignoring case; all for None.
        where: condition on the rows, SQL text or a predicate value.

    Raises:
        InvalidArgumentError: arguments that mean nothing, a condition that only Spark can evaluate, or the offset of another table.
        VersionNotFoundError: the place to start at does not exist, or is not there any more.
        StreamSourceChangedError: a commit deletes or rewrites rows; also while the stream is read.
        SchemaMismatchError: the schema changed by more than columns that came; also while the stream is read.
        UnsupportedFeatureError: the table needs a feature that this client does not have; also while the stream is read.
    """
    options = StreamOptions(
        starting_version=starting_version,
        starting_timestamp_ms=starting_timestamp_ms,
        max_files=max_files,
        max_bytes=max_bytes,
        changes=change_handling(changes),
        fail_on_data_loss=fail_on_data_loss,
    )
    begins = parse_offset(offset) if isinstance(offset, str) else offset
    state = open_stream(table, options, begins)
    # Parsed again by the columns of each batch.
    if (predicate := as_predicate(where, state.reading.schema)) is not None:
        row_filter(predicate, state.reading.schema)
    return TableStream(table, options, state, columns=stream_columns(state.reading.schema, columns), where=where)
