"""Reads and writes of tables in Google Cloud Storage through Spark; a process of its own, because the jars belong to it.

Prints one JSON object with what it saw.
"""

import json
import sys
import tempfile

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.spark.s3_worker import ids, settings
from tests.support.object_stores import gcs_options


def main(jars: str, endpoint: str, bucket: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.bindAddress", "127.0.0.1")
    # The server does not have the request that moves an object; it copies and deletes instead.
    spark = builder.config("spark.hadoop.fs.gs.operation.move.enable", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    before = settings(spark)
    with (
        tempfile.TemporaryDirectory() as home,
        connect(
            f"sqlite:///{home}/catalog.db",
            warehouse=f"gcs://{bucket}/a b",
            storage_options=gcs_options(endpoint),
            spark=spark,
        ) as lake,
    ):
        rows = spark.sql("SELECT id, concat('n', id) AS name, 'd' || (id % 2) AS day FROM range(10)")
        table = lake.create_table_as("main.sales.orders", rows, partition_by=["day"])
        table.merge(rows.where("id > 7").selectExpr("id + 1 AS id", "'merged' AS name", "day"), on=["id"])
        table.delete("id = 3")
        found = ids(table.to_df()), ids(table.to_df(where="name = 'merged'")), ids(table.to_df(version=0))
        by_arrow = sorted(table.to_arrow()["id"].to_pylist())
        files = sorted({name.partition("://")[0] for name in table.to_df().inputFiles()})
    print(json.dumps([*found, by_arrow == found[0], files, settings(spark) == before]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
