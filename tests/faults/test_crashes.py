"""Writers killed with SIGKILL at every call, and writers racing in processes: what was acknowledged is there, once."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.history import iterate_history
from cm_delta_dagster.operations.create import create_table
from cm_delta_dagster.operations.publish import publish
from cm_delta_dagster.protocol.schema import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores

SCRIPT = Path(__file__).with_name("crashing_writer.py")
TABLE = "main.test.t"
SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))
ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(client_catalog_url: str, tmp_path: Path) -> Iterator[DeltaClient]:
    client = DeltaClient(SqlCatalog(client_catalog_url, warehouse=f"file://{tmp_path}/warehouse"), stores=Stores())
    create_table(client, identifier=TABLE, schema=SCHEMA)
    yield client
    client.close()


def start_writer(
    url: str, tmp_path: Path, *, commits: int, tag: str, die_at: int = 0, when: str = "-", table: str = TABLE
) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(SCRIPT),
        url,
        f"file://{tmp_path}/warehouse",
        table,
        str(commits),
        tag,
        str(die_at),
        when,
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    )


def check(client: DeltaClient, tmp_path: Path, *, acknowledged: list[str], attempted: set[str]) -> None:
    """Versions contiguous, acknowledged files exactly once, nothing of unknown origin, times growing, published = ratified."""
    table = client.table(TABLE)
    snapshot = table.snapshot()
    entries = list(iterate_history(table))
    assert [entry.version for entry in entries] == list(range(snapshot.version, -1, -1))
    times = [entry.timestamp_ms or 0 for entry in entries]
    assert times == sorted(set(times), reverse=True)
    counts = Counter(snapshot.files.column("path").to_pylist())
    assert not [path for path in acknowledged if counts[path] != 1]
    assert set(counts) <= attempted
    assert max(counts.values(), default=1) == 1
    assert snapshot.num_files == snapshot.version
    publish(table)
    location = Path(table.location.removeprefix("file://")) / "_delta_log"
    staged = {file.read_bytes() for file in (location / "_staged_commits").glob("*.json")}
    for version in range(1, snapshot.version + 1):
        assert (location / f"{version:020d}.json").read_bytes() in staged


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_killed_at_any_call_loses_nothing_acknowledged(
    client: DeltaClient, client_catalog_url: str, tmp_path: Path, when: str
) -> None:
    """CM-C1, CM-C15, CM-W5, CM-P5: two commits, killed at each of their calls in turn."""
    acknowledged: list[str] = []
    attempted: set[str] = set()
    for die_at in range(1, 40):
        tag = f"{when}{die_at}"
        writer = start_writer(client_catalog_url, tmp_path, commits=2, tag=tag, die_at=die_at, when=when)
        output, errors = writer.communicate(timeout=120)
        attempted |= {f"{tag}-{number}.parquet" for number in range(2)}
        acknowledged += [line for line in output.splitlines() if line.endswith(".parquet")]
        assert writer.returncode in (0, -signal.SIGKILL), errors
        check(client, tmp_path, acknowledged=acknowledged, attempted=attempted)
        if writer.returncode == 0:
            break
    assert writer.returncode == 0
    assert die_at > 6


def test_racing_processes_lose_nothing(client: DeltaClient, client_catalog_url: str, tmp_path: Path) -> None:
    """OCC-3, CM-C3, CM-C15: four processes, ten commits each, and one more killed from outside."""
    writers = [start_writer(client_catalog_url, tmp_path, commits=10, tag=f"w{number}") for number in range(4)]
    victim = start_writer(client_catalog_url, tmp_path, commits=1000, tag="victim")
    outputs = [writer.communicate(timeout=240) for writer in writers]
    victim.kill()
    last, _ = victim.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0] * 4, [errors for _, errors in outputs]
    lines = [line for output, _ in outputs for line in output.splitlines()] + last.splitlines()
    acknowledged = [line for line in lines if line.endswith(".parquet")]
    attempted = {f"w{number}-{index}.parquet" for number in range(4) for index in range(10)}
    attempted |= {f"victim-{index}.parquet" for index in range(1000)}
    assert len(acknowledged) >= 40
    check(client, tmp_path, acknowledged=acknowledged, attempted=attempted)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_creation_killed_at_any_call_is_whole_or_not_there(
    client: DeltaClient, client_catalog_url: str, tmp_path: Path, when: str
) -> None:
    """CM-D1, CM-D4, CM-D5: the first write of a table, killed at each of its calls in turn, and then done again."""
    for die_at in range(1, 20):
        name = f"main.created.t{die_at}"
        writer = start_writer(client_catalog_url, tmp_path, commits=1, tag="a", die_at=die_at, when=when, table=name)
        output, errors = writer.communicate(timeout=120)
        assert writer.returncode in (0, -signal.SIGKILL), errors
        found = [str(identifier) for identifier in client.catalog.list_tables("main.created")]
        if "a-0.parquet" in output:
            assert name in found
        if name in found:
            snapshot = client.table(name).snapshot()
            assert (snapshot.version, snapshot.files.column("path").to_pylist()) == (0, ["a-0.parquet"])
        if writer.returncode == 0:
            break
        again = start_writer(client_catalog_url, tmp_path, commits=1, tag="b", table=name)
        _, errors = again.communicate(timeout=120)
        assert again.returncode == 0, errors
        files = client.table(name).snapshot().files.column("path").to_pylist()
        assert files == (["a-0.parquet", "b-0.parquet"] if name in found else ["b-0.parquet"])
    assert writer.returncode == 0
    assert die_at > 3


def test_of_processes_that_create_one_table_each_finds_its_rows_in_it(
    client: DeltaClient, client_catalog_url: str, tmp_path: Path
) -> None:
    """CM-D3, CM-C15"""
    name = "main.created.t"
    writers = [
        start_writer(client_catalog_url, tmp_path, commits=2, tag=f"w{number}", table=name) for number in range(3)
    ]
    outputs = [writer.communicate(timeout=240) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 3, [errors for _, errors in outputs]
    snapshot = client.table(name).snapshot()
    assert snapshot.version == 5
    assert sorted(snapshot.files.column("path").to_pylist()) == [
        f"w{n}-{i}.parquet" for n in range(3) for i in range(2)
    ]
    (location,) = (tmp_path / "warehouse" / "main" / "created").iterdir()
    assert snapshot.location == f"file://{location}"
