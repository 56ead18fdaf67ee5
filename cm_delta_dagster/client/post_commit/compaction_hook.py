"""Post-commit hook that starts a compaction in the background (``delta.autoOptimize.autoCompact``).

The layers above rewrite files, since that needs Spark; the hook decides when, and calls what they gave to the client.
"""

import logging

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.post_commit.hook_services import HookServices
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.features.column_mapping import stored_names

_log = logging.getLogger(__name__)

MIN_FILES = 50
"""A partition is compacted if it has at least this many small files."""

MAX_FILE_BYTES = 128 << 20
"""Target size of the new files."""

SMALL_FILE_BYTES = MAX_FILE_BYTES // 2
"""Files with fewer bytes are small."""


def compactable_files(snapshot: Snapshot) -> pa.Table:
    """The small files of the partitions that have at least :data:`MIN_FILES` of them."""
    files = snapshot.files
    if files.num_rows < MIN_FILES:
        return files.slice(0, 0)
    small = files.filter(pc.less(files["size"], SMALL_FILE_BYTES))
    if not snapshot.partition_columns:
        return small if small.num_rows >= MIN_FILES else small.slice(0, 0)
    names = stored_names(snapshot.partition_columns, snapshot.schema, snapshot.column_mapping)
    values = [partition_column(small, name) for name in names]
    keys = pa.table({f"{number}": column for number, column in enumerate(values)})
    keys = keys.append_column("row", pa.array(range(small.num_rows), pa.int64()))
    grouped = keys.group_by([f"{number}" for number in range(len(names))]).aggregate([("row", "list")])
    chosen = [rows for rows in grouped["row_list"].to_pylist() if len(rows) >= MIN_FILES]
    return small.take(pa.array(sorted(row for rows in chosen for row in rows), pa.int64()))


class CompactionHook:
    """Starts the compactions of one table. Safe to share between threads."""

    def __init__(self, services: HookServices) -> None:
        self._services = services

    def run(self, snapshot: Snapshot, commit: CommitActions) -> None:
        """Schedule a compaction if ``commit``, which made ``snapshot``, added rows and a partition has many small files."""
        compact = self._services.compact
        if compact is None or not commit.adds.num_rows or not commit.has_data_change:
            return
        if not snapshot.properties.auto_compact or not compactable_files(snapshot).num_rows:
            return

        def work() -> None:
            if not self._services.is_allowed(snapshot, MaintenanceKind.DATA_REORGANIZATION):
                _log.info(
                    "%s is not compacted after the write: the catalog does not permit DATA_REORGANIZATION",
                    snapshot.identifier,
                )
                return
            compact(TableIdentifier.parse(snapshot.identifier))

        # A group of its own: what waits for the publications of the table does not wait for the compaction.
        self._services.background.schedule(
            f"{snapshot.table_id}/compaction",
            id(self),
            f"Auto compaction of {snapshot.identifier}",
            work,
            seconds=self._services.delay_seconds,
        )
