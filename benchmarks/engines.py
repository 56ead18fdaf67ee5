"""What each engine does for each task. One process runs one engine; sessions and tables are made before the clock starts.

A task is a method; it returns a mapping of extra figures (or nothing). Data is generated once per engine in ``prepare`` and is the
same for all: ``rows`` rows of eight columns, in a DataFrame that Spark generates on the fly, as a user's computation would.
"""

import importlib
import json
import shutil
import typing
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLUMNS = [
    "id", "cast(id % 1000 as int) as customer", "cast(id % 50 as int) as region", "cast(id * 7 % 100003 as double) as amount",
    "cast(id % 2 = 0 as boolean) as paid", "concat('order-', cast(id % 100000 as string)) as label",
    "timestamp_micros(1700000000000000 + id * 1000) as at", "date_add(date'2024-01-01', cast(id % 365 as int)) as day",
]  # fmt: skip


class Engine(typing.Protocol):
    """A worker's view of an engine: ``prepare`` once, then any of ``tasks`` any number of times, then ``close``."""

    def prepare(self, home: Path, rows: int, files: int) -> None: ...
    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]: ...
    def close(self) -> None: ...


def spark_session(**config: str) -> Any:
    """A local session of two threads, the same for every Spark engine but for ``config``."""
    builder = importlib.import_module("pyspark.sql").SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        **config,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class _SparkEngine:
    """Everything that the three Spark engines share."""

    session: Any
    home: Path

    def _start(self, home: Path, rows: int, files: int, **config: str) -> None:
        self.home, self.rows, self.files = home, rows, files
        self.session = spark_session(**config)
        self.bulk = self.session.range(0, rows, 1, 8).selectExpr(*COLUMNS)
        self.small = self.session.range(0, 1, 1, 1).selectExpr(*COLUMNS)
        self.session.range(10).selectExpr(*COLUMNS).write.mode("overwrite").parquet(str(home / "warm"))

    def _jobs(self, work: Callable[[], Any]) -> dict[str, int]:
        tracker = self.session.sparkContext.statusTracker()
        group = uuid.uuid4().hex
        self.session.sparkContext.setJobGroup(group, group)
        work()
        return {"spark_jobs": len(tracker.getJobIdsForGroup(group))}

    def close(self) -> None:
        self.session.stop()


class PlainSpark(_SparkEngine):
    """``df.write.parquet`` and ``spark.read.parquet``: the floor."""

    def prepare(self, home: Path, rows: int, files: int) -> None:
        self._start(home, rows, files)
        self.bulk.write.parquet(str(home / "scan"))
        self.small.write.parquet(str(home / "one"))

    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]:
        return {
            "bulk_append": lambda: self._write(self.bulk, []),
            "bulk_append_partitioned": lambda: self._write(self.bulk.repartition(8, "region"), ["region"]),
            "one_row_append": lambda: self._jobs(
                lambda: self.small.write.mode("append").parquet(str(self.home / "one"))
            ),
            "scan": lambda: self._jobs(lambda: scan(self.session.read.parquet(str(self.home / "scan")))),
        }

    def _write(self, frame: Any, partition_by: list[str]) -> None:
        target = str(self.home / f"bulk-{uuid.uuid4().hex}")
        frame.write.partitionBy(*partition_by).parquet(target)
        shutil.rmtree(target)


class Ours(_SparkEngine):
    """Catalog-managed tables of this package, SQLite catalog."""

    def prepare(self, home: Path, rows: int, files: int) -> None:
        self._start(home, rows, files)
        self.package = importlib.import_module("cm_delta_dagster")
        self.connection = self.package.connect(
            f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse", spark=self.session
        )
        self._create("main.bench.plain", [])
        self._create("main.bench.partitioned", ["region"])
        self._create("main.bench.one", [])
        self._create("main.bench.scan", []).append(self.bulk)
        self.log = synthetic_log(home / "cold", files)

    def _create(self, name: str, partition_by: list[str]) -> Any:
        return self.connection.create_table(name, self.bulk.schema, partition_by=partition_by)

    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]:
        table = self.connection.table
        return {
            "bulk_append": lambda: self._jobs(lambda: table("main.bench.plain").append(self.bulk)),
            "bulk_append_partitioned": lambda: self._jobs(
                lambda: table("main.bench.partitioned").append(self.bulk.repartition(8, "region"))
            ),
            "one_row_append": lambda: self._jobs(lambda: table("main.bench.one").append(self.small)),
            "scan": lambda: self._jobs(lambda: scan(table("main.bench.scan").to_df())),
            "cold_snapshot": self._cold,
        }

    def _cold(self) -> dict[str, Any]:
        module = importlib.import_module("cm_delta_dagster.client.path_table")
        return {"files": module.load_path_snapshot(self.package.Stores(), f"file://{self.log}").files.num_rows}

    def close(self) -> None:
        self.connection.close()
        super().close()


