"""RESTORE: an older version becomes the next version; nothing is lost, and missing files are found before the commit."""

import uuid
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    IllegalCommitError,
    InvalidArgumentError,
    MaintenanceInProgressError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease
from cm_delta_dagster.operations.tables.restore import (
    RestoreOutcome,
    plan_restore,
    restore,
)
from cm_delta_dagster.protocol.actions.actions import Action, CommitInfo, DeletionVectorDescriptor, Metadata
from cm_delta_dagster.protocol.actions.commit_json import encode_commit
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType, schema_to_json
from tests.support.actions import add_file
from tests.support.forced_commit import ratify
from tests.support.lake import SCHEMA, Lake, vector


def live(table: Table, version: int | None = None) -> list[str]:
    return sorted(table.snapshot(version=version).files["path"].to_pylist())


def set_metadata(table: Table, metadata: Metadata) -> int:
    transaction = table.start_transaction(table.snapshot(), operation="SET TBLPROPERTIES")
    transaction.set_metadata(metadata)
    return transaction.commit().version


def add_vector(lake: Lake, table: Table, path: str, descriptor: DeletionVectorDescriptor) -> int:
    """Commit a deletion vector for a live file, as a DELETE does."""
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="DELETE")
    files = snapshot.files.filter([value == path for value in snapshot.files["path"].to_pylist()])
    transaction.remove_files(removes_of(files, data_change=True))
    fields = {"partition_values": {"day": "2026-01-01"}, "size": 100, "stats": '{"numRecords":10}'}
    transaction.add_files([replace(add_file(path, **fields), deletion_vector=descriptor)])
    return transaction.commit().version


