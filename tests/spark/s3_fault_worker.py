"""Appends and reads of a table in S3 on request; run as a process of its own, because the jars belong to the session.

Reads one command a line, ``append NUMBER`` or ``read``, and prints one JSON object for each.
"""

import json
import logging
import sys
import tempfile

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.errors import CmDeltaError

NAME = "main.test.t"
ROWS = 20


def main(jars: str, endpoint: str, bucket: str) -> None:
    logging.disable()
    options = {"key": "k", "secret": "s", "endpoint_url": endpoint}
    spark = session(jars)
    with (
        tempfile.TemporaryDirectory() as home,
        connect(
            f"sqlite:///{home}/catalog.db", warehouse=f"s3://{bucket}/w", storage_options=options, spark=spark
        ) as lake,
    ):
        table = lake.create_table_as(NAME, spark.range(0, ROWS, 1, 3))
        print(json.dumps({"version": table.version()}), flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(spark, table, *line.split())), flush=True)
    spark.stop()


def answer(spark: SparkSession, table: DeltaTable, verb: str, number: str = "0") -> dict[str, object]:
    try:
        if verb == "append":
            first = int(number) * ROWS
            table.append(spark.range(first, first + ROWS, 1, 3))
        else:
            return {"ids": sorted(row["id"] for row in table.to_df().collect()), "version": table.version()}
    except CmDeltaError as error:
        return {"error": f"{type(error).__name__} {error}"}
    return {"version": table.version()}


def session(jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # So that a store that does not recover is an error within seconds.
        "spark.hadoop.fs.s3a.attempts.maximum": "2",
        "spark.hadoop.fs.s3a.retry.limit": "2",
        "spark.hadoop.fs.s3a.retry.interval": "50ms",
        "spark.hadoop.fs.s3a.retry.throttle.limit": "3",
        "spark.hadoop.fs.s3a.retry.throttle.interval": "50ms",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


if __name__ == "__main__":
    main(*sys.argv[1:])