class DeltaSpark(_SparkEngine):
    """delta-spark on path tables: the reference implementation."""

    def prepare(self, home: Path, rows: int, files: int) -> None:
        jars = json.loads((home / "jars.json").read_text())
        self._start(
            home, rows, files,
            **{
                "spark.jars": ",".join(jars),
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            },
        )  # fmt: skip
        self.bulk.limit(0).write.format("delta").save(str(home / "plain"))
        self.bulk.limit(0).write.format("delta").partitionBy("region").save(str(home / "partitioned"))
        self.small.write.format("delta").save(str(home / "one"))
        self.bulk.write.format("delta").save(str(home / "scan"))
        self.log = synthetic_log(home / "cold", files)

    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]:
        return {
            "bulk_append": lambda: self._append(self.bulk, "plain"),
            "bulk_append_partitioned": lambda: self._append(self.bulk.repartition(8, "region"), "partitioned"),
            "one_row_append": lambda: self._append(self.small, "one"),
            "scan": lambda: self._jobs(lambda: scan(self.session.read.format("delta").load(str(self.home / "scan")))),
            "cold_snapshot": self._cold,
        }

    def _append(self, frame: Any, name: str) -> dict[str, int]:
        return self._jobs(lambda: frame.write.format("delta").mode("append").save(str(self.home / name)))

    def _cold(self) -> dict[str, Any]:
        delta_log = self.session._jvm.org.apache.spark.sql.delta.DeltaLog
        delta_log.clearCache()
        return {"files": len(self.session.read.format("delta").load(str(self.log)).inputFiles())}


class Deltalake:
    """deltalake (delta-rs): no JVM, so only the tasks that need none of Spark's rows."""

    def prepare(self, home: Path, rows: int, files: int) -> None:
        self.deltalake = importlib.import_module("deltalake")
        pa = importlib.import_module("pyarrow")
        self.home = home
        self.row = pa.table({"id": [0], "customer": [1], "label": ["order-0"], "amount": [1.0]})
        self.deltalake.write_deltalake(str(home / "one"), self.row)
        self.log = synthetic_log(home / "cold", files)

    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]:
        return {"one_row_append": self._one, "cold_snapshot": self._cold}

    def _one(self) -> None:
        self.deltalake.write_deltalake(str(self.home / "one"), self.row, mode="append")

    def _cold(self) -> dict[str, Any]:
        return {"files": len(self.deltalake.DeltaTable(str(self.log)).file_uris())}

    def close(self) -> None:
        return None


ENGINES: dict[str, Callable[[], Engine]] = {
    "spark": PlainSpark,
    "ours": Ours,
    "delta-spark": DeltaSpark,
    "deltalake": Deltalake,
}


def scan(frame: Any) -> None:
    """Reads three columns of every row; the answer is one row."""
    frame.selectExpr("sum(amount)", "max(at)", "count(label)").collect()


def synthetic_log(root: Path, files: int) -> Path:
    """A table whose ten JSON commits add ``files`` files that nobody reads: for the time to load a snapshot."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    head = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                      "schemaString": json.dumps(schema), "configuration": {}, "createdTime": 1700000000000}},
    ]  # fmt: skip
    for version in range(10):
        lines = [json.dumps(action) for action in head] if version == 0 else []
        for index in range(files // 10):
            first = (version * (files // 10) + index) * 1000
            stats = {
                "numRecords": 1000,
                "minValues": {"id": first},
                "maxValues": {"id": first + 999},
                "nullCount": {"id": 0},
            }
            add = {"path": f"part-{version:05d}-{index:06d}-{uuid.uuid4()}.snappy.parquet", "partitionValues": {}, "size": 45000,
                   "modificationTime": 1700000000000, "dataChange": True, "stats": json.dumps(stats)}  # fmt: skip
            lines.append(json.dumps({"add": add}))
        (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")
    return root
