"""Disasters with several processes or without a harmed object: concurrent writers, a read-only mount, a wrong clock."""

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cm_delta_dagster.client.client import DeltaClient, wall_clock_ms
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.storage.local_store import LocalStore
from tests.disasters.acts import NEW_ID, NEW_IDS, read_ids
from tests.disasters.conftest import Places
from tests.disasters.place import DAY_MS, LATEST, NAME, PUBLISHED, Place, add_of, append_rows, write_rows
from tests.disasters.runner import warnings_of_package
from tests.disasters.selection import Kind
from tests.disasters.vocabulary import Mode


@pytest.fixture
def place(places: Places) -> Place:
    """A healthy table with staged commits and a SQLite catalog."""
    place = places(Kind.SQLITE, Mode.STAGED)
    place.reset()
    return place


def expected(place: Place, *more: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(place.facts.ids[LATEST].union(*more)))


def rows_of(snapshot: Snapshot) -> tuple[int, ...]:
    return tuple(sorted(read_batches(SnapshotScan(snapshot=snapshot, store=LocalStore())).read_all()["id"].to_pylist()))


def rewrite(table: Table, first_id: int, count: int, path: str) -> None:
    """Write the rows of one file to a new file, as OPTIMIZE does."""
    snapshot = table.snapshot()
    files = snapshot.files.filter([value == path for value in snapshot.files["path"].to_pylist()])
    transaction = table.start_transaction(snapshot, operation="OPTIMIZE")
    new = write_rows(table, first_id, count)
    transaction.remove_files(removes_of(files, data_change=False))
    transaction.add_files([add_of(table, new, first_id, count=count, data_change=False)])
    transaction.commit()


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Mount ``directory`` over itself, read-only; skip the test if mounting is not permitted."""
    done = subprocess.run(["mount", "--bind", directory, directory], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", directory], capture_output=True, check=True)
        yield
    finally:
        subprocess.run(["umount", directory], capture_output=True, check=True)


def test_a_warehouse_that_is_mounted_read_only_is_read_and_refuses_writes(place: Place) -> None:
    with read_only(place.warehouse):
        with place.client() as client:
            assert read_ids(client) == expected(place)
        for verb in (checkpoint, publish, vacuum, lambda table: append_rows(table, first_id=NEW_ID)):
            with place.client() as client, pytest.raises((StorageError, OSError)) as caught:
                verb(client.table(NAME))
            assert "read-only" in str(caught.value).lower()
    with place.client() as client:
        assert read_ids(client) == expected(place)
        append_rows(client.table(NAME), first_id=NEW_ID)
        assert read_ids(client) == expected(place, NEW_IDS)


def test_a_long_reader_keeps_its_rows_while_others_rewrite_and_vacuum(place: Place) -> None:
    with place.client() as reader, place.client() as others:
        snapshot = reader.table(NAME).snapshot()
        rewrite(others.table(NAME), 0, 10, place.facts.files["a"])
        assert vacuum(others.table(NAME)).num_files > 0
        assert rows_of(snapshot) == expected(place)


def test_a_reader_gets_the_name_of_a_file_that_vacuum_deleted(place: Place) -> None:
    """The number of rows never decreases."""
    with place.client() as reader, place.client() as others:
        snapshot = reader.table(NAME).snapshot()
        rewrite(others.table(NAME), 0, 10, place.facts.files["a"])
        vacuum(others.table(NAME), retention_ms=0, force=True)
        with pytest.raises(ObjectNotFoundError, match=place.facts.files["a"]):
            rows_of(snapshot)
        assert read_ids(others) == expected(place)


def test_appends_and_rewrites_lose_nothing_to_a_vacuum_beside_them(place: Place) -> None:
    """The retention of the table applies, so that only expired files are deleted."""
    appended: list[frozenset[int]] = []
    ends = threading.Event()

    def append_many() -> None:
        with place.client() as client:
            for number in range(8):
                append_rows(client.table(NAME), first_id=10_000 + 10 * number)
                appended.append(frozenset(range(10_000 + 10 * number, 10_010 + 10 * number)))

    def rewrite_many() -> None:
        with place.client() as client:
            for name, first_id in (("a", 0), ("d", 20), ("e", 30), ("f", 40)):
                rewrite(client.table(NAME), first_id, 10, place.facts.files[name])

    def vacuum_again_and_again() -> int:
        deleted = 0
        while not ends.is_set():
            with place.client() as client:
                deleted += vacuum(client.table(NAME)).num_files
        return deleted

    with ThreadPoolExecutor(3) as pool:
        vacuuming = pool.submit(vacuum_again_and_again)
        writing = [pool.submit(append_many), pool.submit(rewrite_many)]
        try:
            for work in writing:
                work.result()
        finally:
            ends.set()
        assert vacuuming.result() > 0
    with place.client() as client:
        assert len(appended) == 8 and read_ids(client) == expected(place, *appended)


def test_a_commit_to_a_table_that_was_dropped_meanwhile_is_not_made(place: Place) -> None:
    with place.client() as writer, place.client() as other:
        table = writer.table(NAME)
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add_of(table, write_rows(table, NEW_ID), NEW_ID)])
        drop_table(other, identifier=NAME)
        with pytest.raises((TableNotFoundError, CommitStateUnknownError)):
            transaction.commit()
        with pytest.raises(TableNotFoundError):
            read_ids(other)
        undrop_table(other, identifier=NAME)
        assert read_ids(other) == expected(place)


def test_a_commit_to_a_table_that_was_renamed_meanwhile_is_read_under_its_new_name(place: Place) -> None:
    with place.client() as writer, place.client() as other:
        table = writer.table(NAME)
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add_of(table, write_rows(table, NEW_ID), NEW_ID)])
        rename_table(other, identifier=NAME, to="main.test.renamed")
        transaction.commit()
        with pytest.raises(TableNotFoundError):
            read_ids(other)
        assert rows_of(other.table("main.test.renamed").snapshot()) == expected(place, NEW_IDS)


def test_a_writer_whose_clock_is_a_year_ahead_does_not_date_later_commits(place: Place) -> None:
    def a_year_ahead() -> int:
        return wall_clock_ms() + 365 * DAY_MS

    with place.client() as right, warnings_of_package() as messages:
        ahead = DeltaClient(right.catalog, stores=right.stores, settings=right.settings, now_ms=a_year_ahead)
        _, far = append_rows(ahead.table(NAME), first_id=NEW_ID)
        _, later = append_rows(right.table(NAME), first_id=NEW_ID + 100)
        assert any("clock" in message for message in messages)
        ahead.wait_for_background()
        now = wall_clock_ms()
        times = [commit.timestamp_ms for commit in right.table(NAME).commits(far.version, later.version)]
        assert all(now - DAY_MS < time <= now + 60_000 for time in times)
        assert [right.table(NAME).version_at_or_before(time) for time in times] == [far.version, later.version]
        assert vacuum(ahead.table(NAME)).num_files == 2, "by the clock of the catalog only two files have expired"
        assert read_ids(right) == expected(place, NEW_IDS, frozenset(range(NEW_ID + 100, NEW_ID + 110)))


def test_a_table_continues_after_recovery_without_an_inline_commit(places: Places) -> None:
    """Files of the lost commit do not block the next commit of its version."""
    place = places(Kind.SQLITE, Mode.INLINE)
    place.reset()
    place.database.restore("older")
    with place.client() as client:
        plan = plan_recovery(client, tables=[NAME])
        assert [lost.version for lost in plan.tables[0].lost] == [LATEST]
        recover(client, plan)
    for number in range(3):
        with place.client() as client:
            append_rows(client.table(NAME), first_id=NEW_ID + 10 * number)
            client.wait_for_background()
    left = place.facts.ids[PUBLISHED] | frozenset(range(NEW_ID, NEW_ID + 30))
    with place.client() as client, warnings_of_package() as messages:
        checkpoint(client.table(NAME))
        vacuum(client.table(NAME))
        assert read_ids(client) == tuple(sorted(left))
        assert messages == []


def test_swapped_files_of_equal_size_are_noticed_where_their_counts_differ(place: Place) -> None:
    with place.client() as client:
        table = client.table(NAME)
        path, _ = append_rows(table, first_id=NEW_ID, count=12)
    wrong, right = place.table_directory / path, place.table_directory / place.facts.files["a"]
    content, other = right.read_bytes(), wrong.read_bytes()
    right.write_bytes(other)
    wrong.write_bytes(content)
    with place.client() as client, pytest.raises(CorruptLogError, match=r"12 rows.*written with 10"):
        read_ids(client)
    right.write_bytes(content)
    wrong.write_bytes(other)
    with place.client() as client:
        assert read_ids(client) == expected(place, frozenset(range(NEW_ID, NEW_ID + 12)))
