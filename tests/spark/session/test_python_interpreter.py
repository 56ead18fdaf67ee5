"""Workers of a session on this machine run the interpreter of the process, also if the PATH has another one first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cm_delta_dagster.spark.session.python_interpreter import same_interpreter

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, sys
from cm_delta_dagster import connect
from cm_delta_dagster.orchestration import SparkResource
def executables(spark):
    return spark.sparkContext.parallelize([1], 1).map(lambda _: __import__("sys").executable).collect()
lake = connect("sqlite:///{place}/catalog.db", warehouse="{place}/w")
assert executables(lake.spark) == [sys.executable], executables(lake.spark)
lake.spark.stop()
spark = SparkResource(master="local[1]", config={{"spark.ui.enabled": "false"}}).spark_session
assert executables(spark) == [sys.executable]
assert "PYSPARK_PYTHON" not in os.environ
spark.stop()
"""


@pytest.fixture(autouse=True)
def not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.slow
def test_workers_run_the_interpreter_of_the_process(tmp_path: Path) -> None:
    other = tmp_path / "bin"
    other.mkdir()
    for name in ("python", "python3"):
        (other / name).write_text("#!/bin/sh\necho another interpreter >&2\nexit 3\n")
        (other / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{other}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(place=tmp_path)],
        env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("settings", "environment", "is_set"),
    [
        ({}, {}, True),
        ({"spark.master": "local[4]"}, {}, True),
        ({"spark.master": "local-cluster[1,1,1024]"}, {}, True),
        ({"spark.master": "spark://host:7077"}, {}, False),
        ({"spark.master": "yarn"}, {}, False),
        ({"spark.pyspark.python": "/opt/python"}, {}, False),
        ({}, {"PYSPARK_PYTHON": "/opt/python"}, False),
        ({}, {"PYSPARK_DRIVER_PYTHON": "/opt/python"}, False),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, False),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master 'local[2]' pyspark-shell"}, True),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--conf spark.pyspark.python=/opt/python pyspark-shell"}, False),
        ({"spark.master": "local"}, {"PYSPARK_SUBMIT_ARGS": "--master=yarn pyspark-shell"}, True),
    ],
)
def test_an_interpreter_that_was_chosen_stays(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], environment: dict[str, str], is_set: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with same_interpreter(settings):
        assert (os.environ.get("PYSPARK_PYTHON") == sys.executable) == is_set
        assert (os.environ.get("PYSPARK_DRIVER_PYTHON") == sys.executable) == is_set
    assert dict(os.environ) == before


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_the_defaults_of_spark_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str) -> None:
    directory = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    directory.mkdir(exist_ok=True)
    (directory / "spark-defaults.conf").write_text("# a comment\nspark.master   yarn\n")
    monkeypatch.setenv(variable, str(tmp_path))
    with same_interpreter({}):
        assert "PYSPARK_PYTHON" not in os.environ
