"""Writing rows of Arrow as data files of a table (protocol heading "Data Files").

The rows are read once, batch by batch. Each partition has a file that is being made in memory; a file is written to the store when
it is large enough, or when all of them need more memory than they may have. Threads encode and write files that are complete.
"""

import os
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pat

from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows, caller_batches
from cm_delta_dagster.arrow.write.dictionary_columns import SAMPLED_ROWS, columns_with_dictionary
from cm_delta_dagster.arrow.write.generated_values import GeneratedValues
from cm_delta_dagster.arrow.write.missing_values import MissingValues
from cm_delta_dagster.arrow.write.row_rules import BatchColumns, BatchRule, row_rules
from cm_delta_dagster.arrow.write.stored_columns import StoredColumn, stored_columns
from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.partition_directories import directory_name
from cm_delta_dagster.protocol.actions.partition_values import serialize_partition_value
from cm_delta_dagster.protocol.actions.paths import encode_path
from cm_delta_dagster.protocol.features.column_mapping import physical_schema
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import TRANSACTION_COLUMN, VOID, StructField, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import (
    WriteEngine,
    WriteSpec,
    WrittenFiles,
    check_readable,
    check_storable,
    stored_partitions,
)
from cm_delta_dagster.protocol.statistics.statistics import StatisticsColumn, footer_statistics
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import Store

_BATCH_BYTES = 16 * 2**20
"""Bytes of rows that are converted at once."""
_GROUP_BYTES = 64 * 2**20
"""Bytes of rows that become one row group."""
_FILE_BYTES = 128 * 2**20
"""Size of a file, unless the table has a target size."""
_MEMORY_BYTES = 512 * 2**20
"""Bytes of all files that are being made, rows and encoded bytes."""
_MAX_OPEN_FILES = 1_000
_MOST_THREADS = 8
_MOST_CODES = 2**20
"""Numbers of partitions, of which those of the rows of a batch are few."""
_CODECS: Mapping[str, str] = {"uncompressed": "none", "lz4_raw": "lz4"}
"""Codecs by the names that pyarrow has for them."""

PartitionTexts = tuple[str | None, ...]


def write_arrow_files(rows: ArrowRows, *, store: Store, layout: TableLayout, spec: WriteSpec) -> WrittenFiles:
    """Write all rows to new files, as :func:`write_arrow_parts`."""
    return write_arrow_parts((rows,), schema=rows.source.schema, store=store, layout=layout, spec=spec)


def write_arrow_parts(
    parts: Iterable[ArrowRows], *, schema: pa.Schema, store: Store, layout: TableLayout, spec: WriteSpec
) -> WrittenFiles:
    """Write the rows of each part to new files, which have no rows of other parts. Empty rows give no file.

    Args:
        parts: their columns fit the schema of the table; see :func:`~cm_delta_dagster.arrow.write.stored_columns.needs_spark`.
            Each part is read before the next one is taken.
        schema: of the rows.
        layout: of the table after schema evolution.
        spec: Arrow can evaluate its condition; see :func:`~cm_delta_dagster.arrow.write.row_rules.guard_needs_spark`.

    Raises:
        PartitionMismatchError: a row lies outside of the condition of ``spec``; all files are deleted.
        SchemaMismatchError, InvalidArgumentError: the columns of the table cannot be stored, or those of the rows not converted.
        InvalidDataError: a row violates NOT NULL, has a partition value that cannot be stored, or the stream of the rows failed;
            all files are deleted.
        StorageError: the storage failed.
    """
    check_storable(layout)
    columns = stored_columns(schema, layout, spec)
    name = f"{TRANSACTION_COLUMN}={uuid.uuid4().hex}"
    directory = f"{layout.location.rstrip('/')}/{spec.root}{name}"
    files = _Files(
        store=store,
        directory=directory,
        name=spec.root + name,
        layout=layout,
        spec=spec,
        columns=columns,
        missing=MissingValues.of(layout.schema, schema.names, now_ms=spec.now_ms),
        generated=_generated(layout, schema.names, spec, columns),
    )
    try:
        with files.threads:
            for rows in parts:
                files.end_part()
                for batch in _batches(rows.reader(), of_caller=not spec.is_filled):
                    files.add(batch)
            return files.finish()
    except BaseException:  # No thread writes any more.
        discard_below(store, directory)
        raise


