"""The same code on Spark Connect, against a server of its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ANY_PORT = {
    **os.environ,
    "SPARK_TESTING": "1",
}  # Spark's own switch for a free port, so that runs beside this one do no harm.


@pytest.mark.requirements("DV-4", "DML-4", "DML-7")
@pytest.mark.slow
def test_writes_merges_and_reads_work_over_connect(tmp_path: Path) -> None:
    """No use of the JVM gateway or of RDDs on any of these paths."""
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.connect_worker", str(tmp_path)],
        cwd=root,
        env=ANY_PORT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.strip().splitlines()[-1])
    assert seen["connect"] is True
    evens = [[0, "p0", 77], [2, "p0", 5], [6, "p0", 6], [8, "p0", 8], [50, "p0", None], [99, "p0", None]]
    assert seen["rows"] == sorted([*evens, [1, "p1", 1], [3, "p1", 3]])
    assert seen["error"].startswith("PartitionMismatchError") and "\n" not in seen["error"]
    assert seen["survivors"] == seen["stored"] - seen["files"] > 0
    assert seen["setting"] is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "module",
    [pytest.param(f"tests/api/{name}.py", marks=pytest.mark.exhaustive) for name in ("test_sql", "test_sql_writes")],
)
def test_the_tests_of_sql_pass_over_connect(module: str) -> None:
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", module],
        cwd=Path(__file__).parents[2],
        env={**ANY_PORT, "CM_DELTA_TEST_ON_CONNECT": "1"},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@pytest.mark.requirements("COLMAP-id-1", "COLMAP-name-1", "DV-4", "ROWTRK-10", "TT-6")
@pytest.mark.exhaustive
@pytest.mark.slow
def test_tables_of_other_writers_are_read_over_connect(tmp_path: Path) -> None:
    """The schema to the letter, NOT NULL included; settings as found."""
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.connect_reader", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env=ANY_PORT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.strip().splitlines()[-1])
    rows = [[number, [letter, number], [[letter]]] for number, letter in ((1, "b"), (2, "c"), (3, "d"))]
    expected = {"settings": True, "schema": True, "rows": rows, "some": [[1, 101], [3, 103]]}
    assert (seen["connect"], seen["name"], seen["id"]) == (True, expected, expected)
    assert seen["error"].startswith("StorageError") and "f.parquet" in seen["error"]


@pytest.mark.requirements("WAP-1")
@pytest.mark.slow
def test_sql_over_tables_of_the_catalog_works_over_connect(tmp_path: Path) -> None:
    """A frame keeps its rows when the table changes; errors are raised by the call, no view stays, and holds are read."""
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.connect_sql", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env=ANY_PORT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.strip().splitlines()[-1])
    unknown, column, syntax = seen.pop("errors")
    assert seen == {
        "connect": True,
        "held": {
            "scan": [[1, "early"]],
            "sql": ["early"],
            "changes": ["update_postimage", "update_preimage"],
            "seen early": ["late"],
            "ratified": 2,
            "after": ["early"],
        },
        "written": [[1], [1, 1, 0, 0], [0], [], [[1, "late", 2, None], [2, "B", 3, None]]],
        "rows": [[1, "late", "{x}"]],
        "again": [["late"]],
        "now": [0, 2],
        "positional": 1,
        "explained": True,
        "history": ["DELETE", "CREATE TABLE AS SELECT"],
        "views": [],
    }
    assert unknown.startswith("TableNotFoundError") and "main.sales.orders" in unknown
    assert column.startswith("InvalidArgumentError") and "`no`" in column
    assert syntax.startswith("InvalidArgumentError") and "line " in syntax
