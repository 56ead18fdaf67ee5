"""Shuffling rows by partition before a write, so that it makes few large files (``delta.autoOptimize.optimizeWrite``, changes).

Spark's adaptive execution splits and joins the tasks of the shuffle by size, so that each task writes about one file.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.statistics.file_forecast import Gathered
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession, py4j_errors
from cm_delta_dagster.spark.session.session import is_connect, temporary_settings

BYTES_PER_TASK = 512 << 20
"""Bytes that a task gets from the shuffle, which are more than those of its Parquet file. delta-spark uses the same size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGathering:
    """Which rows of a change are shuffled before they are written.

    Attributes:
        num_files: about so many tasks write the rows that are shuffled, if the table has no partitions.
    """

    gathered: Gathered = Gathered.NONE
    num_files: int = 1

    def changed_rows(self, frame: DataFrame, layout: TableLayout) -> DataFrame:
        """The rows that change, before the rows that are copied are added."""
        return in_few_files(frame, layout, self.num_files) if self.gathered is Gathered.CHANGED else frame

    def all_rows(self, frame: DataFrame, layout: TableLayout) -> DataFrame:
        """The rows to write."""
        return in_few_files(frame, layout, self.num_files) if self.gathered is Gathered.ALL else frame


AS_THEY_ARE = RowGathering()
"""No rows are shuffled."""


def in_few_files(frame: DataFrame, layout: TableLayout, num_files: int | None = None) -> DataFrame:
    """``frame`` with the rows of a partition in few tasks, each with rows for about one file.

    Args:
        frame: rows with all partition columns of ``layout``.
        num_files: number of tasks for a table without partitions; None lets adaptive execution choose it.
    """
    columns = [F.col(quoted(name)) for name in layout.partition_columns]
    if columns or num_files is None:
        return frame.hint("rebalance", *columns)
    return frame.hint("rebalance", num_files)


def few_files_settings(session: SparkSession) -> AbstractContextManager[None]:
    """Settings of the session while rows of :func:`in_few_files` are written."""
    return temporary_settings(session, {"spark.sql.adaptive.advisoryPartitionSizeInBytes": str(BYTES_PER_TASK)})


def cached_tasks(frame: DataFrame) -> int | None:
    """The number of tasks that read a cached frame, or columns of one; None if it is not known, as on Spark Connect.

    Runs no Spark job.
    """
    if is_connect(frame.sparkSession):
        return None
    try:
        leaves = frame._jdf.queryExecution().withCachedData().collectLeaves()  # type: ignore[operator]  # py4j has no types.
        return (
            int(leaves.head().cacheBuilder().cachedColumnBuffers().getNumPartitions()) if leaves.size() == 1 else None
        )
    except py4j_errors.Py4JError:
        return None


def cores_of(session: SparkSession) -> int | None:
    """The number of tasks that run at once; None if it is not known, as on Spark Connect."""
    return None if is_connect(session) else session.sparkContext.defaultParallelism


def most_shuffle_tasks(session: SparkSession) -> int:
    """The number of tasks of a shuffle before adaptive execution joins them."""
    return int(str(session.conf.get("spark.sql.shuffle.partitions", "200")))
