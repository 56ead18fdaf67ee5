"""Which files OPTIMIZE and REORG rewrite, and what came of it."""

from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.maintenance.arrangement import Arrangement
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.table_layout import TableLayout


class OptimizeOutcome(StrEnum):
    """Whether OPTIMIZE rewrote files."""

    COMMITTED = "committed"
    NOTHING_TO_DO = "nothing_to_do"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """The result of OPTIMIZE. ``version`` is the committed version; for NOTHING_TO_DO the version that was read."""

    outcome: OptimizeOutcome
    version: int
    num_bins: int = 0
    num_added_files: int = 0
    num_removed_files: int = 0
    added_bytes: int = 0
    removed_bytes: int = 0
    num_rows: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimizePlan(Plan[OptimizeResult]):
    """Which files OPTIMIZE would rewrite.

    Attributes:
        bins: for each new file, the files that it replaces, as rows of ``file_columns.ADD_SCHEMA``; all in one partition. With
            an ``arrangement``, the files of one partition that are rewritten together.
        target_size: maximum size in bytes of a bin of several files, or target size of the files of an arrangement.
        where: the partition predicate as SQL, or None.
        operation: name of the operation in the history of the table.
        arrangement: columns by which rows are ordered; None for bin packing.
        is_full: whether clustered files are clustered again.
        is_auto: whether a write started it.
        definition: the protocol and the metadata after the commit, by which the new files are written; None if they stay.
    """

    snapshot: Snapshot
    bins: tuple[pa.Table, ...]
    target_size: int
    where: str | None = None
    operation: str = "OPTIMIZE"
    arrangement: Arrangement | None = None
    is_full: bool = False
    is_auto: bool = False
    definition: TableDefinition | None = None

    def __repr__(self) -> str:
        return (
            f"OptimizePlan(table={str(self.snapshot.identifier)!r}, version={self.snapshot.version}, num_files={self.num_files}, "
            f"num_bytes={self.num_bytes}, num_bins={self.num_bins})"
        )

    @property
    def layout(self) -> TableLayout:
        """What the new files need to know of the table after the commit."""
        layout, after = self.snapshot.layout, self.definition
        layout = replace(layout, clustering_columns=self.snapshot.clustering_columns)
        if after is None:
            return layout
        return replace(layout, schema=after.schema, mapping=after.mapping, properties=after.properties)

    @property
    def files(self) -> pa.Table:
        """The files that are rewritten."""
        return pa.concat_tables([self.snapshot.files.slice(0, 0), *self.bins])

    @property
    def num_bins(self) -> int:
        return len(self.bins)

    @property
    def num_files(self) -> int:
        return sum(files.num_rows for files in self.bins)

    @property
    def num_bytes(self) -> int:
        return sum(map(size_of, self.bins))
