"""The rows of one data file (protocol headings "Deletion Vectors", "Row Tracking", "Column Mapping").

A file is split into units of one row group each, which different threads can read. Positions count all rows of the file,
including those of row groups that are not read.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cm_delta_dagster.arrow.calendar import LegacyCalendar, legacy_calendar
from cm_delta_dagster.arrow.char_padding import padded
from cm_delta_dagster.arrow.columns import FileColumn, FileLayout
from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.file_request import FileRequest, FileToRead, OutputColumn
from cm_delta_dagster.arrow.nullability import check_not_null
from cm_delta_dagster.arrow.row_groups import kept_row_groups
from cm_delta_dagster.arrow.schema import arrow_field
from cm_delta_dagster.arrow.stored_types import has_filter
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.features.deletion_vectors import check_positions, check_row_count
from cm_delta_dagster.protocol.features.row_tracking import ROW_ID
from cm_delta_dagster.protocol.schema.types import LONG

Unit = Callable[[], Iterable[pa.RecordBatch]]
Positions = npt.NDArray[np.int64]

_WHOLE_GROUP_BYTES = 128 * 2**20
"""Larger row groups (uncompressed bytes) are read in pieces of about so many bytes at most: a text column of a batch has at most
2 GiB."""
_PIECE_ROWS = 65_536
_SEARCHED_ROWS = 4_096
"""Rows of a piece of which few are kept. Values from a dictionary may be far larger than the bytes of the row group."""
_REMEMBERED_LAYOUTS = 16


@dataclass(frozen=True, slots=True)
class _FileColumns:
    """The columns of one file schema: those that the filter needs, and the other columns of the result.

    ``nested`` has the position and path of columns inside groups; the Arrow schema of a file does not have group names.
    ``has_filters``: whether Arrow can filter all columns as they are stored, which is cheaper than to filter converted ones.
    """

    layout: FileLayout
    by_name: Mapping[str, FileColumn]
    hidden: Mapping[str, FileColumn]
    filter_paths: tuple[str, ...]
    other_paths: tuple[str, ...]
    nested: tuple[tuple[int, str], ...]
    has_filters: bool

    def has_paths_of(self, parquet: pq.ParquetSchema) -> bool:
        """Whether the nested paths are the same: writers name the groups of lists and maps differently."""
        return all(parquet.column(index).path == path for index, path in self.nested)


class FileScan:
    """Splits files into units. Files with the same schema share their layout. Thread-safe."""

    def __init__(self, request: FileRequest) -> None:
        self._request = request
        self._schema = pa.schema([arrow_field(output.field) for output in request.outputs])
        self._lock = threading.Lock()
        self._known: list[tuple[pa.Schema, LegacyCalendar, _FileColumns]] = []

    def units(self, to_read: FileToRead) -> list[Unit]:
        """One callable for each row group that may hold a requested row; it reads the group.

        Raises:
            ObjectNotFoundError, CorruptLogError: the file is missing or damaged; the callables raise the same.
        """
        opened = to_read.file.open()
        file, groups = self._prepared(to_read, opened)
        if len(groups) == 1:
            return [lambda: file.read(*groups[0], opened)]
        return [_unit(file, *group) for group in groups]

    def positions(self, to_read: FileToRead) -> BitMap64:
        """The positions of the requested rows; only columns of the condition are read. Raises as :meth:`units`."""
        opened = to_read.file.open()
        file, groups = self._prepared(to_read, opened)
        parts = [positions for group in groups for positions in file.positions(*group, opened)]
        return BitMap64(np.concatenate(parts).astype(np.uint64)) if parts else BitMap64()

    def _prepared(self, to_read: FileToRead, opened: pq.ParquetFile) -> tuple["_OpenFile", list[tuple[int, int]]]:
        """The file, and the number and first position of each row group that may hold a requested row."""
        with to_read.file.errors():
            metadata = opened.metadata
            check_row_count(to_read.file.location, recorded=to_read.num_records, actual=metadata.num_rows)
            columns = self._columns(to_read.file, opened)
            if to_read.deleted is not None:
                check_positions(to_read.deleted, num_rows=metadata.num_rows, path=to_read.path)
            request = self._request
            groups = kept_row_groups(
                metadata, columns.layout, request.predicate, request.layout.schema, request.partition_names
            )
            starts = _starts(metadata)
        file = _OpenFile(
            request, self._schema, to_read, columns, metadata, _sorted(to_read.deleted), _sorted(to_read.picked)
        )
        return file, [(group, starts[group]) for group in groups if file.has_picked(group, starts[group])]

    def rows(self, group: Sequence[FileToRead]) -> list[pa.RecordBatch]:
        """The requested rows of several small files. Raises as :meth:`units`."""
        return [batch for file in group for unit in self.units(file) for batch in unit()]

    def _columns(self, file: DataFile, opened: pq.ParquetFile) -> _FileColumns:
        schema = opened.schema_arrow
        calendar = legacy_calendar(schema.metadata)
        schema = schema.remove_metadata()
        # Only the legacy calendar depends on which columns are INT96, and the schema does not contain that.
        if not calendar.is_any:
            with self._lock:
                for known, known_calendar, columns in self._known:
                    if (
                        known_calendar == calendar
                        and known.equals(schema, check_metadata=True)
                        and columns.has_paths_of(opened.schema)
                    ):
                        return columns
        columns = self._planned(file, opened, schema, calendar)
        if not calendar.is_any:
            with self._lock:
                self._known = [(schema, calendar, columns), *self._known[: _REMEMBERED_LAYOUTS - 1]]
        return columns

    def _planned(
        self, file: DataFile, opened: pq.ParquetFile, schema: pa.Schema, calendar: LegacyCalendar
    ) -> _FileColumns:
        request = self._request
        parquet = opened.schema
        count = len(parquet)
        int96 = [index for index in range(count) if parquet.column(index).physical_type == "INT96"]
        layout = FileLayout(
            schema=schema,
            file=file.location,
            mapping=request.layout.mapping,
            calendar=calendar,
            int96_leaves=frozenset(int96),
        )
        if layout.leaf_count != count:
            raise CorruptLogError(
                f"The data file {file.location} has {count} Parquet columns in a form that was not understood. Read the table "
                "through Spark."
            )
        in_file = [item for item in request.outputs if item.is_in_file]
        names = {item.field.name: item.field for item in in_file}
        filtered = request.row_filter.columns if request.row_filter else ()
        needed = [name for name in filtered if name not in request.partition_names]
        for name in needed:
            item = request.layout.schema.field(name)
            assert item is not None  # the filter was compiled for this schema
            names[name] = item
        by_name = {name: layout.column(item) for name, item in names.items()}
        hidden = _hidden_columns(layout, request)
        leaves = {index for name in needed for index in by_name[name].leaves}
        others = {index for column in (*by_name.values(), *hidden.values()) for index in column.leaves} - leaves
        nested = tuple(
            (index, path) for index in sorted(leaves | others) if "." in (path := parquet.column(index).path)
        )
        sources = [column.source for column in (*by_name.values(), *hidden.values()) if column.source is not None]
        has_filters = all(has_filter(schema.field(name).type) for name in sources)
        return _FileColumns(
            layout, by_name, hidden, _paths(parquet, leaves), _paths(parquet, others), nested, has_filters
        )


def _hidden_columns(layout: FileLayout, request: FileRequest) -> dict[str, FileColumn]:
    if request.row_tracking is None:
        return {}
    names = {True: request.row_tracking.row_id, False: request.row_tracking.row_commit_version}
    return {
        output.field.name: layout.hidden_column(names[output.field.name == ROW_ID], LONG)
        for output in request.outputs
        if output.is_row_tracking
    }


def _paths(parquet: pq.ParquetSchema, leaves: set[int]) -> tuple[str, ...]:
    return tuple(parquet.column(index).path for index in sorted(leaves))


def _starts(metadata: pq.FileMetaData) -> list[int]:
    starts = [0]
    if metadata.num_row_groups > 1:
        for group in range(metadata.num_row_groups - 1):
            starts.append(starts[-1] + metadata.row_group(group).num_rows)
    return starts


def _unit(file: "_OpenFile", group: int, start: int) -> Unit:
    return lambda: file.read(group, start, None)


def _between(positions: Positions, start: int, rows: int) -> Positions:
    """The positions from ``start`` on of a part of ``rows`` rows."""
    first, last = np.searchsorted(positions, (start, start + rows))
    return positions[first:last]


def _sorted(positions: BitMap64 | None) -> Positions | None:
    return None if positions is None else np.frombuffer(positions.to_array(), dtype=np.uint64).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """One file whose footer has been read."""

    request: FileRequest
    schema: pa.Schema
    to_read: FileToRead
    columns: _FileColumns
    metadata: pq.FileMetaData
    deleted: Positions | None
    picked: Positions | None

    def has_picked(self, group: int, start: int) -> bool:
        """Whether some of the rows to read may be in the row group, which begins at row ``start`` of the file."""
        return self.picked is None or bool(len(_between(self.picked, start, self.metadata.row_group(group).num_rows)))

    def positions(self, group: int, start: int, opened: pq.ParquetFile) -> Iterator[Positions]:
        """The positions of the requested rows of one row group; only columns of the condition are read."""
        with self.to_read.file.errors():
            paths = list(self.columns.filter_paths)
            if not paths:
                yield self._kept_positions(None, start, self.metadata.row_group(group).num_rows)
                return
            for batch in opened.iter_batches(batch_size=_SEARCHED_ROWS, row_groups=[group], columns=paths):
                yield self._kept_positions(batch, start, batch.num_rows)
                start += batch.num_rows

    def _kept_positions(self, stored: pa.RecordBatch | None, start: int, rows: int) -> Positions:
        keep = self._keep(stored, start, rows)
        return np.arange(start, start + rows) if keep is None else np.flatnonzero(keep) + start

    def read(self, group: int, start: int, opened: pq.ParquetFile | None) -> Iterable[pa.RecordBatch]:
        """The requested rows of one row group, which begins at row ``start`` of the file."""
        with self.to_read.file.errors():
            about = self.metadata.row_group(group)
            rows = about.num_rows
            num_deleted = 0 if self.deleted is None else len(_between(self.deleted, start, rows))
            if num_deleted == rows:
                return []
            columns = self.columns
            if not columns.filter_paths and not columns.other_paths:
                return self._rows(None, start, rows)
            file = opened if opened is not None else self.to_read.file.open(self.metadata)
            few = self.picked is not None or (num_deleted > rows // 2 and not columns.filter_paths)
            if about.total_byte_size > _WHOLE_GROUP_BYTES:
                most = max(1, rows * _WHOLE_GROUP_BYTES // about.total_byte_size)
                return self._pieces(file, group, start, rows=min(most, _SEARCHED_ROWS if few else _PIECE_ROWS))
            if few:
                return list(self._pieces(file, group, start, rows=_SEARCHED_ROWS))
            if columns.filter_paths and columns.other_paths:
                return self._filter_first(file, group, start, rows)
            return self._all_columns(file, group, start)

    def _filter_first(self, file: pq.ParquetFile, group: int, start: int, rows: int) -> list[pa.RecordBatch]:
        """Read the columns of the filter first; if no row matches, the other columns are not read."""
        first = _one_batch(file, group, self.columns.filter_paths)
        if first is None:
            return self._all_columns(file, group, start)
        keep = self._keep(first, start, rows)
        if keep is not None and not keep.true_count:
            return []
        rest = _one_batch(file, group, self.columns.other_paths)
        # If both parts have fields of the same column, the whole group is read again.
        if rest is None or set(rest.schema.names) & set(first.schema.names):
            return self._all_columns(file, group, start)
        fields = [*first.schema, *rest.schema]
        both = pa.RecordBatch.from_arrays([*first.columns, *rest.columns], schema=pa.schema(fields))
        return [self._result(both, start, rows, keep)]

    def _all_columns(self, file: pq.ParquetFile, group: int, start: int) -> list[pa.RecordBatch]:
        table = file.read_row_group(group, columns=self._paths, use_threads=False)
        return list(self._shaped(table.to_batches(), start))

    def _pieces(self, file: pq.ParquetFile, group: int, start: int, *, rows: int) -> Iterator[pa.RecordBatch]:
        with self.to_read.file.errors():
            pieces = file.iter_batches(batch_size=rows, row_groups=[group], columns=self._paths)
            yield from self._shaped(pieces, start)

    @property
    def _paths(self) -> list[str]:
        return [*self.columns.filter_paths, *self.columns.other_paths]

    def _shaped(self, batches: Iterable[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._rows(batch, start, batch.num_rows)
            start += batch.num_rows

    def _rows(self, stored: pa.RecordBatch | None, start: int, rows: int) -> list[pa.RecordBatch]:
        keep = self._keep(stored, start, rows)
        return [] if keep is not None and not keep.true_count else [self._result(stored, start, rows, keep)]

    def _keep(self, stored: pa.RecordBatch | None, start: int, rows: int) -> pa.BooleanArray | None:
        """True for rows that are to be read and neither deleted nor filtered out; None for all of them."""
        keep: pa.BooleanArray | None = None
        if self.picked is not None:
            picked = np.zeros(rows, dtype=np.bool_)
            picked[_between(self.picked, start, rows) - start] = True
            keep = pa.array(picked)
        if self.deleted is not None and len(deleted := _between(self.deleted, start, rows)):
            kept = np.ones(rows, dtype=np.bool_)
            kept[deleted - start] = False
            keep = pa.array(kept) if keep is None else pc.and_(keep, pa.array(kept))
        row_filter = self.request.row_filter
        if row_filter is not None:
            answer = row_filter.answer(lambda name: self._column(name, stored, rows), rows).fill_null(False)
            keep = answer if keep is None else pc.and_(keep, answer)
        return None if keep is not None and keep.true_count == rows else keep

    def _result(
        self, stored: pa.RecordBatch | None, start: int, rows: int, keep: pa.BooleanArray | None
    ) -> pa.RecordBatch:
        filters_late = keep is not None and not self.columns.has_filters
        if keep is not None and not filters_late:
            stored = stored.filter(keep) if stored is not None else None
        arrays = self._converted(stored, start, rows, None if filters_late else keep)
        if filters_late:
            arrays = [array.filter(keep) for array in arrays]
        for array, output in zip(arrays, self.request.outputs, strict=True):
            if output.is_promised:
                check_not_null(array, output.field)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _converted(
        self, stored: pa.RecordBatch | None, start: int, rows: int, keep: pa.BooleanArray | None
    ) -> list[pa.Array]:
        """The columns of the result. ``stored`` has been filtered by ``keep``; without ``keep`` it has all of ``rows``."""
        count = rows if keep is None else keep.true_count

        def column(output: OutputColumn) -> pa.Array:
            if output.is_place:
                return _numbers(self.to_read.first_place + start, rows, keep)
            if output.is_row_tracking:
                return self._row_tracking(output.field.name, stored, start, rows, keep)
            return self._column(output.field.name, stored, count)

        return list(map(column, self.request.outputs))

    def _column(self, name: str, stored: pa.RecordBatch | None, rows: int) -> pa.Array:
        constant = self.to_read.constants.get(name)
        if constant is not None:
            return pa.repeat(constant, rows)
        values = _values(self.columns.by_name[name], stored, rows)
        widths = self.request.widths.get(name)
        return padded(values, widths) if widths is not None else values

    def _row_tracking(
        self, name: str, stored: pa.RecordBatch | None, start: int, rows: int, keep: pa.BooleanArray | None
    ) -> pa.Array:
        """The materialized value if there is one, else the default value."""
        is_row_id = name == ROW_ID
        base = self.to_read.base_row_id if is_row_id else self.to_read.row_commit_version
        count = rows if keep is None else keep.true_count
        values = _values(self.columns.hidden[name], stored, count)
        if not values.null_count:
            return values
        if base is None:
            raise CorruptLogError(
                f"The log has no {'baseRowId' if is_row_id else 'defaultRowCommitVersion'} for the file {self.to_read.path!r}, "
                f"which a table with row tracking must have. Leave {name} out, or enable row tracking again."
            )
        if is_row_id:
            fresh = _numbers(base + start, rows, keep)
        else:
            fresh = pa.repeat(pa.scalar(base, pa.int64()), count)
        return pc.coalesce(values, fresh)


def _numbers(first: int, rows: int, keep: pa.BooleanArray | None) -> pa.Array:
    """The numbers of rows from ``first`` on, of those that are kept."""
    numbers = pa.array(np.arange(first, first + rows, dtype=np.int64))
    return numbers if keep is None else numbers.filter(keep)


def _values(column: FileColumn, stored: pa.RecordBatch | None, rows: int) -> pa.Array:
    return pa.nulls(rows, column.target) if stored is None or column.source is None else column.values(stored)


def _one_batch(file: pq.ParquetFile, group: int, paths: tuple[str, ...]) -> pa.RecordBatch | None:
    """The columns of a row group as one batch; None if a column does not fit into one array."""
    batches = file.read_row_group(group, columns=list(paths), use_threads=False).to_batches()
    return batches[0] if len(batches) == 1 else None
