"""A change of rows by Spark: a query finds the rows of each file, a second one writes those of the files that change."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.writing.engines.change_engine import ChangedFile, FilePlan, RecordedRows, by_file_key
from cm_delta_dagster.operations.writing.engines.few_files import RowsRead, row_gathering
from cm_delta_dagster.operations.writing.engines.small_changes import MOST_ROWS_READ, find_rows, is_small, read_rows
from cm_delta_dagster.operations.writing.table_files import hidden_columns, scan_files
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.changes.change_data_feed import CHANGE_TYPE
from cm_delta_dagster.protocol.changes.row_changes import FoundChanges
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import RowPositions, ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.changes.row_changes import RowChangeQuery
from cm_delta_dagster.spark.library import DataFrame, SparkSession, pyspark
from cm_delta_dagster.spark.read.rewrite import count_frame_rows
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.spark.write.optimized_write import RowGathering

_FEW_ROWS = 100_000
"""Up to this many rows are searched by one task, and up to this many rows with partners are sent to every task."""
_ROWS_OF_ONE_FILE = 500_000
"""Up to this many rows of a single file are searched by one task: Spark would hardly divide the file, and a stage is saved."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparkChanges:
    """A :class:`~cm_delta_dagster.operations.writing.engines.change_engine.ChangeEngine`.

    Attributes:
        where: the condition of the only clause of a query without a source.
        may_match_twice: a row of the table may have several partners.
    """

    transaction: WriteTransaction
    session: SparkSession
    query: RowChangeQuery
    where: Predicate | None = None
    may_match_twice: bool = False
    num_source_rows: int = 0

    @property
    def row_ids(self) -> RowIdColumns | None:
        return self.query.row_ids

    @property
    def inserts(self) -> bool:
        return self.query.inserts

    @property
    def snapshot(self) -> Snapshot:
        return self.transaction.transaction.snapshot

    def without_inserts(self) -> "SparkChanges":
        """The clauses that change rows of the table. They have other numbers, by which their rows are filled."""
        return replace(self, query=self.query.without_inserts())

    def find(self, candidates: pa.Table) -> FoundChanges:
        """Raises InvalidArgumentError as Spark refuses a condition."""
        positions = self._positions_without_job(candidates)
        if positions is not None:
            (clause,) = self.query.clauses
            return FoundChanges.at(positions, clause.kind, clause.action)
        num_rows = logical_row_count(candidates)
        most = _ROWS_OF_ONE_FILE if candidates.num_rows == 1 else _FEW_ROWS
        few = num_rows is not None and num_rows <= most
        return self.query.find(self._scan_by_name(candidates), few=few)

    def write(self, plan: FilePlan) -> int:
        gathering = self._gathering(plan)
        if self.query.is_apart:
            parts = self.query.rows_apart(self._unchanged(plan), self._touched(plan))
        else:
            others = self._scan_at(plan, plan.others) if self.query.inserts else None
            parts = self.query.rows(self._scans(plan), others, few=plan.num_partners <= _FEW_ROWS)
        rows = parts.union(lambda changed: gathering.changed_rows(changed, self.transaction.layout))
        return 0 if rows is None else self._add(rows, gathering).num_rows

    def write_recorded(self, plan: FilePlan) -> RecordedRows:
        """Inserted rows are read back: values that the table computes are the same then."""
        changes = self.without_inserts()
        written = changes.write(plan)
        num_inserted = 0
        parts = [changes.query.images(self._changed(plan), self.transaction.layout, CHANGE_TYPE)]
        if self.query.inserts:
            partners = self._scan_at(plan, sorted({*(file.position for file in plan.changed), *plan.others}))
            few = plan.num_partners <= _FEW_ROWS
            inserted = self._add(self.query.inserted(partners, few=few), self._gathering())
            num_inserted = inserted.num_rows
            if num_inserted:
                parts.append(self.transaction.inserted_changes(self.session, inserted))
        frame = reduce(pyspark.sql.DataFrame.union, parts)
        recorded = self.transaction.add_changes(frame, self._gathering_images(plan))
        return RecordedRows(written=written + num_inserted, recorded=recorded - num_inserted)

    def insert(self, candidates: pa.Table) -> int:
        target = self._scan(candidates) if candidates.num_rows else None
        return self._add(self.query.inserted(target), self._gathering()).num_rows

    def count_rows(self, files: pa.Table) -> int:
        return count_frame_rows(self._scan(files))

    def _positions_without_job(self, candidates: pa.Table) -> dict[str, BitMap64] | None:
        """The positions of the rows that change by file key; None if a Spark job has to find them."""
        if self.where is None:
            return None
        request = ScanRequest(files=candidates, predicate=self.where)
        layout, store = self.snapshot.layout, self.transaction.table.store
        positions_by_path = find_rows(self.session, store=store, layout=layout, request=request)
        return None if positions_by_path is None else by_file_key(layout.location, positions_by_path)

    def _gathering(self, plan: FilePlan | None = None) -> RowGathering:
        """Which rows are shuffled before they are written. Without a plan, rows are only inserted."""
        files = () if plan is None else plan.updated
        if plan is not None and self.query.is_apart:
            files = tuple(file for file in (*plan.kept, *plan.updated) if file.changes.all_updated)
        return row_gathering(
            self.session,
            self.transaction.layout,
            copied=None if plan is None or not plan.kept else self._read(plan, plan.kept, copies=True),
            updated=self._read(plan, files) if plan is not None and files else None,
            source=self.query.source,
            num_inserted=self.num_source_rows - (0 if plan is None else plan.num_partners) if self.query.inserts else 0,
        )

    def _gathering_images(self, plan: FilePlan) -> RowGathering:
        """Whether the rows of change files are shuffled before they are written."""
        updated, source = self._read(plan, plan.changed) if plan.changed else None, self.query.source
        return row_gathering(
            self.session, self.transaction.layout, copied=None, updated=updated, source=source, num_inserted=0
        )

    def _read(self, plan: FilePlan, files: Sequence[ChangedFile], *, copies: bool = False) -> RowsRead:
        """What is written of ``files``: their rows, or only those that are updated."""
        adds, bitmaps = plan.files(files), [file.changes.all_updated for file in files]
        positions = RowPositions(by_path=dict(zip(adds["path"].to_pylist(), bitmaps, strict=True)), are_returned=True)
        request = ScanRequest(files=adds, positions=None if copies else positions)
        num_rows = sum(map(len, bitmaps))
        return RowsRead(files=adds, num_rows=num_rows, is_read_here=self.where is not None and is_small(request))

    def _unchanged(self, plan: FilePlan) -> DataFrame | None:
        """The rows of the kept files that do not change."""
        if not plan.kept:
            return None
        bitmaps = [file.deleted | file.changes.changed for file in plan.kept]
        return self._scan_rows(plan.files(plan.kept), bitmaps, are_returned=False)

    def _touched(self, plan: FilePlan) -> DataFrame | None:
        """The rows that are updated and, if rows are inserted, those with a partner."""
        places = {file.position: file.changes for file in (*plan.kept, *plan.updated)} | dict(plan.others)
        bitmaps = {
            place: changes.all_updated | changes.matched if self.query.inserts else changes.all_updated
            for place, changes in places.items()
        }
        places_read = sorted(place for place, bitmap in bitmaps.items() if bitmap)
        if not places_read:
            return None
        files = plan.candidates.take(pa.array(places_read, pa.int64()))
        return self._scan_rows(files, [bitmaps[place] for place in places_read], are_returned=True)

    def _scan_few(self, files: pa.Table, bitmaps: Sequence[BitMap64]) -> DataFrame:
        """The rows of ``files`` at some positions; with all other rows if they are many, as a condition finds them faster then."""
        few = self.where is not None and sum(map(len, bitmaps)) <= MOST_ROWS_READ
        return self._scan_rows(files, bitmaps, are_returned=True) if few else self._scan(files)

    def _scan_rows(self, files: pa.Table, bitmaps: Sequence[BitMap64], *, are_returned: bool) -> DataFrame:
        by_path = dict(zip(files["path"].to_pylist(), bitmaps, strict=True))
        return self._scan(files, RowPositions(by_path=by_path, are_returned=are_returned))

    def _changed(self, plan: FilePlan) -> DataFrame:
        """The rows that change, among others, and those of the whole files."""
        adds, bitmaps = plan.files(plan.changed), [file.changes.changed for file in plan.changed]
        if plan.whole is not None and plan.whole.num_rows:
            return self._scan(pa.concat_tables([adds, plan.whole]))
        if self.may_match_twice:
            return self._scan_by_name(adds)
        return (
            self._scan_rows(adds, bitmaps, are_returned=True) if self.query.is_apart else self._scan_few(adds, bitmaps)
        )

    def _scans(self, plan: FilePlan) -> list[tuple[DataFrame, bool]]:
        """Rows of the files that are written, and whether their unchanged rows are written too."""
        parts = [(self._scan(plan.files(plan.kept)), True)] if plan.kept else []
        if plan.updated:
            bitmaps = [file.changes.all_updated for file in plan.updated]
            parts.append((self._scan_few(plan.files(plan.updated), bitmaps), False))
        return parts

    def _add(self, rows: DataFrame, gathering: RowGathering) -> WrittenFiles:
        filled = self.query.filled(rows, self.transaction.layout)
        spec = WriteSpec(
            numbered=filled.numbered,
            checked=not self.query.moves_only,
            hidden_columns=hidden_columns(self.query.row_ids),
        )
        return self.transaction.add_rows(filled.frame, spec=spec, gathering=gathering)

    def _scan_at(self, plan: FilePlan, positions: Iterable[int]) -> DataFrame | None:
        places = pa.array(list(positions), pa.int64())
        return self._scan(plan.candidates.take(places)) if len(places) else None

    def _scan(self, files: pa.Table, positions: RowPositions | None = None) -> DataFrame:
        layout = replace(self.snapshot.layout, schema=self.query.schema)
        request = ScanRequest(files=files, row_tracking=self.query.row_ids, positions=positions)
        store = self.transaction.table.store
        rows = None
        if self.where is not None:
            rows = read_rows(self.session, store=store, layout=layout, request=request)
        return scan(self.session, store=store, layout=layout, request=request) if rows is None else rows

    def _scan_by_name(self, files: pa.Table) -> DataFrame:
        return scan_files(
            self.transaction.table, self.snapshot, self.session, files, self.query.schema, with_files=True
        )
