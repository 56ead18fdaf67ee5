"""The runner: every engine in its own process, one task after the other in turn, ratios of minimum and median at the end.

Prints a table, and writes the report with the bars that the run met and missed.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import changes, object_store, queries, report, wide
from benchmarks.bars import REFERENCE, judge
from benchmarks.s3_server import S3Process, create_bucket
from benchmarks.shared import Shared

REPETITIONS = {
    "bulk_append": 5,
    "bulk_append_partitioned": 5,
    "one_row_append": 40,
    "scan": 10,
    "scan_partition": 10,
    "scan_deleted": 10,
    "scan_half_deleted": 5,
    "scan_many_vectors": 5,
    "scan_large_vector": 5,
    "changes_spark": 10,
    "changes_arrow": 20,
    "history": 10,
    "long_log_history": 5,
    "long_log_snapshot": 3,
    "arrow_scan": 10,
    "arrow_query": 10,
    "arrow_deleted": 5,
    "arrow_append": 7,
    "arrow_append_partitioned": 7,
    "arrow_append_one_row": 60,
    "arrow_first_row": 5,
    "cold_snapshot": 5,
    "snapshot_checkpoint": 5,
    "snapshot_json": 5,
    "refresh": 20,
    "list_partition": 10,
    "list_range": 10,
    "commit_staged": 200,
    "commit_ruled": 200,
    "commit_inline": 200,
    "commit_put_if_absent": 200,
    "commit_granted": 200,
    "commit_four_tables": 200,
    "sensor_tick": 50,
    "sensor_tick_commits": 30,
    "refresh_cached": 200,
    "one_writer": 3,
    "two_writers_one_table": 3,
    "writers_one_table": 3,
    "writers_eight_tables": 3,
    "one_row_appends": 3,
    "s3_bulk_append": 5,
    "s3_one_row_append": 20,
    "s3_cold_read": 3,
    **dict.fromkeys(queries.FILTERS, 40),
    **dict.fromkeys(queries.PLANS, 10),
    "plan_cold": 5,
    "join_pruning": 10,
    **dict.fromkeys(changes.TASKS, 5),
    **dict.fromkeys(wide.TASKS, 10),
    "one_row_update": 40,
    "one_row_delete": 40,
    "first_query": 5,
    "first_query_spark": 3,
    "frame_memory": 1,
}
WARM_UP = {
    "arrow_append_one_row": 10, "one_row_append": 8,
    "one_row_update": 8, "one_row_delete": 8, "s3_one_row_append": 5, "scan": 2, "scan_partition": 2,
    "scan_deleted": 2, "snapshot_checkpoint": 0,
    "commit_staged": 20, "commit_ruled": 20, "commit_inline": 20, "commit_put_if_absent": 20, "commit_granted": 20,
    "commit_four_tables": 20,
    "sensor_tick": 5, "sensor_tick_commits": 3,
    "refresh_cached": 20, "one_writer": 0,
    "two_writers_one_table": 0, "writers_one_table": 0,
    **dict.fromkeys(queries.FILTERS, 20),
    "plan_cold": 0, "frame_memory": 0, "first_query_spark": 0, "writers_eight_tables": 0, "one_row_appends": 0,
}  # fmt: skip
HEADINGS = (
    "task", "engine", "runs", "wall min s", "x ours", "wall median s", "x ours", "cpu min s", "x ours", "p95 / median",
    "Spark jobs", "bytes a file",
)  # fmt: skip
SIZES = ("rows", "files", "small_files", "s3_rows", "s3_files", "frames")
TOGETHER = (("late_filter_few", "early_filter_few"), ("late_filter_many", "early_filter_many"))
"""Tasks that are compared with each other. They run in turns, so that none gains from code that the JVM compiled for another."""
ENGINES = ["spark", "ours", "ours-postgres", "ours-postgres-far", "delta-spark", "deltalake"]


class Worker:
    """A running engine."""

    def __init__(self, engine: str, home: Path, shared: Path, log: Path) -> None:
        self.engine = engine
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", engine, str(home), str(shared)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self.tasks: list[str] = self._answer()

    def _answer(self) -> list[str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The {self.engine} worker ended early; see {self._log.name}")
        return json.loads(line)

    def run(self, task: str) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        return dict(self._answer())

    def stop(self) -> None:
        self._process.communicate("\n")
        self._log.close()


def percentile(values: list[float], share: float) -> float:
    """Nearest-rank percentile."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def rows_of_report(task: str, results: dict[str, list[dict[str, float]]]) -> list[str]:
    """Markdown rows: each engine's figures and its ratios to ours (above 1: slower than ours)."""
    ours = results.get(REFERENCE)
    rows = []
    for engine, runs in results.items():
        cells = [task, engine, str(len(runs))]
        for figure, pick in (("wall", min), ("wall", statistics.median), ("cpu", min)):
            mine = pick([run[figure] for run in runs])
            base = pick([run[figure] for run in ours]) if ours else math.nan
            cells.append(f"{mine:.4f}" if mine < 0.1 else f"{mine:.3f}")
            cells.append(f"{mine / base:.2f}" if base else "-")
        wall = [run["wall"] for run in runs]
        resident = [run["resident"] for run in runs if "resident" in run]
        cells.append(f"{percentile(wall, 0.95) / statistics.median(wall):.2f}")
        cells.append(str(int(max(run.get("spark_jobs", 0) for run in runs))))
        # Of the first load: later ones reuse what the process holds already.
        cells.append(f"{resident[0]:.0f}" if resident else "-")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def arguments_of_command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the bulk append and of the scans")
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the snapshots; a tenth for the cold one")
    parser.add_argument("--engines", nargs="*", default=ENGINES)
    parser.add_argument("--tasks", nargs="*", default=list(REPETITIONS), choices=list(REPETITIONS))
    parser.add_argument("--repetitions", type=int, help="of each task; by default as many as it takes to be sure")
    parser.add_argument(
        "--jars", nargs="*", default=[], help="delta-spark's jars; without them that engine is left out"
    )
    parser.add_argument(
        "--s3-jars", type=Path, help="folder of `cm-delta spark-jars`; without it tasks on S3 are left out"
    )
    parser.add_argument("--s3-rows", type=int, default=1_000_000, help="rows of the bulk append to S3")
    parser.add_argument("--s3-files", type=int, default=1_000, help="files of the table in S3")
    parser.add_argument(
        "--small-files", type=int, default=10_000, help="files of the table of small files; a hundredth of a second one"
    )
    parser.add_argument("--frames", type=int, default=1_000, help="DataFrames of the measurement of memory")
    parser.add_argument("--report", type=Path, default=Path("benchmark-report"), help="folder of the report")
    parser.add_argument("--strict", action="store_true", help="end with exit code 1 if a bar is missed")
    parser.add_argument("--home", type=Path, help="folder for tables and logs; a temporary one by default")
    return parser.parse_args()


