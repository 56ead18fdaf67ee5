"""Undrop, rename and purge: a restored table is complete, a purged one is deleted, and other tables stay unchanged."""

from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import CommitSummary
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import InactiveState, StagingTable, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    PurgeRefusedError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.maintenance.authorization import require_permission
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.create import TableDesign
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import plan_purge, purge, purge_abandoned
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table, create_table_as
from tests.support.lake import SCHEMA, Lake, broken_storage

NAME = "main.test.t"


def all_objects(lake: Lake) -> set[str]:
    """All objects except the marker of the warehouse, which the first creation writes."""
    found = {status.location for status in lake.memory.list_recursive("memory://lake/warehouse")}
    return found - {f"memory://lake/warehouse/{WAREHOUSE_MARKER_NAME}"}


@pytest.mark.requirements("CM-D6")
def test_an_undropped_table_has_every_version_and_accepts_writes(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    drop_table(lake.client, identifier=NAME)
    with pytest.raises(TableNotFoundError):
        lake.append(table)
    lake.clock.pass_days(6)
    back = undrop_table(lake.client, identifier=NAME)
    assert (back.table_id, back.snapshot().version, back.snapshot().num_files) == (table.table_id, 1, 1)
    assert lake.append(table).version == 2
    assert lake.reopened().table(NAME).snapshot(version=1).num_files == 1


@pytest.mark.requirements("CM-D8")
def test_of_several_dropped_tables_of_one_name_the_id_selects_one(lake: Lake) -> None:
    first = lake.new_table()
    lake.append(first)
    drop_table(lake.client, identifier=NAME)
    second = lake.new_table()
    drop_table(lake.client, identifier=NAME)
    with pytest.raises(InvalidArgumentError, match=first.table_id):
        undrop_table(lake.client, identifier=NAME)
    assert undrop_table(lake.client, identifier=NAME, table_id=first.table_id).snapshot().num_files == 1
    assert undrop_table(lake.client, identifier=NAME, table_id=first.table_id).table_id == first.table_id
    with pytest.raises(TableAlreadyExistsError):
        undrop_table(lake.client, identifier=NAME, table_id=second.table_id)
    with pytest.raises(TableNotFoundError):
        undrop_table(lake.client, identifier="main.test.other")


@pytest.mark.requirements("CM-D8")
def test_a_handle_from_before_a_rename_keeps_its_table(lake: Lake) -> None:
    old = lake.new_table()
    lake.append(old)
    rename_table(lake.client, identifier=NAME, to="main.test.renamed")
    new = lake.new_table()
    assert lake.append(old).version == 2
    assert publish(old).published_version == 2
    assert lake.client.table("main.test.renamed").snapshot().version == 2
    assert (new.snapshot().version, lake.data_files(new)) == (0, set())
    with pytest.raises(TableNotFoundError):
        drop_table(lake.client, identifier=NAME, table_id=old.table_id)
    assert lake.client.table(NAME).table_id == new.table_id
    with pytest.raises(TableAlreadyExistsError):
        rename_table(lake.client, identifier=NAME, to="main.test.renamed")


def test_a_rename_to_the_same_name_changes_nothing(lake: Lake) -> None:
    lake.new_table()
    lake.allow(MaintenanceKind.DATA_CLEANUP, NAME)
    lake.deny(MaintenanceKind.CHECKPOINT, NAME, reason="busy")
    rules, before = (
        lake.catalog.maintenance_policies.maintenance_rules(),
        lake.catalog.registry.load_table(TableIdentifier.parse(NAME)),
    )
    assert rename_table(lake.client, identifier=NAME, to=NAME).table_id == before.table_id
    assert lake.catalog.maintenance_policies.maintenance_rules() == rules
    assert lake.catalog.registry.load_table(TableIdentifier.parse(NAME)) == before
    assert lake.catalog.registry.list_tables() == (TableIdentifier.parse(NAME),)


@pytest.mark.parametrize("name", [None, 1, ("main", "test", "t")])
def test_an_invalid_name_is_refused_by_every_operation(lake: Lake, name: Any) -> None:
    table = lake.new_table()
    strange = table if name is None else name
    for call in (
        lambda: rename_table(lake.client, identifier=NAME, to=strange),
        lambda: rename_table(lake.client, identifier=strange, to=NAME),
        lambda: rename_table(lake.client, identifier=strange, to=strange),
        lambda: drop_table(lake.client, identifier=strange),
        lambda: undrop_table(lake.client, identifier=strange),
        lambda: lake.client.table(strange),
        lambda: create_table(lake.client, identifier=strange, schema=SCHEMA),
    ):
        with pytest.raises(InvalidArgumentError, match=r"catalog\.schema\.table"):
            call()


@pytest.mark.requirements("CM-M5")
def test_a_handle_from_before_a_rename_follows_the_policy_of_the_new_name(lake: Lake) -> None:
    table = lake.new_table()
    lake.allow(MaintenanceKind.DATA_CLEANUP, scope=NAME)
    require_permission(table, MaintenanceKind.DATA_CLEANUP)
    rename_table(lake.client, identifier=NAME, to="main.test.renamed")
    with pytest.raises(MaintenanceNotPermittedError):
        require_permission(table, MaintenanceKind.DATA_CLEANUP)


@pytest.mark.requirements("CM-D8")
def test_a_handle_to_a_dropped_table_cannot_write_to_its_successor(lake: Lake) -> None:
    old = lake.new_table()
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{1:020d}.json")
    lake.append(old)
    lake.store.fails = lambda method, argument: None
    transaction = old.start_transaction(old.snapshot(), operation="WRITE")
    drop_table(lake.client, identifier=NAME)
    new = lake.new_table()
    lake.append(new)
    lake.client.wait_for_background()
    before = lake.files(new)
    for stale in (transaction.commit, lambda: publish(old), old.snapshot):
        with pytest.raises(TableNotFoundError):
            stale()
    with pytest.raises(CmDeltaError):
        lake.catalog.coordinator.set_published_version(old.table_id, 1)
    drop_table(lake.client, identifier=NAME, table_id=old.table_id)
    assert (lake.client.table(NAME).table_id, lake.files(new)) == (new.table_id, before)


@pytest.mark.requirements("CM-D7")
def test_purge_deletes_an_old_dropped_table_and_nothing_else(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    kept = lake.new_table("kept")
    lake.append(kept)
    table = lake.new_table()
    lake.append(table)
    lake.client.wait_for_background()
    neighbour = f"{table.location}-other/file"
    lake.memory.write(neighbour, b"not ours")
    drop_table(lake.client, identifier=NAME)
    lake.clock.pass_days(6.9)
    assert plan_purge(lake.client).candidates == ()
    lake.clock.pass_days(0.2)
    recent = lake.new_table("recent")
    drop_table(lake.client, identifier="main.test.recent")
    lake.client.wait_for_background()
    theirs = {location for location in all_objects(lake) if location.startswith(f"{table.location}/")}
    before = all_objects(lake)
    plan = plan_purge(lake.client)
    assert ([found.table.table_id for found in plan.candidates], plan.num_files) == ([table.table_id], len(theirs))
    assert all_objects(lake) == before
    result = purge(lake.client, plan)
    assert ([gone.table_id for gone in result.purged], result.skipped) == ([table.table_id], ())
    assert (result.num_files, result.num_bytes) == (plan.num_files, plan.num_bytes)
    assert all_objects(lake) == before - theirs
    assert [found.table_id for found in lake.catalog.registry.inactive_tables()] == [recent.table_id]
    with pytest.raises(TableNotFoundError):
        undrop_table(lake.client, identifier=NAME)
    assert purge(lake.client, plan).skipped == (plan.candidates[0].table,)


@pytest.mark.requirements("CM-M4", "CM-M6", "CM-M7")
def test_purge_needs_its_own_permission(lake: Lake) -> None:
    for kind in (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.METADATA_CLEANUP):
        lake.allow(kind)
    lake.new_table()
    drop_table(lake.client, identifier=NAME)
    lake.client.wait_for_background()
    before = all_objects(lake)
    plan = plan_purge(lake.client, retention_ms=0)
    assert (plan.candidates, len(plan.denied)) == ((), 1)
    lake.allow(MaintenanceKind.TABLE_PURGE)
    plan = plan_purge(lake.client, retention_ms=0)
    lake.deny(MaintenanceKind.TABLE_PURGE, scope=NAME)
    with pytest.raises(MaintenanceNotPermittedError, match="TABLE_PURGE"):
        purge(lake.client, plan)
    assert all_objects(lake) == before
    assert undrop_table(lake.client, identifier=NAME).snapshot().version == 0


@pytest.mark.requirements("CM-D7")
def test_a_table_restored_after_the_plan_is_not_purged_even_if_dropped_again(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    table = lake.new_table()
    drop_table(lake.client, identifier=NAME)
    lake.clock.pass_days(8)
    plan = plan_purge(lake.client)
    undrop_table(lake.client, identifier=NAME)
    assert (purge(lake.client, plan).purged, table.snapshot().version) == ((), 0)
    drop_table(lake.client, identifier=NAME)
    assert purge(lake.client, plan).purged == ()
    assert undrop_table(lake.client, identifier=NAME).snapshot().version == 0


def abandon_creation(lake: Lake, name: str = NAME) -> StagingTable:
    """The files that a client leaves that crashes before it registers the name."""
    staging = lake.catalog.registry.create_staging_table(TableIdentifier.parse(name))
    lake.memory.write(f"{staging.location}/_delta_log/{0:020d}.json", b"{}")
    lake.memory.write(f"{staging.location}/part.parquet", b"rows")
    return staging


@pytest.mark.requirements("CM-D5")
def test_a_creation_purges_old_abandoned_creations(lake: Lake) -> None:
    """Recent creations and dropped tables are kept."""
    staging = abandon_creation(lake)
    dropped = lake.new_table("dropped")
    drop_table(lake.client, identifier="main.test.dropped")
    lake.clock.pass_days(6.9)
    young = abandon_creation(lake)
    lake.new_table("early")
    lake.client.wait_for_background()
    assert len(lake.catalog.registry.inactive_tables()) == 3
    lake.clock.pass_days(0.2)
    before = all_objects(lake)
    made = lake.new_table("late")
    lake.client.wait_for_background()
    gone = {location for location in before if location.startswith(f"{staging.location}/")}
    assert len(gone) == 2
    assert all_objects(lake) - {f"{made.location}/{name}" for name in lake.files(made)} == before - gone
    assert {one.table_id for one in lake.catalog.registry.inactive_tables()} == {dropped.table_id, young.table_id}
    summary = CommitSummary(txn_id="t", in_commit_timestamp=1, operation="CREATE TABLE", data_change=False)
    with pytest.raises(TableNotFoundError):
        lake.catalog.registry.register_table(staging.table_id, TableIdentifier.parse(NAME), summary=summary)


@pytest.mark.requirements("CM-M5", "CM-M6")
def test_abandoned_creations_stay_if_the_policy_denies_their_purge(lake: Lake) -> None:
    abandon_creation(lake)
    lake.deny(MaintenanceKind.CREATION_PURGE)
    lake.clock.pass_days(8)
    before = all_objects(lake)
    assert purge_abandoned(lake.client) == ()
    plan = plan_purge(lake.client)
    assert (plan.candidates, len(plan.denied), all_objects(lake)) == ((), 1, before)
    lake.allow(MaintenanceKind.CREATION_PURGE)
    lake.deny(MaintenanceKind.TABLE_PURGE)
    assert len(purge_abandoned(lake.client)) == 1
    assert all_objects(lake) == set()


@pytest.mark.requirements("CM-D7")
def test_abandoned_creations_in_another_warehouse_are_not_purged(lake: Lake, tmp_path: Path) -> None:
    abandon_creation(lake)
    lake.clock.pass_days(8)
    before = all_objects(lake)
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://lake/w2", now_ms=lake.clock) as catalog:
        client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.store}), now_ms=lake.clock)
        assert purge_abandoned(client) == ()
    assert (all_objects(lake), len(lake.catalog.registry.inactive_tables())) == (before, 1)


