"""Whether a scan has any row."""

from collections.abc import Callable

from cm_delta_dagster.errors import InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.spark.library import SparkSession


def has_rows(scan: SnapshotScan, session: Callable[[], SparkSession]) -> bool:
    """Whether the scan has a row. Arrow looks for it, and Spark if only Spark can evaluate the condition.

    Args:
        session: called only if Spark is needed.

    Raises:
        CorruptLogError, ObjectNotFoundError: as :func:`~cm_delta_dagster.operations.reading.read_arrow.read_arrow`.
    """
    try:
        with read_batches(scan) as batches:
            return any(batch.num_rows for batch in batches)
    except (InvalidArgumentError, UnsupportedFeatureError):
        return not read(scan, spark=session()).isEmpty()
