"""The tasks of each engine. One process runs one engine; sessions and tables are created before timing starts.

A task is a function that returns extra figures or None. Every engine returns the same result: three columns of all rows for a
scan, the number of files for a snapshot or a listing.
"""

import importlib
import os
import shutil
import typing
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import arrow_writes, changes, commits, feeds, object_store, queries, tables, wide, writers
from benchmarks.shared import Shared

COLUMNS = [
    "id", "cast(id % 1000 as int) as customer", "cast(id % 50 as int) as region", "cast(id * 7 % 100003 as double) as amount",
    "cast(id % 2 = 0 as boolean) as paid", "concat('order-', cast(id % 100000 as string)) as label",
    "timestamp_micros(1700000000000000 + id * 1000) as at", "date_add(date'2024-01-01', cast(id % 365 as int)) as day",
]  # fmt: skip
SCANS_OF_VECTORS = {
    "scan_deleted": "deleted",
    "scan_half_deleted": "half",
    "scan_many_vectors": "vectors",
    "scan_large_vector": "large_vector",
}
"""Tables with deletion vectors of which all rows are read."""
SPARK_TASKS = frozenset(
    {
        "bulk_append",
        "bulk_append_partitioned",
        "one_row_append",
        "scan",
        "scan_partition",
        *SCANS_OF_VECTORS,
        *queries.SPARK_TASKS,
        *feeds.SPARK_TASKS,
        *changes.TASKS,
    }
)
PARTITION = tables.DAYS[100]
SCANNED = ["amount", "at", "label"]

Task: typing.TypeAlias = Callable[[], dict[str, Any] | None]


class Engine(typing.Protocol):
    """What a worker calls: ``prepare`` once, then the ``tasks`` in any order and number, then ``close``."""

    def prepare(self, home: Path, shared: Shared) -> None: ...
    def tasks(self) -> dict[str, Task]: ...
    def close(self) -> None: ...


def spark_session(**config: str) -> Any:
    """A local session of two threads. All Spark engines use the same settings, except for ``config``."""
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

    session: Any = None

    def _start(self, home: Path, shared: Shared, **config: str) -> None:
        self.home, self.shared = home, shared
        if not self._needs_spark():
            return
        if object_store.is_wanted(shared):
            given = [config["spark.jars"]] if "spark.jars" in config else []
            config["spark.jars"] = ",".join([*given, *shared.s3_jars])
        self.session = spark_session(**config)
        self.s3_bulk = self.session.range(0, shared.s3_rows, 1, 8).selectExpr(*COLUMNS)
        self.bulk = self.session.range(0, shared.rows, 1, 8).selectExpr(*COLUMNS)
        self.small = self.session.range(0, 1, 1, 1).selectExpr(*COLUMNS)
        self.session.range(10).selectExpr(*COLUMNS).write.mode("overwrite").parquet(str(home / "warm"))

    def _needs_spark(self) -> bool:
        return bool(SPARK_TASKS.union(object_store.TASKS).intersection(self.shared.tasks))

    def _jobs(self, work: Callable[[], Any]) -> dict[str, int]:
        tracker = self.session.sparkContext.statusTracker()
        group = uuid.uuid4().hex
        self.session.sparkContext.setJobGroup(group, group)
        work()
        return {"spark_jobs": len(tracker.getJobIdsForGroup(group))}

    def _scans(self, read: Callable[[str], Any]) -> dict[str, Task]:
        def task(name: str) -> Task:
            return lambda: self._jobs(lambda: scan(read(name)))

        return {of: task(name) for of, name in SCANS_OF_VECTORS.items()}

    def _changes(
        self, writer: Callable[[Any, Path, Shared], changes.Writer], names: frozenset[str] = frozenset(changes.TASKS)
    ) -> dict[str, Task]:
        if not names.intersection(self.shared.tasks):
            return {}
        return changes.tasks(writer(self.session, self.home, self.shared), self.shared, names, self._jobs)

    def _place(self, name: str) -> str:
        return str(self.shared.place(name))

    def close(self) -> None:
        if self.session is not None:
            self.session.stop()


