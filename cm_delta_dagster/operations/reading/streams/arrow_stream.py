"""Reading a table as a stream of Arrow batches, without a JVM.

Any number of consumers can read one table as a queue: each keeps its own offset and gets the rows added after it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.operations.reading.streams.state import (
    StreamOptions,
    StreamState,
    next_batch,
    open_stream,
    stream_columns,
)
from cm_delta_dagster.operations.reading.table_definitions import layout_of
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA
from cm_delta_dagster.protocol.changes.batch_planning import StreamPlan
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset, parse_offset
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """Rows that were added to the table between two offsets. Immutable; files are read on request.

    Attributes:
        offset: the position after the batch. Store it together with the results, and pass it to the next stream.
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
        """The versions that added the rows; the version of the initial snapshot for its rows."""
        return tuple(part.version for part in self.plan.parts)

    @property
    def files(self) -> pa.Table:
        """The data files, one row each, in the order of their versions."""
        return pa.concat_tables([ADD_SCHEMA.empty_table(), *(part.files for part in self.plan.parts)])

    def to_arrow(self) -> pa.Table:
        """The rows in memory. Raises as :meth:`to_batches`."""
        return self.to_batches().read_all()

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches, in the order of their commits.

        Raises:
            InvalidArgumentError: an unknown column, or a condition that only Spark can evaluate.
            CorruptLogError, ObjectNotFoundError: a file is damaged or missing; also while the stream is read.
        """
        reading = self.plan.reading
        layout = layout_of(reading, self.table.location, time_zone=self.table.time_zone)
        predicate = as_predicate(self.where, layout.schema, zone=self.table.time_zone)
        request = ScanRequest(files=self.files, columns=self.columns, predicate=predicate)
        return scan_batches(store=self.table.store, layout=layout, request=request)


class StreamBatches:
    """The rows that are added to a table after an offset, in batches.

    ``for batch in stream`` reads up to the version that is the latest when the loop starts; another loop continues with later
    versions. A batch counts as read when the next one is requested; if a loop ends early, its last batch is returned again.
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
        return f"StreamBatches({str(self._table.identifier)!r}, {self.offset.to_json()})"

    @property
    def offset(self) -> StreamOffset:
        """The position after the last batch that counts as read; the start of the stream before the first."""
        return self._state.offset

    def __iter__(self) -> Iterator[StreamBatch]:
        bound = self._table.latest_version()
        while True:
            plan, state = next_batch(self._table, self._state, self._options, limits=self._options.limits, bound=bound)
            if plan.end == plan.start:
                return
            yield StreamBatch(table=self._table, plan=plan, columns=self._columns, where=self._where)
            self._state = state


@names_table
def stream_arrow(
    table: ReadableTable,
    *,
    offset: StreamOffset | str | None = None,
    options: StreamOptions | None = None,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> StreamBatches:
    """The rows of the table and the rows that are added to it, each once and in the order of their commits.

    Rewrites that change no data emit no rows. Batches have new columns of the table from the commit on that added them.

    Args:
        offset: the position of an earlier stream, as a value or as its JSON; the starting version and timestamp of ``options``
            are then ignored.
        options: where the stream begins, and how it is read; the defaults of :class:`StreamOptions` for None.
        columns: columns to return, in this order, found ignoring case; all for None.
        where: condition on the rows, SQL text or a predicate value.

    Raises:
        InvalidArgumentError: an invalid option, a condition that only Spark can evaluate, or the offset of another table.
        VersionNotFoundError: the starting version or time does not exist, or its commit has been removed.
        StreamSourceChangedError: a commit deletes or rewrites rows; also while the stream is read.
        SchemaMismatchError: the schema changed other than by added columns; also while the stream is read.
        UnsupportedFeatureError: the table needs a feature that this client does not support; also while the stream is read.
    """
    options = options or StreamOptions()
    state = open_stream(table, options, parse_offset(offset) if isinstance(offset, str) else offset)
    # Checked here for an early error; each batch parses the condition by its own columns.
    if (predicate := as_predicate(where, state.reading.schema, zone=table.time_zone)) is not None:
        row_filter(predicate, state.reading.schema)
    return StreamBatches(table, options, state, columns=stream_columns(state.reading.schema, columns), where=where)
