"""A process whose Java is killed while it writes, and which then writes with a new session.

Arguments: directory, who starts the session ("connection", "caller" or "resource"), operation. Prints the results as one JSON
object.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import DeltaTable, connect
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.orchestration import SparkResource
from cm_delta_dagster.spark.session.java import ensure_java
from tests.support.waiting import until

NAME = "main.test.t"
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.log.level": "OFF",
}
VERBS: dict[str, Callable[[DeltaTable, DataFrame], object]] = {
    "append": lambda table, rows: table.append(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "merge": lambda table, rows: table.upsert(rows, on="id"),
}


def rows(spark: SparkSession, count: int, *, slow: bool = False) -> DataFrame:
    """The tasks of the second half sleep between rows."""
    delay = F.when(
        (F.col("id") >= count // 2) & (F.col("id") % 500 == 0), F.expr("java_method('java.lang.Thread', 'sleep', 50L)")
    )
    text = F.concat(F.uuid(), F.coalesce(delay, F.lit(""))) if slow else F.uuid()
    return spark.range(0, count, 1, 8).select("id", text.alias("text"))


def data_files(directory: Path) -> set[str]:
    return {str(path) for path in directory.rglob("*") if path.is_file() and path.name.startswith(("part-", ".part-"))}


def kill_when_it_writes(spark: SparkSession, directory: Path, before: set[str]) -> None:
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def watch() -> None:
        until(lambda: not data_files(directory) <= before)
        os.kill(java, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def attempt(act: Callable[[], object]) -> str:
    try:
        return f"answer {act()}"
    except CmDeltaError as error:
        return f"{type(error).__name__} {error}"


def main() -> None:
    place, starter, verb = sys.argv[1:]
    directory = Path(place)
    builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    resource = SparkResource(config=SETTINGS)
    spark = None
    if starter == "caller":
        ensure_java()
        spark = builder.getOrCreate()
    elif starter == "resource":
        spark = resource.spark_session
    results: dict[str, object] = {}
    with connect(f"sqlite:///{place}/catalog.db", warehouse=f"{place}/w", spark=spark) as lake:
        old = lake.spark
        table = lake.create_table_as(NAME, rows(old, 3))
        lake.client.wait_for_background()
        before = data_files(directory)
        frame = rows(old, 30_000, slow=True)
        kill_when_it_writes(old, directory, before)
        results["write"] = attempt(lambda: VERBS[verb](table, frame))
        lake.client.wait_for_background()
        results["left"] = sorted(data_files(directory) - before)
        results["version"] = table.version()
        results["arrow"] = table.to_arrow().num_rows
        results["old frame"] = attempt(lambda: table.append(frame))
        results["read"] = attempt(lambda: table.to_df().count())
        if starter == "connection":
            new = lake.spark
        elif starter == "resource":
            new = resource.spark_session
            results["same resource"] = resource.spark_session is new
        else:
            new = builder.getOrCreate()
        results["is new"] = new is not old
        with connect(f"sqlite:///{place}/catalog.db", warehouse=f"{place}/w", spark=new) as again:
            table = again.table(NAME)
            VERBS[verb](table, rows(new, 5))
            results["ids"] = sorted(row.id for row in table.to_df().collect())
            results["version after"] = table.version()
        new.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
