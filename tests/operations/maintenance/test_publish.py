"""Publishing on demand clears what a failing publication left behind."""

import sqlite3
from contextlib import closing

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogBehindStorageError, CorruptLogError, StorageError, TableStorageMissingError
from cm_delta_dagster.operations.maintenance.publish import publish
from tests.support.lake import Lake, broken_storage


def unpublished(lake: Lake, commits: int = 3) -> tuple[Table, list[str]]:
    """A table whose commits could not be published, and the names of those commits in the log."""
    table = lake.new_table()
    lake.store.fails = broken_storage("write_if_absent", "_delta_log/0000")
    for _ in range(commits):
        lake.append(table)
    lake.store.fails = lambda method, location: None
    return table, [f"{version:020d}.json" for version in range(1, commits + 1)]


def ratified_content(lake: Lake, table: Table) -> bytes:
    """Of the only commit that is not published."""
    (commit,) = lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
    return lake.memory.read(f"{table.location}/_delta_log/_staged_commits/{commit.file_name}")


@pytest.mark.requirements("CM-P1", "CM-P2")
def test_publish_copies_every_pending_commit_byte_for_byte(lake: Lake) -> None:
    table, names = unpublished(lake)
    assert not lake.files(table, "_delta_log") & set(names)
    staged = {
        row.version: row.file_name for row in lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
    }
    result = publish(table)
    assert (result.published_version, result.published, result.num_commits) == (3, (1, 2, 3), 3)
    for version, file_name in staged.items():
        copy = lake.memory.read(f"{table.location}/_delta_log/{version:020d}.json")
        assert copy == lake.memory.read(f"{table.location}/_delta_log/_staged_commits/{file_name}")
    assert table.snapshot().published_version == 3


@pytest.mark.requirements("CM-P3")
def test_publish_again_finds_nothing_to_do(lake: Lake) -> None:
    table, _ = unpublished(lake)
    publish(table)
    assert publish(table).published == ()
    assert publish(table).published_version == 3


@pytest.mark.requirements("CM-P2")
def test_a_failing_publication_stops_those_after_it(lake: Lake) -> None:
    table, names = unpublished(lake)
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{names[1]}")
    with pytest.raises(StorageError):
        publish(table)
    assert lake.files(table, "_delta_log") & set(names) == {names[0]}
    assert lake.catalog.coordinator.get_ratified_commits(table.table_id).published_version == 1


@pytest.mark.requirements("CM-P1", "CM-P2")
def test_a_file_that_is_not_the_ratified_commit_stops_publication(lake: Lake) -> None:
    """Another client may have published later versions without a check of this one."""
    table, names = unpublished(lake, commits=5)
    log = f"{table.location}/_delta_log"
    for commit in lake.catalog.coordinator.get_ratified_commits(table.table_id).commits:
        content = lake.memory.read(f"{log}/_staged_commits/{commit.file_name}")
        lake.memory.write_if_absent(f"{log}/{names[commit.version - 1]}", b"{}\n" if commit.version == 3 else content)
    with pytest.raises(CorruptLogError, match="version 3 was published and is not what the catalog ratified"):
        publish(table)
    assert lake.catalog.coordinator.get_ratified_commits(table.table_id).published_version == 2
    assert lake.reopened().table("main.test.t").snapshot().num_files == table.snapshot().num_files


