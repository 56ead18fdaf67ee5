"""Counting rows of files that have no row count in the log."""

from cm_delta_dagster.spark.library import DataFrame
from cm_delta_dagster.spark.session.cancellation import run_cancellable
from cm_delta_dagster.spark.session.errors import spark_errors


def count_frame_rows(frame: DataFrame) -> int:
    """Rows of ``frame``, by a Spark job."""
    with spark_errors("counting rows"):
        return run_cancellable(frame.sparkSession, frame.count)