@pytest.mark.requirements("CM-D5")
def test_the_next_creations_continue_the_purge_of_a_large_abandoned_one(lake: Lake) -> None:
    staging = abandon_creation(lake)
    for number in range(1500):
        lake.memory.write(f"{staging.location}/{number}.parquet", b"")
    small = abandon_creation(lake, "main.test.z")
    lake.clock.pass_days(8)
    assert purge_abandoned(lake.client) == ()
    assert len(all_objects(lake)) == 1502 + 2 - 1000
    assert {one.state for one in lake.catalog.registry.inactive_tables()} == {
        InactiveState.PURGING,
        InactiveState.STAGING,
    }
    assert [one.table_id for one in purge_abandoned(lake.client)] == [staging.table_id, small.table_id]
    assert (all_objects(lake), lake.catalog.registry.inactive_tables()) == (set(), ())


@pytest.mark.requirements("CM-D5", "CM-W5")
def test_a_creation_that_was_purged_before_it_ended_leaves_nothing(lake: Lake) -> None:
    def write(table: Table) -> None:
        lake.clock.pass_days(8)
        assert [one.table_id for one in purge_abandoned(lake.reopened())] == [table.table_id]
        lake.append(table, "late.parquet")

    with pytest.raises(TableNotFoundError, match="purged"):
        create_table_as(lake.client, identifier=NAME, design=TableDesign(schema=SCHEMA), write=write)
    assert (all_objects(lake), lake.catalog.registry.list_tables()) == (set(), ())


