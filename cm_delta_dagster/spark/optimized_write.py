"""Shuffling rows by partition before a write, so that it makes few large files (``delta.autoOptimize.optimizeWrite``).

Spark's adaptive execution splits and joins the tasks of the shuffle by size, so that each task writes about one file.
"""

from contextlib import AbstractContextManager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.spark.schema import quoted
from cm_delta_dagster.spark.session import temporary_settings

BYTES_PER_TASK = 512 << 20
"""Bytes that a task gets from the shuffle, which are more than those of its Parquet file. delta-spark uses the same size."""


def in_few_files(frame: DataFrame, layout: TableLayout) -> DataFrame:
    """``frame`` with the rows of a partition in few tasks, each with rows for about one file.

    Args:
        frame: rows with all partition columns of ``layout``.
    """
    return frame.hint("rebalance", *[F.col(quoted(name)) for name in layout.partition_columns])


def few_files_settings(session: SparkSession) -> AbstractContextManager[None]:
    """Settings of the session while rows of :func:`in_few_files` are written."""
    return temporary_settings(session, {"spark.sql.adaptive.advisoryPartitionSizeInBytes": str(BYTES_PER_TASK)})
