"""Commits are compared with the digests of the catalog, and lost or altered ones are read from intact copies."""

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checkpoint
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots import commit_reader
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source, staged_source
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, VersionNotFoundError
from cm_delta_dagster.operations.doctor import Problem, repair_table
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.client.commits.test_commit import append
from tests.support.foreign_log import add, info, lines

NewTable = Callable[..., Table]


@pytest.fixture
def grown(client: DeltaClient, new_table: NewTable) -> Table:
    """Versions 0 to 5, published, each with a staged copy, none with content in the catalog."""
    table = new_table()
    for _ in range(5):
        append(table)
    client.wait_for_background()
    return table


def published(table: Table, version: int) -> str:
    return f"{table.location}/_delta_log/{version:020d}.json"


def alter(store: MemoryStore, location: str, old: bytes = b'"add"', new: bytes = b'"adf"') -> None:
    """Other bytes of the same length."""
    data = store.read(location)
    assert old in data and len(old) == len(new)
    store.write(location, data.replace(old, new, 1))


def remove_staged(store: MemoryStore, table: Table) -> None:
    for status in store.list_from(f"{table.location}/_delta_log/_staged_commits"):
        store.delete(status.location)


def reopened(catalog: SqlCatalog, store: MemoryStore, table: Table) -> Table:
    """The table as another process opens it."""
    settings = ClientSettings(copied_content_bytes=0)
    client = DeltaClient(catalog, stores=Stores({"memory": store}), settings=settings, now_ms=table.services.now_ms)
    return client.table(table.identifier)


def test_the_catalog_keeps_the_digest_of_every_commit(catalog: SqlCatalog, store: MemoryStore, grown: Table) -> None:
    digests = catalog.coordinator.commit_digests(grown.table_id, start=0, end=9)
    assert digests == {v: hashlib.sha256(store.read(published(grown, v))).hexdigest() for v in range(6)}
    assert catalog.coordinator.commit_digests(grown.table_id, start=2, end=3) == {v: digests[v] for v in (2, 3)}


