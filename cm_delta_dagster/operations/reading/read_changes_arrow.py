"""Reading the row changes of a range of versions as Arrow, without a JVM (protocol heading "Change Data Files").

Returns the same rows as :mod:`~cm_delta_dagster.operations.reading.read_changes`. The files that hold the changes are listed
immediately, and read while the stream is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.predicates import RowFilter, row_filter
from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.arrow.schema import arrow_schema
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.change_query import (
    ChangeFiles,
    ChangeQuery,
    ChangeScan,
)
from cm_delta_dagster.operations.reading.table_definitions import layout_of
from cm_delta_dagster.protocol.changes.change_data_feed import (
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_FIELDS,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangePart,
    ChangeType,
    change_file_schema,
)
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.schema.types import StructType


@names_table
def read_changes_arrow(scan: ChangeScan) -> pa.Table:
    """The row changes of a scan, in memory; errors are those of :func:`read_change_batches`."""
    return read_change_batches(scan).read_all()


@names_table
def read_change_batches(scan: ChangeScan) -> pa.RecordBatchReader:
    """The row changes of a scan as a stream, oldest version first.

    Rows have the columns of the table, and ``_change_type`` (``insert``, ``delete``, ``update_preimage``,
    ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``.

    Raises:
        InvalidArgumentError: an unknown column, or a condition that only Spark can evaluate.
        CorruptLogError, ObjectNotFoundError: a file is damaged or missing; also while the stream is read.
    """
    query = scan.query
    on_changes = row_filter(query.on_changes, query.schema) if query.on_changes is not None else None
    result = arrow_schema(query.output)
    reader = _ChangeReader(scan.table, scan.changes, query, on_changes, result)
    return pa.RecordBatchReader.from_batches(result, reader.batches())


@dataclass(frozen=True, slots=True)
class _ChangeReader:
    """Reads the files of a change feed; ``on_changes`` filters by change columns."""

    table: ReadableTable
    changes: ChangeFiles
    query: ChangeQuery
    on_changes: RowFilter | None
    result: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        # One scan for many parts: a scan of its own for the few files of a part takes longer than to read them.
        for stored_partitions, parts in groupby(self.changes.parts, key=lambda part: part.stored_partitions):
            yield from self._alike(list(parts), stored_partitions)

    def _alike(
        self, parts: Sequence[ChangePart], stored_partitions: tuple[str, ...] | None
    ) -> Iterator[pa.RecordBatch]:
        files = pa.concat_tables([part.files for part in parts])
        values = _change_columns(parts)
        mask = self.query.keep_mask(files, stored_partitions)
        if mask is not None:
            files, values = files.filter(mask), values.filter(mask)
        definition = self.changes.definition
        layout = layout_of(
            definition,
            self.table.location,
            schema=StructType((*change_file_schema(definition.schema).fields, *COMMIT_FIELDS)),
            time_zone=self.query.time_zone,
            stored_partitions=stored_partitions,
        )
        request = ScanRequest(files=files, columns=[*self.query.stored, *CHANGE_COLUMNS], predicate=self.query.on_rows)
        constants = {name: values[name].combine_chunks() for name in values.column_names}
        has_own_types = constants[CHANGE_TYPE].null_count > 0
        for batch in scan_batches(store=self.table.store, layout=layout, request=request, constants=constants):
            if has_own_types:
                _check_change_types(batch, str(self.table.identifier))
            yield from self._shaped(batch)

    def _shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.on_changes is not None:
            batch = batch.filter(self.on_changes.answer(batch.column, batch.num_rows))
        if batch.num_rows:
            yield pa.record_batch([batch.column(name) for name in self.result.names], schema=self.result)


def _change_columns(parts: Sequence[ChangePart]) -> pa.Table:
    """The values of the change columns for each file of ``parts``; the type is null for change data files, which store it."""
    numbers = pa.array(np.repeat(np.arange(len(parts)), [part.files.num_rows for part in parts]))
    values = pa.table(
        {
            CHANGE_TYPE: pa.array([part.change_type for part in parts], pa.string()),
            COMMIT_VERSION: pa.array([part.version for part in parts], pa.int64()),
            COMMIT_TIMESTAMP: pa.array([part.timestamp_ms * 1000 for part in parts], pa.timestamp("us", "UTC")),
        }
    )
    return values.take(numbers)


def _check_change_types(batch: pa.RecordBatch, table: str) -> None:
    values = batch.column(CHANGE_TYPE)
    known = pc.is_in(values, value_set=pa.array([kind.value for kind in ChangeType]))
    if not pc.all(known, min_count=0).as_py():
        wrong = pc.index(known, False).as_py()
        raise CorruptLogError(
            f"A change data file of version {batch.column(COMMIT_VERSION)[wrong]} of {table} says that the kind of a change is "
            f"{values[wrong].as_py()!r}; it is one of {', '.join(ChangeType)}. The file is damaged; read the changes of the other "
            "versions."
        )
