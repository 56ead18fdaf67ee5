"""Reads and writes of tables in S3 through Spark; run as a process of its own, because the jars belong to the session.

Prints one JSON object with what it saw.
"""

import contextlib
import io
import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import util
from pathlib import Path
from typing import Any

import fsspec
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import SchemaMode, connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, table_to_adds
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.spark.session.session import is_connect
from tests.support.golden_tables import unpack_golden_tables

FOREIGN = "cdf-table-with-cdc-and-dvs"
KEY, SECRET = "AKIDVISIBLE", "NEVERSHOWN"


def main(jars: str, endpoint: str, bucket: str, master: str, steps: str) -> None:
    warnings = io.StringIO()
    logging.basicConfig(level=logging.INFO, stream=warnings)
    spark = session(jars, master)
    options = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
    with (
        tempfile.TemporaryDirectory() as home,
        connect(
            f"sqlite:///{home}/catalog.db", warehouse=f"s3://{bucket}/a b", storage_options=options, spark=spark
        ) as lake,
    ):
        if steps == "committer":
            spark.conf.set("spark.cmDelta.directWrite", "false")
            print(
                json.dumps(
                    {"rows": rows_through_a_committer(lake), "warned": "spark-hadoop-cloud" in warnings.getvalue()}
                )
            )
            spark.stop()
            return
        before = settings(spark)
        seen = rows_of_all_steps(lake)
        if not master.startswith("spark:"):
            seen["repeated"] = written_by_a_repeated_task(lake)
        seen["feeds"] = feeds(lake, home, bucket, options)
        if "stream" in steps:
            seen["stream"] = streamed(lake, home)
        if "disk=" in steps:
            folder = steps.partition("disk=")[2]
            seen["disk"] = [written_on_disk(spark, f"{folder}/{name}") for name in ("seen", "hidden")]
        seen["missing bucket"] = error_of_missing_bucket(spark, home, options)
        seen["shown"] = shown(lake)
        seen["settings"] = settings(spark) == before
        seen["python"] = python_of_executors(spark) if "python" in steps else []
        seen["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    seen["secrets"] = [text for text in (KEY, SECRET) if text in json.dumps(seen) or text in warnings.getvalue()]
    seen["warned"] = "spark-hadoop-cloud" in warnings.getvalue()
    print(json.dumps(seen))
    spark.stop()


def session(jars: str, master: str, more: Mapping[str, str] | None = None) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.jars", jars).config("spark.ui.enabled", "false")
    for name, value in {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **(more or {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def settings(spark: SparkSession) -> dict[str, str]:
    return dict(spark.conf.getAll)


def rows_of_all_steps(lake: Connection) -> dict[str, Any]:
    spark = lake.spark
    rows = spark.sql("SELECT id, concat('n', id) AS name, 'd' || (id % 3) AS day FROM range(60)")
    seen: dict[str, Any] = {}
    orders = lake.create_table_as("main.sales.orders", rows.repartition(9).select("id", "name"))
    orders.append(rows.where("id < 10").selectExpr("id + 1000 AS id", "name"))
    seen["appended"] = ids(orders.to_df())
    seen["filtered"] = ids(orders.to_df(where="id > 57 AND id < 1002"))
    seen["late"] = late(orders.to_df(), "id > 57 AND id < 1002")
    orders.upsert(spark.sql("SELECT id, 'merged' AS name FROM range(58, 62)"), on=["id"])
    seen["merged"] = ids(orders.to_df(where="name = 'merged'"))
    orders.delete("id >= 1000 OR id = 3")
    seen["deleted"] = ids(orders.to_df())
    seen["time travel"] = [ids(orders.to_df(version=version)) for version in (0, 1)]
    notes = lake.create_table_as("main.sales.notes", rows.where("id < 3").select("id", "name"))
    notes.append(rows.where("id = 3"), schema_mode=SchemaMode.MERGE)
    seen["new column"] = [list(row) for row in notes.to_df().orderBy("id").select("id", "day").collect()]
    days = lake.create_table_as("main.sales.days", rows, partition_by=["day"])
    days.overwrite(rows.where("day = 'd1' AND id < 30"), where="day = 'd1'")
    days.upsert(rows.where("id IN (1, 2)").withColumn("name", F.lit("merged")), on=["id"])
    seen["days"] = [list(row) for row in days.to_df().groupBy("day").count().orderBy("day").collect()]
    seen["input files"] = sorted({name.partition("://")[0] for name in days.to_df().inputFiles()})
    days.append(rows.where("false"))
    seen["arrow agrees"] = sorted(days.to_arrow()["id"].to_pylist()) == ids(days.to_df())
    snapshot = orders.snapshot()
    files = table_to_adds(snapshot.files)
    whole = [replace(add, deletion_vector=encode_inline([0])) for add in files if add.deletion_vector is None]
    adds = [*whole, *(add for add in files if add.deletion_vector is not None)]
    request = ScanRequest(files=adds_to_table(adds))
    seen["live"] = scan(spark, store=orders.table.store, layout=snapshot.layout, request=request).count()
    seen["files"] = len(whole)
    lake.maintenance.set_policy("main.sales", "DATA_REORGANIZATION", reason="a test")
    lake.maintenance.set_policy("main.sales", "DATA_CLEANUP", reason="a test")
    orders.append(rows.where("id < 2").selectExpr("id + 2000 AS id", "name"))
    optimized = orders.optimize()
    seen["optimized"] = [optimized.num_removed_files > optimized.num_added_files, ids(orders.to_df())]
    vacuumed = orders.vacuum(timedelta(0), force=True)
    seen["vacuumed"] = [vacuumed.num_files > 0, ids(orders.to_df())]
    seen["damaged"] = damaged(lake)
    return seen


def late(frame: DataFrame, condition: str) -> list[Any]:
    """The ids, and whether the condition left files out when the query was planned; Connect has no file index that could."""
    chosen = frame.where(condition)
    if is_connect(frame.sparkSession):
        return [ids(chosen), True]
    plan = chosen._jdf.queryExecution().executedPlan()  # type: ignore[operator]  # py4j has no types.
    files = plan.collectLeaves().head().selectedPartitions()
    return [ids(chosen), files.totalNumberOfFiles() < len(frame.inputFiles())]


def damaged(lake: Connection) -> list[bool]:
    """Whether reading is an error that names the file: one that is missing, and one that was cut short."""
    named = []
    for content in (None, b"PAR1 cut"):
        table = lake.create_table_as(f"main.sales.damaged{len(named)}", lake.spark.range(0, 4, 1, 2))
        location = f"{table.snapshot().layout.location}/{table.snapshot().files['path'][1].as_py()}"
        table.table.store.delete(location) if content is None else table.table.store.write(location, content)
        try:
            ids(table.to_df())
            named.append(False)
        except Exception as error:
            named.append(location.rpartition("/")[2] in str(error))
    return named


def rows_through_a_committer(lake: Connection) -> list[int]:
    table = lake.create_table_as("main.sales.orders", lake.spark.range(4))
    table.append(lake.spark.range(4, 6))
    return ids(table.to_df())


def written_by_a_repeated_task(lake: Connection) -> list[Any]:
    """Rows of a write in which the first attempt of each task fails after its first file, and the files in storage beyond them."""

    def fails_at_first(day: int) -> int:
        context = TaskContext.get()
        if day == 1 and context is not None and context.attemptNumber() == 0:
            raise ValueError("the first attempt fails")
        return day

    lake.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    rows = lake.spark.range(0, 8, 1, 2).selectExpr("id", "id % 2 AS day")
    rows = rows.withColumn("day", F.udf(fails_at_first, "BIGINT")("day"))
    lake.spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
    table = lake.create_table_as("main.sales.repeated", rows)
    lake.spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    lake.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    location = table.snapshot().layout.location
    stored = [
        status.location for status in table.table.store.list_recursive(location) if status.location.endswith(".parquet")
    ]
    found = [ids(table.to_df()), table.snapshot().num_files, len(stored), directory_objects(table)]
    table.vacuum(timedelta(0), force=True)
    found.append(directory_objects(table))
    table.delete("id >= 0")
    table.vacuum(timedelta(0), force=True)
    return [*found, directory_objects(table)]


def directory_objects(table: DeltaTable) -> int:
    """The number of empty objects that stand for directories of writes; S3A leaves them where it deletes the last file."""
    listed = table.table.store.list_recursive(table.location, with_directories=True)
    return sum(status.location.endswith("/") for status in listed)


def feeds(lake: Connection, home: str, bucket: str, options: dict[str, str]) -> list[list[str]]:
    """A table of another writer, with a change feed and deletion vectors: from a local disk and from S3."""
    unpacked = unpack_golden_tables(Path(home), lambda path: f"{FOREIGN}/" in path)
    local = next(path.parent for path in unpacked.rglob("_delta_log") if FOREIGN in str(path))
    fsspec.filesystem("s3", **options).put(f"{local}/", f"{bucket}/foreign/", recursive=True)
    places = (lake.path_table(str(local)), lake.path_table(f"s3://{bucket}/foreign"))
    found = [
        sorted(map(str, table.changes(starting_version=0).to_df().drop("_commit_timestamp").collect()))
        for table in places
    ]
    return found + [sorted(map(str, table.to_df(version=18).collect())) for table in places]


def streamed(lake: Connection, home: str) -> list[int]:
    target = f"{home}/stream"
    frame = lake.table("main.sales.orders").stream().to_df()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{home}/checkpoint")
    writer.trigger(availableNow=True).start(target).awaitTermination()
    return ids(lake.spark.read.parquet(target))


def written_on_disk(spark: SparkSession, folder: str) -> str:
    with connect(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse", spark=spark) as lake:
        try:
            table = lake.create_table_as("main.sales.disk", spark.range(3))
        except StorageError as error:
            left = [str(path) for path in Path(folder).rglob("*") if path.suffix == ".parquet" or "probe" in path.name]
            return f"{error} {left}"
        return f"{len(ids(table.to_df()))} rows"


def python_of_executors(spark: SparkSession) -> list[list[Any]]:
    """The Python programs of the executors, and whether they have this package."""

    def look(_: int) -> tuple[str, bool]:
        return sys.executable, util.find_spec("cm_delta_dagster") is not None

    found = spark.sparkContext.parallelize(range(8), 8).map(look).collect()
    return sorted(map(list, set(found)))


def error_of_missing_bucket(spark: SparkSession, home: str, options: dict[str, str]) -> str:
    path = f"sqlite:///{home}/other.db"
    with connect(path, warehouse="s3://no-such-bucket-here", storage_options=options, spark=spark) as lake:
        try:
            lake.create_table_as("main.sales.none", spark.range(3))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def shown(lake: Connection) -> list[str]:
    """All that Spark and the connection show of reads and writes: plans, the SQL tab, objects."""
    frame = lake.table("main.sales.orders").to_df(where="id > 5")
    plans = io.StringIO()
    with contextlib.redirect_stdout(plans):
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.explain(mode=mode)
    store = lake.spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    tab = [executions.apply(number) for number in range(executions.size())]
    plans_of_tab = [each.physicalPlanDescription() for each in tab]
    assert any(each.description().startswith("write data files into s3a://") for each in tab)
    configurations = [str(each.modifiedConfigs()) for each in tab]
    return [plans.getvalue(), *plans_of_tab, *configurations, repr(lake), repr(lake.table("main.sales.orders"))]


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


if __name__ == "__main__":
    main(*sys.argv[1:])
