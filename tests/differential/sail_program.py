"""Runs statements on a server of Spark Connect; a process of its own, because a process has one kind of session.

Answers for each statement with its rows as an Arrow IPC stream in base64, or with the error of one that failed.
"""

import base64
import json
import sys

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main() -> None:
    request = json.load(sys.stdin)
    spark = SparkSession.builder.remote(request["remote"]).getOrCreate()
    json.dump([answer(spark, statement) for statement in request["statements"]], sys.stdout)
    spark.stop()


def answer(spark: SparkSession, statement: str) -> dict[str, str]:
    try:
        table = spark.sql(statement).toArrow()
    except PySparkException as error:
        return {"error": str(error)}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"rows": base64.b64encode(sink.getvalue()).decode()}


if __name__ == "__main__":
    main()
