"""Reading a set of data files as Arrow record batches (protocol headings "Data Files", "Deletion Vectors").

Returns the same rows as ``spark.scan``, without a JVM: partition values from the log, deletion vectors applied, columns mapped
and widened, absent columns null. Several threads read files ahead, one row group at a time. Rows are returned in the order of
``files``; at most a few row groups are in memory. This module uses neither the log nor the catalog.
"""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.file_request import FileRequest, FileToRead, OutputColumn
from cm_delta_dagster.arrow.file_scan import FileScan, Unit
from cm_delta_dagster.arrow.nullability import promises
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.schema import arrow_field
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.column_mapping import physical_name
from cm_delta_dagster.protocol.features.row_tracking import ROW_TRACKING_FIELDS, RowIdColumns, check_row_ids
from cm_delta_dagster.protocol.features.table_layout import RowPositions, ScanRequest, TableLayout
from cm_delta_dagster.protocol.features.type_widening import check_type_changes
from cm_delta_dagster.protocol.predicates.predicates import Predicate, column_path, columns_of, conjunction, conjuncts
from cm_delta_dagster.protocol.schema.char_types import char_width, char_widths
from cm_delta_dagster.protocol.schema.selection import select_fields
from cm_delta_dagster.protocol.schema.types import LONG, TRANSACTION_COLUMN, StructField, StructType
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors
from cm_delta_dagster.storage.store import Store

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_REMOTE_THREADS = 16
_LOCAL_THREADS = 8
_TINY_FILE_BYTES = 256 * 2**10
_TINY_FILES = 32
_SMALL_BATCH_ROWS = 16_384