def _generated(
    layout: TableLayout, names: Sequence[str], spec: WriteSpec, columns: Sequence[StoredColumn]
) -> GeneratedValues:
    """The generated columns of rows with the columns ``names``; none of rows that only move, which have them all."""
    if not spec.checked:
        return GeneratedValues(missing=(), offered=())
    return GeneratedValues.of(layout, names, {column.item.name: column.as_read for column in columns})


def _batches(reader: pa.RecordBatchReader, *, of_caller: bool) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, in parts of a bounded size: a table of the caller may be one batch."""
    for batch in caller_batches(reader) if of_caller else reader:
        parts = max(1, -(-batch.nbytes // _BATCH_BYTES))
        num_rows = -(-batch.num_rows // parts)
        for start in range(0, batch.num_rows, max(1, num_rows)):
            yield batch.slice(start, num_rows)


@dataclass(slots=True, kw_only=True)
class _BufferedFile:
    """A file that is being made."""

    partition: PartitionTexts
    batches: list[pa.RecordBatch] = field(default_factory=list)
    num_bytes: int = 0
    num_rows: int = 0
    sink: pa.BufferOutputStream | None = None
    writer: pq.ParquetWriter | None = None
    with_nan: set[StatisticsColumn] = field(default_factory=set)

    @property
    def memory(self) -> int:
        """Bytes of its rows and of what is encoded."""
        return self.num_bytes + (0 if self.sink is None else int(self.sink.tell()))


@dataclass(slots=True, kw_only=True)
class _Files:
    """The files of one write.

    Attributes:
        name: of ``directory``, below the table.
        columns: of the table, in the order of its schema.
        missing: values of the columns that the rows lack; ``generated``: those that are computed from other columns.
        threads: that encode and write files.
    """

    store: Store
    directory: str
    name: str
    layout: TableLayout
    spec: WriteSpec
    columns: Sequence[StoredColumn]
    missing: MissingValues
    generated: GeneratedValues
    threads: ThreadPoolExecutor = field(init=False)
    _dictionaries: bool | list[str] | None = None
    _open: dict[PartitionTexts, _BufferedFile] = field(default_factory=dict)
    _num_files: int = 0
    _being_written: deque[tuple[int, Future[AddFile]]] = field(default_factory=deque)
    _adds: list[AddFile] = field(default_factory=list)
    _rows: Counter[PartitionTexts] = field(default_factory=Counter)
    _texts: dict[tuple[str, object], str | None] = field(default_factory=dict)
    _readable: set[tuple[str, str]] = field(default_factory=set)
    _schema: pa.Schema = field(init=False)
    _statistics_schema: StructType = field(init=False)
    _partitions: list[tuple[StructField, str]] = field(init=False)
    _positions: list[int] = field(init=False)
    _float_leaves: list[StatisticsColumn] = field(init=False)
    _rules: Sequence[BatchRule] = field(init=False)

    def __post_init__(self) -> None:
        layout = self.layout
        self._partitions = stored_partitions(layout)
        names = [item.name for item in layout.schema.fields]
        self._positions = [names.index(item.name) for item, _ in self._partitions]
        self._schema = pa.schema(
            [
                column.stored
                for place, column in enumerate(self.columns)
                if place not in self._positions and column.item.type != VOID
            ]
        )
        self.threads = ThreadPoolExecutor(_num_threads(), "cm-delta-write")
        self._statistics_schema = physical_schema(layout.schema, layout.mapping)
        self._rules = [*row_rules(layout, self.spec.guard), *self.generated.offered] if self.spec.checked else ()
        self._float_leaves = [
            column for column in self.spec.statistics_columns if getattr(column.type, "name", "") in ("float", "double")
        ]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch to the files of their partitions."""
        values: BatchColumns = {column.item.name: self._values(column, batch) for column in self.columns}
        values = self.generated.completed(values, batch.num_rows)
        for rule in self._rules:
            rule.check(values, batch.num_rows)
        arrays = [column.stored_values(values[column.item.name]) for column in self.columns]
        parts = [arrays[place] for place in self._positions]
        kept = [
            array
            for place, (array, column) in enumerate(zip(arrays, self.columns, strict=True))
            if place not in self._positions and column.item.type != VOID
        ]
        stored = pa.RecordBatch.from_arrays(kept, schema=self._schema)
        for partition, rows in self._split(stored, parts):
            self._add_rows(partition, rows)

    def end_part(self) -> None:
        """Write the files that are being made; the next rows are in other files."""
        for file in list(self._open.values()):
            self._close(file)

    def finish(self) -> WrittenFiles:
        """Write the files that are still being made."""
        if self._num_files == 0 and len(self._open) == 1:
            (file,) = self._open.values()
            self._adds.append(self._write(file, 0, self._checked_values(file)))  # A thread would only take time.
        else:
            self.end_part()
        while self._being_written:
            self._wait_for_oldest()
        return WrittenFiles(
            engine=WriteEngine.ARROW,
            adds=tuple(self._adds),
            num_rows=self._rows.total(),
            size_bytes=sum(add.size for add in self._adds),
            directory=self.directory,
            rows_by_partition=dict(self._rows),
            high_water_marks=self.missing.high_water_marks,
        )

    def _values(self, column: StoredColumn, batch: pa.RecordBatch) -> pa.Array:
        """The values of a column as readers of the table will see them."""
        values = self.missing.values(column.item.name, batch.num_rows)
        return column.values(batch) if values is None else column.as_read(values)

    def _split(
        self, stored: pa.RecordBatch, parts: Sequence[pa.Array]
    ) -> Iterator[tuple[PartitionTexts, pa.RecordBatch]]:
        """The rows of each partition."""
        if not parts:
            yield (), stored
            return
        codes = _codes(parts)
        counts = np.bincount(codes)
        if np.count_nonzero(counts) == 1:
            yield self._partition(parts, 0), stored
            return
        # NumPy sorts numbers of 16 bits in linear time.
        order = np.argsort(codes.astype(np.uint16) if len(counts) <= 2**16 else codes, kind="stable")
        sorted_rows = stored.take(pa.array(order))
        ends = np.cumsum(counts)
        for end, count in zip(ends[counts > 0], counts[counts > 0], strict=True):
            start = int(end - count)
            yield self._partition(parts, int(order[start])), sorted_rows.slice(start, int(count))

    def _partition(self, parts: Sequence[pa.Array], position: int) -> PartitionTexts:
        """The texts of the partition of a row."""
        texts = []
        for (item, name), array in zip(self._partitions, parts, strict=True):
            scalar = array[position]
            key = (name, str(scalar) if pat.is_floating(scalar.type) else scalar)  # 0.0 equals -0.0.
            if key not in self._texts:
                self._texts[key] = _text(item, scalar)
            texts.append(self._texts[key])
        return tuple(texts)

    def _add_rows(self, partition: PartitionTexts, rows: pa.RecordBatch) -> None:
        file = self._open.get(partition)
        if file is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._close(self._largest())
            file = self._open[partition] = _BufferedFile(partition=partition)
        file.batches.append(rows)
        file.num_bytes += rows.nbytes
        file.num_rows += rows.num_rows
        self._rows[partition] += rows.num_rows
        if file.num_bytes >= _GROUP_BYTES:
            self._encode(file)
            if file.memory >= (self.spec.file_bytes or self.layout.properties.target_file_size or _FILE_BYTES):
                self._close(file)
        while self._memory() > _MEMORY_BYTES:
            if self._being_written:
                self._wait_for_oldest()
            else:
                self._close(self._largest())

    def _memory(self) -> int:
        """Bytes of all files that are being made or written."""
        return sum(file.memory for file in self._open.values()) + sum(memory for memory, _ in self._being_written)

    def _wait_for_oldest(self) -> None:
        """Wait for the file that has been written longest. Raises the error of its thread."""
        self._adds.append(self._being_written.popleft()[1].result())

    def _largest(self) -> _BufferedFile:
        return max(self._open.values(), key=lambda entry: entry.memory)

    def _encode(self, file: _BufferedFile) -> None:
        """Encode the rows of the file as a row group."""
        if not file.batches:
            return
        table = pa.Table.from_batches(file.batches, schema=self._schema)
        try:
            if file.writer is None:
                file.sink = pa.BufferOutputStream()
                file.writer = self._writer(file.sink, table)
            file.writer.write_table(table, row_group_size=max(1, table.num_rows))
        except pa.ArrowNotImplementedError as error:
            raise InvalidArgumentError(
                f"A data file cannot hold the columns of the table: {error} Nothing was committed. Change the type of the column."
            ) from error
        file.with_nan.update(leaf for leaf in self._float_leaves if leaf not in file.with_nan and _has_nan(table, leaf))
        file.batches, file.num_bytes = [], 0

    def _writer(self, sink: pa.BufferOutputStream, first: pa.Table) -> pq.ParquetWriter:
        """Begin a file, whose first rows are ``first``."""
        codec = self.spec.compression or "zstd"
        return pq.ParquetWriter(
            sink,
            self._schema,
            compression=_CODECS.get(codec, codec),
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_checksum=True,
            coerce_timestamps="us",
            write_page_index=False,
            use_dictionary=self._columns_with_dictionary(first),
        )

    def _columns_with_dictionary(self, table: pa.Table) -> bool | list[str]:
        """As :func:`columns_with_dictionary` for the first file that has enough rows, and the same for all after it."""
        if table.num_rows < SAMPLED_ROWS:
            return True
        if self._dictionaries is None:  # Two threads may decide at the same time.
            self._dictionaries = columns_with_dictionary(table)
        return self._dictionaries

    def _close(self, file: _BufferedFile) -> None:
        """Have a thread write the file to the store."""
        del self._open[file.partition]
        memory, values = file.memory, self._checked_values(file)
        self._being_written.append((memory, self.threads.submit(self._write, file, self._num_files, values)))
        self._num_files += 1

    def _checked_values(self, file: _BufferedFile) -> dict[str, str | None]:
        """The partition values of a file. Raises InvalidDataError for a text that cannot be read."""
        values = dict(zip((name for _, name in self._partitions), file.partition, strict=True))
        check_readable(values, self._partitions, self._readable)
        return values

    def _write(self, file: _BufferedFile, number: int, values: Mapping[str, str | None]) -> AddFile:
        """Encode the rest of the file, and write it to the store.

        Args:
            number: of the file within this write.
            values: its partition values.
        """
        self._encode(file)
        assert file.writer is not None and file.sink is not None, "a file has rows"
        file.writer.close()
        content = file.sink.getvalue()
        directories = [
            directory_name(name, text, item.type)
            for (item, name), text in zip(self._partitions, file.partition, strict=True)
        ]
        relative = "/".join([*directories, f"part-{number:05}-{uuid.uuid4()}.parquet"])
        self.store.write(f"{self.directory}/{relative}", content.to_pybytes())
        return AddFile(
            path=encode_path(f"{self.name}/{relative}"),
            partition_values=values,
            size=content.size,
            modification_time=self.spec.now_ms,
            data_change=True,
            stats=footer_statistics(
                pq.read_metadata(pa.BufferReader(content)),
                self._statistics_schema,
                self.spec.statistics_columns,
                without_nan=frozenset(self._float_leaves) - file.with_nan,
            ),
        )


