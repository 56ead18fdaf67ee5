"""A maintenance process that is stopped until its lease has expired neither commits nor deletes when it continues."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.vacuum import _DELETE_THREADS
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table
from tests.support.lake import SCHEMA
from tests.support.waiting import until

LEASE_MS = 3000
FILES = 1500


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def table(url: str, tmp_path: Path) -> Iterator[Table]:
    client = DeltaClient(SqlCatalog(url, warehouse=f"file://{tmp_path}/warehouse"), stores=Stores())
    for kind in (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.DATA_REORGANIZATION):
        client.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main", kind=kind, allowed=True))
    yield create_table(client, identifier="main.test.t", schema=SCHEMA)
    client.close()


def holder(url: str, tmp_path: Path, what: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "tests.faults.lease_holder",
        url,
        f"file://{tmp_path}/warehouse",
        what,
        str(LEASE_MS),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def stop_until_another_has_the_lease(process: "subprocess.Popen[str]", table: Table) -> LeaseGranted:
    os.kill(process.pid, signal.SIGSTOP)
    found: list[LeaseGranted] = []

    def taken() -> bool:
        answer = table.services.leases.acquire_maintenance_lease(
            table.table_id, MaintenanceKind.DATA_CLEANUP, owner="next", duration_ms=600_000
        )
        if isinstance(answer, LeaseGranted):
            found.append(answer)
        return bool(found)

    until(taken)
    return found[0]


def test_a_stopped_vacuum_deletes_nothing_after_its_lease_expired(url: str, table: Table, tmp_path: Path) -> None:
    root = Path(table.location.removeprefix("file://"))
    for number in range(FILES):
        orphan = root / f"orphan-{number}.parquet"
        orphan.write_bytes(b"x")
        os.utime(orphan, (1, 1))
    process = holder(url, tmp_path, "vacuum")
    assert process.stdout is not None and process.stdout.readline() == "deleting\n"
    held = stop_until_another_has_the_lease(process, table)
    assert held.token == 2
    before = len(list(root.glob("orphan-*")))
    assert before > FILES / 2
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=300)[0] == "MaintenanceInProgressError\n"
    # A thread may have been stopped between its check and the deletion of one file.
    assert before - len(list(root.glob("orphan-*"))) <= _DELETE_THREADS
    assert table.services.leases.check_lease(table.table_id, token=held.token) == held


def test_a_stopped_optimize_commits_nothing_after_its_lease_expired(url: str, table: Table, tmp_path: Path) -> None:
    process = holder(url, tmp_path, "commit")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    held = stop_until_another_has_the_lease(process, table)
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate("go\n", timeout=300)[0] == "CommitRefusedError\n"
    assert table.snapshot().version == 0
    assert table.services.leases.check_lease(table.table_id, token=held.token) == held