class PlainSpark(_SparkEngine):
    """``df.write.parquet`` and ``spark.read.parquet``, the lower bound for every engine that uses Spark."""

    def prepare(self, home: Path, shared: Shared) -> None:
        self._start(home, shared, **object_store.session_settings(shared, magic=True))
        if "one_row_append" in shared.tasks:
            self.small.write.parquet(str(home / "one"))

    def tasks(self) -> dict[str, Task]:
        return {
            "bulk_append": lambda: self._write(self.bulk, []),
            "bulk_append_partitioned": lambda: self._write(self.bulk.repartition(8, "region"), ["region"]),
            "one_row_append": lambda: self._jobs(
                lambda: self.small.write.mode("append").parquet(str(self.home / "one"))
            ),
            "scan": lambda: self._jobs(lambda: scan(self._read())),
            "scan_partition": lambda: self._jobs(lambda: scan(self._read().where("region = 3"))),
            **queries.spark_tasks("spark", self.home, self.shared, self._query),
            **self._changes(writers.SparkWriter, changes.PLAIN),
            **self._on_s3(),
        }

    def _on_s3(self) -> dict[str, Task]:
        tasks = {
            "s3_bulk_append": lambda: self.s3_bulk.write.parquet(object_store.new_place()),
            "s3_one_row_append": lambda: self.small.write.mode("append").parquet(f"s3a://{object_store.BUCKET}/one"),
            "s3_cold_read": lambda: object_store.total(
                self.session.read.schema("id BIGINT, amount DOUBLE").parquet(*object_store.paths(self.shared))
            ),
        }
        return object_store.with_latency(self.shared, tasks)

    def _read(self) -> Any:
        return self.session.read.parquet(self._place("rows"))

    def _query(self, name: str, where: str | None) -> Any:
        return queries.plain_read(self.session, self.shared, name, where)

    def _write(self, frame: Any, partition_by: list[str]) -> None:
        target = str(self.home / f"bulk-{uuid.uuid4().hex}")
        frame.write.partitionBy(*partition_by).parquet(target)
        shutil.rmtree(target)


