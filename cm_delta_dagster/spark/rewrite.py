"""Copy-on-write: the files that hold removed rows, and their remaining rows."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.predicates import holds
from cm_delta_dagster.spark.scan import FILE_COLUMN, spark_file_key


def matches_by_file(frame: DataFrame, predicate: Predicate, schema: StructType) -> dict[str, int]:
    """Rows that satisfy ``predicate`` by file key, for files with at least one such row; one Spark job.

    Args:
        frame: of :func:`~cm_delta_dagster.spark.scan.scan_with_files`.
    """
    with spark_errors("looking for the rows that change"):
        counted = frame.where(holds(predicate, schema)).groupBy(FILE_COLUMN).agg(F.count(F.lit(1)).alias("matches"))
        return {spark_file_key(row[FILE_COLUMN]): int(row["matches"]) for row in counted.collect()}


def rows_that_stay(frame: DataFrame, predicate: Predicate, schema: StructType) -> DataFrame:
    """Rows for which ``predicate`` is false or NULL."""
    with spark_errors("looking for the rows that stay"):
        return frame.where(~holds(predicate, schema))


def files_named(files: pa.Table, location: str, keys: Mapping[str, int]) -> pa.Table:
    """The rows of ``files`` whose key is among ``keys``."""
    wanted = pa.array(list(keys), pa.string())
    return files.filter(pc.is_in(file_keys(location, files["path"]), value_set=wanted))


def count_frame_rows(frame: DataFrame) -> int:
    """Rows of ``frame``, by a Spark job; for files without a row count in the log."""
    with spark_errors("counting rows"):
        return int(frame.count())
