"""VACUUM deletes what no version within the retention needs, and nothing else."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    RetentionTooShortError,
    StorageError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.operations.maintenance import vacuum as vacuum_module
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum, vacuum
from cm_delta_dagster.operations.tables import create
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location
from tests.support.lake import DAY_MS, Lake, broken_storage, vector
from tests.support.log_records import messages_of


@pytest.fixture
def table(lake: Lake) -> Table:
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    return lake.new_table()


def age(lake: Lake, table: Table, path: str) -> None:
    """Set the modification time of a file to the past."""
    now, lake.clock.now = lake.clock.now, 0
    lake.put(table, path)
    lake.clock.now = now


@pytest.mark.requirements("VAC-1", "VAC-4")
def test_files_that_nothing_refers_to_are_deleted_once_they_are_old(lake: Lake, table: Table) -> None:
    lake.append(table, "live.parquet")
    lake.put(table, "orphan.parquet")
    lake.put(table, "day=2026-01-01/orphan.parquet")
    lake.clock.pass_days(6.9)
    assert vacuum(table).num_files == 0
    lake.put(table, "young.parquet")
    lake.clock.pass_days(0.2)
    result = vacuum(table)
    assert (result.num_files, result.num_bytes) == (2, 200)
    assert lake.data_files(table) == {"live.parquet", "young.parquet"}


@pytest.mark.requirements("VAC-1", "VAC-6")
def test_removed_files_are_kept_for_the_retention_and_then_deleted(lake: Lake, table: Table) -> None:
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    lake.clock.pass_days(30)
    lake.remove(table, "a.parquet")
    lake.clock.pass_days(6.9)
    assert vacuum(table).num_files == 0
    lake.clock.pass_days(0.2)
    assert vacuum(table).num_files == 1
    assert lake.data_files(table) == {"b.parquet"}


@pytest.mark.requirements("VAC-5")
def test_the_plan_lists_the_same_files_and_deletes_nothing(lake: Lake, table: Table) -> None:
    lake.append(table, "live.parquet")
    lake.put(table, "b c.parquet")
    lake.put(table, "a.parquet")
    lake.clock.pass_days(8)
    plan = plan_vacuum(table)
    assert plan.paths == ("a.parquet", "b c.parquet")
    assert (plan.num_files, plan.num_bytes, plan.version) == (2, 200, 1)
    assert lake.data_files(table) == {"a.parquet", "b c.parquet", "live.parquet"}


@pytest.mark.requirements("VAC-3", "VAC-6")
def test_vacuum_commits_nothing_and_deletes_no_log_file(lake: Lake, table: Table) -> None:
    lake.append(table, "live.parquet")
    lake.put(table, "_delta_log/_staged_commits/junk.json")
    lake.put(table, "_delta_log/junk.parquet")
    lake.clock.pass_days(100)
    lake.client.wait_for_background()
    before, version = lake.files(table), table.snapshot().version
    vacuum(table, retention_ms=0, force=True)
    assert (lake.files(table), table.snapshot().version) == (before, version)


@pytest.mark.requirements("VAC-3")
def test_hidden_files_are_kept_but_old_change_data_is_deleted(lake: Lake, table: Table) -> None:
    for path in ("_SUCCESS", ".part.crc", "_temporary/x.parquet", ".hidden/x.parquet", "day=1/_x.parquet"):
        lake.put(table, path)
    lake.put(table, "_change_data/cdc.parquet")
    lake.clock.pass_days(8)
    assert plan_vacuum(table).paths == ("_change_data/cdc.parquet",)


@pytest.mark.requirements("VAC-1", "VAC-3", "VAC-7")
def test_empty_objects_that_stand_for_directories_of_writes_are_deleted_once_they_are_old(
    lake: Lake, table: Table
) -> None:
    """Spark's clients leave them. Other such objects may be a user's, and stay, as one with a file in it."""
    emptied, write = "delta.txn=0e/", "delta.txn=0f/"
    young, kept = f"{write}young/", ("notes/", "day=1/", "_delta_log/", "delta.txn=0f-mine/", "delta.txn=ab/full/")
    for path in (emptied, write, f"{write}day=1/", f"{write}_temporary/", *kept):
        lake.memory.write(f"{table.location}/{path}", b"not empty" if "full" in path else b"")
    lake.put(table, f"{write}day=1/orphan.parquet")
    lake.append(table, f"{write}live.parquet")
    lake.clock.pass_days(6.9)
    assert plan_vacuum(table).paths == ()
    lake.clock.pass_days(0.2)
    lake.memory.write(f"{table.location}/{young}", b"")
    deleted = (emptied, f"{write}_temporary/", f"{write}day=1/", f"{write}day=1/orphan.parquet")
    assert plan_vacuum(table).paths == deleted
    assert vacuum(table).num_files == 4
    left = {
        status.location.removeprefix(f"{table.location}/")
        for status in lake.memory.list_recursive(table.location, with_directories=True)
    }
    assert left >= {young, write, *kept, f"{write}live.parquet"} and left.isdisjoint(deleted)


@pytest.mark.requirements("VAC-7", "REC-14")
def test_paths_that_need_encoding_are_recognised(lake: Lake, table: Table) -> None:
    lake.append(table, "day=a%2525/b%20c.parquet")
    lake.append(table, f"{table.location}/absolute%20one.parquet")
    lake.put(table, "absolute one.parquet")
    lake.clock.pass_days(8)
    assert plan_vacuum(table).paths == ()


@pytest.mark.requirements("VAC-7")
def test_files_outside_of_the_table_are_never_deleted(lake: Lake, table: Table) -> None:
    lake.memory.write(f"{table.location}-next/x.parquet", b"theirs")
    lake.memory.write("memory://lake/x.parquet", b"theirs")
    lake.clock.pass_days(8)
    vacuum(table)
    assert lake.memory.read(f"{table.location}-next/x.parquet") == b"theirs"
    assert lake.memory.read("memory://lake/x.parquet") == b"theirs"


def test_files_of_a_table_below_the_table_are_never_deleted(lake: Lake, table: Table) -> None:
    """A path table may have another one below it when it is adopted."""
    for name in ("inner/_delta_log/00000000000000000000.json", "inner/day=1/a.parquet", "inner.parquet"):
        lake.put(table, name)
    lake.clock.pass_days(30)
    lake.put(table, "young/_delta_log/00000000000000000000.json")
    assert vacuum(table).num_files == 1
    assert {name for name in lake.files(table) if name.startswith("inner")} == {
        "inner/_delta_log/00000000000000000000.json",
        "inner/day=1/a.parquet",
    }


@pytest.mark.requirements("VAC-2")
def test_deletion_vectors_of_live_and_of_recently_removed_files_are_kept(lake: Lake, table: Table) -> None:
    old, live = vector(name="^-aqEH.-t@S}K{vb[*k^"), vector()
    for descriptor in (old, live):
        location = dv_location(table.location, descriptor)
        assert location is not None
        lake.put(table, location.removeprefix(f"{table.location}/"))
    lake.put(table, "deletion_vector_00000000-0000-0000-0000-000000000000.bin")
    lake.append(table, "a.parquet", deletion_vector=old)
    lake.append(table, "b.parquet", deletion_vector=live)
    lake.clock.pass_days(8)
    lake.remove(table, "a.parquet")
    assert plan_vacuum(table).paths == ("deletion_vector_00000000-0000-0000-0000-000000000000.bin",)
    lake.clock.pass_days(8)
    assert [path.rpartition(".")[2] for path in plan_vacuum(table).paths] == ["parquet", "bin", "bin"]


@pytest.mark.requirements("CM-R2")
def test_files_of_unpublished_commits_are_kept(lake: Lake, table: Table) -> None:
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{1:020d}.json")
    lake.append(table, "a.parquet")
    lake.store.fails = lambda method, location: None
    lake.clock.pass_days(8)
    vacuum(table)
    assert lake.data_files(table) == {"a.parquet"}


def test_a_commit_made_during_the_listing_protects_its_files(lake: Lake, table: Table) -> None:
    """A commit adds an old file again after the listing began, as RESTORE does."""
    lake.put(table, "back.parquet")
    lake.clock.pass_days(8)
    done: list[str] = []

    def overtake(method: str, location: object) -> None:
        if method == "list_recursive" and not done:
            done.append(method)
            lake.append(table, "back.parquet")
            age(lake, table, "back.parquet")

    lake.store.fails = overtake
    vacuum(table)
    assert lake.data_files(table) == {"back.parquet"}


def test_a_commit_made_after_the_plan_protects_its_files(lake: Lake, table: Table) -> None:
    lake.put(table, "back.parquet")
    lake.put(table, "gone.parquet")
    lake.clock.pass_days(8)
    done: list[str] = []
    asked: list[int] = []

    def overtake(method: str, argument: object) -> None:
        if method == "get_ratified_commits":
            asked.append(1)
        # The plan takes two snapshots and one walk over the history. The next call precedes the deletion.
        if len(asked) == 4 and not done:
            done.append("x")
            lake.append(table, "back.parquet")

    lake.catalog.fails = overtake
    assert vacuum(table).num_files == 1
    assert done
    assert lake.data_files(table) == {"back.parquet"}


@pytest.mark.requirements("VAC-6")
def test_tombstones_dropped_by_a_checkpoint_protect_a_longer_retention(lake: Lake) -> None:
    """When the checkpoint was written, the retention of the table was shorter than that of this run."""
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    table = lake.new_table(properties={"delta.deletedFileRetentionDuration": "interval 1 days"})
    lake.append(table, "a.parquet")
    lake.remove(table, "a.parquet")
    lake.clock.pass_days(3)
    checkpoint(table)
    lake.append(table, "b.parquet")
    fresh = lake.reopened().table("main.test.t")
    assert fresh.snapshot().tombstones.num_rows == 0
    assert plan_vacuum(fresh, retention_ms=7 * DAY_MS).paths == ()
    assert plan_vacuum(fresh).paths == ("a.parquet",)


@pytest.mark.requirements("VAC-5")
def test_a_retention_below_that_of_the_table_is_refused(lake: Lake, table: Table) -> None:
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(1)
    with pytest.raises(RetentionTooShortError, match="7 days"):
        vacuum(table, retention_ms=DAY_MS // 2)
    assert lake.data_files(table) == {"orphan.parquet"}
    assert vacuum(table, retention_ms=DAY_MS // 2, force=True).num_files == 1


@pytest.mark.parametrize("retention", [0, 7, 1.5, "7 days", True, datetime.timedelta(microseconds=-1)])
def test_a_retention_that_is_not_a_timedelta_is_refused(lake: Lake, table: Table, retention: Any) -> None:
    """A number has no unit, and a wrong unit would delete files."""
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(8)
    handle = Connection(lake.client).table(str(table.identifier))
    for verb in (handle.plan_vacuum, handle.vacuum):
        with pytest.raises(InvalidArgumentError, match=r"retention is .*timedelta"):
            verb(retention, force=True)
    for argument in ("retention", "abandoned_after"):
        with pytest.raises(InvalidArgumentError, match=rf"{argument} is .*timedelta"):
            Connection(lake.client).maintenance.plan_purge(**{argument: retention})
    assert handle.plan_vacuum(datetime.timedelta(0), force=True).paths == ("orphan.parquet",)


@pytest.mark.parametrize("retention", [0.5, "0", True])
def test_a_retention_that_is_not_in_milliseconds_is_refused(table: Table, retention: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="retention_ms"):
        vacuum(table, retention_ms=retention, force=True)


def test_a_retention_of_zero_is_logged_as_a_warning(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """When the table is created, and at each VACUUM with that retention."""
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    properties = {"delta.deletedFileRetentionDuration": "interval 0 days"}
    table = lake.new_table("careless", properties=properties)
    (creation,) = messages_of(caplog, create)
    assert "main.test.careless" in creation and "interval 7 days" in creation
    caplog.clear()
    lake.append(table, "a.parquet")
    lake.remove(table, "a.parquet")
    lake.clock.now += 1
    assert vacuum(table).num_files == 1
    (warning,) = messages_of(caplog, vacuum_module)
    assert "running readers" in warning
    caplog.clear()
    vacuum(table, retention_ms=DAY_MS)
    vacuum(lake.new_table("careful"))
    assert not messages_of(caplog, create, vacuum_module)


def test_a_negative_retention_is_refused_even_without_the_check(lake: Lake, table: Table) -> None:
    with pytest.raises(InvalidArgumentError):
        vacuum(table, retention_ms=-1, force=True)


@pytest.mark.requirements("VPC-2")
def test_an_unsupported_writer_feature_stops_vacuum_before_the_listing(lake: Lake, table: Table) -> None:
    commit = f"{table.location}/_delta_log/{0:020d}.json"
    text = lake.memory.read(commit).decode().replace('"inCommitTimestamp",', '"inCommitTimestamp","unheardOf",')
    lake.replace_commit(table, 0, text.encode())
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(8)
    fresh = lake.reopened().table("main.test.t")
    lake.store.calls.clear()
    with pytest.raises(UnsupportedFeatureError, match="unheardOf"):
        vacuum(fresh)
    assert not any(method in ("list_recursive", "delete") for method, _ in lake.store.calls)


def test_the_next_run_deletes_a_file_that_could_not_be_deleted(lake: Lake, table: Table) -> None:
    for number in range(5):
        lake.put(table, f"orphan-{number}.parquet")
    lake.clock.pass_days(8)
    lake.store.fails = broken_storage("delete", "orphan-2")
    with pytest.raises(StorageError):
        vacuum(table)
    assert "orphan-2.parquet" in lake.data_files(table)
    lake.store.fails = lambda method, location: None
    vacuum(table)
    assert lake.data_files(table) == set()


def test_hadoops_checksum_files_are_deleted_with_their_files(tmp_path: Path) -> None:
    """On a local file system Spark writes a hidden checksum file next to each file."""
    local = Lake(tmp_path, warehouse=f"file://{tmp_path}/warehouse")
    local.allow(MaintenanceKind.DATA_CLEANUP)
    table = local.new_table()
    root = Path(table.location.removeprefix("file://"))
    (root / "x.parquet").write_bytes(b"x")
    (root / ".x.parquet.crc").write_bytes(b"x")
    local.clock.now = (root / "x.parquet").stat().st_mtime_ns // 1_000_000 + 8 * DAY_MS
    assert vacuum(table).num_files == 1
    assert {path.name for path in root.iterdir()} == {"_delta_log"}
    local.client.close()