class Ours(_SparkEngine):
    """This package: catalog-managed tables in a SQLite catalog for writing, tables by path for reading."""

    def prepare(self, home: Path, shared: Shared) -> None:
        self._start(home, shared)
        self.package = importlib.import_module("cm_delta_dagster")
        self.path_tables = importlib.import_module("cm_delta_dagster.client.snapshots.path_table")
        self.stores = importlib.import_module("cm_delta_dagster.storage.stores").Stores()
        self.connection = None
        if {"bulk_append", "bulk_append_partitioned", "one_row_append"}.intersection(shared.tasks):
            self.connection = self.package.connect(
                f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse", spark=self.session
            )
            for name, partition_by in (("plain", []), ("partitioned", ["region"]), ("one", [])):
                self.connection.create_table(f"main.bench.{name}", self.bulk.schema, partition_by=partition_by)
        self.queries = queries.OursQueries(home, shared, self.session) if queries.is_wanted(shared) else None
        self.arrow_writer = arrow_writes.ArrowWriter("ours", home, shared) if arrow_writes.is_wanted(shared) else None
        self.feeds = None
        if set(feeds.TASKS).intersection(shared.tasks):
            self.feeds = self.package.connect(
                f"sqlite:///{home}/feeds.db", warehouse=f"file://{home}/feeds", spark=self.session
            )
        if object_store.is_wanted(shared):
            self._prepare_s3(home, shared)
        if {"scan", "scan_partition", *SCANS_OF_VECTORS}.intersection(shared.tasks):
            self.read = importlib.import_module("cm_delta_dagster.operations.reading.read").read
        if any(task.startswith("arrow_") for task in shared.tasks):
            self.read_arrow = importlib.import_module("cm_delta_dagster.operations.reading.read_arrow").read_arrow
        if "refresh" in shared.tasks:
            self._prepare_refresh()
        self.commits = commits.CommitBench(home) if set(commits.TASKS).intersection(shared.tasks) else None
        if "list_partition" in shared.tasks or "list_range" in shared.tasks:
            self.listed = self._snapshot("checkpoint")
            self.parse = importlib.import_module("cm_delta_dagster.protocol.predicates.sql_parser").parse_predicate

    def tasks(self) -> dict[str, Task]:
        return {
            **(self.commits.tasks() if self.commits else {}),
            **(self.queries.tasks() if self.queries else {}),
            **(self.arrow_writer.tasks() if self.arrow_writer else {}),
            **(feeds.ours(self.feeds, self.shared) if self.feeds else {}),
            **self._changes(writers.OurWriter),
            **wide.ours(self._table, self.shared.place),
            "bulk_append": lambda: self._jobs(lambda: self._named("plain").append(self.bulk)),
            "bulk_append_partitioned": lambda: self._jobs(
                lambda: self._named("partitioned").append(self.bulk.repartition(8, "region"))
            ),
            "one_row_append": lambda: self._jobs(lambda: self._named("one").append(self.small)),
            "scan": lambda: self._jobs(lambda: scan(self._spark("rows"))),
            "scan_partition": lambda: self._jobs(lambda: scan(self._spark("rows", where="region = 3"))),
            **self._scans(self._spark),
            "arrow_scan": lambda: self._arrow("rows"),
            "arrow_query": lambda: self._arrow("rows", where="region = 3 and amount > 90000"),
            "arrow_deleted": lambda: self._arrow("deleted"),
            "cold_snapshot": lambda: {"files": self._snapshot("cold").num_files},
            "long_log_snapshot": lambda: {"files": self._snapshot("long_log").num_files},
            "snapshot_checkpoint": lambda: self._measured("checkpoint"),
            "snapshot_json": lambda: self._measured("json"),
            "refresh": self._refresh,
            "list_partition": lambda: self._list(f"day = '{PARTITION}'"),
            "list_range": lambda: self._list(_range_condition(self.shared.files)),
            **self._on_s3(),
        }

    def _prepare_s3(self, home: Path, shared: Shared) -> None:
        given = object_store.options(shared)
        self.s3 = self.package.connect(
            f"sqlite:///{home}/s3.db",
            warehouse=f"s3://{object_store.BUCKET}/warehouse",
            storage_options=given,
            spark=self.session,
        )
        for name in ("plain", "one"):
            self.s3.create_table(f"main.bench.{name}", self.bulk.schema)

    def _on_s3(self) -> dict[str, Task]:
        tasks = {
            "s3_bulk_append": lambda: self._jobs(lambda: self.s3.table("main.bench.plain").append(self.s3_bulk)),
            "s3_one_row_append": lambda: self._jobs(lambda: self.s3.table("main.bench.one").append(self.small)),
            "s3_cold_read": self._cold_read,
        }
        return object_store.with_latency(self.shared, tasks)

    def _cold_read(self) -> dict[str, Any]:
        table = self.s3.path_table(f"s3://{object_store.BUCKET}/{object_store.TABLE}")
        return object_store.total(table.to_df())

    def _named(self, name: str) -> Any:
        return self.connection.table(f"main.bench.{name}")

    def _table(self, name: str) -> Any:
        return self.path_tables.open_path_table(self.stores, f"file://{self.shared.place(name)}")

    def _snapshot(self, name: str) -> Any:
        return self._table(name).snapshot()

    def _scan(self, name: str, **query: Any) -> Any:
        scans = importlib.import_module("cm_delta_dagster.operations.reading.snapshot_scan")
        return scans.open_scan(self._table(name), **query)

    def _spark(self, name: str, **query: Any) -> Any:
        return self.read(self._scan(name, **query), spark=self.session)

    def _arrow(self, name: str, **query: Any) -> dict[str, Any]:
        return {"answer": self.read_arrow(self._scan(name, columns=SCANNED, **query)).num_rows}

    def _measured(self, name: str) -> dict[str, Any]:
        before = resident_bytes()
        snapshot = self._snapshot(name)
        return {"files": snapshot.num_files, "resident": beyond_text(before, snapshot.num_files)}

    def _prepare_refresh(self) -> None:
        """Refresh the state by the new commits, as ``Table.snapshot`` does."""
        self.commit_reader = importlib.import_module("cm_delta_dagster.client.snapshots.commit_reader").CommitReader
        self.published_source = importlib.import_module(
            "cm_delta_dagster.client.snapshots.commit_sources"
        ).published_source
        self.replay = importlib.import_module("cm_delta_dagster.protocol.log.action_reconciliation").replay
        self.grown = shutil.copytree(self._place("checkpoint"), self.home / "grown")
        self.state = self.path_tables.open_path_table(self.stores, f"file://{self.grown}").snapshot().state

    def _refresh(self) -> dict[str, Any]:
        location, version = f"file://{self.grown}", self.state.version + 1
        tables.append_commit(self.grown, version)
        store = self.stores.store_for(location)
        commits = self.commit_reader(store, location, threads=1).decode_all([self.published_source(location, version)])
        self.state = self.replay(self.state, commits, location=location)
        return {"files": self.state.files.num_files, "chunks": self.state.files.adds["path"].num_chunks}

    def _list(self, condition: str) -> dict[str, Any]:
        return {"files": self.listed.matching_files(self.parse(condition, self.listed.schema)).num_rows}

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        if object_store.is_wanted(self.shared):
            self.s3.close()
        for part in (self.commits, self.queries, self.feeds, self.arrow_writer):
            if part is not None:
                part.close()
        super().close()


