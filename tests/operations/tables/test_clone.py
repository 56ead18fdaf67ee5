"""CLONE: the state of a version in a new table, and what VACUUM and purge keep for it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import InactiveState
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    MaintenanceInProgressError,
    ObjectNotFoundError,
    PurgeRefusedError,
    RecoveryError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    VacuumRefusedError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.doctor import doctor
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum, vacuum
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.relocate import plan_relocation, relocate
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, CloneResult, clone, open_source
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.orphan_files import find_orphan_files
from cm_delta_dagster.operations.tables.purge import plan_purge, purge, purge_abandoned
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.actions.paths import decode_path
from tests.support.actions import add_file
from tests.support.lake import Lake, broken_storage, vector

DEEP = CloneMode.DEEP
MAINTENANCE = (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.TABLE_PURGE)


@pytest.fixture
def source(lake: Lake) -> Table:
    """Two files, one of them with an escaped path, and a property."""
    for kind in MAINTENANCE:
        lake.allow(kind)
    table = lake.new_table(properties={"delta.logRetentionDuration": "interval 60 days", "owner": "me"})
    lake.append(table, "a.parquet")
    lake.append(table, "day=2026%2D01%2D01/b%20c.parquet")
    return table


def cloned(lake: Lake, table: Any, name: str = "c", **request: Any) -> CloneResult:
    return clone(lake.client, table, identifier=f"main.test.{name}", request=CloneRequest(**request))


def opened(lake: Lake, name: str = "c") -> Table:
    return lake.reopened().table(f"main.test.{name}")


def live(table: Table) -> list[str]:
    return sorted(table.snapshot().files["path"].to_pylist())


def references(lake: Lake, table: Table) -> list[str]:
    return [related.identifier.table for related in lake.catalog.registry.clones_of(table.table_id)]


def remove_all(lake: Lake, table: Table) -> None:
    for path in live(table):
        lake.remove(table, path)


def test_a_shallow_clone_names_the_files_of_its_source(lake: Lake, source: Table) -> None:
    before = lake.data_files(source)
    result = cloned(lake, source)
    table = opened(lake)
    root = source.location
    assert live(table) == [f"{root}/a.parquet", f"{root}/day=2026%2D01%2D01/b%20c.parquet"]
    assert (result.num_files, result.num_bytes, result.num_copied_files, result.warning) == (2, 200, 0, None)
    assert (result.source, result.source_version, result.location) == ("main.test.t", 2, table.location)
    assert lake.data_files(source) == before and not lake.data_files(table)
    snapshot, original = table.snapshot(), source.snapshot()
    assert (snapshot.version, snapshot.schema, snapshot.partition_columns) == (0, original.schema, ("day",))
    assert snapshot.metadata.id != original.metadata.id
    assert snapshot.files["stats"].to_pylist() == original.files["stats"].to_pylist()
    assert snapshot.metadata.configuration["owner"] == "me"
    assert snapshot.properties.table_id == table.table_id != source.table_id


def test_the_commit_of_a_clone_has_the_fields_of_delta_spark(lake: Lake, source: Table) -> None:
    cloned(lake, source, version=1)
    (commit,) = opened(lake).commit_actions(0, 0)
    info = commit.commit_info
    assert info is not None and info.operation == "CLONE"
    assert info.operation_parameters == {"source": "main.test.t", "sourceVersion": "1"}
    assert info.operation_metrics == {
        "sourceTableSize": "100",
        "sourceNumOfFiles": "1",
        "numRemovedFiles": "0",
        "numCopiedFiles": "0",
        "removedFilesSize": "0",
        "copiedFilesSize": "0",
    }
    assert commit.adds["dataChange"].to_pylist() == [True]


def test_deletion_vectors_of_a_clone_are_absolute(lake: Lake, source: Table) -> None:
    snapshot = source.snapshot()
    transaction = source.start_transaction(snapshot, operation="DELETE")
    fields = {"partition_values": {"day": "2026-01-01"}, "size": 100, "stats": '{"numRecords":10}'}
    transaction.add_files([replace(add_file("d.parquet", **fields), deletion_vector=vector())])
    transaction.commit()
    cloned(lake, source)
    (found,) = opened(lake).snapshot().files["deletionVector"].drop_null().to_pylist()
    assert found["storageType"] == "p"
    assert found["pathOrInlineDv"] == f"{source.location}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert (found["offset"], found["sizeInBytes"], found["cardinality"]) == (1, 40, 2)


def test_properties_are_taken_over_and_replaced(lake: Lake, source: Table) -> None:
    cloned(lake, source, properties={"owner": "you", "delta.appendOnly": "true"})
    snapshot = opened(lake).snapshot()
    assert snapshot.metadata.configuration["owner"] == "you"
    assert snapshot.metadata.configuration["delta.logRetentionDuration"] == "interval 60 days"
    assert "appendOnly" in (snapshot.protocol.writer_features or ())
    with pytest.raises(InvalidArgumentError, match="existing files must comply"):
        cloned(lake, source, "d", properties={"delta.columnMapping.mode": "name"})


def test_a_clone_can_be_written_without_its_source(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    table = opened(lake)
    lake.append(table, "own.parquet")
    lake.remove(table, f"{source.location}/a.parquet")
    assert live(table) == [f"{source.location}/day=2026%2D01%2D01/b%20c.parquet", "own.parquet"]
    assert len(live(source)) == 2


def test_row_ids_go_on_where_the_source_is(lake: Lake) -> None:
    table = lake.new_table(properties={"delta.feature.rowTracking": "supported"})
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    cloned(lake, table)
    copy = opened(lake)
    files = copy.snapshot().files
    assert dict(zip(files["path"].to_pylist(), files["baseRowId"].to_pylist(), strict=True)) == {
        f"{table.location}/a.parquet": 0,
        f"{table.location}/b.parquet": 10,
    }
    assert files["defaultRowCommitVersion"].to_pylist() == [0, 0]
    assert json.loads(copy.snapshot().domains["delta.rowTracking"].configuration) == {"rowIdHighWaterMark": 19}
    lake.append(copy, "c.parquet")
    assert max(copy.snapshot().files["baseRowId"].to_pylist()) == 20


@pytest.mark.parametrize("mode", list(CloneMode))
def test_refused_clones_leave_no_table_and_no_reference(lake: Lake, source: Table, mode: CloneMode) -> None:
    lake.new_table("taken")
    with pytest.raises(InvalidArgumentError, match="cannot be cloned onto itself"):
        cloned(lake, source, "t", mode=mode)
    with pytest.raises(TableAlreadyExistsError, match="taken"):
        cloned(lake, source, "taken", mode=mode)
    with pytest.raises(VersionNotFoundError):
        cloned(lake, source, mode=mode, version=42)
    with pytest.raises(TableNotFoundError):
        open_source(lake.client, "main.test.none")
    assert references(lake, source) == [] and lake.catalog.registry.inactive_tables() == ()


def test_a_version_that_vacuum_has_emptied_is_not_cloned(lake: Lake, source: Table) -> None:
    lake.remove(source, "a.parquet")
    lake.memory.delete(f"{source.location}/a.parquet")
    for mode in CloneMode:
        with pytest.raises(ObjectNotFoundError, match=r"a\.parquet"):
            cloned(lake, source, mode=mode, version=2)
    assert lake.catalog.registry.inactive_tables() == () and references(lake, source) == []
    assert cloned(lake, source).num_files == 1


def test_a_deep_clone_has_copies(lake: Lake, source: Table) -> None:
    result = cloned(lake, source, mode=DEEP)
    table = opened(lake)
    assert list(map(decode_path, live(table))) == list(map(decode_path, live(source)))
    assert lake.data_files(table) == {"a.parquet", "day=2026-01-01/b c.parquet"}
    assert (result.num_copied_files, result.copied_bytes) == (2, 200)
    assert references(lake, source) == []
    (commit,) = table.commit_actions(0, 0)
    assert commit.commit_info is not None and commit.commit_info.operation_metrics is not None
    assert commit.commit_info.operation_metrics["copiedFilesSize"] == "200"


def test_a_deep_clone_of_a_shallow_one_copies_vectors_too(lake: Lake, source: Table) -> None:
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    lake.put(source, name)
    lake.append(source, "v.parquet", deletion_vector=vector())
    cloned(lake, source)
    cloned(lake, opened(lake), "deep", mode=DEEP)
    table = opened(lake, "deep")
    assert not any(source.location in path for path in live(table))
    (found,) = table.snapshot().files["deletionVector"].drop_null().to_pylist()
    assert found["storageType"] == "u"
    assert len(lake.data_files(table)) == 4
    assert not [finding for finding in doctor(table).findings if "missing" in finding.message]


def test_a_failed_copy_leaves_nothing(lake: Lake, source: Table) -> None:
    lake.store.fails = broken_storage("copy", "b c.parquet")
    with pytest.raises(StorageError, match="fails for the test"):
        cloned(lake, source, mode=DEEP)
    lake.memory.write(f"{source.location}/a.parquet", b"short")
    lake.store.fails = lambda method, location: None
    with pytest.raises(StorageError, match="5 bytes instead of 100"):
        cloned(lake, source, mode=DEEP)
    assert lake.catalog.registry.inactive_tables() == ()
    assert not [s for s in lake.memory.list_recursive("memory://lake/warehouse/main/test") if "/c-" in s.location]


def test_vacuum_keeps_what_a_clone_names(lake: Lake, source: Table) -> None:
    cloned(lake, source, version=1)
    remove_all(lake, source)
    lake.clock.pass_days(30)
    assert plan_vacuum(source).paths == ("day=2026-01-01/b c.parquet",)
    assert vacuum(source).num_files == 1
    table = opened(lake)
    lake.remove(table, f"{source.location}/a.parquet")
    lake.clock.pass_days(3)
    assert vacuum(source).num_files == 0  # Within the retention of the clone.
    lake.clock.pass_days(5)
    assert vacuum(source).num_files == 1


def test_vacuum_keeps_what_a_dropped_clone_names(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    remove_all(lake, source)
    drop_table(lake.client, identifier="main.test.c")
    lake.clock.pass_days(30)
    assert vacuum(source).num_files == 0
    undrop_table(lake.client, identifier="main.test.c")
    drop_table(lake.client, identifier="main.test.c")
    lake.clock.pass_days(30)
    purge(lake.client, plan_purge(lake.client))
    assert references(lake, source) == []
    assert vacuum(source).num_files == 2


def test_vacuum_keeps_what_a_clone_of_a_clone_names(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    cloned(lake, opened(lake), "d")
    assert sorted(references(lake, source)) == ["c", "d"]
    assert all(path.startswith(source.location) for path in live(opened(lake, "d")))
    drop_table(lake.client, identifier="main.test.c")
    remove_all(lake, source)
    lake.clock.pass_days(30)
    assert vacuum(source).num_files == 0
    with pytest.raises(PurgeRefusedError, match=r"main\.test\.d"):
        purge(lake.client, plan_purge(lake.client))


def test_vacuum_is_refused_if_a_clone_cannot_be_loaded(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    table = opened(lake)
    remove_all(lake, source)
    lake.clock.pass_days(30)
    lake.client.wait_for_background()
    for status in list(lake.memory.list_recursive(f"{table.location}/_delta_log")):
        lake.memory.delete(status.location)
    with pytest.raises(VacuumRefusedError, match=r"main\.test\.c \(table id"):
        vacuum(lake.reopened().table("main.test.t"))
    assert len(lake.data_files(source)) == 2


def test_vacuum_is_refused_if_a_dropped_clone_has_newer_commits(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    table = opened(lake)
    lake.client.wait_for_background()
    drop_table(lake.client, identifier="main.test.c")
    log = f"{table.location}/_delta_log"
    lake.memory.copy(f"{log}/{0:020d}.json", f"{log}/{1:020d}.json")
    with pytest.raises(VacuumRefusedError, match="its log has version 1, and the catalog knows version 0"):
        vacuum(source)


def test_vacuum_of_a_clone_deletes_nothing_of_its_source(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    table = opened(lake)
    lake.append(table, "own.parquet")
    remove_all(lake, table)
    lake.clock.pass_days(30)
    assert vacuum(table).num_files == 1
    assert len(lake.data_files(source)) == 2


def test_a_source_is_not_purged_and_no_orphan(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    drop_table(lake.client, identifier="main.test.t")
    lake.clock.pass_days(30)
    with pytest.raises(PurgeRefusedError, match=r"shallow clone main\.test\.c \(table id"):
        purge(lake.client, plan_purge(lake.client))
    assert find_orphan_files(lake.client, warehouse="memory://lake/warehouse") == ()
    assert len(lake.data_files(source)) == 2


def test_a_clone_and_a_vacuum_exclude_each_other(lake: Lake, source: Table) -> None:
    with maintenance_lease(source, MaintenanceKind.DATA_CLEANUP), pytest.raises(MaintenanceInProgressError):
        cloned(lake, source)
    cloned(lake, source)
    with maintenance_lease(source, MaintenanceKind.DATA_CLEANUP):
        for act in (lambda: cloned(lake, opened(lake), "d"), lambda: restore(opened(lake), version=0)):
            with pytest.raises(MaintenanceInProgressError, match=r"main\.test\.t"):
                act()


class _Crash(BaseException):
    """The process ends: no handler of the client runs."""


@pytest.mark.parametrize("call", ["create_staging_table", "begin_purge", "register_table"])
def test_a_crash_leaves_no_table_and_no_reference(lake: Lake, source: Table, call: str) -> None:
    """After a crash the reservation is there: VACUUM goes on, and the creation is purged as others are."""
    staging = lake.catalog.registry.create_staging_table(
        source.identifier.__class__("main", "test", "c"), clone_of=source.table_id
    )
    if call == "register_table":  # Version 0 was written.
        lake.memory.write(f"{staging.location}/_delta_log/{0:020d}.json", b"{}")
    remove_all(lake, source)
    lake.clock.pass_days(30)
    if call == "begin_purge":
        assert [table.identifier.table for table in purge_abandoned(lake.client)] == ["c"]
        assert references(lake, source) == []
        return
    assert vacuum(source).num_files == 2
    assert references(lake, source) == []
    (left,) = lake.catalog.registry.inactive_tables()
    assert left.state is InactiveState.PURGING
    assert [table.identifier.table for table in purge_abandoned(lake.client)] == ["c"]
    assert lake.catalog.registry.inactive_tables() == ()


def test_a_clone_whose_lease_was_lost_is_not_registered(lake: Lake, source: Table) -> None:
    """VACUUM of the source took over while the clone was being made."""

    def overtaken(method: str, _: Any) -> None:
        if method == "register_table":
            lake.sql_catalog.registry.abandon_clones(source.table_id)

    lake.catalog.fails = overtaken
    with pytest.raises(TableNotFoundError):
        cloned(lake, source)
    lake.catalog.fails = lambda method, argument: None
    assert lake.catalog.registry.inactive_tables() == () and references(lake, source) == []


def test_doctor_names_the_source_of_missing_files(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    lake.memory.delete(f"{source.location}/a.parquet")
    (finding,) = [found for found in doctor(opened(lake)).findings if "missing" in found.message]
    assert f"They are files of main.test.t (table id {source.table_id}, active)" in finding.message


def test_a_table_with_clones_is_not_relocated(lake: Lake, source: Table) -> None:
    cloned(lake, source)
    lake.client.wait_for_background()
    for status in list(lake.memory.list_recursive("memory://lake/warehouse")):
        lake.memory.copy(status.location, status.location.replace("memory://lake/", "memory://moved/"))
    plan = plan_relocation(lake.client, moved_from="memory://lake/warehouse", moved_to="memory://moved/warehouse")
    with pytest.raises(RecoveryError, match=r"its shallow clones \(main\.test\.c\) name its files"):
        relocate(lake.client, plan)


def test_a_path_table_is_cloned_with_a_warning(lake: Lake, source: Table) -> None:
    deep = cloned(lake, source, "deep", mode=DEEP)
    # The copy in another place is not catalog-managed.
    log = f"{deep.location}/_delta_log/{0:020d}.json"
    text = (
        lake.memory.read(log).decode().replace('"catalogManaged",', "").replace("catalogManaged", "vacuumProtocolCheck")
    )
    path = "memory://lake/foreign/my table"
    lake.memory.write(f"{path}/_delta_log/{0:020d}.json", text.encode())
    result = cloned(lake, open_path_table(lake.client.stores, path))
    assert result.warning is not None and "this catalog cannot protect" in result.warning
    assert live(opened(lake))[0] == "memory://lake/foreign/my%20table/a.parquet"
    assert result.source == path and isinstance(lake.client, DeltaClient)


def test_recovery_finds_the_references_again(lake: Lake, source: Table, tmp_path: Path) -> None:
    cloned(lake, source)
    lake.client.wait_for_background()
    (tmp_path / "new").mkdir()
    new = Lake(tmp_path / "new")
    new.client = DeltaClient(new.catalog, stores=lake.client.stores, now_ms=lake.clock)
    plan = plan_warehouse_recovery(new.client, warehouse="memory://lake/warehouse")
    recover_warehouse(new.client, plan)
    assert references(new, source) == ["c"]
    new.client.close()