@pytest.mark.requirements("CM-D5")
def test_an_abandoned_creation_is_purged_when_it_is_old_enough(lake: Lake) -> None:
    """The plan lists it."""
    name = TableIdentifier.parse(NAME)
    staging = abandon_creation(lake)
    lake.clock.pass_days(6.9)
    assert plan_purge(lake.client).candidates == ()
    lake.clock.pass_days(0.2)
    plan = plan_purge(lake.client)
    assert [found.table.state for found in plan.candidates] == [InactiveState.STAGING]
    assert purge(lake.client, plan).num_files == 2
    assert (all_objects(lake), lake.catalog.registry.inactive_tables()) == (set(), ())
    summary = CommitSummary(txn_id="t", in_commit_timestamp=1, operation="CREATE TABLE", data_change=False)
    with pytest.raises(TableNotFoundError):
        lake.catalog.registry.register_table(staging.table_id, name, summary=summary)


@pytest.mark.requirements("CM-D7")
def test_a_location_outside_of_the_managed_root_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    lake.new_table()
    drop_table(lake.client, identifier=NAME)
    lake.client.wait_for_background()
    before = all_objects(lake)
    url = f"sqlite:///{tmp_path}/catalog.db"
    for warehouse in ("memory://lake/warehouse2", "memory://lake/ware", "memory://lake/warehouse/main/test/t", None):
        with SqlCatalog(url, warehouse=warehouse, now_ms=lake.clock) as catalog:
            client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.store}), now_ms=lake.clock)
            with pytest.raises(PurgeRefusedError, match="managed root"):
                purge(client, plan_purge(client, retention_ms=0))
    assert all_objects(lake) == before
    assert undrop_table(lake.client, identifier=NAME).snapshot().version == 0


