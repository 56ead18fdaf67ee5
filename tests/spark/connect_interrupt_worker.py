"""Writes over Spark Connect that are interrupted; run as a process of its own. Prints one JSON object with what it saw."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec
from cm_delta_dagster.spark.write.write import write_files
from cm_delta_dagster.storage.local_store import LocalStore
from tests.support.interrupts import NUM_ROWS, Interrupted, interrupted_once, noted_rows, slow_rows

SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))


def main(root: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    raised = False
    with interrupted_once(lambda: noted_rows(spark, "remote") > 0):
        try:
            write(spark, f"{root}/t", "remote")
        except Interrupted:
            raised = True
    # Both cores are needed: an operation that goes on would end first.
    wait_on_both_cores(spark)
    seen = {"raised": raised, "noted": noted_rows(spark, "remote"), "rows": NUM_ROWS, "tags": sorted(spark.getTags())}
    for name, is_sent in (("sent", True), ("unsent", False)):
        seen[name] = interrupted_early(spark, f"{root}/{name}", name, is_sent=is_sent)
    print(json.dumps(seen))


def write(spark: SparkSession, directory: str, name: str) -> None:
    layout = TableLayout(location=f"file://{directory}", schema=SCHEMA, partition_columns=())
    write_files(slow_rows(spark, name), store=LocalStore(), layout=layout, spec=WriteSpec())


def wait_on_both_cores(spark: SparkSession) -> None:
    spark.range(0, 4, 1, 4).selectExpr("java_method('java.lang.Thread', 'sleep', 500L)").collect()


def interrupted_early(spark: SparkSession, directory: str, name: str, *, is_sent: bool) -> dict[str, Any]:
    """What a write does that Ctrl-C ends as it begins: the error, the rows that were reached in the end and a second later."""
    error = ""
    with interrupted_at_the_request(spark, is_sent=is_sent):
        try:
            write(spark, directory, name)
        except BaseException as raised:
            error = type(raised).__name__
    reached = []
    for _ in range(2):
        wait_on_both_cores(spark)
        reached.append(noted_rows(spark, name))
    return {"error": error, "reached": reached, "tags": sorted(spark.getTags())}


@contextmanager
def interrupted_at_the_request(spark: Any, *, is_sent: bool) -> Iterator[None]:
    """Raise KeyboardInterrupt when the client asks for the write: before the request, or after it and before any answer."""
    stub = spark.client._stub
    execute = stub.ExecutePlan
    answers: list[Any] = []

    def interrupted(request: Any, **named: Any) -> Any:
        if not request.plan.HasField("command"):
            return execute(request, **named)
        if is_sent:
            answers.append(execute(request, **named))  # Kept: the client cancels a call without references.
        raise KeyboardInterrupt

    stub.ExecutePlan = interrupted
    try:
        yield
    finally:
        stub.ExecutePlan = execute


if __name__ == "__main__":
    main(sys.argv[1])
