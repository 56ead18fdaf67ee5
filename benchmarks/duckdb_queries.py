"""The queries of TPC-H by DuckDB: through a connection of ``lake.duckdb()``, and over the bare Parquet files of the same tables.

    pip install tpchgen-cli
    python -m benchmarks.duckdb_queries --scale 1 --rounds 5

One process, without Spark. Each round runs every query once each way, first the one and then the other in turns, so that both see
the same load of the machine. The first round warms up and is not counted; its answers are compared, and the run fails if they
differ. It prints the median wall time and the minimum CPU time of each way, and their ratios. The bound of the ratio is ``BOUND``.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.tpch_queries import QUERIES, TABLES
from cm_delta_dagster import Connection, connect

BOUND = 1.2
"""The time of a query through the catalog divided by its time over the bare files."""


@dataclass(slots=True)
class Seconds:
    """Wall time and CPU time of each counted run of a query."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(slots=True)
class QueryTimes:
    """The times of one query through the catalog and over the bare files."""

    catalog: Seconds = field(default_factory=Seconds)
    bare: Seconds = field(default_factory=Seconds)

    @property
    def ratio(self) -> float:
        """By the median wall time."""
        return statistics.median(self.catalog.wall) / statistics.median(self.bare.wall)

    @property
    def cpu_ratio(self) -> float:
        """By the minimum CPU time."""
        return min(self.catalog.cpu) / min(self.bare.cpu)


def generate(folder: Path, *, scale: float, files: int) -> None:
    """Write the tables by ``tpchgen-cli``, each in a folder of its name, the large ones in ``files`` files."""
    program = shutil.which("tpchgen-cli") or str(Path(sysconfig.get_path("scripts")) / "tpchgen-cli")
    if not Path(program).exists():
        sys.exit("tpchgen-cli is not installed. Run `pip install tpchgen-cli`, or give --data.")
    command = [program, "parquet", "--scale-factor", f"{scale:g}", "--output-dir", str(folder), "--parts", str(files)]
    subprocess.run([*command, "--no-progress", "--field-ids", "false"], check=True, stdout=subprocess.DEVNULL)


def adopt(lake: Connection, data: Path, tables: Path) -> None:
    """Make tables ``main.tpch.<name>`` of copies of the folders of ``data``."""
    for name in TABLES:
        shutil.copytree(data / name, tables / name)
        lake.onboarding.adopt(str(tables / name), f"main.tpch.{name}")


def measure(lake: Connection, data: Path, *, rounds: int, numbers: Sequence[int]) -> Mapping[int, QueryTimes]:
    """The times of the queries with these numbers. Raises AssertionError if two answers differ."""
    catalog = {name: f"main.tpch.{name}" for name in TABLES}
    bare = {name: f"read_parquet('{data / name}/*.parquet')" for name in TABLES}
    times = {number: QueryTimes() for number in numbers}
    with lake.duckdb() as through, duckdb.connect() as direct:
        for turn in range(rounds + 1):
            for number in numbers:
                ways = [(times[number].catalog, through, catalog), (times[number].bare, direct, bare)]
                answers = []
                for seconds, connection, names in ways if turn % 2 else reversed(ways):
                    wall, cpu, answer = _timed(connection, QUERIES[number].format_map(names))
                    answers.append(answer)
                    if turn:
                        seconds.wall.append(wall)
                        seconds.cpu.append(cpu)
                assert turn or _equal(*answers), f"the answers of query {number} differ"
    return times


def _timed(connection: Any, text: str) -> tuple[float, float, list[tuple[Any, ...]]]:
    wall, cpu = time.perf_counter(), time.process_time()
    answer = connection.execute(text).fetchall()
    return time.perf_counter() - wall, time.process_time() - cpu, answer


def _equal(first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]) -> bool:
    """Whether the rows are equal, floats within a rounding: the order in which DuckDB adds them is not fixed."""
    return len(first) == len(second) and all(
        left == right or (isinstance(left, float) and abs(left - right) <= 1e-9 * max(abs(left), abs(right)))
        for pair in zip(first, second, strict=True)
        for left, right in zip(*pair, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.duckdb_queries", description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--files", type=int, default=4, help="files of each of the large tables")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--queries", type=int, nargs="*", default=list(QUERIES), choices=list(QUERIES), metavar="NUMBER"
    )
    parser.add_argument(
        "--data", type=Path, help="folder with a folder of Parquet files for each table; generated by default"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        data = options.data or Path(home) / "data"
        if options.data is None:
            generate(data, scale=options.scale, files=options.files)
        with connect(f"sqlite:///{home}/catalog.db", warehouse=f"{home}/warehouse") as lake:
            adopt(lake, data, Path(home) / "tables")
            times = measure(lake, data, rounds=options.rounds, numbers=options.queries)
    print("query | catalog: median wall / min CPU ms | bare | ratio of median wall / of min CPU")
    for number, of_query in times.items():
        shown = [
            f"{statistics.median(seconds.wall) * 1000:.1f} / {min(seconds.cpu) * 1000:.1f}"
            for seconds in (of_query.catalog, of_query.bare)
        ]
        print(f"{number} | {' | '.join(shown)} | {of_query.ratio:.2f} / {of_query.cpu_ratio:.2f}")
    above = [number for number, of_query in times.items() if of_query.ratio > BOUND]
    wall, cpu = (
        sum(sum(getattr(item.catalog, clock)) for item in times.values())
        / sum(sum(getattr(item.bare, clock)) for item in times.values())
        for clock in ("wall", "cpu")
    )
    print(
        f"all queries: {wall:.2f} / {cpu:.2f}; bound {BOUND} by wall time; above it: {', '.join(map(str, above)) or 'none'}"
    )


if __name__ == "__main__":
    main()
