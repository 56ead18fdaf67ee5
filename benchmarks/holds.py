"""Held commits beside plain ones: to hold, to ratify and to read one, and what 1,000 open holds cost the others.

    python -m benchmarks.holds --catalog postgres --rounds 200

One process, without Spark. Each round runs every task once, in changing order, so that all see the same load of the machine. It
prints median wall time / minimum wall time / minimum CPU time of each task, and the ratios of the first and of the last to other
tasks. ``hold`` and ``commit`` are prepared actions with a data file of ``--rows`` rows that is written in the same time. The tables
of ``busy`` and ``quiet`` are equal; that of ``busy`` has ``--open`` holds, made on ``--versions`` versions, and ``quiet`` as many
that were discarded, so that a listing of their files costs the same.
"""

import argparse
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.catalog_server import database_of
from cm_delta_dagster import Connection, connect
from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.local_store import local_path

SCHEMA = pa.schema([("id", pa.int64()), ("label", pa.string())])
RATIOS = (
    ("hold", "commit", 1.1),
    ("read hold", "read table", 1.05),
    ("commit beside open holds", "commit beside none", 1.05),
    ("vacuum plan beside open holds", "vacuum plan beside none", 1.05),
)
"""Task, the task to compare it with, and the bound."""

_WARM_UP = 3
RATIFY_MS: Mapping[str, float] = {"sqlite": 5.0, "postgres": 10.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured: rows of a data file, files of the tables, open holds and the versions that they were made on."""

    rows: int
    files: int
    open_holds: int
    versions: int


@dataclass(slots=True)
class HoldBench:
    """The tables and the tasks over them."""

    lake: Connection
    size: Size
    read_hold: str = ""
    newest: str = ""
    tables: dict[str, Table] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the tables, and the holds that stay open."""
        for name in ("plain", "held", "read", "quiet", "busy"):
            self.lake.create_table(f"main.bench.{name}", schema=SCHEMA)
            self.tables[name] = self.lake.client.table(f"main.bench.{name}")
        for name in ("read", "quiet", "busy"):
            transaction = self._transaction(name)
            transaction.add_files([self._file(name) for _ in range(self.size.files)])
            transaction.commit()
        self.read_hold = self._hold("read")
        each = self.size.open_holds // self.size.versions
        for _ in range(self.size.versions):
            for name in ("quiet", "busy"):
                self._append(name)
            for _ in range(each):
                self._hold("busy")
                discarded = self._hold("quiet")
                self.lake.client.holds.discard_hold(discarded, reason="the files alone stay")

    def tasks(self) -> dict[str, Callable[[], None]]:
        """The tasks by name; ``ratify`` needs the hold of ``hold`` before it."""
        return {
            "commit": lambda: self._append("plain"),
            "hold": self._hold_next,
            "read table": lambda: _rows(self.lake.table("main.bench.read").scan().to_arrow()),
            "read hold": lambda: _rows(self.lake.rules.hold(self.read_hold).scan().to_arrow()),
            "commit beside none": lambda: self._append("quiet"),
            "commit beside open holds": lambda: self._append("busy"),
            "vacuum plan beside none": lambda: _none(plan_vacuum(self.tables["quiet"]).num_files),
            "vacuum plan beside open holds": lambda: _none(plan_vacuum(self.tables["busy"]).num_files),
        }

    def ratification(self) -> Callable[[], object]:
        """The ratification of the hold of the task ``hold``."""
        return self.lake.rules.hold(self.newest).ratify

    def _hold_next(self) -> None:
        self.newest = self._hold("held")

    def _append(self, name: str) -> None:
        transaction = self._transaction(name)
        transaction.add_files([self._file(name)])
        transaction.commit()

    def _hold(self, name: str) -> str:
        transaction = self._transaction(name)
        transaction.add_files([self._file(name)])
        part = TableCommit(committer=self.tables[name].committer, transaction=transaction)
        client = self.lake.client
        together = MultiTableCommit([part], coordinator=client.coordinator, settings=client.settings)
        return together.hold(duration_ms=HOLD_DURATION_MS).hold_id

    def _transaction(self, name: str) -> Transaction:
        table = self.tables[name]
        return table.start_transaction(table.snapshot(), operation="WRITE")

    def _file(self, name: str) -> AddFile:
        place = Path(local_path(self.tables[name].location)) / f"{uuid.uuid4()}.parquet"
        numbers = range(self.size.rows)
        pq.write_table(pa.table({"id": list(numbers), "label": ["x"] * len(numbers)}, schema=SCHEMA), place)
        return AddFile(
            path=place.name,
            partition_values={},
            size=place.stat().st_size,
            modification_time=time.time_ns() // 1_000_000,
            stats=f'{{"numRecords":{len(numbers)}}}',
        )


def _rows(table: pa.Table) -> None:
    if not table.num_rows:
        raise RuntimeError("no row was read")


def _none(number: int) -> None:
    if number:
        raise RuntimeError(f"a vacuum would delete {number} files that are needed")


def measure(kind: str, rounds: int, size: Size, *, seed: int = 1) -> dict[str, str]:
    """Median wall time, minimum wall time and minimum CPU time in milliseconds; ratios of the first and the last, with bounds."""
    chance = random.Random(seed)
    times: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench")))
        url = stack.enter_context(database_of(kind, directory))
        bench = HoldBench(stack.enter_context(connect(url, warehouse=f"{directory}/warehouse")), size)
        bench.prepare()
        tasks = bench.tasks()
        for number in range(rounds + _WARM_UP):
            order = chance.sample(sorted(tasks), k=len(tasks))
            order.insert(order.index("hold") + 1, "ratify")
            for task in order:
                took = _timed(bench.ratification() if task == "ratify" else tasks[task])
                if number >= _WARM_UP:
                    times.setdefault(task, []).append(took)
    figures = {task: tuple(_figures(values)) for task, values in sorted(times.items())}
    shown = {f"{task} ms": " / ".join(f"{value:.2f}" for value in values) for task, values in figures.items()}
    for task, base, bound in RATIOS:
        wall, cpu = (figures[task][place] / figures[base][place] for place in (0, 2))
        shown[f"{task} / {base}"] = f"{wall:.2f} / {cpu:.2f} (at most {bound})"
    shown["ratify, bound"] = f"{RATIFY_MS[kind]:g} ms"
    return shown


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000


def _figures(values: list[tuple[float, float]]) -> Iterator[float]:
    walls = [wall for wall, _ in values]
    yield from (statistics.median(walls), min(walls), min(cpu for _, cpu in values))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.holds", description=__doc__.partition("\n")[0])
    parser.add_argument("--catalog", choices=sorted(RATIFY_MS), default="sqlite")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--open", type=int, default=1000)
    parser.add_argument("--versions", type=int, default=20)
    arguments = parser.parse_args()
    size = Size(rows=arguments.rows, files=arguments.files, open_holds=arguments.open, versions=arguments.versions)
    for name, value in measure(arguments.catalog, arguments.rounds, size).items():
        print(f"{name:58} {value}")


if __name__ == "__main__":
    main()
