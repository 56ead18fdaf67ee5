"""OPTIMIZE: rewrite small files into few large files by bin packing, or order rows by columns.

The plan assigns files to bins. One Spark job rewrites many bins. The commit changes no row (``dataChange=false``), which is
verified by counting rows before the commit. An append does not conflict with OPTIMIZE. Of OPTIMIZE and a concurrent change of
the same files, one succeeds.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

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
    Arrangement,
    arranged,
    arrangement_of,
    as_clustered,
    by_partition,
    files_to_arrange,
)
from cm_delta_dagster.operations.maintenance.authorization import (
    MaintenanceLease,
    check_size,
    maintenance_lease,
    require_permission,
)
from cm_delta_dagster.operations.maintenance.packing import PACKED_TAG, pack
from cm_delta_dagster.operations.maintenance.rewritten_partitions import partition_predicate, stored_partitions
from cm_delta_dagster.operations.maintenance.row_counts import rows_by_partition
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.writing.table_files import (
    hidden_columns,
    kept_row_ids,
    named_row_ids,
    scan_files,
)
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, partition_column, removes_of, size_of
from cm_delta_dagster.protocol.features.clustering import clustering_domain, physical_path
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate, to_sql
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles, write_spec
from cm_delta_dagster.protocol.statistics.statistics import num_records
from cm_delta_dagster.spark.library import DataFrame, SparkSession, pyspark
from cm_delta_dagster.spark.read.layout import absolute_locations
from cm_delta_dagster.spark.read.rewrite import count_frame_rows
from cm_delta_dagster.spark.session.session import temporary_settings
from cm_delta_dagster.spark.write.bins import together_by_bin
from cm_delta_dagster.spark.write.write import write_files
from cm_delta_dagster.storage.discard import discard_below

_log = logging.getLogger(__name__)

REMOVE_COLUMN_MAPPING = "REMOVE COLUMN MAPPING"

TARGET_SIZE = 1 << 30
"""Default target size of a rewritten file, in bytes."""

_LARGE_BIN = 32 << 20
"""Size in bytes from which a bin gets its own scan, which avoids the shuffle that small bins need."""

_LARGE_BINS_PER_JOB = 64
_SMALL_BINS_PER_JOB = 500
_BYTES_PER_TASK = 64 << 20
_BINS_PER_TASK = 50
_MIN_TASKS = 16

# Since Spark 4.1 a union of single-partition children may become one partition, which would write all bins to one file.
_ONE_TASK_PER_BIN = {"spark.sql.unionOutputPartitioning": "false"}


class OptimizeOutcome(StrEnum):
    """Whether OPTIMIZE rewrote files."""

    COMMITTED = "committed"
    NOTHING_TO_DO = "nothing_to_do"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimizePlan(Plan["OptimizeResult"]):
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
    spark: SparkSession,
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
    table: Table, plan: OptimizePlan, *, spark: SparkSession, lease: MaintenanceLease, context: CommitProperties
) -> OptimizeResult:
    """Rewrite the files of ``plan`` in one commit that changes no row. Raises as :func:`optimize`."""
    if not plan.bins and plan.definition is None:
        return OptimizeResult(outcome=OptimizeOutcome.NOTHING_TO_DO, version=plan.snapshot.version)
    check_writable(plan.snapshot.protocol, plan.snapshot.identifier)
    transaction = table.start_transaction(
        plan.snapshot, operation=plan.operation, parameters=_parameters(plan), context=context
    )
    lease.fence(transaction)
    written: list[WrittenFiles] = []
    try:
        _rewrite(table, plan, spark, written)
        rows = _check_content(table, plan, _adds(written, plan), spark)
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


def _rewrite(table: Table, plan: OptimizePlan, spark: SparkSession, written: list[WrittenFiles]) -> None:
    """Write one file for each bin, many bins in one Spark job. Appends the files of each job to ``written``."""
    snapshot = plan.snapshot
    hidden = hidden_columns(kept_row_ids(snapshot))
    layout = replace(_layout_after(plan), clustering_columns=snapshot.clustering_columns)
    spec = write_spec(layout, WriteSpec(checked=False, hidden_columns=hidden))
    started, done = time.monotonic(), 0
    with temporary_settings(spark, _ONE_TASK_PER_BIN):
        for bins, rows in _jobs(table, plan, spark):
            written.append(write_files(rows, store=table.store, layout=layout, spec=spec))
            done += len(bins)
            _log.info(
                "OPTIMIZE of %s: %d of %d files written after %.1f seconds",
                snapshot.identifier,
                done,
                plan.num_bins,
                time.monotonic() - started,
            )


def _layout_after(plan: OptimizePlan) -> TableLayout:
    layout, after = plan.snapshot.layout, plan.definition
    if after is None:
        return layout
    return replace(layout, schema=after.schema, mapping=after.mapping, properties=after.properties)


def _jobs(table: Table, plan: OptimizePlan, spark: SparkSession) -> Iterator[tuple[Sequence[pa.Table], DataFrame]]:
    """Yield the bins and rows of each Spark job. Without an arrangement, all rows of a bin are in one task."""
    if plan.arrangement is not None:
        for files in plan.bins:
            rows = _scan(table, plan.snapshot, files, spark)
            yield (files,), arranged(rows, files, plan.arrangement, target_size=plan.target_size)
        return
    small = [files for files in plan.bins if size_of(files) < _LARGE_BIN]
    large = [files for files in plan.bins if size_of(files) >= _LARGE_BIN]
    for bins in _batches(small, size=_SMALL_BINS_PER_JOB):
        yield bins, _shuffle(table, plan.snapshot, bins, spark)
    for bins in _batches(large, size=_LARGE_BINS_PER_JOB):
        frames = [_scan(table, plan.snapshot, files, spark).coalesce(1) for files in bins]
        yield bins, reduce(pyspark.sql.DataFrame.unionAll, frames)


def _batches(bins: Sequence[pa.Table], *, size: int) -> Iterator[Sequence[pa.Table]]:
    return (bins[start : start + size] for start in range(0, len(bins), size))


def _shuffle(table: Table, snapshot: Snapshot, bins: Sequence[pa.Table], spark: SparkSession) -> DataFrame:
    """Return the rows of all bins. Bins of the same partition are in different tasks."""
    if len(bins) == 1:
        return _scan(table, snapshot, bins[0], spark).coalesce(1)
    files = pa.concat_tables(bins)
    row_ids = kept_row_ids(snapshot)
    rows = named_row_ids(
        scan_files(table, snapshot, spark, files, snapshot.schema, row_ids=row_ids, with_files=True), row_ids
    )
    locations = [absolute_locations(table.location, members["path"]) for members in bins]
    return together_by_bin(rows, locations, tasks=_num_tasks(bins, stored_partitions(snapshot), size_of(files)))


def _num_tasks(bins: Sequence[pa.Table], partition_columns: Sequence[str], size: int) -> int:
    """Return the number of tasks. Small bins share a task, because starting a task costs as much as writing a small file.

    There are at least as many tasks as bins of one partition.
    """
    heads = pa.concat_tables([files.slice(0, 1) for files in bins])
    values = [partition_column(heads, name).to_pylist() for name in partition_columns]
    most_bins = max(Counter(zip(*values, strict=True)).values()) if values else len(bins)
    tasks = max(most_bins, -(-size // _BYTES_PER_TASK), -(-len(bins) // _BINS_PER_TASK), _MIN_TASKS)
    return min(len(bins), tasks)


def _adds(written: Sequence[WrittenFiles], plan: OptimizePlan) -> tuple[AddFile, ...]:
    """Return the written files as add actions that change no data, marked as packed or clustered."""
    adds = tuple(replace(add, data_change=False) for files in written for add in files.adds)
    if plan.arrangement is not None and plan.arrangement.clusters:
        return as_clustered(adds, plan.arrangement)
    return tuple(replace(add, tags={PACKED_TAG: str(plan.target_size)}) for add in adds)


def _discard(table: Table, written: Sequence[WrittenFiles]) -> None:
    for files in written:
        discard_below(table.store, files.directory)


def _scan(table: Table, snapshot: Snapshot, files: pa.Table, spark: SparkSession) -> DataFrame:
    row_ids = kept_row_ids(snapshot)
    return named_row_ids(scan_files(table, snapshot, spark, files, snapshot.schema, row_ids=row_ids), row_ids)


def _check_content(table: Table, plan: OptimizePlan, added: Sequence[AddFile], spark: SparkSession) -> int:
    """Verify that each partition has as many rows as before. Return the total. Raises IllegalCommitError."""
    snapshot = plan.snapshot
    sources = plan.files
    counted = pc.is_valid(num_records(sources["stats"]))
    before = rows_by_partition(sources.filter(counted), snapshot.layout)
    after = rows_by_partition(adds_to_table(added), _layout_after(plan))
    uncounted = sources.filter(pc.invert(counted))
    if uncounted.num_rows:
        # Files without a row count in their statistics: count their rows and compare only the totals.
        before = {(): sum(before.values()) + count_frame_rows(_scan(table, snapshot, uncounted, spark))}
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
) -> OptimizeResult:
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
    return OptimizeResult(
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
