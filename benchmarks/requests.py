"""Requests that other engines send to S3 for the operations of ``docs/requests.md``.

``python -m benchmarks.requests --jars JAR ... --write`` runs delta-spark (single-driver log store on s3a) and deltalake
(conditional creation of commits) against an emulator and writes ``requests.tsv``. The jars are those of delta-spark and of Spark
for S3. Spark has one thread. No time is measured.
"""

import argparse
import csv
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import deltalake
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.support.recording_proxy import Kind, RecordedRequest, RecordingProxy
from tests.support.s3_server import s3_server

TABLE = Path(__file__).with_name("requests.tsv")
KEY, SECRET = "k", "s"


class Counting:
    """Runs operations of one engine and keeps the number of requests of each."""

    def __init__(self, engine: str, proxy: RecordingProxy) -> None:
        self.rows: list[tuple[str, str, str]] = []
        self._engine, self._proxy = engine, proxy

    def run(self, operation: str, work: Callable[[], Any]) -> Any:
        self._proxy.clear()
        result = work()
        row = (operation, self._engine, text_of(self._proxy.requests()))
        print(*row, sep="\t", file=sys.stderr)
        self.rows.append(row)
        return result


def text_of(requests: Sequence[RecordedRequest]) -> str:
    counts = Counter(request.kind for request in requests)
    if not counts:
        return "0"
    return f"{counts.total()}: " + ", ".join(f"{counts[kind]} {kind.value}" for kind in Kind if counts[kind])


def measure_delta_spark(proxy: RecordingProxy, bucket: str, jars: Sequence[str]) -> list[tuple[str, str, str]]:
    spark = delta_session(proxy.url, jars)
    name = next(Path(jar).stem for jar in jars if "delta-spark" in jar)
    counting = Counting(f"delta-spark {name.rpartition('-')[2]}", proxy)
    root = f"s3a://{bucket}/delta-spark"

    def write(table: str, frame: Any) -> None:
        frame.write.format("delta").mode("append").save(f"{root}/{table}")

    def load(table: str) -> Any:
        return spark.read.format("delta").load(f"{root}/{table}")

    def clear() -> None:
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    one = spark.range(0, 1, 1, 1)
    write("one", one)
    write("one", one)
    counting.run("append of 1 row", lambda: write("one", one))
    counting.run("append of 100 files", lambda: write("one", spark.range(0, 100, 1, 100)))
    load("one").printSchema()
    counting.run("refresh, nothing new", lambda: load("one").printSchema())
    counting.run("create a table of 4 files", lambda: write("rows", spark.range(0, 100, 1, 4)))
    clear()
    counting.run("cold read of 4 files", lambda: load("rows").collect())
    counting.run("read of 4 files", lambda: load("rows").collect())
    spark.createDataFrame([(99,), (100,)], "id long").coalesce(1).createOrReplaceTempView("changes")
    place = f"delta.`{root}/rows`"
    merge = f"MERGE INTO {place} t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    counting.run("merge of 2 rows into 4 files", lambda: spark.sql(merge).collect())
    counting.run("delete of 1 row of 5 files", lambda: spark.sql(f"DELETE FROM {place} WHERE id = 3").collect())
    counting.run("optimize of 5 files", lambda: spark.sql(f"OPTIMIZE {place}").collect())
    spark.stop()
    return counting.rows


def delta_session(url: str, jars: Sequence[str]) -> SparkSession:
    settings = {
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore",
        "spark.hadoop.fs.s3a.endpoint": url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET,
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def measure_deltalake(proxy: RecordingProxy, bucket: str) -> list[tuple[str, str, str]]:
    counting = Counting(f"deltalake {version('deltalake')}", proxy)
    root = f"s3://{bucket}/deltalake"
    options = {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }

    def write(target: Any, first: int, count: int, files: int = 1) -> None:
        part = pa.array([number % files for number in range(count)], pa.int64())
        rows = pa.table({"id": pa.array(range(first, first + count), pa.int64()), "part": part})
        named = {"partition_by": ["part"]} if files > 1 or str(target).endswith("rows") else {}
        storage = {"storage_options": options} if isinstance(target, str) else {}
        deltalake.write_deltalake(target, rows, mode="append", **named, **storage)

    def load(name: str) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(f"{root}/{name}", storage_options=options)

    write(f"{root}/one", 0, 1)
    one = load("one")
    counting.run("append of 1 row", lambda: write(one, 1, 1))
    counting.run("refresh, nothing new", one.update_incremental)
    write(f"{root}/one", 2, 1)
    counting.run("refresh, 1 new commit", one.update_incremental)
    counting.run("create a table of 4 files", lambda: write(f"{root}/rows", 0, 100, 4))
    counting.run("cold read of 4 files", lambda: load("rows").to_pyarrow_table())
    rows = load("rows")
    changes = pa.table({"id": [99, 100], "part": [3, 0]})
    counting.run(
        "merge of 2 rows into 4 files",
        lambda: (
            rows.merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        ),
    )
    counting.run("delete of 1 row of 5 files", lambda: rows.delete("id = 3"))
    counting.run("optimize of 5 files", rows.optimize.compact)
    write(f"{root}/many-rows", 0, 1, 1)
    many = load("many-rows")
    counting.run("append of 100 files", lambda: write(many, 0, 100, 100))
    return counting.rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requests", description=__doc__)
    parser.add_argument(
        "--jars", nargs="*", default=[], help="of delta-spark and of Spark for S3; without them only deltalake runs"
    )
    parser.add_argument("--write", action="store_true", help="write requests.tsv")
    arguments = parser.parse_args()
    bucket = f"requests-{uuid.uuid4().hex[:8]}"
    with s3_server() as server, RecordingProxy(server.endpoint) as proxy:
        urlopen(Request(f"{server.endpoint}/{bucket}", method="PUT")).close()
        rows = measure_deltalake(proxy, bucket)
        if arguments.jars:
            rows += measure_delta_spark(proxy, bucket, arguments.jars)
    if arguments.write:
        with TABLE.open("w", newline="") as file:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows(
                [("operation", "engine", "requests"), *sorted(rows, key=lambda row: (row[0], row[1]))]
            )


if __name__ == "__main__":
    main()
