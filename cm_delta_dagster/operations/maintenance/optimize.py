"""OPTIMIZE: many small files become few large ones (heading "OPTIMIZE"; bin packing only).

A plan says which files go together; the rewrite is one Spark job for many bins; the commit changes no row
(``dataChange=false``), which is proven by counting before it is made. Appends never conflict with it (OCC-12); of it
and a concurrent change of the same files exactly one succeeds. Z-order and clustering are not here.
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
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    NOT_COMMITTED,
    IllegalCommitError,
    InvalidArgumentError,
)
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease, require_permission
from cm_delta_dagster.operations.writing.write_transaction import scan_files, scan_files_by_name, size_of
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, partition_column, removes_of
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.predicates.predicates import Predicate, columns_of, partition_only, short_sql, to_sql
from cm_delta_dagster.protocol.statistics.statistics import num_records
from cm_delta_dagster.spark.bins import together_by_bin
from cm_delta_dagster.spark.layout import absolute_locations
from cm_delta_dagster.spark.session import temporary_settings
from cm_delta_dagster.spark.write import WrittenFiles, write_files, write_spec
from cm_delta_dagster.storage.discard import discard_below

_log = logging.getLogger(__name__)

TARGET_SIZE = 1 << 30
"""Bytes that a rewritten file aims at (OPT-1)."""

MAX_DELETED_ROWS_RATIO = 0.05
"""Share of deleted rows from which a file is rewritten whatever its size, as the reference implementation has it."""

PACKED_TAG = "OPTIMIZE_TARGET_SIZE"
"""Tag of a rewritten file: the target it was packed for. A bin of nothing but such files is not rewritten again
(OPT-2)."""

_LARGE_BIN = 32 << 20
"""Bytes from which a bin is worth a scan of its own, which saves the shuffle that brings small bins together."""

_LARGE_BINS_PER_JOB = 64
_SMALL_BINS_PER_JOB = 500
_BYTES_PER_TASK = 64 << 20
_BINS_PER_TASK = 50
_LEAST_TASKS = 16

# Since Spark 4.1 a union of single-partition children may become one partition, which would put all bins into one file.
_ONE_TASK_PER_BIN = {"spark.sql.unionOutputPartitioning": "false"}


class OptimizeOutcome(StrEnum):
    COMMITTED = "committed"
    NOTHING_TO_DO = "nothing_to_do"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimizePlan:
    """Which files become one; making it changes nothing.

    Attributes:
        bins: the files of each rewritten file, as rows of ``file_actions.ADD_SCHEMA``; each of one partition.
        target_size: bytes that no bin of several files exceeds.
        where: the partition predicate as SQL, or None.
    """

    snapshot: Snapshot
    bins: tuple[pa.Table, ...]
    target_size: int
    where: str | None = None

    @property
    def num_bins(self) -> int:
        return len(self.bins)

    @property
    def num_files(self) -> int:
        return sum(files.num_rows for files in self.bins)

    @property
    def num_bytes(self) -> int:
        return sum(pc.sum(files["size"]).as_py() or 0 for files in self.bins)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """What OPTIMIZE did. ``version`` is the one it committed, or the one it found in good order."""

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
) -> OptimizePlan:
    """Group the small and the worn files of each partition into bins. Reads the log only; the dry run of
    :func:`optimize`.

    Args:
        where: predicate on partition columns that limits the files considered (OPT-3).
        target_size: bytes of a rewritten file; by default the table's ``delta.targetFileSize``, or 1 GiB.
        min_size: files of at least this many bytes are left alone unless worn; by default ``target_size``.

    Raises:
        InvalidArgumentError: ``where`` mentions other columns than partition columns, or a size is not positive.
    """
    snapshot = table.snapshot()
    predicate = _partition_predicate(snapshot, where)
    target = target_size if target_size is not None else snapshot.properties.target_file_size or TARGET_SIZE
    least = target if min_size is None else min_size
    if target <= 0 or least < 0:
        raise InvalidArgumentError(
            f"target_size is {target} and min_size is {least} bytes; give a positive target and no negative minimum."
        )
    return OptimizePlan(
        snapshot=snapshot,
        bins=pack(
            snapshot.matching_files(predicate),
            partition_columns=snapshot.partition_columns,
            target_size=target,
            min_size=least,
        ),
        target_size=target,
        where=None if predicate is None else to_sql(predicate),
    )


def optimize(
    table: Table,
    *,
    spark: SparkSession,
    where: Predicate | str | None = None,
    target_size: int | None = None,
    min_size: int | None = None,
    context: CommitContext = NO_CONTEXT,
) -> OptimizeResult:
    """Rewrite small files into few large ones, in one commit that changes no row. Arguments as in
    :func:`plan_optimize`.

    Raises:
        MaintenanceNotPermittedError: the catalog's policy does not allow DATA_REORGANIZATION; nothing was done.
        MaintenanceInProgressError: another maintenance run holds the table.
        CommitConflictError: the files were changed meanwhile; nothing was committed.
        IllegalCommitError: the rewritten files do not hold as many rows as their sources; nothing was committed.
    """
    require_permission(table, MaintenanceKind.DATA_REORGANIZATION)
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as claim:
        plan = plan_optimize(table, where=where, target_size=target_size, min_size=min_size)
        if not plan.bins:
            return OptimizeResult(outcome=OptimizeOutcome.NOTHING_TO_DO, version=plan.snapshot.version)
        # Before anything is written: refuse tables that this client may not write (PROT-7).
        check_writable(plan.snapshot.protocol, plan.snapshot.identifier, metadata=plan.snapshot.metadata)
        transaction = table.start_transaction(
            plan.snapshot, operation="OPTIMIZE", parameters=_parameters(plan), context=context
        )
        written: list[WrittenFiles] = []
        try:
            _rewrite(table, plan, spark, written)
            rows = _check_content(table, plan, _adds(written, plan), spark)
            claim.check()
        except BaseException:  # Nothing was proposed yet, so no commit can name what was written.
            _discard(table, written)
            raise
        try:
            return _commit(table, plan, transaction, _adds(written, plan), num_rows=rows)
        except NOT_COMMITTED:
            _discard(table, written)
            raise


def pack(files: pa.Table, *, partition_columns: Sequence[str], target_size: int, min_size: int) -> tuple[pa.Table, ...]:
    """Bins of files worth rewriting together (OPT-1).

    Candidates are files below ``min_size`` and worn ones. They are packed per partition in order of size, each bin up
    to ``target_size``. A bin of one file is left alone unless it is worn, and so is one that an earlier run packed
    already.
    """
    files = files.append_column("worn", _is_worn(files)).append_column("packed", _is_packed(files, target_size))
    files = files.filter(pc.or_(pc.less(files["size"], min_size), files["worn"]))
    codes = []
    for number, name in enumerate(partition_columns):
        values = partition_column(files, name)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        codes.append(f"partition {number}")
        files = files.append_column(codes[-1], values.dictionary_encode(null_encoding="encode").indices)
    keys = [(name, "ascending") for name in (*codes, "size", "path")]
    files = files.take(pc.sort_indices(files, sort_keys=keys)) if files.num_rows else files
    partitions = list(zip(*(files[name].to_pylist() for name in codes), strict=True)) or [()] * files.num_rows
    spans = _spans(partitions, files["size"].to_pylist(), target_size)
    plain = files.drop_columns([*codes, "worn", "packed"])
    worn, packed = files["worn"].to_pylist(), files["packed"].to_pylist()
    return tuple(
        plain.slice(start, end - start)
        for start, end in spans
        if any(worn[start:end]) or (end - start > 1 and not all(packed[start:end]))
    )


def _spans(partitions: Sequence[tuple[int, ...]], sizes: Sequence[int], target_size: int) -> list[tuple[int, int]]:
    """Cut files sorted by partition into runs [start, end) of one partition and at most ``target_size`` bytes."""
    spans = []
    start = total = 0
    for position, size in enumerate(sizes):
        if position > start and (partitions[position] != partitions[start] or total + size > target_size):
            spans.append((start, position))
            start, total = position, 0
        total += size
    if sizes:
        spans.append((start, len(sizes)))
    return spans


def _is_worn(files: pa.Table) -> pa.Array:
    """Whether so many rows of a file are deleted that rewriting it pays."""
    deleted = _deleted_rows(files)
    share = pc.divide(pc.cast(deleted, pa.float64()), pc.cast(num_records(files["stats"]), pa.float64()))
    return pc.and_(pc.greater(deleted, 0), pc.fill_null(pc.greater_equal(share, MAX_DELETED_ROWS_RATIO), True))


def _is_packed(files: pa.Table, target_size: int) -> pa.Array:
    tags = files["tags"].combine_chunks()
    targets = pc.map_lookup(tags, pa.scalar(PACKED_TAG, tags.type.key_type), "first")
    return pc.fill_null(pc.equal(targets, str(target_size)), False)


def _deleted_rows(files: pa.Table) -> pa.Array:
    vectors = files["deletionVector"].combine_chunks()
    return pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)


def _partition_predicate(snapshot: Snapshot, where: Predicate | str | None) -> Predicate | None:
    predicate = as_predicate(where, snapshot.schema)
    if predicate is None:
        return None
    if not partition_only(predicate, snapshot.partition_columns):
        columns = ", ".join(snapshot.partition_columns) or "none: the table is not partitioned"
        raise InvalidArgumentError(
            f"OPTIMIZE of {snapshot.identifier} cannot be limited by {short_sql(predicate)}, because that is not decided "
            f"by partition columns alone (columns mentioned: {', '.join(sorted(columns_of(predicate))) or 'unknown'}; "
            f"partition columns: {columns}). Files are rewritten whole; limit it by partition columns."
        )
    return predicate


def _parameters(plan: OptimizePlan) -> dict[str, str]:
    predicates = [] if plan.where is None else [plan.where]
    return {"predicate": json.dumps(predicates), "zOrderBy": "[]", "targetSize": str(plan.target_size)}


def _rewrite(table: Table, plan: OptimizePlan, spark: SparkSession, written: list[WrittenFiles]) -> None:
    """Write one file for each bin, many bins in one Spark job; what was written is added to ``written`` at once."""
    snapshot = plan.snapshot
    spec = write_spec(snapshot.layout)
    started, done = time.monotonic(), 0
    with temporary_settings(spark, _ONE_TASK_PER_BIN):
        for bins, rows in _jobs(table, plan, spark):
            written.append(write_files(rows, store=table.store, layout=snapshot.layout, spec=spec))
            done += len(bins)
            _log.info(
                "OPTIMIZE of %s: %d of %d files written after %.1f seconds",
                snapshot.identifier,
                done,
                plan.num_bins,
                time.monotonic() - started,
            )


def _jobs(table: Table, plan: OptimizePlan, spark: SparkSession) -> Iterator[tuple[Sequence[pa.Table], DataFrame]]:
    """What each Spark job writes: bins, and their rows with each bin whole in one task."""
    small = [files for files in plan.bins if size_of(files) < _LARGE_BIN]
    large = [files for files in plan.bins if size_of(files) >= _LARGE_BIN]
    for bins in _runs(small, most=_SMALL_BINS_PER_JOB):
        yield bins, _shuffled(table, plan.snapshot, bins, spark)
    for bins in _runs(large, most=_LARGE_BINS_PER_JOB):
        frames = [_scan(table, plan.snapshot, files, spark).coalesce(1) for files in bins]
        yield bins, reduce(DataFrame.unionAll, frames)


def _runs(bins: Sequence[pa.Table], *, most: int) -> Iterator[Sequence[pa.Table]]:
    return (bins[start : start + most] for start in range(0, len(bins), most))


def _shuffled(table: Table, snapshot: Snapshot, bins: Sequence[pa.Table], spark: SparkSession) -> DataFrame:
    """The rows of all bins, no two bins of one partition in the same task."""
    if len(bins) == 1:
        return _scan(table, snapshot, bins[0], spark).coalesce(1)
    files = pa.concat_tables(bins)
    rows = scan_files_by_name(table, snapshot, spark, files, snapshot.schema)
    locations = [absolute_locations(table.location, members["path"]) for members in bins]
    return together_by_bin(rows, locations, tasks=_num_tasks(bins, snapshot.partition_columns, size_of(files)))


def _num_tasks(bins: Sequence[pa.Table], partition_columns: Sequence[str], size: int) -> int:
    """A task costs as much as a small file, so small bins share one; bins follow each other by partition."""
    heads = pa.concat_tables([files.slice(0, 1) for files in bins])
    values = [partition_column(heads, name).to_pylist() for name in partition_columns]
    most = max(Counter(zip(*values, strict=True)).values()) if values else len(bins)
    wanted = max(most, -(-size // _BYTES_PER_TASK), -(-len(bins) // _BINS_PER_TASK), _LEAST_TASKS)
    return min(len(bins), wanted)


def _adds(written: Sequence[WrittenFiles], plan: OptimizePlan) -> tuple[AddFile, ...]:
    """The written files as adds that change no data, marked as packed."""
    tags = {PACKED_TAG: str(plan.target_size)}
    return tuple(replace(add, data_change=False, tags=tags) for files in written for add in files.adds)


def _discard(table: Table, written: Sequence[WrittenFiles]) -> None:
    for files in written:
        discard_below(table.store, files.directory)


def _scan(table: Table, snapshot: Snapshot, files: pa.Table, spark: SparkSession) -> DataFrame:
    return scan_files(table, snapshot, spark, files, snapshot.schema)


def _check_content(table: Table, plan: OptimizePlan, added: Sequence[AddFile], spark: SparkSession) -> int:
    """Prove that every partition has as many rows as before and return the rows in all. Raises IllegalCommitError."""
    snapshot = plan.snapshot
    sources = pa.concat_tables(plan.bins)
    known = pc.is_valid(num_records(sources["stats"]))
    before = _rows_by_partition(snapshot, sources.filter(known))
    after = _rows_by_partition(snapshot, adds_to_table(added))
    uncounted = sources.filter(pc.invert(known))
    if uncounted.num_rows:
        # Files of writers that keep no statistics: their rows are counted, and only the totals can be compared.
        before = {(): sum(before.values()) + _scan(table, snapshot, uncounted, spark).count()}
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


def _rows_by_partition(snapshot: Snapshot, files: pa.Table) -> dict[tuple[str, ...], int]:
    """Rows of each partition, deleted ones left out. Values are compared by meaning, as one has several spellings."""
    rows = pc.subtract(num_records(files["stats"]), _deleted_rows(files)).to_pylist()
    if not snapshot.partition_columns:
        return {(): sum(rows)}
    columns = []
    for name in snapshot.partition_columns:
        field = snapshot.schema.field(name)
        assert field is not None
        texts = partition_column(files, name).to_pylist()
        meaning = {text: repr(parse_partition_value(text, field.type)) for text in set(texts)}
        columns.append([meaning[text] for text in texts])
    totals: dict[tuple[str, ...], int] = {}
    for partition, count in zip(zip(*columns, strict=True), rows, strict=True):
        totals[partition] = totals.get(partition, 0) + count
    return totals


def _commit(
    table: Table, plan: OptimizePlan, transaction: Transaction, added: Sequence[AddFile], *, num_rows: int
) -> OptimizeResult:
    added_bytes = sum(add.size for add in added)
    transaction.remove_files(
        removes_of(pa.concat_tables(plan.bins), deletion_timestamp=table.services.now_ms(), data_change=False)
    )
    transaction.add_files(added)
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
