"""A catalog that is older than its storage, and storage that is not there, are found before anything is written or deleted."""

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings, OnCatalogBehind
from cm_delta_dagster.client.snapshots import storage_check
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CorruptLogError,
    DirectoryNotFoundError,
    TableStorageMissingError,
)
from cm_delta_dagster.operations.doctor import repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.tables.purge import plan_purge, purge, purge_abandoned
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from cm_delta_dagster.remedies import RecoverTable, RelocateTables, RepairTable
from cm_delta_dagster.storage.stores import Stores
from tests.client.commits.test_commit import append
from tests.client.conftest import SCHEMA
from tests.support.creation import create_table

NAME = "main.test.t"


class Place:
    """A SQLite catalog and a warehouse in one directory, and clients of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.warehouse = directory / "warehouse"
        self._open: list[DeltaClient] = []

    def client(self, **settings: object) -> DeltaClient:
        catalog = SqlCatalog(f"sqlite:///{self.directory}/catalog.db", warehouse=f"file://{self.warehouse}")
        chosen = ClientSettings(retry_initial_delay=timedelta(seconds=0.001), publish_delay=timedelta(0), **settings)  # type: ignore[arg-type]  # Fields of any type.
        client = DeltaClient(catalog, stores=Stores(), settings=chosen)
        self._open.append(client)
        return client

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def back_up(self) -> None:
        with (
            closing(sqlite3.connect(self.directory / "catalog.db")) as live,
            closing(sqlite3.connect(self.directory / "backup.db")) as copy,
        ):
            live.backup(copy)

    def restore(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            (self.directory / f"catalog.db{suffix}").unlink(missing_ok=True)
        shutil.copy(self.directory / "backup.db", self.directory / "catalog.db")

    def files(self) -> set[Path]:
        return {path for path in self.warehouse.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    storage_check._WARNED.clear()
    place = Place(tmp_path)
    yield place
    place.close()


def grow(place: Place, mode: CommitPolicyKind = CommitPolicyKind.STAGED, before: int = 3, after: int = 5) -> None:
    """A table with ``before`` commits that the backup of the catalog knows and ``after`` that it does not."""
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    choose_commit_policy(client, scope=NAME, policy=CommitPolicy(kind=mode))
    for _ in range(before):
        append(table)
    table.ratified()
    place.back_up()
    for _ in range(after):
        append(table)
    table.ratified()
    for kind in MaintenanceKind:
        client.catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main", kind=kind, allowed=True))
    place.restore()


def allowed(client: DeltaClient) -> DeltaClient:
    for kind in MaintenanceKind:
        client.catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main", kind=kind, allowed=True))
    return client


VERBS: dict[str, Callable[[Table], object]] = {
    "append": append,
    "publish": publish,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
    "clean_log": clean_log,
    "clean_staged_commits": clean_staged_commits,
}


@pytest.mark.parametrize("mode", [CommitPolicyKind.STAGED, CommitPolicyKind.INLINE])
@pytest.mark.parametrize("verb", VERBS)
def test_a_restored_catalog_refuses_everything_that_writes_or_deletes(
    place: Place, verb: str, mode: CommitPolicyKind
) -> None:
    grow(place, mode)
    before = place.files()
    table = allowed(place.client()).table(NAME)
    table.snapshot()
    with pytest.raises(CatalogBehindStorageError, match="versions 4 to 8 of main") as caught:
        VERBS[verb](table)
    assert (caught.value.latest_version, caught.value.storage_version) == (3, 8)
    assert place.files() == before and table.latest_version() == 3


def test_a_read_of_a_restored_catalog_warns_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    grow(place)
    with caplog.at_level(logging.WARNING):
        assert place.client().table(NAME).snapshot().num_files == 3
        assert place.client().table(NAME).snapshot().num_files == 3
    (warning,) = [text for text in caplog.messages if "behind its storage" in text]
    assert advice(RecoverTable(table=NAME)) in warning and "Version 3 is read" in warning


@pytest.mark.parametrize("before", [3, 90])
def test_a_read_of_a_restored_catalog_is_refused_where_the_setting_says_so(place: Place, before: int) -> None:
    """With every commit in the catalog's content, and with a log that is listed."""
    grow(place, before=before, after=2)
    client = place.client(on_catalog_behind_storage=OnCatalogBehind.REFUSE)
    with pytest.raises(CatalogBehindStorageError):
        client.table(NAME).snapshot()


def test_a_put_if_absent_table_takes_its_commits_in_by_itself(place: Place) -> None:
    grow(place, CommitPolicyKind.PUT_IF_ABSENT)
    table = place.client().table(NAME)
    assert table.snapshot().num_files == 8
    assert append(table).version == 9


