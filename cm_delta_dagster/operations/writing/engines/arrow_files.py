"""Rows of the files of a change, read and written by Arrow in streams."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.arrow.scan import PLACE, count_rows, row_places, row_positions, scan_batches
from cm_delta_dagster.arrow.schema import arrow_field
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.operations.writing.engines.change_engine import ChangedFile, FilePlan, by_file_key
from cm_delta_dagster.operations.writing.file_writes import layout_for_arrow, zoned_layout
from cm_delta_dagster.operations.writing.table_files import hidden_columns
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.changes.change_data_feed import CHANGE_TYPE, ChangeType
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import RowPositions, ScanRequest, TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.evolution import as_nullable
from cm_delta_dagster.protocol.schema.types import StructField
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles
from cm_delta_dagster.storage.store import Store

NewValues: TypeAlias = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]
"""Returns updated rows with their new values."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowFiles:
    """Reads and writes rows of the table for one transaction.

    Attributes:
        row_ids: hidden columns in which rows that move keep their ids, which are then the last columns of all rows.
    """

    transaction: WriteTransaction
    row_ids: RowIdColumns | None = None

    @property
    def store(self) -> Store:
        return self.transaction.table.store

    @property
    def layout(self) -> TableLayout:
        """How the files are read: with the columns that the table has after the change."""
        layout = zoned_layout(self.transaction.table, self.transaction.transaction.snapshot.layout)
        return replace(layout, schema=self.transaction.shape.schema)

    def find(self, files: pa.Table, where: Predicate) -> dict[str, BitMap64]:
        """The positions of the rows for which ``where`` is true, by file key."""
        request = ScanRequest(files=files, predicate=where)
        return by_file_key(self.layout.location, row_positions(store=self.store, layout=self.layout, request=request))

    def count(self, files: pa.Table) -> int:
        """The number of rows, counted in the files."""
        return count_rows(store=self.store, layout=self.layout, files=files)

    def rewritten(self, plan: FilePlan, new_values: NewValues) -> Iterator[pa.RecordBatch]:
        """The rows that a change without inserts writes: unchanged rows of the kept files of a plan, and all updated rows.

        Args:
            new_values: is called with the updated rows of the kept files, then of the others, in the order of files and positions.
        """
        if plan.kept:
            yield from self._kept(plan, new_values)
        for batch in self.changed(plan, plan.updated, [file.changes.all_updated for file in plan.updated]):
            yield from map(self.with_new_versions, new_values(batch))

    def _kept(self, plan: FilePlan, new_values: NewValues) -> Iterator[pa.RecordBatch]:
        changed = row_places([file.changes.changed for file in plan.kept])
        updated = row_places([file.changes.all_updated for file in plan.kept])
        request = ScanRequest(files=plan.files(plan.kept), row_tracking=self.row_ids, with_places=True)
        for batch in scan_batches(store=self.store, layout=self.layout, request=request):
            places = batch.column(PLACE).to_numpy()
            rows = batch.drop_columns([PLACE])
            stays = np.ones(len(places), np.bool_)
            stays[_rows_at(places, changed)] = False
            unchanged = rows if stays.all() else rows.filter(pa.array(stays))
            if unchanged.num_rows:
                yield unchanged
            changes = _rows_at(places, updated)
            if len(changes):
                yield from map(self.with_new_versions, new_values(rows.take(pa.array(changes))))

    def changed(
        self, plan: FilePlan, files: Sequence[ChangedFile], positions: Sequence[BitMap64]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of ``files`` at ``positions``, in the order of files and positions."""
        if not files:
            return
        adds = plan.files(files)
        by_path = dict(zip(adds["path"].to_pylist(), positions, strict=True))
        picked = RowPositions(by_path=by_path, are_returned=True)
        request = ScanRequest(files=adds, row_tracking=self.row_ids, positions=picked)
        yield from scan_batches(store=self.store, layout=self.layout, request=request)

    def all(self, files: pa.Table) -> Iterator[pa.RecordBatch]:
        """All rows of files."""
        request = ScanRequest(files=files, row_tracking=self.row_ids)
        yield from scan_batches(store=self.store, layout=self.layout, request=request)

    def with_new_versions(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that change in this commit: NULL stands for its version."""
        if self.row_ids is None:
            return batch
        place = batch.schema.get_field_index(ROW_COMMIT_VERSION)
        return batch.set_column(place, batch.schema.field(place), pa.nulls(batch.num_rows, pa.int64()))

    def add(self, batches: Iterable[pa.RecordBatch], *, checked: bool) -> int:
        """Write rows of the table to data files. Returns their number.

        Args:
            checked: whether they are compared with the rules of the table; False for rows that only move.
        """
        spec = WriteSpec(is_filled=True, checked=checked, hidden_columns=hidden_columns(self.row_ids))
        return self.transaction.add_rows(stored_rows(batches, self.layout, self.row_ids), spec=spec).num_rows

    def record(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Write rows of :func:`of_kind`, without ids, to change files. Returns their number."""
        return self.transaction.add_changes(stored_rows(batches, self.layout, None, records=True))


def _rows_at(places: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers of the rows of a batch, whose ``places`` are in order, that are among others, which are in order too."""
    first, last = np.searchsorted(others, [places[0], places[-1] + 1]) if len(places) else (0, 0)
    return np.searchsorted(places, others[first:last])


def inserted_rows(transaction: WriteTransaction, written: WrittenFiles) -> ArrowRows:
    """The rows of files of a transaction as rows of change files."""
    layout = layout_for_arrow(transaction.table, transaction.layout)
    request = ScanRequest(files=adds_to_table(written.adds))
    batches = scan_batches(store=transaction.table.store, layout=layout, request=request)
    return stored_rows((of_kind(batch, ChangeType.INSERT) for batch in batches), layout, None, records=True)


def of_kind(batch: pa.RecordBatch, kind: ChangeType) -> pa.RecordBatch:
    """Rows of the table as rows of change files."""
    return batch.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind.value), batch.num_rows))


def stored_schema(layout: TableLayout, row_ids: RowIdColumns | None) -> pa.Schema:
    """The columns of the table and the hidden ones, all of whose values may be NULL until the rules of the table are checked."""
    columns = (*layout.schema.fields, *hidden_columns(row_ids))
    return pa.schema([arrow_field(StructField(item.name, as_nullable(item.type))) for item in columns])


def stored_rows(
    batches: Iterable[pa.RecordBatch], layout: TableLayout, row_ids: RowIdColumns | None, *, records: bool = False
) -> ArrowRows:
    """Batches of ``arrow.scan`` under the names that files have; ``records``: with the column of change files."""
    stored = stored_schema(layout, row_ids)
    if records:
        stored = stored.append(pa.field(CHANGE_TYPE, pa.string()))
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=stored) for batch in batches)
    return ArrowRows(source=pa.RecordBatchReader.from_batches(stored, renamed), schema=from_arrow_schema(stored))