@pytest.mark.requirements("CM-D7")
@pytest.mark.parametrize("linked", ["table", "schema"])
def test_a_purge_does_not_follow_a_link_out_of_the_warehouse(tmp_path: Path, linked: str) -> None:
    """Files outside of the warehouse are not purged."""
    warehouse, elsewhere = tmp_path / "warehouse", tmp_path / "elsewhere"
    (tmp_path / "real").mkdir()
    warehouse.symlink_to(tmp_path / "real")  # The warehouse itself may be a link.
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{warehouse}")
    client = DeltaClient(catalog, stores=Stores())
    for kind in (MaintenanceKind.TABLE_PURGE, MaintenanceKind.CREATION_PURGE):
        catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main", kind=kind, allowed=True))
    root = Path(create_table(client, identifier=NAME, schema=SCHEMA).location.removeprefix("file://"))
    client.wait_for_background()
    drop_table(client, identifier=NAME)
    link = root if linked == "table" else root.parent
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    plan = plan_purge(client, retention_ms=0)
    with pytest.raises(PurgeRefusedError, match=f"leads by a symbolic link to file://{elsewhere}"):
        purge(client, plan)
    assert sorted(elsewhere.rglob("*")) == before
    link.unlink()
    elsewhere.rename(link)
    assert undrop_table(client, identifier=NAME).snapshot().version == 0
    drop_table(client, identifier=NAME)
    purge(client, plan_purge(client, retention_ms=0))
    assert not root.exists()
    client.close()


def test_the_next_purge_completes_an_interrupted_one(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    table = lake.new_table()
    lake.append(table)
    drop_table(lake.client, identifier=NAME)
    lake.client.wait_for_background()
    lake.store.fails = broken_storage("delete", "part-")
    with pytest.raises(StorageError):
        purge(lake.client, plan_purge(lake.client, retention_ms=0))
    assert lake.data_files(table) != set()
    with pytest.raises(TableNotFoundError):
        undrop_table(lake.client, identifier=NAME)
    lake.store.fails = lambda method, argument: None
    plan = plan_purge(lake.client)
    assert [found.table.state for found in plan.candidates] == [InactiveState.PURGING]
    purge(lake.client, plan)
    assert all_objects(lake) == set()


def test_negative_times_are_refused(lake: Lake) -> None:
    for arguments in ({"retention_ms": -1}, {"abandoned_after_ms": -1}):
        with pytest.raises(InvalidArgumentError):
            plan_purge(lake.client, **arguments)
