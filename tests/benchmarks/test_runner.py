"""The benchmark runner on tables of a few files: it runs, and prints ratios. What they are is not asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import arrow_writes, report
from benchmarks.__main__ import in_turns
from benchmarks.bars import Verdict, bars, judge
from benchmarks.plots import curve_plot, ratio_plot
from tests.support.spark_jars import s3_jars

_WITHOUT_SPARK = (
    "snapshot_checkpoint", "snapshot_json", "cold_snapshot", "refresh", "list_partition", "list_range", "arrow_scan",
    "arrow_query", "arrow_deleted", *arrow_writes.TASKS,
)  # fmt: skip
_ROOT = Path(__file__).parents[2]


def _run(home: Path, tasks: tuple[str, ...], engines: tuple[str, ...], extra: tuple[str, ...] = ()) -> list[list[str]]:
    """The cells of each row of figures. The report is in ``report`` beside ``home``."""
    command = [
        sys.executable, "-m", "benchmarks", "--rows", "4000", "--files", "400", "--repetitions", "2", "--home", str(home),
        "--small-files", "100", "--report", str(home.parent / "report"),
        "--engines", *engines, "--tasks", *tasks, *extra,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    heading, line, *rows = [row.strip("|").split("|") for row in done.stdout.splitlines()]
    assert len(heading) == len(line) == 12
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.requirements("CACHE-4", "SKIP-1")
def test_the_runner_prints_ratios_to_deltalake_for_all_tasks_without_spark(tmp_path: Path) -> None:
    """Every such task runs in both engines that know it."""
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


@pytest.mark.requirements("CM-C1", "CM-C3", "LIST-2")
@pytest.mark.exhaustive
def test_the_runner_commits_beside_deltalake_and_every_commit_is_there(tmp_path: Path) -> None:
    """A run in which a commit is missing fails."""
    tasks = ("commit_staged", "commit_inline", "commit_put_if_absent", "refresh_cached", "one_row_appends")
    rows = _run(tmp_path / "home", tasks, ("ours", "deltalake"))
    assert {(row[0], row[1]) for row in rows} == {*((task, "ours") for task in tasks), ("one_row_appends", "deltalake")}
    assert all(float(row[3]) > 0 for row in rows)


@pytest.mark.requirements("CM-C1", "CM-C15")
@pytest.mark.exhaustive
@pytest.mark.postgres
def test_the_runner_commits_to_a_server_near_and_far(tmp_path: Path) -> None:
    """The way to the server is longer than any commit without it."""
    rows = _run(tmp_path / "home", ("commit_staged", "refresh_cached"), ("ours-postgres", "ours-postgres-far"))
    walls = {(row[0], row[1]): float(row[3]) for row in rows}
    assert len(walls) == 4
    assert all(walls[task, "ours-postgres-far"] > 0.01 for task in ("commit_staged", "refresh_cached"))


@pytest.mark.requirements("SKIP-1", "DV-1")
@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_runner_scans_the_same_files_with_plain_spark_and_with_ours(tmp_path: Path) -> None:
    rows = _run(tmp_path / "home", ("scan", "scan_partition", "scan_deleted", "one_row_append"), ("spark", "ours"))
    tasks = {(row[0], row[1]) for row in rows}
    assert tasks == {
        ("scan", "spark"), ("scan", "ours"), ("scan_partition", "spark"), ("scan_partition", "ours"),
        ("scan_deleted", "ours"), ("one_row_append", "spark"), ("one_row_append", "ours"),
    }  # fmt: skip


@pytest.mark.exhaustive
def test_the_runner_writes_to_and_reads_from_s3(tmp_path: Path) -> None:
    """Each file of the table in S3 is read."""
    tasks = ("s3_bulk_append", "s3_one_row_append", "s3_cold_read")
    extra = ("--s3-jars", str(s3_jars()[0].parent), "--s3-rows", "1000", "--s3-files", "20")
    rows = _run(tmp_path / "home", tasks, ("ours",), extra=extra)
    assert [(row[0], row[2]) for row in rows] == [(task, "2") for task in tasks]


@pytest.mark.requirements("SKIP-1")
@pytest.mark.exhaustive
def test_the_runner_filters_plans_and_joins_with_plain_spark_and_with_ours(tmp_path: Path) -> None:
    """The tables of small files have 1 and 100 files."""
    tasks = ("late_filter_many", "early_filter_many", "plan_cold", "join_pruning", "frame_memory")
    rows = _run(tmp_path / "home", tasks, ("spark", "ours"), ("--frames", "20"))
    only_ours = {"early_filter_many", "frame_memory"}
    wanted = {*((task, "ours") for task in tasks), *((task, "spark") for task in tasks if task not in only_ours)}
    assert {(row[0], row[1]) for row in rows} == wanted
    results = json.loads((tmp_path / "report" / "report.json").read_text())["results"]
    for task in ("late_filter_many", "join_pruning"):
        counts = {run["answer"] for runs in results[task].values() for run in runs}
        assert len(counts) == 1 and counts != {0}
    assert {run["answer"] for run in results["early_filter_many"]["ours"]} == {100}
    memory = results["frame_memory"]["ours"][0]
    assert memory["answer"] == [100] and memory["heap"] > 0 and memory["python"] > 0
    assert {"heap_growth", "python_growth"} <= set(memory)


@pytest.mark.requirements("DML-4", "OPT-5")
@pytest.mark.exhaustive
def test_the_runner_changes_rows_and_all_engines_end_with_the_same(tmp_path: Path) -> None:
    """By rewriting files and by deletion vectors; number of rows and sums are equal."""
    verbs = ("delete", "update", "merge", "merge_scattered", "merge_range")
    tasks = (
        *(f"{way}_{verb}" for verb in verbs for way in ("rewrite", "vector")),
        "optimize_small",
        "z_order",
        "cluster",
    )
    extra = ("one_row_update", "constraint_append", "feed_merge")
    rows = _run(tmp_path / "home", (*tasks, *extra), ("spark", "ours", "deltalake"))
    assert {row[0] for row in rows if row[1] == "ours"} == {*tasks, *extra}
    results = json.loads((tmp_path / "report" / "report.json").read_text())["results"]
    answers = {
        task: {tuple(run["answer"]) for runs in results[task].values() for run in runs}
        for task in (*tasks, "feed_merge")
    }
    assert all(len(each) == 1 for each in answers.values()), answers
    assert all(answers[f"vector_{verb}"] == answers[f"rewrite_{verb}"] for verb in verbs)


@pytest.mark.exhaustive
@pytest.mark.requirements("SKIP-1")
def test_the_report_has_every_bar_and_every_run(tmp_path: Path) -> None:
    """The first query of a process, without Spark; the page loads nothing."""
    rows = _run(tmp_path / "home", ("first_query", "list_partition"), ("ours", "deltalake"))
    assert [(row[0], row[1]) for row in rows] == [
        (task, engine) for task in ("first_query", "list_partition") for engine in ("ours", "deltalake")
    ]
    raw = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [run["answer"] for runs in raw["results"]["first_query"].values() for run in runs] == [100] * 4
    assert raw["environment"]["pyarrow"] and raw["options"]["small_files"] == 100
    page, text = ((tmp_path / "report" / f"report.{kind}").read_text() for kind in ("html", "md"))
    for bar in bars():
        assert bar.task in page and f"| {bar.task} |" in text
    assert page.count("<svg") == 1 and "http" not in page.partition("<script")[0]


def _times(**walls: float) -> dict[str, list[dict[str, float]]]:
    return {engine.replace("_", "-"): [{"wall": wall, "cpu": wall}] for engine, wall in walls.items()}


def test_a_bar_is_met_missed_or_not_judged() -> None:
    results = {
        "scan": _times(ours=1.0, delta_spark=2.0),
        "scan_deleted": _times(ours=1.4, delta_spark=2.0),
        "plan_many": _times(ours=0.2),
        "frame_memory": {"ours": [{"wall": 1.0, "cpu": 1.0, "heap_growth": 500.0, "python_growth": -1.0}]},
    }
    large = {"rows": 10_000_000, "small_files": 10_000, "files": 1, "s3_rows": 1, "s3_files": 1, "frames": 1000}
    verdicts = {
        (found.bar.task, found.bar.engine, found.bar.statistic): found.verdict for found in judge(results, large)
    }
    assert verdicts["scan", "delta-spark", "wall median"] is Verdict.MET
    assert verdicts["scan_deleted", "ours", "cpu min"] is Verdict.MISSED
    assert verdicts["plan_many", "seconds", "wall median"] is Verdict.TOO_SMALL
    assert verdicts["join_pruning", "delta-spark", "wall median"] is Verdict.NOT_RUN
    assert verdicts["frame_memory", "megabytes", "heap growth"] is Verdict.MISSED
    assert verdicts["frame_memory", "megabytes", "python growth"] is Verdict.MET
    small = {**large, "rows": 10, "frames": 10}
    assert all(found.verdict is not Verdict.MISSED for found in judge(results, small))
    run = report.Run(environment={}, options={}, results=results, judgements=judge(results, large), growth=())
    assert report.missed(run)[0] == "missed: scan_deleted, wall median: 1.4 times ours scan, at most 1.3"
    assert report.missed(run)[-1] == "missed: frame_memory, heap growth: 500 megabytes, at most 32"


def test_tasks_that_are_compared_run_in_turns() -> None:
    assert in_turns(("plan_many", "late_filter_few", "scan", "early_filter_few", "early_filter_many")) == [
        ("plan_many",), ("late_filter_few", "early_filter_few"), ("scan",), ("early_filter_many",),
    ]  # fmt: skip


def test_plots_show_each_engine_and_each_size() -> None:
    plot = curve_plot({"ours": [(100, 0.2), (10_000, 0.3)], "spark": [(100, 0.2), (10_000, 9.0)]}, x_label="files")
    assert plot.count("<polyline") == 2 and "10,000" in plot
    assert ratio_plot([("scan", [("delta-spark", 1.9), ("spark", 0.5)])]).count("<rect") == 2
    assert ratio_plot([]) == "" == curve_plot({}, x_label="files")
