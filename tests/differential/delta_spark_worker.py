"""Runs delta-spark: one request a line in (JSON), one answer a line out (JSON).

``{"sql": [...]}`` runs the statements and answers with the rows of the last one, as an Arrow stream in base64.
``{"validate": path, "versions": [...]}`` has delta-spark compare its own state of each version with the checksum file.
``{"stream": path, "options": {...}, "checkpoint": directory}`` streams a table until nothing is left.
``{"stream_into": target, "from": path, "options": {...}, "sink": {...}, "mode": mode, "checkpoint": directory}`` streams one
table into another until nothing is left; with the mode ``complete`` it counts the rows of each ``p``.
``{"transactions": path}`` answers with the version that the table records for each application.
``{"run_after": path, "winner": {...}, "losers": [...]}`` runs transactions against each other, see ``delta_transactions``.
"""

import base64
import json
import os
import sys
from typing import Any

from delta_transactions import run_after


def start(jars: str, home: str) -> Any:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", home + "/spark-warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")  # VACUUM lists with so many tasks.
        .config("spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def run(session: Any, statements: list[str]) -> dict[str, Any]:
    import pyarrow as pa

    # Spark executes a command at once; only the rows of the last statement are fetched, since some cannot be had as Arrow.
    frames = [session.sql(statement) for statement in statements]
    table = frames[-1].toArrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"rows": base64.b64encode(sink.getvalue()).decode()}


def validate(session: Any, path: str, versions: list[int]) -> dict[str, Any]:
    jvm = session.sparkContext._jvm
    delta = jvm.org.apache.spark.sql.delta.DeltaLog
    delta.clearCache()
    log = delta.forTable(session._jsparkSession, path)
    outcome = {}
    for version in versions:
        snapshot = log.getSnapshotAt(
            version, getattr(log, "getSnapshotAt$default$2")(), getattr(log, "getSnapshotAt$default$3")(), False
        )
        if snapshot.checksumOpt().isEmpty():
            outcome[version] = "none"
            continue
        checked = snapshot.validateChecksum(getattr(snapshot, "validateChecksum$default$1")())
        outcome[version] = "equal" if checked else "different"
    return {"outcome": outcome}


def stream(session: Any, path: str, options: dict[str, str], checkpoint: str) -> dict[str, Any]:
    """Ids of each batch, the offset after it, and why the query ended, if not for want of rows."""
    batches: list[list[int]] = []

    def collect(frame: Any, number: int) -> None:
        batches.append(sorted(row.id for row in frame.collect()))

    frame = session.readStream.format("delta").options(**options).load(path)
    writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", checkpoint)
    error = None
    try:
        writer.trigger(availableNow=True).start().awaitTermination(120)
    except Exception as found:
        error = str(found)[:1000]
    names = sorted((name for name in os.listdir(f"{checkpoint}/offsets") if name.isdigit()), key=int)
    offsets = []
    for name in names:
        with open(f"{checkpoint}/offsets/{name}") as file:
            offsets.append(file.read().splitlines()[-1])
    return {"batches": batches, "offsets": offsets, "stopped_by": error}


def stream_into(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Why the query ended, if not for want of rows."""
    frame = session.readStream.format("delta").options(**request["options"]).load(request["from"])
    if request["mode"] == "complete":
        frame = frame.groupBy("p").count()
    writer = frame.writeStream.format("delta").options(**request["sink"]).outputMode(request["mode"])
    writer = writer.option("checkpointLocation", request["checkpoint"]).trigger(availableNow=True)
    try:
        writer.start(request["stream_into"]).awaitTermination(120)
    except Exception as found:
        return {"stopped_by": str(found)[:2000]}
    return {"stopped_by": None}


def transactions(session: Any, path: str) -> dict[str, int]:
    delta = session.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog
    delta.clearCache()
    log = delta.forTable(session._jsparkSession, path)
    snapshot = log.update(*[getattr(log, f"update$default${number}")() for number in (1, 2, 3)])
    found = snapshot.setTransactions()
    return {found.apply(at).appId(): found.apply(at).version() for at in range(found.size())}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    session = start(sys.argv[1], sys.argv[2])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "sql" in request:
                answer = run(session, request["sql"])
            elif "stream" in request:
                answer = stream(session, request["stream"], request["options"], request["checkpoint"])
            elif "stream_into" in request:
                answer = stream_into(session, request)
            elif "transactions" in request:
                answer = {"transactions": transactions(session, request["transactions"])}
            elif "run_after" in request:
                answer = {"outcomes": run_after(session, request["run_after"], request["winner"], request["losers"])}
            else:
                answer = validate(session, request["validate"], request["versions"])
        except Exception as error:  # Whatever delta-spark says is the answer.
            answer = {"error": str(error)[:4000]}
        print(json.dumps(answer), file=answers)
    session.stop()


if __name__ == "__main__":
    main()
