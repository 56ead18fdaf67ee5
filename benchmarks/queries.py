"""Queries that need few of many files: late filters, planning, a join with dynamic pruning, and the first query of a process.

``few`` and ``many`` are tables of small files, each with its own range of ids (``Shared.small_files``, and a hundredth of them).
A query returns the number of its rows, which has to be the same for all engines.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.frames import frame_memory
from benchmarks.row_tables import SMALL_FILE_ROWS, SMALL_SCHEMA, logged_adds
from benchmarks.shared import Shared
from cm_delta_dagster import connect
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.local_store import local_path

TABLES = ("few", "many")
FILTERS = tuple(f"{kind}_filter_{name}" for kind in ("late", "early") for name in TABLES)
PLANS = tuple(f"plan_{name}" for name in TABLES)
SPARK_TASKS = (*FILTERS, *PLANS, "plan_cold", "join_pruning", "frame_memory")
FIRST_QUERIES = ("first_query", "first_query_spark")
TASKS = (*SPARK_TASKS, *FIRST_QUERIES)

Read = Callable[[str, str | None], Any]
"""A DataFrame of a table, with a condition that the engine knows before Spark does, or without."""
Task = Callable[[], dict[str, Any]]
_SPARK_DDL = "id BIGINT, amount DOUBLE, label STRING"


def condition(shared: Shared, name: str) -> str:
    """A condition that is true for the rows of one file, from the middle of the table."""
    first = small_count(shared, name) // 2 * SMALL_FILE_ROWS
    return f"id >= {first} AND id < {first + SMALL_FILE_ROWS}"


def small_count(shared: Shared, name: str) -> int:
    """The number of files of ``few`` or ``many``."""
    return shared.small_files if name == "many" else max(1, shared.small_files // 100)


def is_wanted(shared: Shared, *tasks: str) -> bool:
    """Whether the run has one of ``tasks``, or of all tasks of this module."""
    return bool(set(tasks or TASKS).intersection(shared.tasks))


def spark_tasks(
    engine: str, home: Path, shared: Shared, read: Read, forget: Callable[[], None] = lambda: None
) -> dict[str, Task]:
    """The tasks of an engine that reads with Spark.

    Args:
        forget: drops what the engine holds of the log, so that the next read is cold.
    """

    def plan_cold() -> dict[str, Any]:
        forget()
        return plan(read("many", None))

    tasks: dict[str, Task] = {
        "plan_cold": plan_cold,
        "join_pruning": lambda: join(read("rows", None)),
        "first_query_spark": lambda: first_query(engine, home, shared, with_spark=True),
    }
    for name in TABLES:
        where = condition(shared, name)
        tasks[f"late_filter_{name}"] = lambda name=name, where=where: count(read(name, None).where(where))
        tasks[f"plan_{name}"] = lambda name=name: plan(read(name, None))
        if engine == "ours":
            tasks[f"early_filter_{name}"] = lambda name=name, where=where: count(read(name, where))
    return {task: run for task, run in tasks.items() if task in shared.tasks}


def count(frame: Any) -> dict[str, Any]:
    """Read two columns of each row."""
    (row,) = frame.selectExpr("count(amount)", "max(label)").collect()
    return {"answer": row[0]}


def plan(frame: Any) -> dict[str, Any]:
    """Plan a scan of all files, up to the split of the files into tasks, without reading a row."""
    return {"answer": frame._jdf.queryExecution().toRdd().getNumPartitions() > 0}


def join(frame: Any) -> dict[str, Any]:
    """Join with a small table of which one row is left, whose key is the partition column."""
    regions = frame.sparkSession.range(8).selectExpr("cast(id AS INT) AS region", "concat('region-', id) AS name")
    return count(frame.join(regions.where("name = 'region-3'"), "region"))


def adopt(lake: Any, shared: Shared, name: str, target: str = "") -> Any:
    """Create ``main.bench.<target>``, by default of the same name, with the files of the shared table, without Spark."""
    table = lake.create_table(f"main.bench.{target or name}", schema=SMALL_SCHEMA)
    root, place = Path(local_path(table.location)), shared.place(name)
    for folder in sorted({path.parent.relative_to(place) for path in place.rglob("*.parquet")}):
        (root / folder).mkdir(parents=True, exist_ok=True)
    adds = []
    for add in logged_adds(place):
        os.link(place / str(add["path"]), root / str(add["path"]))
        path, size, stats = str(add["path"]), int(str(add["size"])), str(add["stats"])
        adds.append(AddFile(path=path, partition_values={}, size=size, modification_time=1, stats=stats))
    transaction = table.table.start_transaction(table.table.snapshot(), operation="WRITE")
    transaction.add_files(adds)
    transaction.commit()
    return table


class OursQueries:
    """The tasks of this package: the tables of small files are in a SQLite catalog, ``rows`` is read by its path."""

    def __init__(self, home: Path, shared: Shared, session: Any) -> None:
        self._home, self._shared, self._session = home, shared, session
        self._lake = connect(f"sqlite:///{home}/queries.db", warehouse=f"file://{home}/queries", spark=session)
        for name in TABLES:
            if shared.place(name).exists():
                adopt(self._lake, shared, name)
        self._framed = adopt(self._lake, shared, "many", "framed") if is_wanted(shared, "frame_memory") else None

    def tasks(self) -> dict[str, Task]:
        return {
            **spark_tasks("ours", self._home, self._shared, self._read, self._forget),
            "first_query": lambda: first_query("ours", self._home, self._shared, with_spark=False),
            "frame_memory": self._frame_memory,
        }

    def _read(self, name: str, where: str | None) -> Any:
        if name == "rows":
            return self._lake.path_table(str(self._shared.place(name))).to_df(where=where)
        return self._lake.table(f"main.bench.{name}").to_df(where=where)

    def _frame_memory(self) -> dict[str, Any]:
        where = condition(self._shared, "many")
        return frame_memory(self._framed, self._session, self._shared, where=where, plan=plan, read=count)

    def _forget(self) -> None:
        self._lake.client.forget(self._lake.table("main.bench.many").table.table_id)

    def close(self) -> None:
        self._lake.close()


def plain_read(session: Any, shared: Shared, name: str, where: str | None) -> Any:
    """The files as plain Spark reads them: the directory, without a log."""
    if name == "rows":
        return session.read.parquet(str(shared.place(name)))
    frame = session.read.option("recursiveFileLookup", "true").schema(_SPARK_DDL).parquet(str(shared.place(name)))
    return frame if where is None else frame.where(where)


def first_query(engine: str, home: Path, shared: Shared, *, with_spark: bool) -> dict[str, Any]:
    """Start a Python process that imports the engine, opens ``few`` and runs a query of one file."""
    arguments = [sys.executable, "-m", "benchmarks.first_query", engine, str(home), str(shared.place("few"))]
    arguments += [condition(shared, "few"), "spark" if with_spark else "", ",".join(shared.jars)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"The first query of {engine} failed: {done.stderr[-2000:]}")
    return {"answer": json.loads(done.stdout.splitlines()[-1])}
