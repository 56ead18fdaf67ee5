"""Reads and writes of tables in S3 over a Spark Connect server of another process; the client has no Java and no jars.

Prints one JSON object with what it saw.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.errors import CmDeltaError
from tests.spark.s3_worker import feeds, ids, rows_of_all_steps


def main(remote: str, bucket: str, own_bucket: str, hidden: str, options_text: str) -> None:
    options: dict[str, Any] = json.loads(options_text)
    spark = SparkSession.builder.remote(remote).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with tempfile.TemporaryDirectory() as home:
        with connect(f"sqlite:///{home}/c.db", warehouse=f"s3://{bucket}/a b", storage_options=options) as lake:
            seen = rows_of_all_steps(lake)
            seen["feeds"] = feeds(lake, home, bucket, options)
        seen["own credentials"] = without_options(spark, home, own_bucket)
        seen["missing bucket"] = first_write(spark, home, "s3://no-such-bucket-here", options)
        seen["disk"] = [first_write(spark, home, f"{folder}/warehouse") for folder in (home, hidden)]
    print(json.dumps(seen))
    spark.stop()


def without_options(spark: SparkSession, home: str, bucket: str) -> list[list[int]]:
    """Rows after a write, a merge and a delete; server and client have credentials of their own."""
    with connect(f"sqlite:///{home}/own.db", warehouse=f"s3://{bucket}", spark=spark) as lake:
        table = lake.create_table_as("main.sales.own", spark.range(5).selectExpr("id", "'a' AS name"))
        table.upsert(spark.range(4, 7).selectExpr("id", "'b' AS name"), on=["id"])
        table.delete("id = 0")
        return [ids(table.to_df()), ids(table.to_df(where="name = 'b'")), ids(table.to_df(version=0))]


def first_write(spark: SparkSession, home: str, warehouse: str, options: Mapping[str, Any] | None = None) -> str:
    """The error of a first write to ``warehouse``, or the number of rows."""
    catalog = f"sqlite:///{home}/{len(warehouse)}.db"
    with connect(catalog, warehouse=warehouse, storage_options=options, spark=spark) as lake:
        try:
            return f"{len(ids(lake.create_table_as('main.sales.none', spark.range(3)).to_df()))} rows"
        except CmDeltaError as error:
            return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(*sys.argv[1:])
