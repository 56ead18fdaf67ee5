"""Reading the row changes of a range of versions as Arrow, without a JVM (protocol heading "Change Data Files").

Returns the same rows as :mod:`~cm_delta_dagster.operations.reading.read_changes`. The files that hold the changes are listed
immediately, and read while the stream is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.predicates import RowFilter, row_filter
from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.arrow.schema import arrow_schema
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.change_query import (
    ChangeQuery,
    ChangeRange,
    TableChanges,
    change_query,
    find_changes,
)
from cm_delta_dagster.operations.reading.table_definitions import layout_of
from cm_delta_dagster.protocol.changes.change_data_feed import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangePart,
    ChangeType,
    change_file_schema,
)
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate


@names_table
def read_changes_arrow(
    table: ReadableTable,
    wanted: ChangeRange,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> pa.Table:
    """The row changes of the versions in ``wanted``, in memory; arguments and errors are those of :func:`read_change_batches`."""
    return read_change_batches(table, wanted, columns=columns, where=where).read_all()


@names_table
def read_change_batches(
    table: ReadableTable,
    wanted: ChangeRange,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> pa.RecordBatchReader:
    """The row changes of the versions in ``wanted``, as a stream, oldest version first.

    Rows have the columns of the table, and ``_change_type`` (``insert``, ``delete``, ``update_preimage``,
    ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``.

    Args:
        columns: columns to return, in this order, found ignoring case; all for None.
        where: condition on the rows, SQL text or a predicate value.

    Raises:
        VersionNotFoundError: the first version or time is after the latest version, or its commit has been removed.
        InvalidArgumentError: the range is empty or not given, change data feed was not enabled for all of it, an unknown
            column, or a condition that only Spark can evaluate.
        SchemaMismatchError: the schema changed within the range so that no single schema can read all of it.
        CorruptLogError, ObjectNotFoundError: a file is damaged or missing; also while the stream is read.
    """
    return change_batches(table, find_changes(table, wanted), columns=columns, where=where)


def change_batches(
    table: ReadableTable,
    changes: TableChanges,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> pa.RecordBatchReader:
    """:func:`read_change_batches` for files that were found before."""
    query = change_query(changes, columns, where)
    on_changes = row_filter(query.on_changes, query.schema) if query.on_changes is not None else None
    result = arrow_schema(query.output)
    return pa.RecordBatchReader.from_batches(result, _ChangeReader(table, changes, query, on_changes, result).batches())


@dataclass(frozen=True, slots=True)
class _ChangeReader:
    """Reads the files of a change feed; ``on_changes`` filters by change columns."""

    table: ReadableTable
    changes: TableChanges
    query: ChangeQuery
    on_changes: RowFilter | None
    result: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for part in self.changes.parts:
            yield from self._part(part)

    def _part(self, part: ChangePart) -> Iterator[pa.RecordBatch]:
        definition = self.changes.definition
        own_type = part.change_type is None
        schema = definition.schema
        request = ScanRequest(
            files=self.query.files(part),
            columns=[*self.query.stored, *([CHANGE_TYPE] if own_type else [])],
            predicate=self.query.on_rows,
        )
        held = change_file_schema(schema) if own_type else schema
        layout = layout_of(
            definition,
            self.table.location,
            schema=held,
            time_zone=self.query.time_zone,
            stored_partitions=part.stored_partitions,
        )
        for batch in scan_batches(store=self.table.store, layout=layout, request=request):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if own_type:
                _check_change_types(columns[CHANGE_TYPE], part, str(self.table.identifier))
            yield from self._shaped(columns, batch.num_rows, part)

    def _shaped(self, columns: dict[str, pa.Array], rows: int, part: ChangePart) -> Iterator[pa.RecordBatch]:
        if part.change_type is not None:
            columns[CHANGE_TYPE] = pa.repeat(pa.scalar(part.change_type.value, pa.string()), rows)
        columns[COMMIT_VERSION] = pa.repeat(pa.scalar(part.version, pa.int64()), rows)
        time = pa.scalar(part.timestamp_ms * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
        columns[COMMIT_TIMESTAMP] = pa.repeat(time, rows)
        batch = pa.record_batch([columns[name] for name in self.result.names], schema=self.result)
        if self.on_changes is not None:
            batch = batch.filter(self.on_changes.answer(columns.__getitem__, rows))
        if batch.num_rows:
            yield batch


def _check_change_types(values: pa.Array, part: ChangePart, table: str) -> None:
    known = pc.is_in(values, value_set=pa.array([kind.value for kind in ChangeType]))
    if not pc.all(known, min_count=0).as_py():
        wrong = values.filter(pc.invert(known))[0].as_py()
        raise CorruptLogError(
            f"A change data file of version {part.version} of {table} says that the kind of a change is {wrong!r}; it is one of "
            f"{', '.join(ChangeType)}. The file is damaged; read the changes of the other versions."
        )
