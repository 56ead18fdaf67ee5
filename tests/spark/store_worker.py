"""Reads and writes of tables in Azure or Google storage through Spark; a process of its own, because the jars belong to it.

Prints one JSON object with what it saw.
"""

import json
import sys
import tempfile
from datetime import timedelta

from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.errors import EngineError
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
        lake.maintenance.set_policy("main", "DATA_CLEANUP", reason="the test deletes what a failed write left")
        table = lake.create_table_as("main.sales.orders", rows, partition_by=["day"])
        table.upsert(rows.where("id > 7").selectExpr("id + 1 AS id", "'merged' AS name", "day"), on=["id"])
        table.delete("id = 3")
        found = ids(table.to_df()), ids(table.to_df(where="name = 'merged'")), ids(table.to_df(version=0))
        by_arrow = sorted(table.to_arrow()["id"].to_pylist())
        left = empty_directories_before_and_after_vacuum(table, spark)
        files = sorted({name.partition("://")[0] for name in table.to_df().inputFiles()})
        same = settings(spark) == before and sorted(table.to_arrow()["id"].to_pylist()) == found[0]
    print(json.dumps([*found, by_arrow == found[0], files, same, *left]))
    spark.stop()


def empty_directories_before_and_after_vacuum(table: DeltaTable, spark: SparkSession) -> tuple[int, int]:
    """How many objects stand for directories without files after a write that failed, and after vacuum.

    Which ones the failed write leaves depends on when Spark aborts its tasks, so Spark's client of the store makes one more.
    """
    rows = ("if(id = 9999, CAST(raise_error('no row') AS bigint), id) AS id", "'n' AS name", "'d' || (id % 2) AS day")
    try:
        table.append(spark.range(0, 10000, 1, 1).selectExpr(*rows))
    except EngineError as error:
        assert "no row" in str(error), error
    partition = table.to_df().inputFiles()[0].rpartition("/")[0]
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    directory = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(f"{partition.rpartition('/')[0]}/day=interrupted"))
    assert directory.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).mkdirs(directory)
    counts: list[int] = []
    for number in range(2):
        if number:
            vacuumed = table.vacuum(timedelta(0), force=True)
            assert vacuumed.num_files >= counts[0]
        listed = [found.location for found in table.table.store.list_recursive(table.location, with_directories=True)]
        files = [place for place in listed if not place.endswith("/")]
        counts.append(
            sum(place.endswith("/") and not any(file.startswith(place) for file in files) for place in listed)
        )
    return counts[0], counts[1]


if __name__ == "__main__":
    main(*sys.argv[1:])
