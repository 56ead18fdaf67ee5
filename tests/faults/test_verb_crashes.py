"""A process is killed at each changing call of an operation that reads and writes rows with Spark.

Afterwards the table has the old or the new rows, the new ones if the operation returned, and the operation can be repeated.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.sql.database.schema import MAINTENANCE_LEASES
from cm_delta_dagster.errors import CommitStateUnknownError
from tests.faults.nth_call import DiskWorld
from tests.faults.test_nth_spark_call import MOST_CALLS, TABLE, VERBS, new_world, recovered, rows_at, versions

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[DiskWorld]:
    yield new_world(tmp_path_factory.mktemp("crashes"), spark)


def crashed(world: DiskWorld, name: str, at: int, when: str) -> tuple[int, bool]:
    """Run an operation that is killed; its exit status, and whether it returned before."""
    command = [sys.executable, "-m", "tests.faults.crashing_verb", str(world.directory), name, str(at), when]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # The Java that it started.
        except ProcessLookupError:
            pass
    return process.returncode, "committed" in output


def end_leases(world: DiskWorld) -> None:
    """The leases of the process that was killed expire."""
    with sqlite3.connect(world.directory / "catalog.db") as database:
        database.execute(f"DELETE FROM {MAINTENANCE_LEASES.name}")


def killed_at(world: DiskWorld, name: str, at: int, when: str, spark: SparkSession) -> int:
    """Kill the operation at one call, and check the table. Returns the exit status."""
    verb = VERBS[name]
    world.restore()
    with world.client() as client:
        before = versions(client, verb.table)
        data = world.data_files(client.table(TABLE).location)
    status, returned = crashed(world, name, at, when)
    where = f"{name}: killed {when} call {at}"
    assert status in (0, -signal.SIGKILL), where
    with world.client() as client:
        assert not returned or rows_at(client.table(verb.table)) == verb.rows, where
    end_leases(world)
    unknown = CommitStateUnknownError("The process was killed.")
    recovered(world, verb, spark, before=before, data=data, error=unknown, where=where)
    return status


@pytest.mark.requirements("CM-C1", "CM-C15", "DML-5", "RESTORE-1")
@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "delete", "update", "merge", "merge with clauses", "overwrite of a slice", "restore",
        "clone", "deep clone", "optimize by clustering", "replace",
    ],
)  # fmt: skip
def test_an_operation_killed_at_any_call_is_done_or_not(
    world: DiskWorld, spark: SparkSession, name: str, when: str
) -> None:
    for at in range(1, MOST_CALLS):
        if killed_at(world, name, at, when, spark) == 0:
            break
    print(f"{name}: killed {when} each of {at - 1} calls")
    assert at > 2


@pytest.mark.requirements("CM-C15", "DML-5")
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_merge_killed_at_its_commit_is_done_or_not(world: DiskWorld, spark: SparkSession) -> None:
    """The second changing call; the first writes the deletion vectors."""
    assert killed_at(world, "merge with clauses", 2, "after", spark) == -signal.SIGKILL