@pytest.mark.requirements("RESTORE-1")
def test_a_restore_commits_the_old_state_and_keeps_the_history(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    lake.remove(table, "a.parquet")
    result = restore(table, version=2)
    assert (result.outcome, result.version, result.restored_version) == (RestoreOutcome.COMMITTED, 4, 2)
    assert (result.num_restored_files, result.num_removed_files, result.restored_bytes) == (1, 0, 100)
    assert live(table) == ["a.parquet", "b.parquet"]
    assert live(lake.reopened().table("main.test.t"), 3) == ["b.parquet"]
    (commit,) = table.commit_actions(4, 4)
    assert commit.commit_info is not None
    assert (commit.commit_info.operation, commit.commit_info.operation_parameters) == ("RESTORE", {"version": "2"})
    assert commit.adds["dataChange"].to_pylist() == [True]


@pytest.mark.requirements("RESTORE-1")
def test_a_restore_can_be_undone_by_a_restore(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    restore(table, version=0)
    assert live(table) == []
    restore(table, version=2)
    assert live(table) == ["a.parquet", "b.parquet"]


def test_the_latest_version_is_restored_without_a_commit(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    result = restore(table, version=1)
    assert (result.outcome, result.version, table.snapshot().version) == (RestoreOutcome.NOTHING_TO_DO, 1, 1)


def test_a_timestamp_selects_the_version_of_that_time(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    time = table.snapshot().timestamp_ms
    lake.append(table, "b.parquet")
    assert restore(table, timestamp_ms=time).restored_version == 1
    assert live(table) == ["a.parquet"]


@pytest.mark.requirements("RESTORE-2")
def test_files_are_compared_by_path_and_deletion_vector(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    descriptor = vector()
    lake.put(table, "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", b"x" * 60)
    add_vector(lake, table, "a.parquet", descriptor)
    plan = plan_restore(table, version=2)
    assert plan.difference.removed["path"].to_pylist() == ["a.parquet"] == plan.difference.added["path"].to_pylist()
    restore(table, version=2)
    assert table.snapshot().files["deletionVector"].null_count == 2
    assert live(table) == ["a.parquet", "b.parquet"]


@pytest.mark.requirements("RESTORE-3")
def test_schema_and_properties_go_back_and_the_log_continues(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    before = table.snapshot()
    wider = StructType((*SCHEMA.fields, StructField("extra", PrimitiveType("string"))))
    set_metadata(
        table,
        replace(
            before.metadata,
            schema_string=schema_to_json(wider),
            configuration={**before.metadata.configuration, "delta.appendOnly": "true"},
        ),
    )
    restore(table, version=1)
    after = table.snapshot()
    assert after.schema == SCHEMA
    assert "delta.appendOnly" not in after.metadata.configuration
    assert after.metadata == before.metadata
    assert after.protocol == before.protocol
    assert after.timestamp_ms > before.timestamp_ms


def test_an_append_only_table_is_restored(lake: Lake) -> None:
    table = lake.new_table(properties={"delta.appendOnly": "true"})
    lake.append(table)
    restore(table, version=0)
    assert live(table) == []


@pytest.mark.requirements("RESTORE-4")
def test_missing_files_are_found_before_the_commit(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    restore(table, version=0)
    lake.memory.delete(f"{table.location}/a.parquet")
    with pytest.raises(
        ObjectNotFoundError, match=r"Version 2 of main.test.t cannot be restored: .* 1 of its files .*a\.parquet"
    ):
        restore(table, version=2)
    assert table.snapshot().version == 3
    result = restore(table, version=2, force=True)
    assert (result.num_missing_files, result.num_restored_files, live(table)) == (1, 1, ["b.parquet"])


@pytest.mark.requirements("RESTORE-4")
def test_a_missing_deletion_vector_counts_as_a_missing_file(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    add_vector(lake, table, "a.parquet", vector())
    restore(table, version=0)
    with pytest.raises(ObjectNotFoundError, match="deletion_vector"):
        restore(table, version=2)
    result = restore(table, version=2, force=True)
    assert (result.num_restored_files, live(table)) == (0, [])


def test_many_files_are_looked_up_by_one_listing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cm_delta_dagster.operations.tables.missing_files._FILES_TO_LIST", 2)
    table = lake.new_table()
    for name in ("a", "b", "c"):
        lake.append(table, f"{name}.parquet")
    restore(table, version=0)
    lake.memory.delete(f"{table.location}/b.parquet")
    lake.store.calls.clear()
    assert [path.rpartition("/")[2] for path in plan_restore(table, version=3).missing] == ["b.parquet"]
    assert [call for call in lake.store.calls if call[0] == "stat"] == [("stat", f"{table.location}/b.parquet")]


def test_a_concurrent_append_is_replaced_too(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    other = lake.reopened().table("main.test.t")
    appended: list[int] = []

    def append_first(method: str, argument: object) -> None:
        if method == "commit" and not appended:
            appended.append(1)
            lake.catalog.fails = lambda method, argument: None
            lake.append(other, "c.parquet")

    lake.catalog.fails = append_first
    result = restore(table, version=1)
    assert appended
    assert (result.version, live(table)) == (4, ["a.parquet"])


def test_a_restore_waits_for_no_maintenance_run(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    with (
        maintenance_lease(table, MaintenanceKind.DATA_CLEANUP, owner="vacuum"),
        pytest.raises(MaintenanceInProgressError, match="vacuum holds the maintenance lease"),
    ):
        restore(table, version=0)
    assert table.snapshot().version == 1


@pytest.mark.parametrize("arguments", [{}, {"version": 0, "timestamp_ms": 1}])
def test_a_version_or_a_timestamp_is_needed(lake: Lake, arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"a version (nor|and) a timestamp"):
        restore(lake.new_table(), **arguments)


def test_a_version_that_does_not_exist_is_refused(lake: Lake) -> None:
    table = lake.new_table()
    with pytest.raises(VersionNotFoundError, match="Version 9"):
        restore(table, version=9)


@pytest.mark.requirements("RESTORE-5")
def test_restored_files_keep_their_row_ids(lake: Lake) -> None:
    table = lake.new_table(properties={"delta.feature.rowTracking": "supported"})
    lake.append(table, "a.parquet")
    lake.append(table, "b.parquet")
    before = table.snapshot().files.select(["path", "baseRowId", "defaultRowCommitVersion"])
    restore(table, version=0)
    restore(table, version=2)
    after = table.snapshot().files.select(["path", "baseRowId", "defaultRowCommitVersion"])
    assert sorted(after.to_pylist(), key=str) == sorted(before.to_pylist(), key=str)
    assert before["baseRowId"].to_pylist() == [0, 10]
    restore(table, version=0)
    lake.append(table, "c.parquet")
    assert table.snapshot().files["baseRowId"].to_pylist() == [20]


def _with_columns(metadata: Metadata, *columns: StructField) -> Metadata:
    return replace(metadata, schema_string=schema_to_json(StructType((*SCHEMA.fields, *columns))))


def _force(lake: Lake, table: Table, *actions: Action) -> int:
    """Ratify a commit whose content the catalog does not see."""
    lake.clock.now += 1000
    txn_id = str(uuid.uuid4())
    info = CommitInfo(
        in_commit_timestamp=lake.clock(), timestamp=lake.clock(), txn_id=txn_id, operation="WRITE", engine_info="fork"
    )
    return ratify(lake, table, encode_commit([info, *actions]), txn_id=txn_id)


@pytest.mark.parametrize("name", ["ID", "", "day"])
def test_a_version_whose_definition_the_catalog_refuses_is_not_restored_and_nothing_is_written(
    lake: Lake, name: str
) -> None:
    """Other clients wrote it before the catalog checked commits."""
    table = lake.new_table()
    lake.append(table, "a.parquet")
    good = table.snapshot().metadata
    bad = _force(lake, table, _with_columns(good, StructField(name=name, type=PrimitiveType("long"))))
    _force(lake, table, good)
    version = table.snapshot().version
    table.services.wait_for_background()
    files = lake.files(table)
    for refused in (plan_restore, restore):
        with pytest.raises(
            IllegalCommitError, match=f"Version {bad} of main.test.t cannot be restored: .*schemaString"
        ):
            refused(table, version=bad)
    table.services.wait_for_background()
    assert lake.files(table) == files and table.snapshot().version == version


def test_a_version_is_not_restored_if_files_stay_that_have_another_type(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table, "a.parquet")
    good = table.snapshot().metadata
    numbers = StructField(name="n", type=PrimitiveType("long"))
    before = _force(lake, table, _with_columns(good, numbers))
    _force(lake, table, _with_columns(good, replace(numbers, type=PrimitiveType("string"))))
    with pytest.raises(IllegalCommitError, match=rf"Version {before} of .* the type of column n from string to bigint"):
        restore(table, version=before)
    removed = lake.remove(table, "a.parquet").version
    assert restore(table, version=before).version == removed + 1


def test_a_wider_type_is_taken_back_by_a_restore_that_keeps_files(lake: Lake) -> None:
    table = lake.new_table(properties={"delta.enableTypeWidening": "true"})
    lake.append(table, "a.parquet")
    good = table.snapshot().metadata
    number = StructField(name="n", type=PrimitiveType("integer"))
    before = set_metadata(table, _with_columns(good, number))
    changes = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    set_metadata(table, _with_columns(good, replace(number, type=PrimitiveType("long"), metadata=changes)))
    lake.append(table, "b.parquet")
    restore(table, version=before)
    assert live(table) == ["a.parquet"]
    assert [field.type for field in table.snapshot().schema.fields if field.name == "n"] == [PrimitiveType("integer")]