def main() -> None:
    arguments = arguments_of_command_line()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="cm-delta-bench-"))
    tasks = tuple(task for task in arguments.tasks if arguments.s3_jars or task not in object_store.TASKS)
    server = S3Process() if set(tasks).intersection(object_store.TASKS) else None
    shared = Shared(
        home=home / "shared", rows=arguments.rows, files=arguments.files, tasks=tasks, jars=tuple(arguments.jars),
        s3_jars=object_store.jars(arguments.s3_jars), s3_endpoint=server.endpoint if server else "",
        s3_rows=arguments.s3_rows, s3_files=arguments.s3_files, small_files=arguments.small_files,
        frames=arguments.frames,
    )  # fmt: skip
    environment = report.environment()
    try:
        results = run(arguments, shared, home)
    finally:
        if server is not None:
            server.close()
    if arguments.home is None:
        shutil.rmtree(home)
    sizes = {name: getattr(arguments, name) for name in SIZES}
    found = report.Run(
        environment=environment, options={**sizes, "engines": arguments.engines, "repetitions": arguments.repetitions},
        results=results, judgements=judge(results, sizes), growth=growth(shared),
    )  # fmt: skip
    report.write(found, arguments.report)
    missed = report.missed(found)
    print(*missed, f"The report is in {arguments.report}/report.html.", sep="\n", file=sys.stderr)
    if missed and arguments.strict:
        raise SystemExit(1)


def growth(shared: Shared) -> list[report.Growth]:
    """The tasks that do the same at several sizes."""
    few, many = (queries.small_count(shared, name) for name in queries.TABLES)
    filters = {
        line: [(few, f"{kind}_filter_few"), (many, f"{kind}_filter_many")]
        for line, kind in (("", "late"), ("where=", "early"))
    }
    writers = [(1, "one_writer"), (2, "two_writers_one_table"), (8, "writers_one_table")]
    return [
        report.Growth(title="The rows of one file of a table, by the files of the table", axis="files", lines=filters),
        report.Growth(
            title="Planning a scan of all files", axis="files", lines={"": [(few, "plan_few"), (many, "plan_many")]}
        ),
        report.Growth(title="480 commits to one table, by the number of writers", axis="writers", lines={"": writers}),
    ]


def in_turns(tasks: Sequence[str]) -> list[tuple[str, ...]]:
    """The tasks in their order, those of ``TOGETHER`` as one group at the place of the first of them."""
    groups = []
    for task in tasks:
        found = next((group for group in TOGETHER if task in group), (task,))
        group = tuple(other for other in found if other in tasks)
        if group not in groups:
            groups.append(group)
    return groups


def run(arguments: argparse.Namespace, shared: Shared, home: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Make the tables, start a process for each engine, and print the figures of each task. Returns the runs of each engine."""
    shared.home.mkdir(parents=True, exist_ok=True)
    print("making tables ...", file=sys.stderr)
    shared.make()
    if object_store.is_wanted(shared):
        create_bucket(shared.s3_endpoint, object_store.BUCKET)
        object_store.make_table(shared)
    description = home / "shared.json"
    shared.save(description)
    workers = []
    for engine in arguments.engines:
        if engine == "delta-spark" and not arguments.jars:
            print("delta-spark is left out: give its jars with --jars", file=sys.stderr)
            continue
        place = home / engine
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"preparing {engine} ...", file=sys.stderr)
        workers.append(Worker(engine, place, description, home / f"{engine}.log"))
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {}
    print(f"| {' | '.join(HEADINGS)} |")
    print("|---" * len(HEADINGS) + "|")
    for group in in_turns(shared.tasks):
        able = [(task, worker) for task in group for worker in workers if task in worker.tasks]
        measured.update((task, {worker.engine: [] for of, worker in able if of == task}) for task in group)
        for turn in range(-WARM_UP.get(group[0], 1), arguments.repetitions or REPETITIONS[group[0]]):
            for task, worker in able:
                figures = worker.run(task)
                if turn >= 0:
                    measured[task][worker.engine].append(figures)
        for task in group:
            print("\n".join(rows_of_report(task, measured[task])), flush=True)
    for worker in workers:
        worker.stop()
    return measured


if __name__ == "__main__":
    main()