def scan_batches(
    *, store: Store, layout: TableLayout, request: ScanRequest, constants: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatchReader:
    """The logical rows of ``request.files`` for which ``request.predicate`` is true, as a stream.

    If the request has ``row_tracking``, its columns may name ``_row_id`` and ``_row_commit_version``; without a list of columns
    these two are the last. ``timestamp`` partition values that state no time zone are those of the layout's, or of UTC.

    Args:
        constants: columns of the layout's schema whose values are not stored in the files: one value for each file, of the type
            of the column. A file whose value is null stores the column.

    Raises:
        InvalidArgumentError: an unknown column, the same column twice, or a condition that only Spark can evaluate.
        CorruptLogError: a path, partition value or deletion vector of the log, or a data file, is damaged; also while the
            stream is read.
        ObjectNotFoundError: a file is missing; the message names it; also while the stream is read.
        UnsupportedFeatureError: a type or a type change that this client does not support.
    """
    outputs = _outputs(layout.schema, request.columns, request.row_tracking)
    outputs = (*outputs, _PLACES) if request.with_places else outputs
    plan = _plan(store, layout, request, outputs, constants or {})
    arrow = pa.schema([arrow_field(item) for item in outputs])
    return pa.RecordBatchReader.from_batches(arrow, plan.batches(arrow))


def row_positions(*, store: Store, layout: TableLayout, request: ScanRequest) -> dict[str, BitMap64]:
    """The positions of the rows of each file that :func:`scan_batches` would return, by the path of the file in the log.

    Only columns of the condition are read. Files without such a row are left out. Raises as :func:`scan_batches`.
    """
    return _plan(store, layout, request, (), {}).positions()


def count_rows(*, store: Store, layout: TableLayout, files: pa.Table) -> int:
    """The number of live rows of files, counted in the files. Raises as :func:`scan_batches`."""
    rows = row_positions(store=store, layout=layout, request=ScanRequest(files=files))
    return sum(map(len, rows.values()))


PLACE = f"{TRANSACTION_COLUMN}-place"
"""The column of places of a scan. No table has a column of this name."""
_NUMBER = "number"
_PLACES = StructField(PLACE, LONG, nullable=False)
_POSITION_BITS = 40


def scan_places(
    *, store: Store, layout: TableLayout, files: pa.Table, columns: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """``columns`` of the rows of files for which ``predicate`` is true, and their places in the column :data:`PLACE`.

    :func:`files_and_positions` has the parts of a place. Raises as :func:`scan_batches`.
    """
    request = ScanRequest(files=files, columns=columns, predicate=predicate, with_places=True)
    yield from scan_batches(store=store, layout=layout, request=request)


def row_places(positions: Sequence[BitMap64]) -> npt.NDArray[np.int64]:
    """The places of rows of files, in order.

    Args:
        positions: for each file, in the order of the files.
    """
    parts = [
        np.asarray(bitmap.to_array(), np.int64) + (number << _POSITION_BITS) for number, bitmap in enumerate(positions)
    ]
    return np.concatenate([np.empty(0, np.int64), *parts])


def files_and_positions(places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row of the file among ``files`` of :func:`scan_places`, and the position in the file, of each place."""
    return places >> _POSITION_BITS, places & ((1 << _POSITION_BITS) - 1)


def partition_arrays(files: pa.Table, layout: TableLayout) -> dict[str, pa.Array]:
    """The value of each partition column for every file, with the type of the column, by logical name.

    Raises CorruptLogError for a value that is damaged.
    """
    return {item.name: _partition_array(files, item, layout) for item in layout.partition_fields}


def _partition_array(files: pa.Table, item: StructField, layout: TableLayout) -> pa.Array:
    texts = partition_column(files, physical_name(item, layout.mapping))
    values = partition_value_array(texts, item.type, zone=layout.time_zone or dt.UTC)
    width = char_width(item)
    return pc.utf8_rpad(values, width) if width else values


def _plan(
    store: Store,
    layout: TableLayout,
    request: ScanRequest,
    outputs: tuple[StructField, ...],
    constants: Mapping[str, pa.Array],
) -> "_ScanPlan":
    check_type_changes(layout.schema)
    if request.row_tracking is not None:
        check_row_ids(layout.schema, request.files)
    partitions = layout.partition_fields
    never_stored = [name for name, values in constants.items() if not values.null_count]
    names = frozenset([*(item.name for item in partitions), *never_stored])
    on_partitions, on_rows = _split(request.predicate, tuple(item.name for item in partitions))
    return _ScanPlan(
        store=store,
        layout=layout,
        constants=constants,
        files=request.files,
        picked=request.positions,
        on_partitions=None if on_partitions is None else row_filter(on_partitions, layout.schema).answer,
        request=FileRequest(
            layout=layout,
            outputs=tuple(_output(item, names, request.row_tracking) for item in outputs),
            predicate=on_rows,
            row_filter=None if on_rows is None else row_filter(on_rows, layout.schema),
            partition_names=names,
            widths={item.name: widths for item in layout.schema.fields if (widths := char_widths(item)) is not None},
            row_tracking=request.row_tracking,
        ),
    )


def _outputs(
    schema: StructType, columns: Sequence[str] | None, row_tracking: RowIdColumns | None
) -> tuple[StructField, ...]:
    offered = StructType((*schema.fields, *(ROW_TRACKING_FIELDS if row_tracking else ())))
    return select_fields(
        offered,
        columns,
        missing=lambda name: f"The table has no column {name!r}; its columns are {', '.join(offered.names)}.",
    )


def _output(item: StructField, partitions: frozenset[str], row_tracking: RowIdColumns | None) -> OutputColumn:
    is_hidden = row_tracking is not None and item in ROW_TRACKING_FIELDS
    return OutputColumn(
        item,
        is_partition=item.name in partitions,
        is_row_tracking=is_hidden,
        is_place=item is _PLACES,
        is_promised=promises(item),
    )


def _split(predicate: Predicate | None, partition_columns: Sequence[str]) -> tuple[Predicate | None, Predicate | None]:
    """The conjuncts that partition values decide for whole files, and the rest; None for an empty part."""
    parts = conjuncts(predicate) if predicate is not None else ()
    names = frozenset(name.casefold() for name in partition_columns)
    on_files = [part for part in parts if _uses_only(part, names)]
    on_rows = [part for part in parts if not _uses_only(part, names)]
    return conjunction(on_files) if on_files else None, conjunction(on_rows) if on_rows else None


def _uses_only(predicate: Predicate, names: frozenset[str]) -> bool:
    """Whether the condition, also one of functions, is computed from columns with these names alone."""
    paths = map(column_path, columns_of(predicate))
    return all(len(path) == 1 and path[0].casefold() in names for path in paths)


@dataclass(frozen=True, kw_only=True)
class _ScanPlan:
    """One scan: the files, and what to read of each.

    Attributes:
        constants: as of :func:`scan_batches`.
        picked: which rows of each file are read.
        on_partitions: evaluates the condition on partition columns; a file is read if it is true.
    """

    store: Store
    layout: TableLayout
    constants: Mapping[str, pa.Array]
    files: pa.Table
    picked: RowPositions | None
    on_partitions: Callable[[Callable[[str], pa.Array], int], pa.BooleanArray] | None
    request: FileRequest

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        files, values = self._partitioned_files()
        if not files.num_rows:
            return
        scan = FileScan(self.request)
        to_read = self._files_to_read(files, values)
        threads = self._num_threads
        with _threads(threads) as pool:
            results: Iterator[Iterable[pa.RecordBatch]]
            if self._is_local and (pc.mean(files["size"]).as_py() or 0) < _TINY_FILE_BYTES:
                # Handing a tiny file to a thread costs as much as reading it.
                results = _ahead(pool, scan.rows, _groups(to_read, _TINY_FILES), threads)
            else:
                opened = _ahead(pool, scan.units, to_read, threads)
                results = _ahead(pool, _read_unit, (unit for units in opened for unit in units), threads)
            yield from _larger_batches((batch for result in results for batch in result), schema)

    def positions(self) -> dict[str, BitMap64]:
        files, values = self._partitioned_files()
        if not files.num_rows:
            return {}
        scan = FileScan(self.request)
        with _threads(self._num_threads) as pool:
            to_read = list(self._files_to_read(files, values))
            positions_of_files = _ahead(pool, scan.positions, to_read, self._num_threads)
            return {
                file.path: positions for file, positions in zip(to_read, positions_of_files, strict=True) if positions
            }

    @property
    def _is_local(self) -> bool:
        return DataFile(self.store, self.layout.location, 0).is_local

    @property
    def _num_threads(self) -> int:
        return min(os.cpu_count() or 1, _LOCAL_THREADS) if self._is_local else _REMOTE_THREADS

    def _partitioned_files(self) -> tuple[pa.Table, dict[str, pa.Array]]:
        """The files whose partition values satisfy the condition, with their numbers, and these values and the constants by logical
        column.
        """
        files = self.files.append_column(_NUMBER, pa.array(range(self.files.num_rows), pa.int64()))
        values = {**self.constants, **partition_arrays(files, self.layout)}
        if self.on_partitions is None:
            return files, values
        keep = self.on_partitions(values.__getitem__, files.num_rows).fill_null(False)
        return files.filter(keep), {name: array.filter(keep) for name, array in values.items()}

    def _files_to_read(self, files: pa.Table, values: dict[str, pa.Array]) -> Iterator[FileToRead]:
        has_vector = pc.is_valid(files["deletionVector"])
        with_vector = files.filter(has_vector)
        vectors = iter(
            read_deletion_vectors(self.store, location=self.layout.location, files=with_vector)
            if with_vector.num_rows
            else ()
        )
        rows = files.select(["path", "size", "baseRowId", "defaultRowCommitVersion", _NUMBER]).append_column(
            "has_vector", has_vector
        )
        rows = rows.append_column("numRecords", parse_statistics(files["stats"], {}).num_records)
        position = 0
        for batch in rows.to_batches(max_chunksize=1024):
            for row in batch.to_pylist():
                vector = next(vectors) if row["has_vector"] else None
                picked = None if self.picked is None else self.picked.by_path.get(row["path"], BitMap64())
                are_returned = self.picked is not None and self.picked.are_returned
                yield FileToRead(
                    file=DataFile(self.store, resolve_path(self.layout.location, row["path"]), row["size"] or 0),
                    path=row["path"],
                    constants={
                        name: value
                        for name, array in values.items()
                        if (value := array[position]).is_valid or name not in self.constants
                    },
                    deleted=vector if picked is None or are_returned else picked | (vector or BitMap64()),
                    picked=picked if are_returned else None,
                    base_row_id=row["baseRowId"],
                    row_commit_version=row["defaultRowCommitVersion"],
                    first_place=row[_NUMBER] << _POSITION_BITS,
                    num_records=row["numRecords"],
                )
                position += 1


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that end when the reader of the stream closes it; work that has not started is cancelled."""
    pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="cm-delta-scan")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_unit(unit: Unit) -> Iterable[pa.RecordBatch]:
    return unit()


def _groups(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[[_Item], _Result], items: Iterable[_Item], depth: int
) -> Iterator[_Result]:
    """``map(work, items)`` with up to ``depth`` results started ahead of the consumer."""
    rest = iter(items)
    started: list[Future[_Result]] = [pool.submit(work, item) for item in islice(rest, depth)]
    while started:
        result = started.pop(0).result()
        started.extend(pool.submit(work, item) for item in islice(rest, 1))
        yield result


def _larger_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows; adjacent small batches are combined."""
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
