"""The benchmark runner on tables of a few files: it runs, and prints ratios. What they are is not asserted."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

_WITHOUT_SPARK = (
    "snapshot_checkpoint", "snapshot_json", "cold_snapshot", "refresh", "list_partition", "list_range", "arrow_scan",
    "arrow_query", "arrow_deleted",
)  # fmt: skip
_ROOT = Path(__file__).parents[2]


def _run(home: Path, tasks: tuple[str, ...], engines: tuple[str, ...], extra: tuple[str, ...] = ()) -> list[list[str]]:
    """The cells of each row of figures."""
    command = [
        sys.executable, "-m", "benchmarks", "--rows", "4000", "--files", "400", "--repetitions", "2", "--home", str(home),
        "--engines", *engines, "--tasks", *tasks, *extra,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    heading, line, *rows = [row.strip("|").split("|") for row in done.stdout.splitlines()]
    assert len(heading) == len(line) == 12
    return [[cell.strip() for cell in row] for row in rows]


def test_the_runner_prints_ratios_to_deltalake_for_all_tasks_without_spark(tmp_path: Path) -> None:
    """CACHE-4, SKIP-1: every such task runs in both engines that know it."""
    rows = _run(tmp_path / "home", _WITHOUT_SPARK, ("ours", "deltalake"))
    found = {(row[0], row[1]): row for row in rows}
    assert {task for task, engine in found if engine == "ours"} == set(_WITHOUT_SPARK)
    assert {task for task, engine in found if engine == "deltalake"} == set(_WITHOUT_SPARK) - {
        "list_range",
        "arrow_deleted",
    }
    for row in rows:
        assert len(row) == 12 and row[2] == "2"
        assert float(row[3]) >= 0 and float(row[4]) > 0
    assert found["snapshot_checkpoint", "ours"][4] == "1.00"


def test_the_runner_commits_beside_deltalake_and_every_commit_is_there(tmp_path: Path) -> None:
    """CM-C1, CM-C3, LIST-2: a run in which a commit is missing fails."""
    tasks = ("commit_staged", "commit_inline", "commit_put_if_absent", "refresh_cached", "one_row_appends")
    rows = _run(tmp_path / "home", tasks, ("ours", "deltalake"))
    assert {(row[0], row[1]) for row in rows} == {*((task, "ours") for task in tasks), ("one_row_appends", "deltalake")}
    assert all(float(row[3]) > 0 for row in rows)


@pytest.mark.postgres
def test_the_runner_commits_to_a_server_near_and_far(tmp_path: Path) -> None:
    """CM-C1, CM-C15: the way to the server is longer than any commit without it."""
    rows = _run(tmp_path / "home", ("commit_staged", "refresh_cached"), ("ours-postgres", "ours-postgres-far"))
    walls = {(row[0], row[1]): float(row[3]) for row in rows}
    assert len(walls) == 4
    assert all(walls[task, "ours-postgres-far"] > 0.01 for task in ("commit_staged", "refresh_cached"))


@pytest.mark.slow
def test_the_runner_scans_the_same_files_with_plain_spark_and_with_ours(tmp_path: Path) -> None:
    """SKIP-1, DV-1."""
    rows = _run(tmp_path / "home", ("scan", "scan_partition", "scan_deleted", "one_row_append"), ("spark", "ours"))
    tasks = {(row[0], row[1]) for row in rows}
    assert tasks == {
        ("scan", "spark"), ("scan", "ours"), ("scan_partition", "spark"), ("scan_partition", "ours"),
        ("scan_deleted", "ours"), ("one_row_append", "spark"), ("one_row_append", "ours"),
    }  # fmt: skip


@pytest.mark.slow
def test_the_runner_writes_to_and_reads_from_s3(tmp_path: Path) -> None:
    """Each file of the table in S3 is read."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cm-delta-dagster"
    jars = cache / f"s3-spark-{metadata.version('pyspark')}"
    if not (jars / "complete").exists():
        pytest.skip("The jars of Spark's S3 client are not there; tests/spark/test_s3.py fetches them.")
    tasks = ("s3_bulk_append", "s3_one_row_append", "s3_cold_read")
    extra = ("--s3-jars", str(jars), "--s3-rows", "1000", "--s3-files", "20")
    rows = _run(tmp_path / "home", tasks, ("ours",), extra=extra)
    assert [(row[0], row[2]) for row in rows] == [(task, "2") for task in tasks]
