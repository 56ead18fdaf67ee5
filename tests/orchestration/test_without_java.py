"""Assets of Arrow, polars, pandas and DuckDB without Java, also where PySpark is not installed, and without a resource of Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.without_pyspark import environment_without_pyspark

_WORKER = Path(__file__).with_name("without_java_worker.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where PySpark is installed."""
    return _report(tmp_path_factory.mktemp("without-java"), [sys.executable], dict(os.environ))


@pytest.fixture(scope="module")
def report_without_pyspark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    environment = environment_without_pyspark(tmp_path_factory.mktemp("packages"))
    return _report(tmp_path_factory.mktemp("without-pyspark"), [sys.executable, "-S"], environment)


def _report(directory: Path, interpreter: list[str], environment: dict[str, str]) -> Any:
    environment = {**environment, "JAVA_HOME": f"{directory}/none", "PATH": f"{directory}/none"}
    run = subprocess.run(
        [*interpreter, str(_WORKER), str(directory)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("fixture", ["report", "report_without_pyspark"])
def test_assets_of_each_library_are_written_and_read_without_java(fixture: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(fixture)
    assert report["rows"] == {
        "arrow": [{"id": 1}, {"id": 2}, {"id": 3}],
        "batches": [{"id": 1}, {"id": 2}],
        "frames": [{"id": 1, "double": 2}, {"id": 2, "double": 4}],
        "pandas": [{"total": 6}],
        "relation": [{"more": 7}],
        "read": [{"seen": 7}],
        "parts": report["rows"]["parts"],
    }
    assert report["imported"] == ["duckdb", "pandas", "polars"], "neither pyspark nor py4j"


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
            "These rows need Spark, because only Spark evaluates the condition \"reverse(source.id) = '1'\"",
        ),
        ("session", "Java"),
        (
            "input",
            "The input is a DataFrame of Spark, no Spark session runs, and the Delta IO manager has no resource of one",
        ),
    ],
)
def test_what_needs_spark_or_is_wrong_is_refused_with_its_reason(report: Any, case: str, message: str) -> None:
    assert message in report["errors"][case]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("misplaced", "The row has day = other."),
        (
            "merge",
            "or it names a column that is not there. Nothing was written. PySpark is not "
            "installed in this environment. Install it with pip install '<path of the clone>[spark]'",
        ),
        ("session", "This requires Spark. PySpark is not installed in this environment. Install it with"),
    ],
)
def test_what_needs_spark_names_the_extra_where_pyspark_is_not_installed(
    report_without_pyspark: Any, case: str, message: str
) -> None:
    assert message in report_without_pyspark["errors"][case]