def test_a_process_that_knows_newer_versions_reads_what_the_restored_catalog_has(place: Place) -> None:
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    place.back_up()
    append(table)
    assert table.snapshot().version == 2
    with (
        closing(sqlite3.connect(place.directory / "backup.db")) as copy,
        closing(sqlite3.connect(place.directory / "catalog.db")) as live,
    ):
        copy.backup(live)  # Restored under the feet of the running process.
    assert table.snapshot().version == 1
    with pytest.raises(CatalogBehindStorageError):
        append(table)


def test_a_snapshot_of_a_lost_history_is_not_built_upon(place: Place) -> None:
    """The catalog was restored and went past the version that this process has in memory."""
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    place.back_up()
    lost = append(table)
    assert table.snapshot().num_files == 2
    with (
        closing(sqlite3.connect(place.directory / "backup.db")) as copy,
        closing(sqlite3.connect(place.directory / "catalog.db")) as live,
    ):
        copy.backup(live)
    for path in place.files():
        if path.name.startswith(f"{lost.version:020d}"):
            path.unlink()
    other = place.client().table(NAME)
    names = {append(other).snapshot.files["path"].to_pylist()[-1] for _ in range(2)}
    assert names
    assert sorted(table.snapshot().files["path"].to_pylist()) == sorted(other.snapshot().files["path"].to_pylist())


