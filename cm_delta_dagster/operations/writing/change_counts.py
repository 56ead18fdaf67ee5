"""What a change of rows did: files and rows, for the metrics of its commit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.changes.row_changes import ClauseKind
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count


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


def with_files(counts: ChangeCounts, whole: pa.Table) -> ChangeCounts:
    """``counts`` and files that leave the table without being read."""
    num_rows = logical_row_count(whole)
    kind, num_deleted = ClauseKind.NOT_MATCHED_BY_SOURCE, counts.num_deleted_rows
    deleted = (
        None if num_deleted is None or num_rows is None else {**num_deleted, kind: num_deleted.get(kind, 0) + num_rows}
    )
    vectors = pc.sum(whole["deletionVector"].is_valid()).as_py() or 0
    return replace(
        counts,
        removed_files=pa.concat_tables([whole, counts.removed_files]),
        num_deleted_rows=deleted,
        vectors=replace(counts.vectors, removed=counts.vectors.removed + vectors),
    )
