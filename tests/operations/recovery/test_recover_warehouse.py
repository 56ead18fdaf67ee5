"""A new catalog adopts the tables of a lost catalog from their logs."""

from dataclasses import replace
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import InactiveState
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    RecoveryError,
    TableNotFoundError,
    WarehouseMismatchError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.recovery.recover import plan_recovery
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.warehouse_plan import WarehousePlan, explain_adoption
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.log.markers import TABLE_MARKER_NAME, WAREHOUSE_MARKER_NAME
from cm_delta_dagster.remedies import RecoverWarehouse
from tests.support.lake import Lake
from tests.support.old_catalog import lose

WAREHOUSE = "memory://lake/warehouse"


def plan_of(lake: Lake, **arguments: object) -> WarehousePlan:
    return plan_warehouse_recovery(lake.client, warehouse=WAREHOUSE, **arguments)  # type: ignore[arg-type]


def log(table: Table, name: str) -> str:
    return f"{table.location}/_delta_log/{name}"


def test_tables_come_back_with_id_name_definition_and_every_commit(lake: Lake, tmp_path: Path) -> None:
    table, other = lake.new_table(), lake.new_table("other", properties={"delta.appendOnly": "true"})
    for _ in range(3):
        lake.append(table)
    rename_table(lake.client, identifier="main.test.other", to="main.test.renamed")
    definition = lake.catalog.registry.load_table_by_id(other.table_id).definition
    feed = {
        (entry.version, entry.summary.txn_id): replace(
            entry.summary, counts=None
        )  # Only the writer of a commit knows them.
        for entry in lake.catalog.feed.feed(after=0, limit=99)
    }
    former = lake.catalog.registry.identity().catalog_id
    lose(lake, tmp_path)
    plan = plan_of(lake)
    assert plan.former_catalog_id == former != plan.catalog_id
    assert sorted((str(one.identifier), one.name_from, one.latest_version) for one in plan.tables) == [
        ("main.test.renamed", "marker", 0),
        ("main.test.t", "marker", 3),
    ]
    assert lake.catalog.registry.list_tables() == () and plan.conflicts == ()
    assert any("two catalogs on one warehouse" in line for line in explain_adoption(plan))
    recover_warehouse(lake.client, plan)
    entry = lake.catalog.registry.load_table_by_id(other.table_id)
    assert (str(entry.identifier), entry.location, entry.definition) == (
        "main.test.renamed",
        other.location,
        definition,
    )
    found = lake.client.table("main.test.t")
    assert (found.table_id, found.location, found.snapshot().num_files) == (table.table_id, table.location, 3)
    assert {
        (entry.version, entry.summary.txn_id): entry.summary for entry in lake.catalog.feed.feed(after=0, limit=99)
    } == feed
    assert lake.append(found).version == 4
    lake.new_table("new")
    assert plan_of(lake).tables == () and len(plan_of(lake).skipped) == 3
    assert all(table.is_sound for table in plan_recovery(lake.client).tables)


def test_a_new_catalog_creates_no_file_in_the_warehouse_of_another(lake: Lake, tmp_path: Path) -> None:
    lake.new_table()
    former = lake.catalog.registry.identity().catalog_id
    lose(lake, tmp_path)
    for marked in (True, False):
        if not marked:
            lake.memory.delete(f"{WAREHOUSE}/{WAREHOUSE_MARKER_NAME}")
        with pytest.raises(WarehouseMismatchError, match="Correct the URL or the warehouse") as error:
            lake.new_table("another")
        assert error.value.remedy == RecoverWarehouse(warehouse=WAREHOUSE)
        assert (former in str(error.value)) is marked
        assert lake.catalog.registry.identity().catalog_id in str(error.value)
    assert lake.catalog.registry.inactive_tables() == ()
    recover_warehouse(lake.client, plan_of(lake))
    lake.new_table("another")


def test_a_dropped_table_stays_dropped_and_can_be_restored(lake: Lake, tmp_path: Path) -> None:
    lake.append(lake.new_table())
    drop_table(lake.client, identifier="main.test.t")
    lake.new_table()
    lose(lake, tmp_path)
    plan = plan_of(lake)
    assert sorted(one.state.value for one in plan.tables) == ["active", "dropped"] and plan.conflicts == ()
    recover_warehouse(lake.client, plan)
    assert lake.client.table("main.test.t").snapshot().version == 0
    (dropped,) = lake.catalog.registry.inactive_tables()
    assert dropped.state is InactiveState.DROPPED
    drop_table(lake.client, identifier="main.test.t")
    back = undrop_table(lake.client, identifier="main.test.t", table_id=dropped.table_id)
    assert back.snapshot().version == 1