def _codes(parts: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """A number for each row, equal for rows of one partition."""
    codes, num_codes = np.zeros(len(parts[0]), dtype=np.int64), 1
    for array in parts:
        encoded = array.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        num_codes *= len(encoded.dictionary)
        if num_codes > _MOST_CODES:  # So that the numbers stay small.
            unique, codes = np.unique(codes, return_inverse=True)
            num_codes = len(unique)
    return codes


def _num_threads() -> int:
    """As many as the process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, _MOST_THREADS)


def _text(item: StructField, scalar: pa.Scalar) -> str | None:
    """The text of a partition value in the log. Raises InvalidDataError for a value without one."""
    try:
        return serialize_partition_value(scalar.as_py(), item.type)
    except (ValueError, OverflowError) as error:
        raise InvalidDataError(
            f"The partition column {item.name!r} has a value that has no text in the log: {error}. Nothing was committed. Replace "
            "the value."
        ) from error


def _has_nan(table: pa.Table, leaf: StatisticsColumn) -> bool:
    """Whether a leaf has NaN, which Spark takes for the greatest value, and which the bounds of the footer leave out."""
    first, *inner = leaf.path
    if first not in table.column_names:
        return False
    column = table[first]
    for name in inner:
        column = pc.struct_field(column, [column.type.get_field_index(name)])  # A name may look like a path.
    return bool(pat.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py())
