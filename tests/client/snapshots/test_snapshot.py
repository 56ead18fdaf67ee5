"""Snapshots: from the catalog and the log, refreshed, from checkpoints, by version and time."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.history import find_transaction, iterate_history
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogManagedAccessError, CorruptLogError, TableNotFoundError, VersionNotFoundError
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.log import version_checksum
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.client.commits.test_commit import add_file, append, overwrite_day, start
from tests.support.path_snapshots import load_path_snapshot

NewTable = Callable[..., Table]


def fresh(client: DeltaClient, store: MemoryStore, table: Table, **pin: int) -> Snapshot:
    """The same table through a client that has nothing in memory."""
    other = DeltaClient(client.catalog, stores=Stores({"memory": store}), now_ms=client.now_ms)
    snapshot = other.table(table.identifier).snapshot(**pin)
    other.background.close()
    return snapshot


def state_of(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.version,
        snapshot.timestamp_ms,
        snapshot.protocol,
        snapshot.metadata,
        dict(snapshot.transactions),
        sorted(snapshot.files.column("path").to_pylist()),
        sorted(snapshot.tombstones.column("path").to_pylist()),
    )


@pytest.mark.requirements("CACHE-4", "REC-13")
def test_a_refreshed_snapshot_equals_a_rebuilt_one(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    """Across checkpoints, which are made in the background."""
    table = new_table()
    for number in range(13):
        append(table, f"2024-01-{number % 3 + 1:02d}")
        if number % 4 == 3:
            overwrite_day(table, "2024-01-02").commit()
        client.wait_for_background()
        assert state_of(table.snapshot()) == state_of(fresh(client, store, table))


@pytest.mark.requirements("CKPT-6", "CKPT-14", "CKPT-15", "LASTCP-2", "LASTCP-3", "CM-M1")
def test_a_checkpoint_is_made_every_tenth_version_and_read(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    table = new_table()
    for _ in range(11):
        append(table)
    client.wait_for_background()
    names = [status.name for status in store.list_from(f"{table.location}/_delta_log")]
    assert sum(name.startswith(f"{10:020d}.checkpoint.") for name in names) == 1
    hint = json.loads(store.read(f"{table.location}/_delta_log/_last_checkpoint"))
    assert (hint["version"], hint["numOfAddFiles"]) == (10, 10)
    before = state_of(fresh(client, store, table))
    for version in range(10):
        store.delete(f"{table.location}/_delta_log/{version:020d}.json")
    assert state_of(fresh(client, store, table)) == before


@pytest.mark.requirements("LASTCP-4")
@pytest.mark.parametrize("hint", [b"", b"{", b'{"version": 99, "size": 1}', b'{"version": 3, "size": 1}', None])
def test_a_broken_or_missing_hint_changes_nothing(
    client: DeltaClient, store: MemoryStore, new_table: NewTable, hint: bytes | None
) -> None:
    table = new_table()
    for _ in range(12):
        append(table)
    client.wait_for_background()
    before = state_of(fresh(client, store, table))
    location = f"{table.location}/_delta_log/_last_checkpoint"
    store.delete(location) if hint is None else store.write(location, hint)
    assert state_of(fresh(client, store, table)) == before


@pytest.mark.requirements("CKPT-17")
def test_an_unreadable_checkpoint_is_passed_over(client: DeltaClient, store: MemoryStore, new_table: NewTable) -> None:
    table = new_table()
    for _ in range(12):
        append(table)
    client.wait_for_background()
    before = state_of(fresh(client, store, table))
    for status in store.list_from(f"{table.location}/_delta_log"):
        if ".checkpoint." in status.name:
            store.write(status.location, store.read(status.location)[:-20])
    assert state_of(fresh(client, store, table)) == before


@pytest.mark.requirements("CM-R5", "CM-R9", "CM-5")
def test_files_above_the_catalogs_latest_version_are_not_there(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    table = new_table()
    append(table)
    client.wait_for_background()
    log = f"{table.location}/_delta_log"
    store.write(f"{log}/{2:020d}.json", store.read(f"{log}/{1:020d}.json"))
    store.write(f"{log}/_staged_commits/{2:020d}.6b24ef0a-41ef-4c11-8e2b-6f6ee8a2a8a0.json", b"{ partial")
    assert fresh(client, store, table).version == 1
    with pytest.raises(VersionNotFoundError, match="0 to 1"):
        table.snapshot(version=2)


@pytest.mark.requirements("LOG-4", "CM-R7", "TT-5")
def test_a_gap_in_the_log_is_an_error(client: DeltaClient, store: MemoryStore, new_table: NewTable) -> None:
    table = new_table()
    for _ in range(3):
        append(table)
    client.wait_for_background()
    store.delete(f"{table.location}/_delta_log/{2:020d}.json")
    for staged in store.list_from(f"{table.location}/_delta_log/_staged_commits"):
        store.delete(staged.location)
    with pytest.raises(CorruptLogError, match="2"):
        fresh(client, store, table)


@pytest.mark.requirements("CM-R8")
def test_a_catalog_managed_table_is_not_opened_by_path(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    table = new_table()
    with pytest.raises(CatalogManagedAccessError, match="catalog"):
        load_path_snapshot(client.stores, table.location)
    with pytest.raises(TableNotFoundError):
        load_path_snapshot(client.stores, "memory://warehouse/nothing/here")


@pytest.mark.requirements("TT-1", "TT-2", "TT-3", "ICT-9", "CM-P6")
def test_old_versions_are_read_by_version_and_by_time(
    client: DeltaClient, store: MemoryStore, new_table: NewTable, clock: Any
) -> None:
    table = new_table()
    times = [table.snapshot().timestamp_ms]
    for _ in range(6):
        clock.now += 1000
        times.append(append(table).in_commit_timestamp)
    assert [table.snapshot(version=version).num_files for version in range(7)] == list(range(7))
    assert [table.snapshot(timestamp_ms=time).version for time in times] == list(range(7))
    assert table.snapshot(timestamp_ms=times[3] + 999).version == 3
    with pytest.raises(VersionNotFoundError, match="oldest"):
        table.snapshot(timestamp_ms=times[0] - 1)
    with pytest.raises(VersionNotFoundError, match="latest"):
        table.snapshot(timestamp_ms=times[-1] + 1)


@pytest.mark.requirements("HIST-1", "HIST-3")
def test_the_history_is_newest_first_and_complete(new_table: NewTable) -> None:
    table = new_table()
    append(table)
    append(table)
    entries = list(iterate_history(table))
    assert [entry.version for entry in entries] == [2, 1, 0]
    assert [entry.commit_info.operation for entry in entries if entry.commit_info] == ["WRITE", "WRITE", "CREATE TABLE"]


@pytest.mark.requirements("TXN-2")
def test_the_commit_of_a_txn_is_found(new_table: NewTable) -> None:
    table = new_table()
    transaction = start(table)
    transaction.add_files([add_file("f.parquet")])
    transaction.set_transaction(SetTransaction(app_id="job", version=5))
    transaction.commit()
    append(table)
    assert find_transaction(table, app_id="job", version=5) == 1
    assert find_transaction(table, app_id="job", version=6) is None


@pytest.mark.requirements("CRC-2", "CRC-3", "CRC-7", "CRC-8", "CM-M3")
def test_every_version_gets_a_checksum_that_equals_one_made_from_scratch(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    table = new_table()
    for number in range(4):
        append(table, f"2024-01-0{number % 2 + 1}")
    overwrite_day(table, "2024-01-01").commit()
    client.wait_for_background()
    for version in range(1, 6):
        snapshot = fresh(client, store, table, version=version)
        value = read_checksum(store, table.location, version)
        assert value is not None
        expected = version_checksum.build_checksum(
            snapshot.state, txn_id=value.txn_id, in_commit_timestamp=snapshot.timestamp_ms
        )
        assert value == expected


def test_the_data_version_of_an_old_version_is_its_own(new_table: NewTable) -> None:
    """A maintenance version has the data version of the one before it, also when it is not the latest."""
    table = new_table()
    append(table)
    append(table)
    transaction = start(table, "OPTIMIZE")
    files = transaction.snapshot.files
    transaction.remove_files(removes_of(files, data_change=False))
    transaction.add_files([add_file("f.parquet", data_change=False)])
    transaction.commit()
    append(table)
    assert [table.snapshot(version=version).data_version for version in range(5)] == [0, 1, 2, 2, 4]


@pytest.mark.requirements("CLEAN-10", "TT-3")
def test_a_version_that_cleanup_removed_is_not_called_corrupt(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    table = new_table()
    for _ in range(12):
        append(table)
    client.wait_for_background()
    for version in range(10):
        store.delete(f"{table.location}/_delta_log/{version:020d}.json")
    with pytest.raises(VersionNotFoundError, match="oldest readable version is 10"):
        table.snapshot(version=4)


def test_the_representation_is_short_and_reads_no_files(
    client: DeltaClient, store: MemoryStore, new_table: NewTable
) -> None:
    table = new_table()
    append(table, "2024-01-01")
    append(table, "2024-01-02")
    name = str(table.identifier)
    loaded = fresh(client, store, table)
    assert loaded.reported_counts is None and not loaded.state.files.is_reconciled
    assert repr(loaded) == f"Snapshot({name!r}, version=2)" and not loaded.state.files.is_reconciled
    assert loaded.num_files == 2 and repr(loaded) == f"Snapshot({name!r}, version=2, num_files=2)"