def test_without_markers_directories_give_names_and_may_conflict(lake: Lake, tmp_path: Path) -> None:
    first = lake.new_table()
    rename_table(lake.client, identifier="main.test.t", to="main.test.old")
    second = lake.new_table()
    for table in (first, second):
        lake.memory.delete(log(table, TABLE_MARKER_NAME))
    lose(lake, tmp_path)
    plan = plan_of(lake)
    assert {(str(one.identifier), one.name_from) for one in plan.tables} == {("main.test.t", "directory")}
    assert len(plan.conflicts) == 2 and "name" in str(plan.conflicts[0].conflict)
    with pytest.raises(RecoveryError, match="also has the name"):
        recover_warehouse(lake.client, plan)
    assert lake.catalog.registry.list_tables() == ()
    relative = first.location.removeprefix(f"{WAREHOUSE}/")
    decided = plan_of(lake, names={relative: "main.test.old"})
    assert decided.conflicts == ()
    recover_warehouse(lake.client, decided)
    assert lake.client.table("main.test.old").table_id == first.table_id
    assert lake.client.table("main.test.t").table_id == second.table_id
    with pytest.raises(InvalidArgumentError, match="no table was found"):
        plan_of(lake, names={"main/nowhere": "main.test.x"})


def test_a_log_that_cleanup_has_shortened_is_adopted_from_its_checkpoint(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table(properties={"delta.logRetentionDuration": "interval 1 days"})
    for _ in range(5):
        lake.append(table)
    checkpoint(table)
    lake.clock.pass_days(5)
    lake.append(table)
    checkpoint(table)
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    assert clean_log(table).num_files > 0
    before = table.snapshot()
    lose(lake, tmp_path)
    plan = plan_of(lake)
    assert plan.tables[0].first_version > 0 and plan.tables[0].latest_version == 6
    recover_warehouse(lake.client, plan)
    found = lake.client.table("main.test.t")
    assert sorted(found.snapshot().files["path"].to_pylist()) == sorted(before.files["path"].to_pylist())
    assert lake.append(found).version == 7


def test_commits_that_were_never_published_are_named_and_can_be_taken_in(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    for _ in range(3):
        lake.append(table)
    lake.client.wait_for_background()
    directory = log(table, "_staged_commits")
    names = {status.name[:20]: status.name for status in lake.memory.list_from(directory)}
    lake.memory.delete(log(table, f"{2:020d}.json"))
    lake.memory.delete(log(table, f"{3:020d}.json"))
    lake.memory.delete(f"{directory}/{names[f'{3:020d}']}")
    lose(lake, tmp_path)
    (one,) = plan_of(lake).tables
    assert (one.latest_version, [staged.version for staged in one.staged]) == (1, [2])
    assert [lost.version for lost in one.lost] == [3]
    lines = list(explain_adoption(plan_of(lake)))
    assert any("Lost: version 3" in line for line in lines) and any(
        "give its name to the recovery" in line for line in lines
    )
    plan = plan_of(lake, take_staged=[names[f"{2:020d}"]])
    recover_warehouse(lake.client, plan)
    assert lake.client.table("main.test.t").snapshot().version == 2
    assert lake.memory.read(log(table, f"{2:020d}.json"))


def test_what_is_no_table_of_a_catalog_is_skipped(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    lake.memory.write(f"{WAREHOUSE}/main/test/junk-1/_delta_log/{0:020d}.json", b"junk\n")
    lake.memory.write(
        f"{WAREHOUSE}/main/test/foreign-1/_delta_log/{0:020d}.json",
        b'{"commitInfo":{"txnId":"x","inCommitTimestamp":5}}\n{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
        b'{"metaData":{"id":"m","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],'
        b'"configuration":{}}}\n',
    )
    lose(lake, tmp_path)
    plan = plan_of(lake)
    assert [one.table_id for one in plan.tables] == [table.table_id]
    assert sorted(skip.location.rpartition("/")[2] for skip in plan.skipped) == ["foreign-1", "junk-1"]
    assert any("no catalog manages" in skip.reason for skip in plan.skipped)


def test_a_copy_of_a_table_in_the_warehouse_is_a_conflict(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    for status in list(lake.memory.list_recursive(table.location)):
        copied = status.location.replace(table.location, f"{WAREHOUSE}/main/test/copy-1")
        lake.memory.write(copied, lake.memory.read(status.location))
    lose(lake, tmp_path)
    plan = plan_of(lake)
    assert len(plan.conflicts) == 2 and "copy" in str(plan.conflicts[0].conflict)


def test_a_plan_is_refused_after_a_write(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    lake.append(table)
    lose(lake, tmp_path)
    plan = plan_of(lake)
    lake.memory.delete(log(table, f"{1:020d}.json"))
    with pytest.raises(RecoveryError, match="a new plan"):
        recover_warehouse(lake.client, plan)
    with pytest.raises(TableNotFoundError):
        lake.client.table("main.test.t")