class DeltaSpark(_SparkEngine):
    """delta-spark on path tables: the reference implementation."""

    def _needs_spark(self) -> bool:
        return True

    def prepare(self, home: Path, shared: Shared) -> None:
        self._start(
            home, shared,
            **{
                "spark.jars": ",".join(shared.jars),
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                **object_store.session_settings(shared, magic=False),
            },
        )  # fmt: skip
        if "bulk_append" in shared.tasks:
            self.bulk.limit(0).write.format("delta").save(str(home / "plain"))
        if "bulk_append_partitioned" in shared.tasks:
            self.bulk.limit(0).write.format("delta").partitionBy("region").save(str(home / "partitioned"))
        if "one_row_append" in shared.tasks:
            self.small.write.format("delta").save(str(home / "one"))
        if object_store.is_wanted(shared):
            self.bulk.limit(0).write.format("delta").save(f"s3a://{object_store.BUCKET}/delta-plain")
            self.small.write.format("delta").save(f"s3a://{object_store.BUCKET}/delta-one")
        if "refresh" in shared.tasks:
            self.grown = shutil.copytree(self._place("checkpoint"), home / "grown")
            self.version = tables.COMMITS - 1
            self._log(self.grown).update(*self._update_defaults())

    def tasks(self) -> dict[str, Task]:
        return {
            "bulk_append": lambda: self._append(self.bulk, "plain"),
            "bulk_append_partitioned": lambda: self._append(self.bulk.repartition(8, "region"), "partitioned"),
            "one_row_append": lambda: self._append(self.small, "one"),
            "scan": lambda: self._jobs(lambda: scan(self._frame("rows"))),
            "scan_partition": lambda: self._jobs(lambda: scan(self._frame("rows").where("region = 3"))),
            **self._scans(self._frame),
            **feeds.delta_spark(self.session, self.shared, self._forget),
            **self._changes(writers.DeltaSparkWriter),
            **queries.spark_tasks(
                "delta-spark", self.home, self.shared, lambda name, _: self._frame(name), self._forget
            ),
            "cold_snapshot": lambda: self._cold("cold"),
            "snapshot_checkpoint": lambda: self._cold("checkpoint"),
            "snapshot_json": lambda: self._cold("json"),
            "refresh": self._refresh,
            "list_partition": lambda: self._list(f"day = '{PARTITION}'"),
            "list_range": lambda: self._list(_range_condition(self.shared.files)),
            **self._on_s3(),
        }

    def _on_s3(self) -> dict[str, Task]:
        root = f"s3a://{object_store.BUCKET}"
        tasks = {
            "s3_bulk_append": lambda: self._append(self.s3_bulk, f"{root}/delta-plain"),
            "s3_one_row_append": lambda: self._append(self.small, f"{root}/delta-one"),
            "s3_cold_read": lambda: self._cold_read(f"{root}/{object_store.TABLE}"),
        }
        return object_store.with_latency(self.shared, tasks)

    def _forget(self) -> None:
        self.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _cold_read(self, location: str) -> dict[str, Any]:
        self._forget()
        return object_store.total(self.session.read.format("delta").load(location))

    def _frame(self, name: str) -> Any:
        return self.session.read.format("delta").load(self._place(name))

    def _append(self, frame: Any, name: str) -> dict[str, int]:
        place = name if "://" in name else str(self.home / name)
        return self._jobs(lambda: frame.write.format("delta").mode("append").save(place))

    def _log(self, root: Path | str) -> Any:
        return self.session._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.session._jsparkSession, str(root))

    def _cold(self, name: str) -> dict[str, Any]:
        self._forget()
        snapshot = self._log(self._place(name)).unsafeVolatileSnapshot()
        return {"files": snapshot.numOfFiles()}

    def _update_defaults(self) -> list[Any]:
        log = self._log(self.grown)
        return [getattr(log, f"update$default${number}")() for number in (1, 2, 3)]

    def _refresh(self) -> dict[str, Any]:
        self.version += 1
        tables.append_commit(self.grown, self.version)
        return {"files": self._log(self.grown).update(*self._update_defaults()).numOfFiles()}

    def _list(self, condition: str) -> dict[str, Any]:
        return {"files": len(self._frame("checkpoint").where(condition).inputFiles())}