@pytest.mark.parametrize("harm", ["altered", "cut", "missing"])
def test_a_harmed_commit_is_read_from_its_staged_file_with_a_warning(
    catalog: SqlCatalog, store: MemoryStore, grown: Table, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = reopened(catalog, store, grown).snapshot().num_files
    where = published(grown, 3)
    match harm:
        case "altered":
            alter(store, where)
        case "cut":
            store.write(where, store.read(where)[:-40])
        case "missing":
            store.delete(where)
    with caplog.at_level(logging.WARNING):
        assert reopened(catalog, store, grown).snapshot().num_files == expected
        assert reopened(catalog, store, grown).snapshot(version=4).num_files == expected - 1
    warnings = [text for text in caplog.messages if "intact copy" in text]
    assert len(warnings) == 1 and "Version 3" in warnings[0]


@pytest.mark.parametrize("harm", ["altered", "missing"])
def test_a_harmed_commit_without_copy_is_an_error_that_says_what_can_be_read(
    catalog: SqlCatalog, store: MemoryStore, grown: Table, harm: str
) -> None:
    remove_staged(store, grown)
    if harm == "altered":
        alter(store, published(grown, 3))
    else:
        store.delete(published(grown, 3))
    other = reopened(catalog, store, grown)
    with pytest.raises(CorruptLogError, match="Versions 0 to 2 can still be read"):
        other.snapshot()
    assert other.snapshot(version=2).version == 2
    with pytest.raises(CorruptLogError):
        list(other.commits(0, 5))


def test_a_harmed_commit_is_read_from_the_catalogs_content(
    catalog: SqlCatalog, store: MemoryStore, new_table: NewTable, client: DeltaClient, clock: Callable[[], int]
) -> None:
    new_table()
    copying = DeltaClient(catalog, stores=Stores({"memory": store}), now_ms=clock)
    table = copying.table("main.test.t")
    for _ in range(3):
        append(table)
    copying.wait_for_background()
    remove_staged(store, table)
    alter(store, published(table, 2))
    assert reopened(catalog, store, table).snapshot(version=2).num_files == 2


def test_an_altered_staged_file_is_never_published(
    catalog: SqlCatalog, store: MemoryStore, client: DeltaClient, new_table: NewTable
) -> None:
    table = new_table()
    append(table)
    (commit,) = catalog.coordinator.commit_records(table.table_id, start=1, end=1)
    store.delete(published(table, 1))
    alter(store, f"{table.location}/_delta_log/_staged_commits/{commit.file_name}")
    with pytest.raises(CorruptLogError, match="other bytes than"):
        table.reader.read(staged_source(table.location, commit))


def test_a_changed_timestamp_of_an_old_commit_does_not_move_time_travel(
    catalog: SqlCatalog, store: MemoryStore, grown: Table
) -> None:
    expected = [commit.timestamp_ms for commit in grown.commits(0, 5)]
    time = str(expected[2])
    alter(store, published(grown, 2), time.encode(), f"{int(time[0]) + 1}{time[1:]}".encode())
    other = reopened(catalog, store, grown)
    assert other.version_at_or_before(expected[2]) == 2
    assert [commit.timestamp_ms for commit in other.commits(0, 5)] == expected


def test_versions_removed_by_cleanup_do_not_come_back_from_copies(
    catalog: SqlCatalog, store: MemoryStore, grown: Table, client: DeltaClient
) -> None:
    write_checkpoint(store, grown.snapshot(), now_ms=client.now_ms())
    for version in range(5):
        store.delete(published(grown, version))
    other = reopened(catalog, store, grown)
    assert other.snapshot().num_files == 5
    with pytest.raises(VersionNotFoundError, match="metadata cleanup"):
        other.snapshot(version=3)


def test_commits_without_digests_are_held_against_the_checksum(
    catalog: SqlCatalog, store: MemoryStore, grown: Table, tmp_path: object
) -> None:
    remove_staged(store, grown)
    with closing(sqlite3.connect(f"{tmp_path}/catalog.db")) as database, database:
        database.execute("UPDATE cm_delta_commits SET sha256 = NULL")
    assert reopened(catalog, store, grown).snapshot().num_files == 5
    alter(store, published(grown, 3))
    with pytest.raises(CorruptLogError, match="differs from its checksum"):
        reopened(catalog, store, grown).snapshot()
    store.delete(f"{grown.location}/_delta_log/{5:020d}.crc")
    with pytest.raises(CorruptLogError, match=r"Version 4 .* differs from its checksum"):
        reopened(catalog, store, grown).snapshot()


def test_a_staged_copy_is_found_though_the_catalog_does_not_know_its_name(
    catalog: SqlCatalog, store: MemoryStore, grown: Table, tmp_path: object
) -> None:
    """As after a recovery from the log, which records commits under their published names."""
    with closing(sqlite3.connect(f"{tmp_path}/catalog.db")) as database, database:
        database.execute("UPDATE cm_delta_commits SET file_name = printf('%020d.json', version)")
    alter(store, published(grown, 3))
    assert reopened(catalog, store, grown).snapshot().num_files == 5
    report = repair_table(reopened(catalog, store, grown))
    assert [finding.problem for finding in report.repaired] == [Problem.COMMIT_DIFFERS]
    assert b'"adf"' not in store.read(published(grown, 3))


def test_a_commit_is_parsed_once_for_each_content() -> None:
    """Without a catalog the log is read again for each operation; another content of the same file is parsed."""
    store = MemoryStore()
    reader = CommitReader(store, "memory:///t")
    sources = [published_source(reader.location, version) for version in range(3)]
    text = '{{"txn":{{"appId":"a","version":{}}}}}\n'
    for version, source in enumerate(sources):
        store.write(source.location, text.format(version).encode())
    first = reader.decode_all(sources)
    assert [commit.transactions[0].version for commit in first] == [0, 1, 2]
    store.write(sources[1].location, text.format(9).encode())
    again = reader.decode_all(sources)
    assert [commit.transactions[0].version for commit in again] == [0, 9, 2]
    assert again[0] is first[0] and again[2] is first[2]


class _NotingStore(LocalStore):
    """Notes the thread of each read."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[int] = []

    def read(self, location: str) -> bytes:
        self.readers.append(threading.get_ident())
        return super().read(location)


@pytest.mark.parametrize("patience", [1000, -1])
def test_commits_of_a_fast_file_system_are_read_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    """Those of a slow one, such as a network file system, by several; each of them once."""
    monkeypatch.setattr(commit_reader, "_PATIENCE_SECONDS", patience)
    for version in range(40):
        (tmp_path / "_delta_log").mkdir(exist_ok=True)
        (tmp_path / f"_delta_log/{version:020d}.json").write_bytes(lines(info(), add(f"f{version}")))
    store = _NotingStore()
    reader = CommitReader(store, tmp_path.as_uri())
    sources = [published_source(reader.location, version) for version in range(40)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        for commits in (reader.decode_all(sources), reader.decode_in(pool, sources)):
            assert [commit.version for commit in commits] == list(range(40))
            assert [commit.adds["path"][0].as_py() for commit in commits] == [f"f{version}" for version in range(40)]
    assert len(store.readers) == 80
    assert (set(store.readers) == {threading.get_ident()}) == (patience > 0)


def test_a_large_commit_among_small_ones_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_json, "LARGE_COMMIT_BYTES", 1000)
    (tmp_path / "_delta_log").mkdir()
    for version in range(6):
        files = [add(f"f{version}-{number}") for number in range(50 if version == 2 else 1)]
        (tmp_path / f"_delta_log/{version:020d}.json").write_bytes(lines(info(), *files))
    store = _NotingStore()
    reader = CommitReader(store, tmp_path.as_uri())
    commits = reader.decode_all([published_source(reader.location, version) for version in range(6)])
    assert [commit.adds.num_rows for commit in commits] == [1, 1, 50, 1, 1, 1]
    assert len(store.readers) == 6
