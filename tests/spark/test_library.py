"""Which modules import PySpark, and what a module does that uses a name of it where PySpark is not installed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.without_pyspark import environment_without_pyspark

pytestmark = pytest.mark.fast

_IMPORT_ALL = """
import importlib, json, pkgutil, sys
import cm_delta_dagster
from cm_delta_dagster.errors import EngineError
from cm_delta_dagster.spark.library import F, is_column, is_frame, is_installed

failed = {}
for module in pkgutil.walk_packages(cm_delta_dagster.__path__, "cm_delta_dagster."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # Other extras may be missing, too.
        if "pyspark" in str(error) or "py4j" in str(error):
            failed[module.name] = str(error)
try:
    F.col("a")
    message = None
except EngineError as error:
    message = str(error)
print(json.dumps({"failed": failed, "message": message, "is_installed": is_installed(), "is": [is_frame(1), is_column("a")]}))
"""
_IMPORT_DAGSTER = """
import json, sys
import cm_delta_dagster.orchestration, cm_delta_dagster.cli.main
print(json.dumps([name for name in ("pyspark", "py4j") if name in sys.modules]))
"""

_THREADS = """
import json, threading
from cm_delta_dagster.spark import library

uses = [
    lambda: library.pyspark.sql.SparkSession,
    lambda: library.T.StructType,
    lambda: library.F.col,
    lambda: library.pyspark_errors.PySparkException,
    lambda: library.captured_errors.convert_exception,
    lambda: library.py4j_errors.Py4JError,
]
barrier, failed = threading.Barrier(len(uses)), []

def use(name):
    barrier.wait()
    try:
        name()
    except BaseException as error:
        failed.append(repr(error))

threads = [threading.Thread(target=use, args=(name,)) for name in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(failed))
"""


def _output(arguments: list[str], environment: dict[str, str] | None = None) -> Any:
    run = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_the_entry_points_do_not_import_pyspark() -> None:
    assert _output(["-c", _IMPORT_DAGSTER]) == []


def test_threads_that_use_pyspark_first_do_not_disturb_each_other() -> None:
    """The modules of PySpark import each other."""
    assert _output(["-c", _THREADS]) == []


def test_only_the_source_of_streams_cannot_be_imported_without_pyspark(tmp_path: Path) -> None:
    answer = _output(["-S", "-c", _IMPORT_ALL], environment_without_pyspark(tmp_path))
    assert answer == {
        "failed": {"cm_delta_dagster.operations.reading.streams.spark_source": "No module named 'pyspark'"},
        "message": "This requires Spark. PySpark is not installed in this environment. Install it with pip install "
        "'<path of the clone>[spark]', the extra of this package for Spark 4.",
        "is_installed": False,
        "is": [False, False],
    }
