"""Carries out a row change in a transaction: finds the rows, decides about each file, writes rows and deletion vectors.

A file of which all rows go is removed. Of the other files that change, those that may get a deletion vector keep their unchanged
rows, and the rest are removed and their unchanged rows written again (copy-on-write). Deletion vectors are written where the table
has ``delta.enableDeletionVectors``, for files with a known number of rows of which not too many are deleted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import IllegalCommitError, InvalidDataError
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts, VectorCounts, totals, with_files
from cm_delta_dagster.operations.writing.few_files import RowsRead, row_gathering
from cm_delta_dagster.operations.writing.small_changes import MOST_ROWS_READ, find_rows, is_small, read_rows
from cm_delta_dagster.operations.writing.table_files import (
    check_row_counts,
    hidden_columns,
    rows_of_files,
    scan_files,
)
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.changes.change_data_feed import CHANGE_TYPE
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.table_layout import RowPositions, ScanRequest
from cm_delta_dagster.protocol.features.vector_writing import physical_rows
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.changes.found_changes import FileChanges, FoundChanges
from cm_delta_dagster.spark.changes.row_changes import RowChangeQuery
from cm_delta_dagster.spark.library import DataFrame, SparkSession, pyspark
from cm_delta_dagster.spark.read.rewrite import count_frame_rows
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.spark.write.optimized_write import RowGathering
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors

_FEW_ROWS = 100_000
"""Up to this many rows are searched by one task, and up to this many rows with partners are sent to every task."""
_ROWS_OF_ONE_FILE = 500_000
"""Up to this many rows of a single file are searched by one task: Spark would hardly divide the file, and a stage is saved."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _File:
    """A live file that changes.

    Attributes:
        position: its row in the table of candidates.
        deleted: positions that were deleted before.
        num_rows: physical rows; None if the log has no number.
    """

    position: int
    changes: FileChanges
    deleted: BitMap64
    num_rows: int | None

    @property
    def is_gone(self) -> bool:
        return self.num_rows is not None and len(self.changes.changed) + len(self.deleted) == self.num_rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _FilePlan:
    """What happens to the files.

    Attributes:
        marked: files that get a new deletion vector.
        removed: files that leave the table.
        kept: the removed files whose unchanged rows are written again.
        updated: the files besides ``kept`` with updated rows.
        others: further files with partners of source rows, by their rows in the table of candidates.
        num_partners: rows of the table with partners.
    """

    marked: tuple[_File, ...]
    removed: tuple[_File, ...]
    kept: tuple[_File, ...]
    updated: tuple[_File, ...]
    others: Mapping[int, FileChanges]
    num_partners: int

    @property
    def few_partners(self) -> bool:
        """Whether every task can have the rows of the table with partners."""
        return self.num_partners <= _FEW_ROWS

    @property
    def vectors(self) -> VectorCounts:
        return VectorCounts(
            added=sum(not file.deleted for file in self.marked),
            removed=sum(bool(file.deleted) for file in self.removed),
            updated=sum(bool(file.deleted) for file in self.marked),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowChangeRun:
    """One run of a query.

    Attributes:
        candidates: files that can hold rows with a partner or rows that change, as add actions.
        where: that of the only clause of a query without a source.
        whole: files of which all rows are deleted, which need not be read to know that.
        may_match_twice: a row of the table may have several partners.
        marks: files may get deletion vectors.
        num_source_rows: rows of the source; 0 without one.
    """

    write: WriteTransaction
    session: SparkSession
    query: RowChangeQuery
    candidates: pa.Table
    where: Predicate | None = None
    whole: pa.Table | None = None
    may_match_twice: bool = False
    marks: bool = True
    num_source_rows: int = 0

    @property
    def snapshot(self) -> Snapshot:
        return self.write.transaction.snapshot

    def run(self) -> ChangeCounts:
        """Write data files, change files and deletion vectors; the caller commits.

        Raises:
            InvalidDataError: a row of the table has several partners.
        """
        self.write.transaction.keeps_row_ids = self.query.row_ids is not None
        changes = self._find()
        if changes.num_partners == self.num_source_rows:
            return self._without_inserts()._change(changes)
        return self._change(changes)

    def _without_inserts(self) -> "RowChangeRun":
        """A run of the clauses that change rows of the table. Its clauses have other numbers, by which its rows are filled."""
        return replace(self, query=self.query.without_inserts())

    def _change(self, row_changes: FoundChanges) -> ChangeCounts:
        plan, changes_by_file = self._plan(row_changes), row_changes.files
        num_updated = totals(changes.updated for changes in changes_by_file.values())
        # Rows that were only inserted, and rows of files or deletion vectors that were only deleted, follow from the log.
        recorded = self.write.records_changes and bool(plan.kept or any(num_updated.values()))
        written = self._write_recorded(plan) if recorded else self._write(plan)
        if plan.marked:
            bitmaps = [file.deleted | file.changes.changed for file in plan.marked]
            self.write.mark_rows(self._files(plan.marked), bitmaps)
        copied, inserted = self._moved(plan.kept, written - sum(num_updated.values()))
        counts = ChangeCounts(
            removed_files=self._files(plan.removed),
            num_updated_rows=num_updated,
            num_deleted_rows=totals(changes.deleted for changes in changes_by_file.values()),
            num_copied_rows=copied,
            num_inserted_rows=inserted,
            vectors=plan.vectors,
        )
        return counts if self.whole is None else with_files(counts, self.whole)

    def insert(self) -> ChangeCounts:
        """Add the rows of the source without a partner; for changes that do nothing else."""
        target = self._scan(self.candidates) if self.candidates.num_rows else None
        written = self._add(self.query.inserted(target), self._gathering())
        return ChangeCounts(
            removed_files=self.candidates.slice(0, 0),
            num_updated_rows={},
            num_deleted_rows={},
            num_copied_rows=0,
            num_inserted_rows=written.num_rows,
            vectors=VectorCounts(),
        )

    def _plan(self, row_changes: FoundChanges) -> _FilePlan:
        changes_by_file = row_changes.files
        keys = file_keys(self.snapshot.location, self.candidates["path"]).to_pylist()
        changed = self._changed_files(changes_by_file, keys)
        if not row_changes.has_checked_rows:
            # These files are removed without reading the rows that do not change, because the log says that there are none.
            check_row_counts(self.write.table, self.snapshot, self._files([file for file in changed if file.is_gone]))
        marked = [file for file in changed if self._gets_vector(file)]
        places = {file.position for file in marked}
        removed = [file for file in changed if file.position not in places]
        kept = [file for file in removed if not file.is_gone]
        updated = [file for file in changed if file.is_gone or file.position in places]
        updated = [file for file in updated if file.changes.all_updated]
        taken = {file.position for file in (*kept, *updated)}
        rest = {i: changes_by_file[key] for i, key in enumerate(keys) if i not in taken and key in changes_by_file}
        others = {i: changes for i, changes in rest.items() if changes.matched}
        return _FilePlan(
            marked=tuple(marked),
            removed=tuple(removed),
            kept=tuple(kept),
            updated=tuple(updated),
            others=others if self.query.inserts else {},
            num_partners=sum(len(changes.matched) for changes in changes_by_file.values()),
        )

    def _find(self) -> FoundChanges:
        if not self.candidates.num_rows:
            return FoundChanges(files={}, num_ambiguous=0, num_partners=0 if self.query.inserts else None)
        positions = self._positions_without_job()
        if positions is not None:
            return self.query.changes_at(positions)
        num_rows = logical_row_count(self.candidates)
        most = _ROWS_OF_ONE_FILE if self.candidates.num_rows == 1 else _FEW_ROWS
        few = num_rows is not None and num_rows <= most
        changes = self.query.find(self._scan_by_name(self.candidates), few=few)
        if changes.num_ambiguous and not self.may_match_twice:
            raise InvalidDataError(
                f"Several rows of the source match the same row of the table ({changes.num_ambiguous} matches too many); which of "
                "them should win is not known. Nothing was committed. Make the condition of the merge select at most one row of "
                "the source for each row of the table, e.g. keep the newest row of each key."
            )
        return changes

    def _positions_without_job(self) -> dict[str, BitMap64] | None:
        """The positions of the rows that change by file key; None if a Spark job has to find them."""
        if self.where is None:
            return None
        request = ScanRequest(files=self.candidates, predicate=self.where)
        layout = self.snapshot.layout
        positions_by_path = find_rows(self.session, store=self.write.table.store, layout=layout, request=request)
        if positions_by_path is None:
            return None
        keys = file_keys(self.snapshot.location, pa.array(list(positions_by_path), pa.string())).to_pylist()
        return dict(zip(keys, positions_by_path.values(), strict=True))

    def _changed_files(self, changes_by_file: Mapping[str, FileChanges], keys: Sequence[str]) -> list[_File]:
        positions = [i for i, key in enumerate(keys) if key in changes_by_file and changes_by_file[key].changed]
        files = self.candidates.take(pa.array(positions, pa.int64()))
        old = self._old_vectors(files)
        return [
            _File(
                position=position,
                changes=changes_by_file[keys[position]],
                deleted=vector,
                num_rows=physical_rows(stats),
            )
            for position, vector, stats in zip(positions, old, files["stats"].to_pylist(), strict=True)
        ]

    def _old_vectors(self, files: pa.Table) -> list[BitMap64]:
        valid = files["deletionVector"].is_valid()
        vectors = iter(
            read_deletion_vectors(self.write.table.store, location=self.snapshot.location, files=files.filter(valid))
        )
        return [next(vectors) if has_vector else BitMap64() for has_vector in valid.to_pylist()]

    def _gets_vector(self, file: _File) -> bool:
        snapshot = self.snapshot
        if not self.marks or file.is_gone or not file.num_rows or not snapshot.properties.deletion_vectors_enabled:
            return False
        if not supports(snapshot.protocol, "deletionVectors"):
            return False
        limit = self.write.table.services.settings.max_deleted_rows_ratio
        return len(file.changes.changed) + len(file.deleted) <= limit * file.num_rows

    def _write(self, plan: _FilePlan) -> int:
        """Write the rows of a plan. Returns their number."""
        gathering = self._gathering(plan)
        if self.query.is_apart:
            parts = self.query.rows_apart(self._unchanged(plan.kept), self._touched(plan))
        else:
            others = self._scan_at(plan.others) if self.query.inserts else None
            parts = self.query.rows(self._scans(plan), others, few=plan.few_partners)
        rows = parts.union(lambda changed: gathering.changed_rows(changed, self.write.layout))
        return 0 if rows is None else self._add(rows, gathering).num_rows

    def _gathering(self, plan: _FilePlan | None = None) -> RowGathering:
        """Which rows are shuffled before they are written. Without a plan, rows are only inserted."""
        files = () if plan is None else plan.updated
        if plan is not None and self.query.is_apart:
            files = tuple(file for file in (*plan.kept, *plan.updated) if file.changes.all_updated)
        return row_gathering(
            self.session,
            self.write.layout,
            copied=None if plan is None or not plan.kept else self._read(plan.kept, copies=True),
            updated=self._read(files) if files else None,
            source=self.query.source,
            num_inserted=self.num_source_rows - (0 if plan is None else plan.num_partners) if self.query.inserts else 0,
        )

    def _gathering_images(self, files: Sequence[_File]) -> RowGathering:
        """Whether the rows of change files are shuffled before they are written."""
        updated, source = self._read(files) if files else None, self.query.source
        return row_gathering(
            self.session, self.write.layout, copied=None, updated=updated, source=source, num_inserted=0
        )

    def _read(self, files: Sequence[_File], *, copies: bool = False) -> RowsRead:
        """What is written of ``files``: their rows, or only those that are updated."""
        adds, bitmaps = self._files(files), [file.changes.all_updated for file in files]
        positions = RowPositions(by_path=dict(zip(adds["path"].to_pylist(), bitmaps, strict=True)), are_returned=True)
        request = ScanRequest(files=adds, positions=None if copies else positions)
        num_rows = sum(map(len, bitmaps))
        return RowsRead(files=adds, num_rows=num_rows, is_read_here=self.where is not None and is_small(request))

    def _unchanged(self, files: Sequence[_File]) -> DataFrame | None:
        """The rows of ``files`` that do not change."""
        if not files:
            return None
        bitmaps = [file.deleted | file.changes.changed for file in files]
        return self._scan_rows(self._files(files), bitmaps, are_returned=False)

    def _touched(self, plan: _FilePlan) -> DataFrame | None:
        """The rows that are updated and, if rows are inserted, those with a partner."""
        places = {file.position: file.changes for file in (*plan.kept, *plan.updated)} | dict(plan.others)
        bitmaps = {
            place: changes.all_updated | changes.matched if self.query.inserts else changes.all_updated
            for place, changes in places.items()
        }
        places_read = sorted(place for place, bitmap in bitmaps.items() if bitmap)
        if not places_read:
            return None
        files = self.candidates.take(pa.array(places_read, pa.int64()))
        return self._scan_rows(files, [bitmaps[place] for place in places_read], are_returned=True)

    def _scan_few(self, files: pa.Table, bitmaps: Sequence[BitMap64]) -> DataFrame:
        """The rows of ``files`` at some positions; with all other rows if they are many, as a condition finds them faster then."""
        few = self.where is not None and sum(map(len, bitmaps)) <= MOST_ROWS_READ
        return self._scan_rows(files, bitmaps, are_returned=True) if few else self._scan(files)

    def _scan_rows(self, files: pa.Table, bitmaps: Sequence[BitMap64], *, are_returned: bool) -> DataFrame:
        by_path = dict(zip(files["path"].to_pylist(), bitmaps, strict=True))
        return self._scan(files, RowPositions(by_path=by_path, are_returned=are_returned))

    def _write_recorded(self, plan: _FilePlan) -> int:
        """As :meth:`_write`, with change files. Inserted rows are read back: values that the table computes are the same then."""
        changes = self._without_inserts()
        written = changes._write(plan)
        num_inserted = 0
        changed = {file.position: file for file in (*plan.marked, *plan.removed)}
        target = self._changed([changed[place] for place in sorted(changed)])
        parts = [changes.query.images(target, self.write.layout, CHANGE_TYPE)]
        if self.query.inserts:
            partners = self._scan_at(sorted({*changed, *plan.others}))
            inserted = self._add(self.query.inserted(partners, few=plan.few_partners), self._gathering())
            num_inserted = inserted.num_rows
            if num_inserted:
                parts.append(self.write.inserted_changes(self.session, inserted))
        gathering = self._gathering_images([changed[place] for place in sorted(changed)])
        recorded = self.write.add_changes(reduce(pyspark.sql.DataFrame.union, parts), gathering) - num_inserted
        file_changes = [file.changes for file in changed.values()]
        whole = 0 if self.whole is None else logical_row_count(self.whole)
        expected = sum(
            len(changes_of_file.changed) + len(changes_of_file.all_updated) for changes_of_file in file_changes
        )
        if whole is not None and recorded != expected + whole:
            raise IllegalCommitError(
                f"The change feed would have {recorded} rows for changes that were found to have {expected + whole}. Nothing was "
                "committed. Run the statement again; if the error stays, please report it with the statement and the schema."
            )
        return written + num_inserted

    def _changed(self, files: Sequence[_File]) -> DataFrame:
        """The rows of ``files`` that change, among others, and those of the whole files."""
        adds, bitmaps = self._files(files), [file.changes.changed for file in files]
        if self.whole is not None and self.whole.num_rows:
            return self._scan(pa.concat_tables([adds, self.whole]))
        if self.may_match_twice:
            return self._scan_by_name(adds)
        return (
            self._scan_rows(adds, bitmaps, are_returned=True) if self.query.is_apart else self._scan_few(adds, bitmaps)
        )

    def _scans(self, plan: _FilePlan) -> list[tuple[DataFrame, bool]]:
        """Rows of the files that are written, and whether their unchanged rows are written too."""
        parts = [(self._scan(self._files(plan.kept)), True)] if plan.kept else []
        if plan.updated:
            bitmaps = [file.changes.all_updated for file in plan.updated]
            parts.append((self._scan_few(self._files(plan.updated), bitmaps), False))
        return parts

    def _add(self, rows: DataFrame, gathering: RowGathering) -> WrittenFiles:
        filled = self.query.filled(rows, self.write.layout)
        spec = WriteSpec(
            numbered=filled.numbered,
            checked=not self.query.moves_only,
            hidden_columns=hidden_columns(self.query.row_ids),
        )
        return self.write.add_rows(filled.frame, spec=spec, gathering=gathering)

    def _moved(self, kept: Sequence[_File], num_rows: int) -> tuple[int, int]:
        """How many of the written rows that are not updated were copied, and how many inserted."""
        if not kept and not self.query.inserts and not num_rows:
            return 0, 0
        changed = sum(len(file.changes.changed) for file in kept)
        files = self._files(kept)
        most = self.num_source_rows if self.query.inserts else 0
        copied = rows_of_files(self.write.table, self.snapshot, self.session, files) - changed if kept else 0
        if kept and not 0 <= num_rows - copied <= most:
            # Another writer put wrong row counts into the log: count the rows.
            copied = count_frame_rows(self._scan(files)) - changed
        if not 0 <= num_rows - copied <= most:
            raise IllegalCommitError(
                f"The change would copy {copied} rows and insert at most {most}, and {num_rows} such rows were written. Nothing "
                "was committed. The source gave other rows when it was read again: persist it, or write it to a table first."
            )
        return copied, num_rows - copied

    def _files(self, files: Sequence[_File]) -> pa.Table:
        return self.candidates.take(pa.array([file.position for file in files], pa.int64()))

    def _scan_at(self, positions: Iterable[int]) -> DataFrame | None:
        places = pa.array(list(positions), pa.int64())
        return self._scan(self.candidates.take(places)) if len(places) else None

    def _scan(self, files: pa.Table, positions: RowPositions | None = None) -> DataFrame:
        layout = replace(self.snapshot.layout, schema=self.query.schema)
        request = ScanRequest(files=files, row_tracking=self.query.row_ids, positions=positions)
        store = self.write.table.store
        rows = None
        if self.where is not None:
            rows = read_rows(self.session, store=store, layout=layout, request=request)
        return scan(self.session, store=store, layout=layout, request=request) if rows is None else rows

    def _scan_by_name(self, files: pa.Table) -> DataFrame:
        return scan_files(self.write.table, self.snapshot, self.session, files, self.query.schema, with_files=True)
