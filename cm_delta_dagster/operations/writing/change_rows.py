"""Carries out a row change in a transaction: finds the rows, decides about each file, writes rows and deletion vectors.

A file of which all rows go is removed. Of the other files that change, those that may get a deletion vector keep their unchanged
rows, and the rest are removed and their unchanged rows written again (copy-on-write). Deletion vectors are written where the table
has ``delta.enableDeletionVectors``, for files with a known number of rows of which not too many are deleted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import IllegalCommitError, InvalidDataError
from cm_delta_dagster.operations.writing.write_transaction import (
    WriteTransaction,
    rows_of_files,
    scan_files,
    scan_files_by_name,
)
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.vector_writing import physical_rows
from cm_delta_dagster.spark.rewrite import count_frame_rows
from cm_delta_dagster.spark.row_changes import ClauseKind, FileChanges, RowChangeQuery
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeCounts:
    """What a change did; rows by the kind of clause.

    Attributes:
        removed_files: files that leave the table, as add actions.
        num_deleted_rows: None if the log has no row count for a file that was not read.
        num_copied_rows: rows that were only moved to other files.
        num_inserted_rows: rows of the source that were added.
    """

    removed_files: pa.Table
    num_updated_rows: Mapping[ClauseKind, int]
    num_deleted_rows: Mapping[ClauseKind, int] | None
    num_copied_rows: int
    num_inserted_rows: int
    vectors: "VectorCounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCounts:
    """Deletion vectors: of files that had none before, of files that leave the table, and of files that had another one."""

    added: int = 0
    removed: int = 0
    updated: int = 0

    def metrics(self, prefix: str) -> dict[str, int]:
        """As delta-spark names them: a vector that is replaced counts as removed and as added too."""
        return {
            f"{prefix}Added": self.added + self.updated,
            f"{prefix}Removed": self.removed + self.updated,
            f"{prefix}Updated": self.updated,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _File:
    """A live file that changes.

    Attributes:
        position: its row in the table of candidates.
        deleted: positions that were deleted before.
        num_rows: physical rows; None if the log does not tell.
    """

    position: int
    changes: FileChanges
    deleted: BitMap64
    num_rows: int | None

    @property
    def is_gone(self) -> bool:
        return self.num_rows is not None and len(self.changes.changed) + len(self.deleted) == self.num_rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowChangeRun:
    """One run of a query.

    Attributes:
        candidates: files that can hold rows with a partner or rows that change, as add actions.
        may_match_twice: a row of the table may have several partners.
        num_source_rows: rows of the source; 0 without one.
    """

    write: WriteTransaction
    session: SparkSession
    query: RowChangeQuery
    candidates: pa.Table
    may_match_twice: bool = False
    num_source_rows: int = 0

    @property
    def snapshot(self) -> Snapshot:
        return self.write.transaction.snapshot

    def run(self) -> ChangeCounts:
        """Write data files and deletion vectors; the caller commits.

        Raises:
            InvalidDataError: a row of the table has several partners.
        """
        found = self._find()
        keys = file_keys(self.snapshot.location, self.candidates["path"]).to_pylist()
        changed = self._changed_files(found, keys)
        marked = [file for file in changed if self._gets_vector(file)]
        marked_positions = {file.position for file in marked}
        removed = [file for file in changed if file.position not in marked_positions]
        kept = [file for file in removed if not file.is_gone]
        updated = [file for file in (*marked, *removed) if file.is_gone or file.position in marked_positions]
        updated = [file for file in updated if file.changes.all_updated]
        taken = {file.position for file in (*kept, *updated)}
        others = [i for i, key in enumerate(keys) if i not in taken and key in found and found[key].matched]
        written = self._write(kept, updated, others)
        self._mark(marked)
        vectors = VectorCounts(
            added=sum(not file.deleted for file in marked),
            removed=sum(bool(file.deleted) for file in removed),
            updated=sum(bool(file.deleted) for file in marked),
        )
        num_updated = _totals(changes.updated for changes in found.values())
        copied, inserted = self._moved(kept, written - sum(num_updated.values()))
        return ChangeCounts(
            removed_files=self._files(removed),
            num_updated_rows=num_updated,
            num_deleted_rows=_totals(changes.deleted for changes in found.values()),
            num_copied_rows=copied,
            num_inserted_rows=inserted,
            vectors=vectors,
        )

    def insert(self) -> ChangeCounts:
        """Add the rows of the source without a partner; for changes that do nothing else."""
        target = self._scan(self.candidates) if self.candidates.num_rows else None
        written = self.write.add_rows(self.query.inserted(target))
        return ChangeCounts(
            removed_files=self.candidates.slice(0, 0),
            num_updated_rows={},
            num_deleted_rows={},
            num_copied_rows=0,
            num_inserted_rows=written.num_rows,
            vectors=VectorCounts(),
        )

    def _find(self) -> Mapping[str, FileChanges]:
        if not self.candidates.num_rows:
            return {}
        found = self.query.find(self._scan_by_name(self.candidates))
        if found.num_ambiguous and not self.may_match_twice:
            raise InvalidDataError(
                f"Several rows of the source match the same row of the table ({found.num_ambiguous} matches too many); which of "
                "them should win is not known. Nothing was committed. Make the condition of the merge select at most one row of "
                "the source for each row of the table, e.g. keep the newest row of each key."
            )
        return found.files

    def _changed_files(self, found: Mapping[str, FileChanges], keys: Sequence[str]) -> list[_File]:
        positions = [i for i, key in enumerate(keys) if key in found and found[key].changed]
        files = self.candidates.take(pa.array(positions, pa.int64()))
        old = self._old_vectors(files)
        return [
            _File(position=position, changes=found[keys[position]], deleted=vector, num_rows=physical_rows(stats))
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
        if file.is_gone or not file.num_rows or not snapshot.properties.deletion_vectors_enabled:
            return False
        if not supports(snapshot.protocol, "deletionVectors"):
            return False
        limit = self.write.table.services.settings.max_deleted_rows_ratio
        return len(file.changes.changed) + len(file.deleted) <= limit * file.num_rows

    def _write(self, kept: Sequence[_File], updated: Sequence[_File], others: Sequence[int]) -> int:
        """Write the rows of files: ``kept`` keep their unchanged rows, of ``updated`` only the changed rows are written.

        Returns the number of rows.

        Args:
            others: further files with partners of source rows, by position.
        """
        rows = self.query.rows(
            [(self._scan(self._files(files)), keep) for files, keep in ((kept, True), (updated, False)) if files],
            self._scan(self.candidates.take(pa.array(others, pa.int64()))) if others else None,
        )
        return 0 if rows is None else self.write.add_rows(rows).num_rows

    def _mark(self, files: Sequence[_File]) -> None:
        if files:
            self.write.mark_rows(self._files(files), [file.deleted | file.changes.changed for file in files])

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

    def _scan(self, files: pa.Table) -> DataFrame:
        return scan_files(self.write.table, self.snapshot, self.session, files, self.query.schema)

    def _scan_by_name(self, files: pa.Table) -> DataFrame:
        return scan_files_by_name(self.write.table, self.snapshot, self.session, files, self.query.schema)


def with_files(counts: ChangeCounts, whole: pa.Table, num_rows: int | None) -> ChangeCounts:
    """``counts`` and files that leave the table without being read; ``num_rows`` is the number of their rows, if it is known."""
    kind, found = ClauseKind.NOT_MATCHED_BY_SOURCE, counts.num_deleted_rows
    deleted = None if found is None or num_rows is None else {**found, kind: found.get(kind, 0) + num_rows}
    vectors = pc.sum(whole["deletionVector"].is_valid()).as_py() or 0
    return replace(
        counts,
        removed_files=pa.concat_tables([whole, counts.removed_files]),
        num_deleted_rows=deleted,
        vectors=replace(counts.vectors, removed=counts.vectors.removed + vectors),
    )


def _totals(parts: Iterable[Mapping[ClauseKind, BitMap64]]) -> dict[ClauseKind, int]:
    totals: dict[ClauseKind, int] = {}
    for part in parts:
        for kind, positions in part.items():
            totals[kind] = totals.get(kind, 0) + len(positions)
    return totals