class Deltalake:
    """deltalake (delta-rs): the tasks that do not need Spark."""

    def prepare(self, home: Path, shared: Shared) -> None:
        self.deltalake = importlib.import_module("deltalake")
        self.home, self.shared = home, shared
        self.arrow_writer = (
            arrow_writes.ArrowWriter("deltalake", home, shared) if arrow_writes.is_wanted(shared) else None
        )
        if "one_row_append" in shared.tasks:
            pa = importlib.import_module("pyarrow")
            self.row = pa.table({"id": [0], "customer": [1], "label": ["order-0"], "amount": [1.0]})
            self.deltalake.write_deltalake(str(home / "one"), self.row)
        if "refresh" in shared.tasks:
            self.grown = shutil.copytree(str(shared.place("checkpoint")), home / "grown")
            self.refreshed = self.deltalake.DeltaTable(str(self.grown))
        if "list_partition" in shared.tasks:
            self.listed = self._open("checkpoint")

    def tasks(self) -> dict[str, Task]:
        return {
            **feeds.deltalake(self.deltalake, self.shared),
            **wide.deltalake(self.deltalake, self.shared.place),
            **changes.tasks(
                writers.DeltalakeWriter(self.deltalake, self.home, self.shared), self.shared, changes.WITHOUT_SPARK
            ),
            **(self.arrow_writer.tasks() if self.arrow_writer else {}),
            "one_row_append": self._one,
            "one_row_appends": self._appends,
            "first_query": lambda: queries.first_query("deltalake", self.home, self.shared, with_spark=False),
            "cold_snapshot": lambda: {"version": self._open("cold").version()},
            "long_log_snapshot": lambda: {"version": self._open("long_log").version()},
            "snapshot_checkpoint": lambda: self._measured("checkpoint"),
            "snapshot_json": lambda: self._measured("json"),
            "refresh": self._refresh,
            "list_partition": lambda: {
                "files": len(self.listed.file_uris(partition_filters=[("day", "=", PARTITION)]))
            },
            "arrow_scan": lambda: self._arrow(),
            "arrow_query": lambda: self._arrow(filters=[("region", "=", 3), ("amount", ">", 90000.0)]),
        }

    def _open(self, name: str) -> Any:
        return self.deltalake.DeltaTable(str(self.shared.place(name)))

    def _one(self) -> None:
        self.deltalake.write_deltalake(str(self.home / "one"), self.row, mode="append")

    def _appends(self) -> dict[str, Any]:
        name = f"appends-{uuid.uuid4()}"
        names = [name] * commits.APPENDERS
        self.deltalake.DeltaTable.create(str(self.home / name), schema=commits.SCHEMA)
        figures = commits.run_writers(commits.append_row_with_deltalake, "", str(self.home), names, commits.ROWS_EACH)
        present = self.deltalake.DeltaTable(str(self.home / name)).to_pyarrow_table().num_rows
        return {**figures, "answer": commits.check_present(present, commits.APPENDERS * (commits.ROWS_EACH + 1))}

    def _measured(self, name: str) -> dict[str, Any]:
        before = resident_bytes()
        table = self._open(name)
        return {"version": table.version(), "resident": beyond_text(before, self.shared.files)}

    def _refresh(self) -> dict[str, Any]:
        tables.append_commit(self.grown, self.refreshed.version() + 1)
        self.refreshed.update_incremental()
        return {"version": self.refreshed.version()}

    def _arrow(self, **query: Any) -> dict[str, Any]:
        return {"answer": self._open("rows").to_pyarrow_table(columns=SCANNED, **query).num_rows}

    def close(self) -> None:
        return None


ENGINES: dict[str, Callable[[], Engine]] = {
    "spark": PlainSpark,
    "ours": Ours,
    "ours-postgres": commits.Postgres,
    "ours-postgres-far": commits.DistantPostgres,
    "delta-spark": DeltaSpark,
    "deltalake": Deltalake,
}


def scan(frame: Any) -> None:
    """Read three columns of every row and return one row."""
    frame.selectExpr("sum(amount)", "max(at)", "count(label)").collect()


def resident_bytes() -> int:
    """Memory of this process in bytes, without the JVM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def beyond_text(before: int, files: int) -> float:
    """Growth of this process since ``before`` in bytes per file, without the text of paths and statistics."""
    return (resident_bytes() - before) / files - tables.text_bytes()


def _range_condition(files: int) -> str:
    """A hundredth of the files, from the middle of the table."""
    first = files // 2 * tables.ROWS_PER_FILE
    return f"id >= {first} and id < {first + max(1, files // 100) * tables.ROWS_PER_FILE}"
