"""Reading a set of data files as Arrow record batches (protocol headings "Data Files", "Deletion Vectors").

The same rows as ``spark.scan`` gives, without a JVM: partition values from the log, deletion vectors applied, columns mapped and
widened, absent columns null. Files are read ahead by a few threads, one row group at a time, and given out in the order of
``files``; what is held in memory is bounded by a few row groups. This module knows neither the log nor the catalog.
"""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.file_scan import FileScan, FileToRead, OutputColumn, Reading, Unit
from cm_delta_dagster.arrow.nullability import promises
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.schema import arrow_field, char_width
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns
from cm_delta_dagster.protocol.features.type_widening import check_type_changes
from cm_delta_dagster.protocol.predicates.predicates import Predicate, conjunction, conjuncts, partition_only
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics
from cm_delta_dagster.storage.deletion_vectors import read_deletion_vectors
from cm_delta_dagster.storage.store import Store

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")

_REMOTE_THREADS = 16
_LOCAL_THREADS = 8
_TINY_FILE_BYTES = 256 * 2**10
_TINY_FILES = 32
_SMALL_BATCH_ROWS = 16_384
_ROW_TRACKING_FIELDS = (StructField(ROW_ID, LONG), StructField(ROW_COMMIT_VERSION, LONG))


def scan_batches(
    *,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    row_tracking: RowIdColumns | None = None,
    zone: dt.tzinfo = dt.UTC,
) -> pa.RecordBatchReader:
    """The logical rows of ``files`` for which ``predicate`` is true, as a stream.

    Args:
        location: absolute URI of the table root.
        files: live files, columns of ``file_actions.ADD_SCHEMA``.
        columns: top-level columns to return, in this order, found ignoring case; all of the schema for None.
        row_tracking: where row ids are; with it ``_row_id`` and ``_row_commit_version`` may be named in ``columns``, and are
            the last columns where that is None.
        zone: where ``timestamp`` partition values without a zone were written (PART-5).

    Raises:
        InvalidArgumentError: an unknown column, the same column twice, or a condition that only Spark can evaluate.
        CorruptLogError: a path, partition value or deletion vector of the log, or a data file, is damaged; also while the
            stream is read.
        ObjectNotFoundError: a file is missing; the message names it; also while the stream is read.
        UnsupportedFeatureError: a type or a type change that this client does not know.
    """
    check_type_changes(schema)
    outputs = _outputs(schema, columns, row_tracking)
    partitions = {item.name: item for name in partition_columns if (item := schema.field(name)) is not None}
    on_partitions, on_rows = _split(predicate, tuple(partitions))
    plan = _Plan(
        store=store,
        location=location,
        partitions=tuple(partitions.values()),
        mapping=mapping,
        zone=zone,
        files=files,
        on_partitions=None if on_partitions is None else row_filter(on_partitions, schema).answer,
        reading=Reading(
            schema=schema,
            mapping=mapping,
            outputs=tuple(_output(item, partitions, row_tracking) for item in outputs),
            predicate=on_rows,
            row_filter=None if on_rows is None else row_filter(on_rows, schema),
            partition_names=frozenset(partitions),
            widths={item.name: width for item in schema.fields if (width := char_width(item))},
            row_tracking=row_tracking,
        ),
    )
    arrow = pa.schema([arrow_field(item) for item in outputs])
    return pa.RecordBatchReader.from_batches(arrow, plan.batches(arrow))


def _outputs(
    schema: StructType, columns: Sequence[str] | None, row_tracking: RowIdColumns | None
) -> tuple[StructField, ...]:
    offered = StructType((*schema.fields, *(_ROW_TRACKING_FIELDS if row_tracking else ())))
    if columns is None:
        return offered.fields
    if isinstance(columns, str) or not columns:
        raise InvalidArgumentError(
            f"columns is {columns!r}; give a list of at least one name, or None for all columns."
        )
    found: dict[str, StructField] = {}
    for name in columns:
        item = offered.field(name)
        if item is None:
            raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(offered.names)}.")
        if item.name in found:
            raise InvalidArgumentError(f"Column {item.name!r} is asked for twice; name every column once.")
        found[item.name] = item
    return tuple(found.values())


def _output(item: StructField, partitions: dict[str, StructField], row_tracking: RowIdColumns | None) -> OutputColumn:
    is_hidden = row_tracking is not None and item in _ROW_TRACKING_FIELDS
    return OutputColumn(item, item.name in partitions, is_hidden, promises(item))


