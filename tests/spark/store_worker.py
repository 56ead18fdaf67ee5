"""Reads and writes of tables in Azure or Google storage through Spark; a process of its own, because the jars belong to it.

Prints one JSON object with what it saw.
"""

import json
import sys
import tempfile

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.spark.s3_worker import ids, settings


def main(jars: str, warehouse: str, options: str, session: str) -> None:
    """``options``: of the store, ``session``: settings of the session, both as JSON objects."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.bindAddress", "127.0.0.1")
    for name, value in json.loads(session).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    before = settings(spark)
    with (
        tempfile.TemporaryDirectory() as home,
        connect(
            f"sqlite:///{home}/catalog.db", warehouse=warehouse, storage_options=json.loads(options), spark=spark
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
