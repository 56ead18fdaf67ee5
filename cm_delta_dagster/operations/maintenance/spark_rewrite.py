"""Rewrites the files of a plan by Spark."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.arrangement import num_parts
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan
from cm_delta_dagster.operations.maintenance.rewritten_partitions import stored_partitions
from cm_delta_dagster.operations.writing.table_files import hidden_columns, kept_row_ids, named_row_ids, scan_files
from cm_delta_dagster.protocol.actions.file_columns import partition_column, size_of
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles, write_spec
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.library import DataFrame, SparkSession, pyspark
from cm_delta_dagster.spark.read.layout import absolute_locations
from cm_delta_dagster.spark.read.rewrite import count_frame_rows
from cm_delta_dagster.spark.session.session import temporary_settings
from cm_delta_dagster.spark.write.bins import together_by_bin
from cm_delta_dagster.spark.write.clustering import along_curve
from cm_delta_dagster.spark.write.write import write_files

_log = logging.getLogger(__name__)

_LARGE_BIN = 32 << 20
"""Size in bytes from which a bin gets its own scan, which avoids the shuffle that small bins need."""

_LARGE_BINS_PER_JOB = 64
_SMALL_BINS_PER_JOB = 500
_BYTES_PER_TASK = 64 << 20
_BINS_PER_TASK = 50
_MIN_TASKS = 16

# Since Spark 4.1 a union of single-partition children may become one partition, which would write all bins to one file.
_ONE_TASK_PER_BIN = {"spark.sql.unionOutputPartitioning": "false"}


def rewrite_by_spark(table: Table, plan: OptimizePlan, spark: SparkSession, written: list[WrittenFiles]) -> None:
    """Write one file for each bin, many bins in one Spark job, or files with rows in the order of an arrangement.

    Args:
        written: the files of each job are appended to it.
    """
    snapshot = plan.snapshot
    hidden = hidden_columns(kept_row_ids(snapshot))
    layout = plan.layout
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


def count_rows_by_spark(table: Table, snapshot: Snapshot, files: pa.Table, spark: SparkSession) -> int:
    """The number of rows of files, counted in the files."""
    return count_frame_rows(_scan(table, snapshot, files, spark))


def _jobs(table: Table, plan: OptimizePlan, spark: SparkSession) -> Iterator[tuple[Sequence[pa.Table], DataFrame]]:
    """Yield the bins and rows of each Spark job. Without an arrangement, all rows of a bin are in one task."""
    if plan.arrangement is not None:
        for files in plan.bins:
            rows = _scan(table, plan.snapshot, files, spark)
            yield (
                (files,),
                along_curve(
                    rows,
                    plan.arrangement.columns,
                    plan.arrangement.curve,
                    num_files=num_parts(files, target_size=plan.target_size),
                    num_rows=logical_row_count(files),
                ),
            )
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


def _scan(table: Table, snapshot: Snapshot, files: pa.Table, spark: SparkSession) -> DataFrame:
    row_ids = kept_row_ids(snapshot)
    return named_row_ids(scan_files(table, snapshot, spark, files, snapshot.schema, row_ids=row_ids), row_ids)
