"""Decides which rows of a change are shuffled before they are written, so that a change of few rows makes few files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.computed_columns import computed_columns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.statistics.file_forecast import (
    TARGET_BYTES,
    ChangedRows,
    CopiedRows,
    Gathered,
    gathered,
    scan_tasks,
    shuffled_tasks,
)
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count, schema_leaves
from cm_delta_dagster.spark.changes.row_changes import ChangeSource
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.write.optimized_write import (
    AS_THEY_ARE,
    RowGathering,
    cached_tasks,
    cores_of,
    most_shuffle_tasks,
)

_BYTES_OF_VALUE = 10
"""Estimated size of a value in a file, for rows of a table without files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowsRead:
    """Rows of files of the table that a change reads and writes.

    Attributes:
        files: as add actions.
        num_rows: rows that are written.
        is_read_here: this process reads them, and one task writes them.
    """

    files: pa.Table
    num_rows: int
    is_read_here: bool = False

    def tasks(self, cores: int) -> int:
        """Number of tasks that read the files."""
        return 1 if self.is_read_here else scan_tasks(size_of(self.files), self.files.num_rows, cores=cores)


def row_gathering(
    session: SparkSession,
    layout: TableLayout,
    *,
    copied: RowsRead | None,
    updated: RowsRead | None,
    source: ChangeSource | None,
    num_inserted: int,
) -> RowGathering:
    """Which rows of a change are shuffled.

    Args:
        layout: of the table after the change.
        copied: rows of files that are written again, among which there may be updated ones.
        updated: updated rows of files that stay.
        source: the cached source of a merge.
        num_inserted: rows of the source that are inserted, at most.
    """
    if layout.properties.optimize_write or (copied is None and updated is None and not num_inserted):
        return AS_THEY_ARE  # The write shuffles all rows, or there are none.
    most = most_shuffle_tasks(session)
    cores = cores_of(session) or most
    num_bytes = _size(layout, [rows for rows in (copied, updated) if rows is not None], num_inserted, updated)
    tasks = 0 if updated is None else updated.tasks(cores)
    if source is not None and not source.is_small and (updated is not None or num_inserted):
        tasks = shuffled_tasks(num_bytes, cores=cores, most=most)
    elif source is not None and num_inserted:
        tasks += min(cached_tasks(source.frame) or most, num_inserted)
    target = layout.properties.target_file_size or TARGET_BYTES
    changed = ChangedRows(num_bytes=num_bytes, num_tasks=tasks, is_partitioned=bool(layout.partition_columns))
    again = None if copied is None else _copied(copied, cores)
    decision = gathered(again, changed if tasks else None, target=target)
    if decision is Gathered.CHANGED and set(layout.partition_columns) & set(computed_columns(layout.schema)):
        decision = Gathered.ALL  # The partitions of new rows are computed last.
    whole = num_bytes + (0 if again is None or decision is Gathered.CHANGED else again.num_bytes)
    return RowGathering(gathered=decision, num_files=max(1, -(-whole // target)))


def gathering_of_inserts(layout: TableLayout, source: ChangeSource, num_rows: int) -> RowGathering:
    """As :func:`row_gathering`, for all rows of a source, which are not joined before they are written."""
    plain = replace(source, is_small=True)
    session = source.frame.sparkSession
    return row_gathering(session, layout, copied=None, updated=None, source=plain, num_inserted=num_rows)


def _copied(rows: RowsRead, cores: int) -> CopiedRows:
    sizes: Counter[object] = Counter()
    values = zip(rows.files["partitionValues"].to_pylist(), rows.files["size"].to_pylist(), strict=True)
    for partition, size in values:
        sizes[frozenset(partition or ())] += size
    return CopiedRows(sizes=sizes, num_files=rows.files.num_rows, num_tasks=rows.tasks(cores))


def _size(layout: TableLayout, read: Sequence[RowsRead], num_inserted: int, updated: RowsRead | None) -> int:
    """About how many bytes of files the rows take that change."""
    num_changed = num_inserted + (0 if updated is None else updated.num_rows)
    for rows in read:
        stored = logical_row_count(rows.files)
        if stored:
            return num_changed * size_of(rows.files) // stored
    return num_changed * _BYTES_OF_VALUE * len(schema_leaves(layout.schema))
