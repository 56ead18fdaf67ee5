"""Assets of Arrow, polars, pandas and DuckDB on a machine without Java, and an IO manager without a resource of Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_WORKER = Path(__file__).with_name("without_java_worker.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("without-java")
    environment = {**os.environ, "JAVA_HOME": f"{directory}/none", "PATH": f"{directory}/none"}
    run = subprocess.run(
        [sys.executable, str(_WORKER), str(directory)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_assets_of_each_library_are_written_and_read_without_java(report: Any) -> None:
    assert report["rows"] == {
        "arrow": [{"id": 1}, {"id": 2}],
        "batches": [{"id": 1}, {"id": 2}],
        "frames": [{"id": 1, "double": 2}, {"id": 2, "double": 4}],
        "pandas": [{"total": 6}],
        "relation": [{"more": 7}],
        "read": [{"seen": 7}],
        "parts": report["rows"]["parts"],
    }
    assert not report["started_spark"]


def test_a_partition_replaces_its_own_rows_without_java(report: Any) -> None:
    assert sorted(row["day"] for row in report["rows"]["parts"]) == ["a", "b"]
    assert report["partition_rows"] == 1
    assert report["versions"]["parts"] == 2, "the first run creates the table with its rows"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("misplaced", "Write only rows that satisfy it, or widen the condition. The row has day = other."),
        (
            "merge",
            "These rows need Spark, because a merge compares them with the rows of the table, and no Spark session runs",
        ),
        (
            "input",
            "The input is a DataFrame of Spark, no Spark session runs, and the Delta IO manager has no resource of one",
        ),
    ],
)
def test_what_needs_spark_or_is_wrong_is_refused_with_its_reason(report: Any, case: str, message: str) -> None:
    assert message in report["errors"][case]
