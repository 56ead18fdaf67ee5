"""Asynchronous post-commit work: failures, missing threads, processes that fork or exit."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.checksum_writer import Checksums
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum, build_checksum
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.lake import Lake, broken_storage
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
FIRST_FILE = f"_delta_log/{1:020d}.json"

_FORKING = """
import os, signal, sys, threading

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from tests.support.creation import create_table
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA

root, mode = sys.argv[1:]
client = DeltaClient(SqlCatalog(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/lake"), stores=Stores())
table = create_table(client, identifier="main.test.t", schema=SCHEMA)
set_commit_policy(table, CommitPolicy.parse(mode))

def append(path):
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([AddFile(path=path, partition_values={}, size=1, modification_time=1)])
    return transaction.commit().version

append("before.parquet")
child = os.fork()
if child == 0:
    signal.alarm(300)
    append("child.parquet")
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child did not exit"
append("parent.parquet")
client.close()
"""


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.requirements("CM-C15", "CM-P4")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_a_forked_child_commits_and_closes_without_the_threads_of_its_parent(tmp_path: Path, mode: str) -> None:
    run = python(_FORKING, str(tmp_path), mode)
    assert run.returncode == 0, run.stderr
    names = sorted(path.name for path in tmp_path.glob("lake/*/*/*/_delta_log/0*.json"))
    assert names == [f"{version:020d}.json" for version in range(4)]


@pytest.mark.requirements("CM-P4")
def test_work_without_a_thread_does_not_block_later_work() -> None:
    work, done = BackgroundWork(), list[str]()
    before = threading.stack_size(2**46)  # More than there is: no thread starts.
    try:
        with pytest.raises(RuntimeError, match="thread"):
            work.schedule("table", 1, "publication", lambda: done.append("first"), seconds=1000)
    finally:
        threading.stack_size(before)
    work.schedule("table", 1, "publication", lambda: done.append("second"), seconds=1000)
    work.close()
    assert done == ["second"]


# Retries


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path, publish_delay=timedelta(seconds=0.05))
    yield lake
    lake.close()


def tries(lake: Lake) -> int:
    return sum(
        method == "write_if_absent" and str(location).endswith(FIRST_FILE) for method, location in lake.store.calls
    )


@pytest.mark.requirements("CM-P2", "CM-P4")
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_a_failed_publication_is_retried_without_another_commit(lake: Lake, mode: str) -> None:
    table = lake.new_table()
    set_commit_policy(table, CommitPolicy.parse(mode))
    lake.store.fails = broken_storage("write_if_absent", FIRST_FILE)
    assert lake.append(table).version == 1
    until(lambda: tries(lake) >= 4)
    assert FIRST_FILE not in lake.files(table)
    lake.store.fails = lambda method, location: None
    until(lambda: lake.sql_catalog.coordinator.get_ratified_commits(table.table_id).published_version == 1)
    assert FIRST_FILE in lake.files(table)
    assert lake.append(table).version == 2
    assert doctor(table).healthy


@pytest.mark.requirements("CM-P4")
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_the_published_version_is_reported_again_after_an_outage(lake: Lake, mode: str) -> None:
    table = lake.new_table()
    set_commit_policy(table, CommitPolicy.parse(mode))
    away = CatalogUnavailableError("No answer.")
    lake.catalog.fails = lambda method, _: away if method == "set_published_version" else None
    assert lake.append(table).version == 1
    until(lambda: sum(method == "set_published_version" for method, _ in lake.catalog.calls) >= 3)
    assert lake.sql_catalog.coordinator.get_ratified_commits(table.table_id).published_version == 0
    lake.catalog.fails = lambda method, _: None
    until(lambda: lake.sql_catalog.coordinator.get_ratified_commits(table.table_id).published_version == 1)


@pytest.mark.requirements("CRC-8", "CM-M5")
def test_checksums_wait_for_the_permission_of_the_catalog(lake: Lake) -> None:
    table = lake.new_table()
    lake.client.wait_for_background()
    away = CatalogUnavailableError("No answer.")
    lake.catalog.fails = lambda method, _: away if method == "maintenance_decision" else None
    for _ in range(3):
        lake.append(table)
        lake.client.wait_for_background()
    assert not [name for name in lake.files(table) if name.endswith(".crc") and "0.crc" not in name]
    lake.catalog.fails = lambda method, _: None
    lake.append(table)
    lake.client.wait_for_background()
    assert sum(name.endswith(".crc") for name in lake.files(table)) == 5


def crcs(lake: Lake, table: Table) -> list[int]:
    return sorted(int(Path(name).stem) for name in lake.files(table) if name.endswith(".crc"))


def checksum_of(lake: Lake, snapshot: Snapshot) -> VersionChecksum:
    """By replay."""
    (entry,) = lake.sql_catalog.feed.feed(after=snapshot.version, limit=1)
    return build_checksum(snapshot.state, txn_id=entry.summary.txn_id, in_commit_timestamp=snapshot.timestamp_ms)


@pytest.mark.requirements("CRC-7", "CRC-8")
def test_a_contended_writer_skips_checksums_that_its_next_commit_replaces(tmp_path: Path) -> None:
    lake = Lake(tmp_path, publish_delay=timedelta(seconds=1000))
    table = lake.new_table()
    snapshots = [table.snapshot(), *(lake.append(table).snapshot for _ in range(7))]
    sources = commit_sources(table.location, start=0, end=7, ratified=())
    commits = table.reader.decode_all(sources)
    checksums = Checksums(lake.store)
    checksums.request(snapshots[1], commits[1], contended=True)
    checksums.write(checksums.take())
    for others, own in ((2, 3), (4, 5), (6, 7)):
        checksums.note_winners([commits[others]])
        checksums.request(snapshots[own], commits[own], contended=True)
    lake.store.calls.clear()
    checksums.write(checksums.take())
    assert crcs(lake, table) == [1, 7]
    assert [method for method, _ in lake.store.calls] == ["write_if_absent"], "computed from cached commits"
    assert read_checksum(lake.memory, table.location, 7) == checksum_of(lake, snapshots[7])
    lake.client.close()


@pytest.mark.requirements("CRC-7", "CRC-8")
def test_checksums_of_contended_writers_equal_their_snapshots(tmp_path: Path) -> None:
    """Of own commits and of other writers' commits."""
    lake = Lake(tmp_path, publish_delay=timedelta(seconds=1000))
    table = lake.new_table()
    others = lake.reopened(publish_delay=timedelta(seconds=1000))  # Else its checksums would appear meanwhile.
    other = others.table("main.test.t")
    stale = lake.append(table).snapshot
    lake.client.wait_for_background()
    own = [stale]
    for _ in range(3):
        lake.append(other)
        transaction = table.start_transaction(stale, operation="WRITE")
        transaction.add_files([add_file(f"{stale.version}", partition_values={"day": None}, size=7)])
        stale = transaction.commit().snapshot
        own.append(stale)
    lake.store.calls.clear()
    lake.client.wait_for_background()
    assert crcs(lake, table) == [0, 1, 7]
    assert not [name for method, name in lake.store.calls if method == "read" and str(name).endswith(".crc")]
    for snapshot in (own[0], own[-1]):
        assert read_checksum(lake.memory, table.location, snapshot.version) == checksum_of(lake, snapshot)
    others.close()
    lake.client.close()


@pytest.mark.requirements("CRC-8")
def test_a_single_writer_writes_the_checksum_of_every_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path, publish_delay=timedelta(seconds=1000))
    table = lake.new_table()
    for _ in range(5):
        lake.append(table)
    lake.client.wait_for_background()
    assert crcs(lake, table) == [0, 1, 2, 3, 4, 5]
    lake.client.close()


def checkpoints(lake: Lake, table: Table) -> list[int]:
    return sorted({int(Path(name).name[:20]) for name in lake.files(table) if ".checkpoint." in name})


@pytest.mark.requirements("CKPT-15")
def test_checkpoints_in_quick_succession_are_skipped_up_to_ten_intervals(tmp_path: Path) -> None:
    """The next one is due at once, at this writer or at another."""
    lake = Lake(tmp_path, publish_delay=timedelta(seconds=1000))
    table = lake.new_table(properties={"delta.checkpointInterval": "2"})
    for _ in range(9):
        lake.append(table)
    lake.client.wait_for_background()
    assert checkpoints(lake, table) == [8]
    second = DeltaClient(
        lake.catalog,
        stores=Stores(stores={"memory": lake.store}),
        settings=ClientSettings(publish_delay=timedelta(seconds=1000)),
        now_ms=lake.clock,
    )
    other = second.table("main.test.t")

    def both_up_to(one: int, another: int) -> None:
        """The first writer makes version ``one`` after the other has made those before, and the other goes on."""
        while lake.append(other).version < one - 1:
            pass
        assert lake.append(table).version == one
        while lake.append(other).version < another:
            pass
        table.snapshot()
        lake.client.wait_for_background()

    both_up_to(12, 14)
    assert checkpoints(lake, table) == [8]
    both_up_to(30, 32)
    assert checkpoints(lake, table) == [8, 30]
    second.close()
    assert checkpoints(lake, table) == [8, 30, 32]
    lake.client.close()


@pytest.mark.requirements("CM-P4", "CM-P5")
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_a_close_tries_once_and_leaves_the_rest_to_the_next_client(
    lake: Lake, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = lake.new_table()
    set_commit_policy(table, CommitPolicy.parse(mode))
    lake.store.fails = broken_storage("write_if_absent", FIRST_FILE)
    lake.append(table)
    until(lambda: tries(lake) >= 4)
    caplog.clear()
    tried = tries(lake)
    lake.client.background.close()
    assert tried < tries(lake) <= tried + 2
    assert "Publication of main.test.t up to version 1 failed" in caplog.text
    assert not lake.client.background._timers
    lake.store.fails = lambda method, location: None
    other = lake.reopened()
    assert lake.append(other.table("main.test.t")).version == 2
    other.wait_for_background()
    assert lake.sql_catalog.coordinator.get_ratified_commits(table.table_id).published_version == 2


class Failing:
    """Work that fails until ``fails`` is reset."""

    def __init__(self) -> None:
        self.num_tries = 0
        self.fails = True

    def __call__(self) -> None:
        self.num_tries += 1
        if self.fails:
            raise ConnectionError("No answer.")


@pytest.mark.requirements("CM-P4")
def test_the_backoff_grows_and_the_retries_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first failure and the last are warnings."""
    seconds: list[float] = []

    class ShortTimer(threading.Timer):
        def __init__(self, interval: float, *arguments: Any) -> None:
            seconds.append(interval)
            super().__init__(0, *arguments)

    monkeypatch.setattr(threading, "Timer", ShortTimer)
    caplog.set_level(logging.INFO, "cm_delta_dagster")
    background, work = BackgroundWork(), Failing()
    background.schedule("table", 1, "publication", work, seconds=4, tries=5)
    until(lambda: work.num_tries == 5 and not background._timers)
    assert seconds == [4, 8, 16, 30, 30]
    background.close()
    assert work.num_tries == 5
    said = [record for record in caplog.records if record.getMessage().startswith("publication ")]  # Not other tests'.
    levels = [record.levelname for record in said]
    assert levels == ["WARNING", "INFO", "INFO", "INFO", "WARNING"]


@pytest.mark.requirements("CM-P4", "CM-M5")
def test_a_flush_does_not_wait_for_the_backoff() -> None:
    background, work = BackgroundWork(), Failing()
    background.schedule("table", 1, "publication", work, seconds=1000, tries=5)
    background.flush("table")
    work.fails = False
    background.flush("another table")
    assert work.num_tries == 1
    background.flush("table")
    background.flush("table")
    assert work.num_tries == 2
    background.close()


@pytest.mark.requirements("CM-P4")
def test_the_next_commit_does_not_wait_for_the_backoff() -> None:
    background, work = BackgroundWork(), Failing()
    background.schedule("table", 1, "publication", work, seconds=1000, tries=5)
    background.flush()
    work.fails = False
    background.schedule("table", 1, "publication", work, seconds=0.01, tries=5)
    until(lambda: work.num_tries == 2)
    background.close()
    assert work.num_tries == 2


_WAITING = """
import sys
from cm_delta_dagster.client.post_commit import scheduler
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork

def fails():
    print("tried", flush=True)
    raise ConnectionError("No answer.")

scheduler._MAX_BACKOFF_SECONDS = 2000.0
work = BackgroundWork()
work.schedule("table", 1, "publication", fails, seconds=1000, tries=20)
work.flush()
"""


@pytest.mark.requirements("CM-P4")
def test_the_backoff_does_not_keep_a_process_from_exiting() -> None:
    """The next try is due in half an hour."""
    run = python(_WAITING)
    assert (run.returncode, run.stdout) == (0, "tried\n")


# Processes that exit


_ENDING = """
import atexit, sys

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from tests.support.creation import create_table
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA

root, mode, when = sys.argv[1:]

def new_client():
    catalog = SqlCatalog(f"sqlite:///{root}/catalog.db", warehouse=f"{root}/lake")
    return DeltaClient(catalog, stores=Stores(), settings=ClientSettings(copied_content_bytes=0))

client = new_client()
table = create_table(client, identifier="main.test.t", schema=SCHEMA)
set_commit_policy(table, CommitPolicy.parse(mode))

def begin(table, path):
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([AddFile(path=path, partition_values={}, size=1, modification_time=1)])
    return transaction

def end_of(path, transaction):
    print(path, transaction.commit().version, flush=True)

def several(tag, table):
    for number in range(6):
        path = f"{tag}-{number}.parquet"
        end_of(path, begin(table, path))

def end():
    end_of("late.parquet", late)  # After winners, which it has to read.
    several("end", table)
    cold = new_client()  # With a log to read.
    several("cold", cold.table("main.test.t"))
    if when == "atexit and closed":
        client.close()
        cold.close()

several("run", table)
late = begin(table, "late.parquet")
other = new_client()
several("other", other.table("main.test.t"))
other.close()
if when != "unclosed":
    atexit.register(end)
"""


@pytest.mark.requirements("CM-C1", "CM-C16", "CM-P4")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "inline", "put_if_absent"])
@pytest.mark.parametrize(
    "when",
    ["unclosed", *(pytest.param(when, marks=pytest.mark.exhaustive) for when in ("atexit", "atexit and closed"))],
)
def test_a_process_that_exits_publishes_every_acknowledged_commit(tmp_path: Path, mode: str, when: str) -> None:
    """The client is not closed, or the process writes while it exits."""
    run = python(_ENDING, str(tmp_path), mode, when)
    assert (run.returncode, run.stderr) == (0, "")
    acknowledged = dict(line.split() for line in run.stdout.splitlines())
    assert len(acknowledged) == (12 if when == "unclosed" else 25)
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/lake")
    client = DeltaClient(catalog, stores=Stores())
    table = client.table("main.test.t")
    snapshot = table.snapshot()
    assert sorted(snapshot.files["path"].to_pylist()) == sorted(acknowledged)
    assert snapshot.version == max(map(int, acknowledged.values())) == snapshot.published_version
    log = {path.name for path in tmp_path.glob("lake/*/*/*/_delta_log/*")}
    assert {f"{version:020d}.{kind}" for version in range(snapshot.version + 1) for kind in ("json", "crc")} <= log
    client.close()
