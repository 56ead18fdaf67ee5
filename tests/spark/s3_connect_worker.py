"""Reads and writes of tables in S3 over a Spark Connect server of another process; the client has no Java and no jars.

Prints one JSON object with what it saw.
"""

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.spark.session import is_connect
from tests.spark.s3_worker import feeds, ids, rows_of_all_steps


def main(remote: str, bucket: str, options_text: str) -> None:
    options: dict[str, Any] = json.loads(options_text)
    spark = SparkSession.builder.remote(remote).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with (
        tempfile.TemporaryDirectory() as home,
        connect(f"sqlite:///{home}/catalog.db", warehouse=f"s3://{bucket}/a b", storage_options=options) as lake,
    ):
        seen = rows_of_all_steps(lake)
        seen["feeds"] = feeds(lake, home, bucket, options)
        seen["connect"] = is_connect(spark)
        seen["missing bucket"] = error_of(spark, home, "s3://no-such-bucket-here", options)
        seen["disk"] = error_of(spark, home, f"{home}/warehouse", {})
    print(json.dumps(seen))
    spark.stop()


def error_of(spark: SparkSession, home: str, warehouse: str, options: dict[str, Any]) -> str:
    """The error of a first write to ``warehouse``; the number of rows if there is none."""
    path = f"sqlite:///{home}/{abs(hash(warehouse))}.db"
    with connect(path, warehouse=warehouse, storage_options=options, spark=spark) as lake:
        try:
            return f"{len(ids(lake.create_table_as('main.sales.none', spark.range(3)).to_df()))} rows"
        except CmDeltaError as error:
            return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(*sys.argv[1:])