def _split(predicate: Predicate | None, partition_columns: Sequence[str]) -> tuple[Predicate | None, Predicate | None]:
    """What partition values decide for whole files, and what is left for rows; None for nothing."""
    parts = conjuncts(predicate) if predicate is not None else ()
    on_files = [part for part in parts if partition_only(part, partition_columns)]
    on_rows = [part for part in parts if not partition_only(part, partition_columns)]
    return conjunction(on_files) if on_files else None, conjunction(on_rows) if on_rows else None


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """One scan: what is read of every file, and the files."""

    store: Store
    location: str
    partitions: tuple[StructField, ...]
    mapping: ColumnMappingMode
    zone: dt.tzinfo
    files: pa.Table
    on_partitions: Callable[[Callable[[str], pa.Array], int], pa.BooleanArray] | None
    reading: Reading

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        files, values = self._partitioned_files()
        if not files.num_rows:
            return
        scan = FileScan(self.reading)
        to_read = self._files_to_read(files, values)
        is_local = DataFile(self.store, self.location, 0).is_local
        threads = min(os.cpu_count() or 1, _LOCAL_THREADS) if is_local else _REMOTE_THREADS
        with _threads(threads) as pool:
            results: Iterator[Iterable[pa.RecordBatch]]
            if is_local and (pc.mean(files["size"]).as_py() or 0) < _TINY_FILE_BYTES:
                # Handing a tiny file to a thread costs as much as reading it.
                results = _ahead(pool, scan.rows, _groups(to_read, _TINY_FILES), threads)
            else:
                opened = _ahead(pool, scan.units, to_read, threads)
                results = _ahead(pool, _read_unit, (unit for units in opened for unit in units), threads)
            yield from _larger_batches((batch for result in results for batch in result), schema)

    def _partitioned_files(self) -> tuple[pa.Table, dict[str, pa.Array]]:
        """The files that their partition values keep, and those values by logical column."""
        files = self.files
        values = {item.name: self._values_of(item) for item in self.partitions}
        if self.on_partitions is None:
            return files, values
        keep = self.on_partitions(values.__getitem__, files.num_rows).fill_null(False)
        return files.filter(keep), {name: array.filter(keep) for name, array in values.items()}

    def _values_of(self, item: StructField) -> pa.Array:
        texts = partition_column(self.files, physical_name(item, self.mapping))
        values = partition_value_array(texts, item.type, zone=self.zone)
        width = self.reading.widths.get(item.name)
        return pc.utf8_rpad(values, width) if width else values

    def _files_to_read(self, files: pa.Table, values: dict[str, pa.Array]) -> Iterator[FileToRead]:
        marked = pc.is_valid(files["deletionVector"])
        with_vector = files.filter(marked)
        vectors = iter(
            read_deletion_vectors(self.store, location=self.location, files=with_vector) if with_vector.num_rows else ()
        )
        rows = files.select(["path", "size", "baseRowId", "defaultRowCommitVersion"]).append_column("marked", marked)
        rows = rows.append_column("numRecords", parse_statistics(files["stats"], {}).num_records)
        position = 0
        for batch in rows.to_batches(max_chunksize=1024):
            for row in batch.to_pylist():
                yield FileToRead(
                    file=DataFile(self.store, resolve_path(self.location, row["path"]), row["size"] or 0),
                    path=row["path"],
                    constants={name: array[position] for name, array in values.items()},
                    deleted=next(vectors) if row["marked"] else None,
                    base_row_id=row["baseRowId"],
                    row_commit_version=row["defaultRowCommitVersion"],
                    num_records=row["numRecords"],
                )
                position += 1


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are gone, with all that they were asked for, when the reader of the stream leaves."""
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="cm-delta-scan")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_unit(unit: Unit) -> Iterable[pa.RecordBatch]:
    return unit()


def _groups(given: Iterable[_Given], size: int) -> Iterator[list[_Given]]:
    rest = iter(given)
    while group := list(islice(rest, size)):
        yield group


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[[_Given], _Result], given: Iterable[_Given], depth: int
) -> Iterator[_Result]:
    """``map(work, given)`` with up to ``depth`` results begun before they are asked for."""
    rest = iter(given)
    begun: list[Future[_Result]] = [pool.submit(work, item) for item in islice(rest, depth)]
    while begun:
        result = begun.pop(0).result()
        begun.extend(pool.submit(work, item) for item in islice(rest, 1))
        yield result


def _larger_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows; neighbours that are small are put together."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            small.append(batch)
            rows += batch.num_rows
        if rows >= _SMALL_BATCH_ROWS:
            yield from _joined(small, schema)
            small, rows = [], 0
    yield from _joined(small, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    return pa.Table.from_batches(batches, schema=schema).combine_chunks().to_batches()  # type: ignore[no-any-return]  # pyarrow has no types.