@pytest.mark.requirements("CM-P1", "CM-P3")
@pytest.mark.parametrize("first", [0, 1, 60], ids=["empty", "a byte", "a part of a line"])
def test_a_file_that_another_publisher_writes_is_waited_for(lake: Lake, first: int) -> None:
    """DuckDB creates the file before it writes it: a reader sees a beginning of the ratified commit."""
    table, (name,) = unpublished(lake, commits=1)
    content, target = ratified_content(lake, table), f"{table.location}/_delta_log/{name}"
    lake.memory.write_if_absent(target, content[:first])

    def write_on(method: str, location: object) -> None:
        if method == "read" and location == target:
            size = len(lake.memory.read(target))
            lake.memory.write(target, content[: size + len(content) // 3])

    lake.store.fails_after = write_on
    assert publish(table).published == (1,)
    assert lake.memory.read(target) == content
    assert [location for method, location in lake.store.calls if method == "read"].count(target) > 2


@pytest.mark.requirements("CM-P1", "CM-P3")
def test_a_file_that_stays_a_beginning_of_the_ratified_commit_stops_publication(lake: Lake) -> None:
    table, (name,) = unpublished(lake, commits=1)
    content, target = ratified_content(lake, table), f"{table.location}/_delta_log/{name}"
    first = content[: content.index(b"\n") + 1]  # All of commitInfo: not a commit of another history.
    lake.memory.write_if_absent(target, first)
    with pytest.raises(CorruptLogError, match=f"the first {len(first)} of {len(content)} bytes of version 1"):
        publish(table)
    assert lake.memory.read(target) == first
    assert lake.catalog.coordinator.get_ratified_commits(table.table_id).published_version == 0
    assert table.snapshot().version == 1


def test_a_file_that_differs_is_read_once(lake: Lake) -> None:
    table, (name,) = unpublished(lake, commits=1)
    target = f"{table.location}/_delta_log/{name}"
    lake.memory.write_if_absent(target, ratified_content(lake, table) + b"{}")
    lake.store.calls.clear()
    with pytest.raises(CatalogBehindStorageError):
        publish(table)
    assert [location for method, location in lake.store.calls if method == "read"].count(target) == 1


@pytest.mark.requirements("CM-P2", "CM-P3")
def test_a_published_file_that_was_deleted_is_published_again(lake: Lake) -> None:
    table, names = unpublished(lake, commits=5)
    log = f"{table.location}/_delta_log"
    for commit in lake.catalog.coordinator.get_ratified_commits(table.table_id).commits:
        if commit.version != 2:
            content = lake.memory.read(f"{log}/_staged_commits/{commit.file_name}")
            lake.memory.write_if_absent(f"{log}/{names[commit.version - 1]}", content)
    assert publish(table).published == (1, 2, 3, 4, 5)
    assert set(names) <= lake.files(table, "_delta_log")


def test_publishing_needs_no_permission(lake: Lake) -> None:
    table, _ = unpublished(lake, commits=1)
    for kind in MaintenanceKind:
        lake.deny(kind)
    assert publish(table).published == (1,)


@pytest.mark.requirements("CM-P5")
def test_a_staged_file_that_another_publisher_cleaned_is_not_an_error(lake: Lake) -> None:
    table, _ = unpublished(lake, commits=1)
    (commit,) = lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
    staged = f"{table.location}/_delta_log/_staged_commits/{commit.file_name}"
    data = lake.memory.read(staged)

    def overtake(method: str, location: object) -> None:
        if method == "read" and location == staged:
            lake.store.fails = lambda method, location: None
            lake.memory.write_if_absent(f"{table.location}/_delta_log/{1:020d}.json", data)
            lake.catalog.coordinator.set_published_version(table.table_id, 1)
            lake.memory.delete(staged)

    lake.store.fails = overtake
    assert publish(table).published_version == 1


@pytest.mark.requirements("CM-P1", "CM-P3")
@pytest.mark.parametrize("backlog", [0, 1])
def test_a_foreign_file_under_the_name_of_a_commit_is_not_read_as_the_commit(lake: Lake, backlog: int) -> None:
    """Found by the publication right after the commit, and by a later one."""
    table = lake.new_table()
    if backlog:
        lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{1:020d}")
        lake.append(table)
        lake.store.fails = lambda method, location: None
    version = 1 + backlog
    place = f"{table.location}/_delta_log/{version:020d}.json"
    lake.memory.write_if_absent(place, b'{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    lake.append(table)
    assert lake.catalog.coordinator.get_ratified_commits(table.table_id).published_version == backlog
    assert lake.reopened().table(table.identifier).snapshot().num_files == version
    with pytest.raises(CorruptLogError, match="by its path"):
        publish(table)
    lake.memory.delete(place)
    assert publish(table).published == (version,)
    assert lake.reopened().table(table.identifier).snapshot().num_files == version


def test_the_error_for_a_missing_staged_file_names_table_and_remedy(lake: Lake) -> None:
    table, names = unpublished(lake)
    staged = {
        row.version: row.file_name for row in lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
    }
    lake.memory.delete(f"{table.location}/_delta_log/_staged_commits/{staged[2]}")
    with pytest.raises(CorruptLogError, match=rf"main.test.t cannot be published: .*{staged[2]}.*Restore that file"):
        publish(table)
    assert lake.files(table, "_delta_log") & set(names) == {names[0]}


def test_a_publication_into_missing_storage_creates_no_directory(lake: Lake) -> None:
    table, _ = unpublished(lake)
    lake.client.wait_for_background()
    for path in lake.files(table):
        lake.memory.delete(f"{table.location}/{path}")
    with pytest.raises(TableStorageMissingError, match="not mounted"):
        publish(table)
    assert lake.files(table) == set()


def test_a_version_without_a_record_in_the_catalog_is_an_error(lake: Lake) -> None:
    table, _ = unpublished(lake)
    with closing(sqlite3.connect(lake.directory / "catalog.db")) as database, database:
        database.execute("DELETE FROM cm_delta_commits WHERE table_id = ? AND version = ?", (table.table_id, 3))
    before = {name for name in lake.files(table) if name.endswith(".json")}  # Checksums are written in the background.
    with pytest.raises(CorruptLogError, match="calls 3 its latest version and has no record"):
        publish(table)
    assert {name for name in lake.files(table) if name.endswith(".json")} == before
