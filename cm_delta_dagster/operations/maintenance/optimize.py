"""OPTIMIZE: rewrite small files into few large files by bin packing, or order rows by columns.

The plan assigns files to bins. One Spark job rewrites many bins. The commit changes no row (``dataChange=false``), which is
verified by counting rows before the commit. An append does not conflict with OPTIMIZE. Of OPTIMIZE and a concurrent change of
the same files, one succeeds.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow.compute as pc

from cm_delta_dagster.arrow.scan import count_rows
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    NOT_COMMITTED,
    IllegalCommitError,
    InvalidArgumentError,
)
from cm_delta_dagster.operations.maintenance.arrangement import (
    arrangement_of,
    as_clustered,
    by_partition,
    files_to_arrange,
)
from cm_delta_dagster.operations.maintenance.arrow_rewrite import (
    rewrite_by_arrow,
    rewrite_needs_spark,
)
from cm_delta_dagster.operations.maintenance.authorization import (
    MaintenanceLease,
    check_size,
    maintenance_lease,
    require_permission,
)
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizeOutcome, OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.maintenance.packing import PACKED_TAG, pack
from cm_delta_dagster.operations.maintenance.rewritten_partitions import partition_predicate, stored_partitions
from cm_delta_dagster.operations.maintenance.row_counts import rows_by_partition
from cm_delta_dagster.operations.maintenance.spark_rewrite import count_rows_by_spark, rewrite_by_spark
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice, SessionSource, no_session
from cm_delta_dagster.operations.writing.file_writes import zoned_layout
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, removes_of
from cm_delta_dagster.protocol.features.clustering import clustering_domain, physical_path
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.predicates.predicates import Predicate, to_sql
from cm_delta_dagster.protocol.statistics.data_file_writes import WrittenFiles
from cm_delta_dagster.protocol.statistics.statistics import num_records
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.storage.discard import discard_below

_log = logging.getLogger(__name__)

REMOVE_COLUMN_MAPPING = "REMOVE COLUMN MAPPING"

TARGET_SIZE = 1 << 30
"""Default target size of a rewritten file, in bytes."""


def plan_optimize(
    table: Table,
    *,
    where: Predicate | str | None = None,
    target_size: int | None = None,
    min_size: int | None = None,
    z_order_by: str | Sequence[str] = (),
    full: bool = False,
) -> OptimizePlan:
    """Assign the small files and the files with many deleted rows of each partition to bins: the dry run of :func:`optimize`.

    For a table with clustering columns, or with ``z_order_by``: list the files whose rows are ordered by the columns. Reads only
    the log.

    Args:
        where: predicate on partition columns that limits the files considered.
        target_size: target size of a rewritten file in bytes; by default ``delta.targetFileSize`` of the table, or 1 GiB.
        min_size: files of at least this many bytes are rewritten only if they have many deleted rows; by default
            ``target_size``. Without effect if rows are ordered.
        z_order_by: columns or fields to order all rows of each partition by.
        full: cluster all files of a clustered table, also those that are clustered.

    Raises:
        InvalidArgumentError: ``where`` uses columns that are not partition columns, a size is not positive, rows cannot be
            ordered by a column, the table is clustered and cannot be Z-ordered, or it has no clustering columns for ``full``.
    """
    snapshot = table.snapshot()
    arrangement = arrangement_of(snapshot, (z_order_by,) if isinstance(z_order_by, str) else z_order_by, full=full)
    predicate = partition_predicate(snapshot, where)
    target = target_size if target_size is not None else snapshot.properties.target_file_size or TARGET_SIZE
    least = target if min_size is None else min_size
    if target <= 0 or least < 0:
        raise InvalidArgumentError(
            f"target_size is {target} and min_size is {least} bytes; give a positive target and a minimum of at least 0."
        )
    files, columns = snapshot.matching_files(predicate), stored_partitions(snapshot)
    if arrangement is None:
        bins = pack(files, partition_columns=columns, target_size=target, min_size=least)
    else:
        chosen = files_to_arrange(files, arrangement, target_size=target, full=full)
        bins = by_partition(chosen, partition_columns=columns)
    return OptimizePlan(
        snapshot=snapshot,
        bins=bins,
        target_size=target,
        where=None if predicate is None else to_sql(predicate),
        arrangement=arrangement,
        is_full=full,
    )


def optimize(
    table: Table,
    *,
    spark: SparkSession | SessionSource | EngineChoice = no_session,
    where: Predicate | str | None = None,
    target_size: int | None = None,
    min_size: int | None = None,
    z_order_by: str | Sequence[str] = (),
    full: bool = False,
    context: CommitProperties = NO_PROPERTIES,
) -> OptimizeResult:
    """Rewrite small files into few large files, in one commit that changes no row. Arguments as in :func:`plan_optimize`.

    The rows of a table with clustering columns are ordered along a Hilbert curve through the columns; those of ``z_order_by``
    along a Z-order.

    Args:
        spark: the session that rewrites more than 1 GiB of files, and those that Arrow cannot write, or a function that returns
            it. Arrow rewrites all others, unless the choice is Spark, and, without a session, any number of bytes.

    Raises:
        MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION; nothing was done.
        MaintenanceInProgressError: another maintenance run holds a lease on the table.
        CommitConflictError: a concurrent commit changed the files; nothing was committed.
        IllegalCommitError: the new files do not hold as many rows as the files they replace; nothing was committed.
    """
    decision = require_permission(table, MaintenanceKind.DATA_REORGANIZATION)
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as lease:
        plan = plan_optimize(
            table, where=where, target_size=target_size, min_size=min_size, z_order_by=z_order_by, full=full
        )
        check_size(table, decision, num_files=plan.num_files, num_bytes=plan.num_bytes)
        return apply_plan(table, plan, spark=spark, lease=lease, context=context)


def apply_plan(
    table: Table,
    plan: OptimizePlan,
    *,
    spark: SparkSession | SessionSource | EngineChoice,
    lease: MaintenanceLease,
    context: CommitProperties,
) -> OptimizeResult:
    """Rewrite the files of ``plan`` in one commit that changes no row. Raises as :func:`optimize`."""
    return apply_and_load(table, plan, spark=spark, lease=lease, context=context)[0]


def apply_and_load(
    table: Table,
    plan: OptimizePlan,
    *,
    spark: SparkSession | SessionSource | EngineChoice,
    lease: MaintenanceLease,
    context: CommitProperties,
) -> tuple[OptimizeResult, Snapshot]:
    """As :func:`apply_plan`; returns the table after the commit too, which needs no request."""
    if not plan.bins and plan.definition is None:
        return OptimizeResult(outcome=OptimizeOutcome.NOTHING_TO_DO, version=plan.snapshot.version), plan.snapshot
    check_writable(plan.snapshot.protocol, plan.snapshot.identifier)
    choice = EngineChoice.of(spark)
    reason = rewrite_needs_spark(plan) or choice.reason_for_spark(plan.files)
    session = None if reason is None else choice.needed_session(reason, f"{plan.operation} needs")
    transaction = table.start_transaction(
        plan.snapshot, operation=plan.operation, parameters=_parameters(plan), context=context
    )
    lease.fence(transaction)
    written: list[WrittenFiles] = []
    try:
        if session is None:
            rewrite_by_arrow(table, plan, written)
        else:
            rewrite_by_spark(table, plan, session, written)
        rows = _check_content(table, plan, _adds(written, plan), session)
        lease.check()
    except BaseException:  # No commit was proposed, so no commit names the files.
        _discard(table, written)
        raise
    try:
        return _commit(table, plan, transaction, _adds(written, plan), num_rows=rows)
    except NOT_COMMITTED:
        _discard(table, written)
        raise


def _parameters(plan: OptimizePlan) -> dict[str, str]:
    predicates = [] if plan.where is None else [plan.where]
    if plan.operation == REMOVE_COLUMN_MAPPING:
        return {}
    if plan.operation == "REORG":
        return {"predicate": json.dumps(predicates), "applyPurge": "true"}
    parameters = {
        "predicate": json.dumps(predicates),
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": json.dumps(plan.is_auto),
        "targetSize": str(plan.target_size),
    }
    if plan.arrangement is not None:
        parameters["clusterBy" if plan.arrangement.clusters else "zOrderBy"] = json.dumps(plan.arrangement.names)
    if plan.is_full:
        parameters["isFull"] = "true"
    return parameters


def _adds(written: Sequence[WrittenFiles], plan: OptimizePlan) -> tuple[AddFile, ...]:
    """Return the written files as add actions that change no data, marked as packed or clustered."""
    adds = tuple(replace(add, data_change=False) for files in written for add in files.adds)
    if plan.arrangement is not None and plan.arrangement.clusters:
        return as_clustered(adds, plan.arrangement)
    return tuple(replace(add, tags={PACKED_TAG: str(plan.target_size)}) for add in adds)


def _discard(table: Table, written: Sequence[WrittenFiles]) -> None:
    for files in written:
        discard_below(table.store, files.directory)


def _check_content(table: Table, plan: OptimizePlan, added: Sequence[AddFile], session: SparkSession | None) -> int:
    """Verify that each partition has as many rows as before. Return the total. Raises IllegalCommitError."""
    snapshot = plan.snapshot
    sources = plan.files
    counted = pc.is_valid(num_records(sources["stats"]))
    layout = zoned_layout(table, snapshot.layout)
    before = rows_by_partition(sources.filter(counted), layout)
    after = rows_by_partition(adds_to_table(added), plan.layout)
    uncounted = sources.filter(pc.invert(counted))
    if uncounted.num_rows:
        # Files without a row count in their statistics: count their rows and compare only the totals.
        if session is None:
            num_rows = count_rows(store=table.store, layout=layout, files=uncounted)
        else:
            num_rows = count_rows_by_spark(table, snapshot, uncounted, session)
        before = {(): sum(before.values()) + num_rows}
        after = {(): sum(after.values())}
    before = {partition: rows for partition, rows in before.items() if rows}
    after = {partition: rows for partition, rows in after.items() if rows}
    if before != after:
        raise IllegalCommitError(
            f"OPTIMIZE of {snapshot.identifier} rewrote {sum(before.values())} rows of {len(before)} partitions into "
            f"{sum(after.values())} rows of {len(after)}; the content would change, so nothing was committed. Either "
            "the row counts in the table's statistics are wrong, or a data file was changed in place. Compare "
            "numRecords in the log with the rows of the files."
        )
    return sum(after.values())


def _commit(
    table: Table, plan: OptimizePlan, transaction: Transaction, added: Sequence[AddFile], *, num_rows: int
) -> tuple[OptimizeResult, Snapshot]:
    added_bytes = sum(add.size for add in added)
    transaction.keeps_row_ids = kept_row_ids(plan.snapshot) is not None
    transaction.remove_files(removes_of(plan.files, data_change=False))
    transaction.add_files(added)
    if plan.definition is not None:
        _set_definition(transaction, plan.definition)
    transaction.metrics.update(
        numAddedFiles=str(len(added)),
        numRemovedFiles=str(plan.num_files),
        numAddedBytes=str(added_bytes),
        numRemovedBytes=str(plan.num_bytes),
        numBins=str(plan.num_bins),
        numOutputRows=str(num_rows),
    )
    committed = transaction.commit()
    result = OptimizeResult(
        outcome=OptimizeOutcome.COMMITTED,
        version=committed.version,
        num_bins=plan.num_bins,
        num_added_files=len(added),
        num_removed_files=plan.num_files,
        added_bytes=added_bytes,
        removed_bytes=plan.num_bytes,
        num_rows=num_rows,
        retries=committed.retries,
    )
    return result, committed.snapshot


def _set_definition(transaction: Transaction, after: TableDefinition) -> None:
    """Change the definition of the table together with its files; concurrent changes of the rows are conflicts."""
    snapshot = transaction.snapshot
    transaction.read_whole_table()
    transaction.set_metadata(after.metadata)
    if after.protocol != snapshot.protocol:
        transaction.set_protocol(after.protocol)
    if snapshot.clustering_columns and after.mapping is not snapshot.column_mapping:
        columns = [physical_path(path, after.schema, after.mapping) for path in snapshot.clustering_columns]
        transaction.set_clustering(clustering_domain(columns))