def test_two_histories_are_distinguished_at_the_first_publication(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that had the restored version in memory commits before it can notice."""
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    place.back_up()
    append(place.client().table(NAME))
    with (
        closing(sqlite3.connect(place.directory / "backup.db")) as copy,
        closing(sqlite3.connect(place.directory / "catalog.db")) as live,
    ):
        copy.backup(live)
    append(table)
    logged = [str(record.exc_info) for record in caplog.records]
    assert any("two histories" in text and "kept in its staged file or in the catalog" in text for text in logged)
    with pytest.raises(CatalogBehindStorageError, match="two histories"):
        append(table)
    with pytest.raises(CatalogBehindStorageError, match="two histories"):
        publish(table)
    with pytest.raises(CatalogBehindStorageError, match="two histories"):
        vacuum(allowed(place.client()).table(NAME))


def test_a_table_whose_directory_is_gone_is_not_written_to(place: Place) -> None:
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    place.warehouse.rename(place.directory / "unmounted")
    for reader in (table, place.client().table(NAME)):
        with pytest.raises(TableStorageMissingError, match="not mounted"):
            append(reader)
    assert not place.warehouse.exists()
    (place.directory / "unmounted").rename(place.warehouse)
    assert append(table).version == 2


def test_no_table_is_created_in_a_warehouse_that_is_not_mounted(place: Place) -> None:
    create_table(place.client(), identifier=NAME, schema=SCHEMA)
    place.warehouse.rename(place.directory / "unmounted")
    place.warehouse.mkdir()  # The mount point.
    with pytest.raises(TableStorageMissingError, match="not mounted"):
        create_table(place.client(), identifier="main.test.other", schema=SCHEMA)
    assert not list(place.warehouse.iterdir())
    place.warehouse.rmdir()
    (place.directory / "unmounted").rename(place.warehouse)
    create_table(place.client(), identifier="main.test.other", schema=SCHEMA)


def test_a_write_after_a_move_names_the_old_and_the_new_place(place: Place) -> None:
    create_table(place.client(), identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    old, new = place.warehouse, place.directory / "moved"
    old.rename(new)
    place.warehouse = new
    table = place.client().table(NAME)
    with pytest.raises(TableStorageMissingError, match="A log is at") as refused:
        append(table)
    assert refused.value.remedy == RelocateTables(moved_from=f"file://{old}", moved_to=f"file://{new}")


@pytest.mark.parametrize("mode", [CommitPolicyKind.STAGED, CommitPolicyKind.PUT_IF_ABSENT])
def test_a_directory_deleted_during_a_write_is_not_created_again(place: Place, mode: CommitPolicyKind) -> None:
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    choose_commit_policy(client, scope=NAME, policy=CommitPolicy(kind=mode))
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    place.warehouse.rename(place.directory / "unmounted")
    with pytest.raises(DirectoryNotFoundError, match="does not exist"):
        transaction.commit()
    assert not place.warehouse.exists()
    assert client.coordinator.get_ratified_commits(table.table_id).latest_version == 0


def test_a_log_without_its_newest_commit_is_not_written_to_until_it_is_put_back(place: Place) -> None:
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    table.ratified()
    client.wait_for_background()
    (next(path for path in place.files() if path.name == f"{1:020d}.json")).unlink()
    before = place.files()
    with pytest.raises(TableStorageMissingError, match="holds commits up to version 0") as refused:
        append(table)
    assert refused.value.remedy == RepairTable(table=NAME)
    assert place.files() == before
    repair_table(table)
    assert append(table).version == 2


@pytest.mark.parametrize("copied", [0, 16 * 1024])
def test_an_older_copy_of_the_warehouse_is_not_written_to(place: Place, copied: int) -> None:
    client = place.client(copied_content_bytes=copied)
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    table.ratified()
    client.wait_for_background()
    shutil.copytree(place.warehouse, place.directory / "older")
    append(table)
    table.ratified()
    client.wait_for_background()
    place.warehouse.rename(place.directory / "current")
    (place.directory / "older").rename(place.warehouse)
    for other in (table, place.client(copied_content_bytes=copied).table(NAME)):
        with pytest.raises((TableStorageMissingError, CorruptLogError), match="older copy of"):
            append(other)
    place.warehouse.rename(place.directory / "older")
    (place.directory / "current").rename(place.warehouse)
    assert append(table).version == 3


@pytest.mark.parametrize("mode", [CommitPolicyKind.STAGED, CommitPolicyKind.INLINE, CommitPolicyKind.PUT_IF_ABSENT])
@pytest.mark.parametrize("copied", [0, 16 * 1024])
def test_a_catalog_older_than_the_last_log_cleanup_is_noticed(
    place: Place, mode: CommitPolicyKind, copied: int, caplog: pytest.LogCaptureFixture
) -> None:
    """There is a gap between its latest version and the commits that are left."""
    client = allowed(place.client(copied_content_bytes=copied))
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    choose_commit_policy(client, scope=NAME, policy=CommitPolicy(kind=mode))
    append(table)
    table.ratified()
    place.back_up()
    for _ in range(4):
        append(table)
    table.ratified()
    checkpoint(table)
    append(table)
    table.ratified()
    client.wait_for_background()
    newest = table.latest_version()
    for path in place.files():  # As clean_log leaves it.
        old = path.parent.name == "_delta_log" and path.name[:20].isdigit() and int(path.name[:20]) < newest - 1
        if old or path.parent.name == "_staged_commits":
            path.unlink()
    place.restore()
    before = place.files()
    again = allowed(place.client(copied_content_bytes=copied)).table(NAME)
    with caplog.at_level(logging.WARNING):
        try:
            again.snapshot()
            assert any("behind its storage" in text for text in caplog.messages)
        except CatalogBehindStorageError:
            pass
    for verb in (append, vacuum, clean_log):
        with pytest.raises(CatalogBehindStorageError):
            verb(again)
    assert place.files() == before


def test_a_creation_that_a_restored_catalog_takes_for_given_up_is_not_purged(place: Place) -> None:
    """The backup was made between the reservation of the location and the registration of the name."""
    client = place.client()
    first = create_table(client, identifier="main.test.first", schema=SCHEMA)
    place.back_up()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    append(table)
    table.ratified()
    with closing(sqlite3.connect(place.directory / "catalog.db")) as live:
        row = live.execute("SELECT * FROM cm_delta_tables WHERE table_id = ?", (table.table_id,)).fetchone()
        names = [column[1] for column in live.execute("PRAGMA table_info(cm_delta_tables)")]
    place.restore()
    with closing(sqlite3.connect(place.directory / "catalog.db")) as restored, restored:
        values = dict(zip(names, row, strict=True)) | {
            "state": "staging",
            "latest_version": -1,
            "published_version": -1,
            "created_ms": None,
            "reserved_ms": 1,
        }
        restored.execute(
            f"INSERT INTO cm_delta_tables ({', '.join(values)}) VALUES ({', '.join('?' for _ in values)})",
            tuple(values.values()),
        )
    before = place.files()
    again = place.client()
    assert purge_abandoned(again) == () and place.files() == before
    with pytest.raises(CatalogBehindStorageError, match="was not purged"):
        purge(again, plan_purge(again, scope="main"))
    assert place.files() == before and first.table_id


def test_a_dropped_table_that_was_written_to_after_the_backup_is_not_purged(place: Place) -> None:
    client = place.client()
    table = create_table(client, identifier=NAME, schema=SCHEMA, partition_columns=("day",))
    client.registry.drop_table(table.identifier)
    place.back_up()
    client.registry.undrop_table(table.table_id)
    append(table)
    table.ratified()
    place.restore()
    before = place.files()
    again = allowed(place.client())
    with pytest.raises(CatalogBehindStorageError, match="was not purged"):
        purge(again, plan_purge(again, scope="main", retention_ms=0))
    assert place.files() == before
