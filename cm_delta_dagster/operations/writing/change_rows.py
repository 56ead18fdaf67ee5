"""Carries out a row change in a transaction: an engine finds the rows, here is decided about each file, the engine writes rows.

A file of which all rows go is removed. Of the other files that change, those that may get a deletion vector keep their unchanged
rows, and the rest are removed and their unchanged rows written again (copy-on-write). Deletion vectors are written where the table
has ``delta.enableDeletionVectors``, for files with a known number of rows of which not too many are deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import IllegalCommitError, InvalidDataError
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts, VectorCounts, with_files
from cm_delta_dagster.operations.writing.engines.change_engine import ChangedFile, ChangeEngine, FilePlan
from cm_delta_dagster.operations.writing.table_files import check_row_counts
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.changes.row_changes import FileChanges, FoundChanges, totals
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.vector_writing import physical_rows
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowChangeRun:
    """One run of a change.

    Attributes:
        candidates: files that can hold rows with a partner or rows that change, as add actions.
        whole: files of which all rows are deleted, which need not be read to know that.
        may_match_twice: a row of the table may have several partners.
        marks: files may get deletion vectors.
    """

    write: WriteTransaction
    engine: ChangeEngine
    candidates: pa.Table
    whole: pa.Table | None = None
    may_match_twice: bool = False
    marks: bool = True

    @property
    def snapshot(self) -> Snapshot:
        return self.write.transaction.snapshot

    def run(self) -> ChangeCounts:
        """Write data files, change files and deletion vectors; the caller commits.

        Raises:
            InvalidDataError: a row of the table has several partners.
        """
        self.write.transaction.keeps_row_ids = self.engine.row_ids is not None
        changes = self._find()
        if changes.num_partners == self.engine.num_source_rows:
            return replace(self, engine=self.engine.without_inserts())._change(changes)
        return self._change(changes)

    def _change(self, row_changes: FoundChanges) -> ChangeCounts:
        plan, changes_by_file = self._plan(row_changes), row_changes.files
        num_updated = totals(changes.updated for changes in changes_by_file.values())
        # Rows that were only inserted, and rows of files or deletion vectors that were only deleted, follow from the log.
        recorded = self.write.records_changes and bool(plan.kept or any(num_updated.values()))
        written = self._write_recorded(plan) if recorded else self.engine.write(plan)
        if plan.marked:
            bitmaps = [file.deleted | file.changes.changed for file in plan.marked]
            self.write.mark_rows(plan.files(plan.marked), bitmaps)
        copied, inserted = self._moved(plan, written - sum(num_updated.values()))
        counts = ChangeCounts(
            removed_files=plan.files(plan.removed),
            num_updated_rows=num_updated,
            num_deleted_rows=totals(changes.deleted for changes in changes_by_file.values()),
            num_copied_rows=copied,
            num_inserted_rows=inserted,
            vectors=plan.vectors,
        )
        return counts if self.whole is None else with_files(counts, self.whole)

    def insert(self) -> ChangeCounts:
        """Add the rows of the source without a partner; for changes that do nothing else."""
        return ChangeCounts(
            removed_files=self.candidates.slice(0, 0),
            num_updated_rows={},
            num_deleted_rows={},
            num_copied_rows=0,
            num_inserted_rows=self.engine.insert(self.candidates),
            vectors=VectorCounts(),
        )

    def _plan(self, row_changes: FoundChanges) -> FilePlan:
        changes_by_file = row_changes.files
        keys = file_keys(self.snapshot.location, self.candidates["path"]).to_pylist()
        changed = self._changed_files(changes_by_file, keys)
        marked = [file for file in changed if self._gets_vector(file)]
        places = {file.position for file in marked}
        removed = [file for file in changed if file.position not in places]
        kept = [file for file in removed if not file.is_gone]
        updated = [file for file in changed if file.is_gone or file.position in places]
        updated = [file for file in updated if file.changes.all_updated]
        taken = {file.position for file in (*kept, *updated)}
        rest = {i: changes_by_file[key] for i, key in enumerate(keys) if i not in taken and key in changes_by_file}
        others = {i: changes for i, changes in rest.items() if changes.matched}
        plan = FilePlan(
            candidates=self.candidates,
            whole=self.whole,
            marked=tuple(marked),
            removed=tuple(removed),
            kept=tuple(kept),
            updated=tuple(updated),
            others=others if self.engine.inserts else {},
            num_partners=sum(len(changes.matched) for changes in changes_by_file.values()),
        )
        if not row_changes.has_checked_rows:
            # These files are removed without reading the rows that do not change, because the log says that there are none.
            check_row_counts(self.write.table, self.snapshot, plan.files([file for file in changed if file.is_gone]))
        return plan

    def _find(self) -> FoundChanges:
        if not self.candidates.num_rows:
            return FoundChanges(files={}, num_ambiguous=0, num_partners=0 if self.engine.inserts else None)
        changes = self.engine.find(self.candidates)
        if changes.num_ambiguous and not self.may_match_twice:
            raise InvalidDataError(
                f"Several rows of the source match the same row of the table ({changes.num_ambiguous} matches too many); which of "
                "them should win is not known. Nothing was committed. Make the condition of the merge select at most one row of "
                "the source for each row of the table, e.g. keep the newest row of each key."
            )
        return changes

    def _changed_files(self, changes_by_file: Mapping[str, FileChanges], keys: Sequence[str]) -> list[ChangedFile]:
        positions = [i for i, key in enumerate(keys) if key in changes_by_file and changes_by_file[key].changed]
        files = self.candidates.take(pa.array(positions, pa.int64()))
        old = self._old_vectors(files)
        return [
            ChangedFile(
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

    def _gets_vector(self, file: ChangedFile) -> bool:
        snapshot = self.snapshot
        if not self.marks or file.is_gone or not file.num_rows or not snapshot.properties.deletion_vectors_enabled:
            return False
        if not supports(snapshot.protocol, "deletionVectors"):
            return False
        limit = self.write.table.services.settings.max_deleted_rows_ratio
        return len(file.changes.changed) + len(file.deleted) <= limit * file.num_rows

    def _write_recorded(self, plan: FilePlan) -> int:
        """Write data files and change files, and compare what was recorded with what the change does."""
        rows = self.engine.write_recorded(plan)
        whole = 0 if self.whole is None else logical_row_count(self.whole)
        expected = sum(len(file.changes.changed) + len(file.changes.all_updated) for file in plan.changed)
        if whole is not None and rows.recorded != expected + whole:
            raise IllegalCommitError(
                f"The change feed would have {rows.recorded} rows for changes that were found to have {expected + whole}. Nothing "
                "was committed. Run the statement again; if the error stays, please report it with the statement and the schema."
            )
        return rows.written

    def _moved(self, plan: FilePlan, num_rows: int) -> tuple[int, int]:
        """How many of the written rows that are not updated were copied, and how many inserted."""
        kept = plan.kept
        if not kept and not self.engine.inserts and not num_rows:
            return 0, 0
        changed = sum(len(file.changes.changed) for file in kept)
        files = plan.files(kept)
        most = self.engine.num_source_rows if self.engine.inserts else 0
        copied = 0
        if kept:
            known = logical_row_count(files)
            copied = (known if known is not None else self.engine.count_rows(files)) - changed
        if kept and not 0 <= num_rows - copied <= most:
            # Another writer put wrong row counts into the log: count the rows.
            copied = self.engine.count_rows(files) - changed
        if not 0 <= num_rows - copied <= most:
            raise IllegalCommitError(
                f"The change would copy {copied} rows and insert at most {most}, and {num_rows} such rows were written. Nothing "
                "was committed. The source gave other rows when it was read again: persist it, or write it to a table first."
            )
        return copied, num_rows - copied
