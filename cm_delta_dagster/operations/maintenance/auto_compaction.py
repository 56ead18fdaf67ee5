"""Auto compaction: rewrite the small files of partitions with many of them, after a write (``delta.autoOptimize.autoCompact``)."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES
from cm_delta_dagster.client.post_commit.compaction_hook import MAX_FILE_BYTES, SMALL_FILE_BYTES, compactable_files
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError, MaintenanceInProgressError
from cm_delta_dagster.operations.maintenance.arrangement import arrangement_of, by_partition, files_to_arrange
from cm_delta_dagster.operations.maintenance.arrow_rewrite import rewrite_needs_spark
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease, require_permission
from cm_delta_dagster.operations.maintenance.optimize import apply_plan
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.maintenance.packing import pack
from cm_delta_dagster.operations.maintenance.rewritten_partitions import stored_partitions
from cm_delta_dagster.operations.writing.engine_choice import SessionSource
from cm_delta_dagster.spark.library import SparkSession

_log = logging.getLogger(__name__)


def plan_auto_compaction(table: Table) -> OptimizePlan:
    """List the files that :func:`auto_compact` would rewrite."""
    snapshot = table.snapshot()
    files, columns = compactable_files(snapshot), stored_partitions(snapshot)
    arrangement = arrangement_of(snapshot, (), full=False)
    if arrangement is None:
        bins = pack(files, partition_columns=columns, target_size=MAX_FILE_BYTES, min_size=SMALL_FILE_BYTES)
    else:
        chosen = files_to_arrange(files, arrangement, target_size=MAX_FILE_BYTES, full=False)
        bins = by_partition(chosen, partition_columns=columns)
    return OptimizePlan(snapshot=snapshot, bins=bins, target_size=MAX_FILE_BYTES, arrangement=arrangement, is_auto=True)


def auto_compact(table: Table, *, spark: SparkSession | SessionSource) -> OptimizeResult:
    """Rewrite the small files of the partitions with many of them, in one commit that changes no row.

    Raises:
        MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION; nothing was done.
        MaintenanceInProgressError: another maintenance run holds a lease on the table.
        CommitConflictError: a concurrent commit changed the files; nothing was committed.
    """
    require_permission(table, MaintenanceKind.DATA_REORGANIZATION)
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as lease:
        return apply_plan(table, plan_auto_compaction(table), spark=spark, lease=lease, context=NO_PROPERTIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCompaction:
    """Compacts the tables of a client; what :meth:`DeltaClient.with_compaction` takes."""

    client: DeltaClient
    session: Callable[[], SparkSession | None]

    def __call__(self, identifier: TableIdentifier) -> None:
        """Compact one table, unless another run does, it changes meanwhile, or there is no session."""
        table = self.client.table(identifier)
        reason = rewrite_needs_spark(plan_auto_compaction(table))
        if reason is not None and self.session() is None:
            _log.info("%s is not compacted after the write, because %s and no Spark session runs", identifier, reason)
            return
        try:
            auto_compact(table, spark=self.session)
        except (MaintenanceInProgressError, CommitConflictError) as error:  # The next write starts another compaction.
            _log.info("%s is not compacted after the write: %s", identifier, error)


def compacting_client(client: DeltaClient, session: Callable[[], SparkSession | None]) -> DeltaClient:
    """The client, which compacts tables with ``delta.autoOptimize.autoCompact`` in the background after its writes.

    Args:
        session: returns the Spark session for what Arrow cannot rewrite; None if there is none, so that such files stay.
    """
    return client.with_compaction(AutoCompaction(client=client, session=session))
