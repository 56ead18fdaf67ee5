"""A warehouse that moved: the catalog finds its tables at the new location, or reports those that it does not find."""

from dataclasses import replace
from pathlib import Path

import pytest

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, RecoveryError, WarehouseMismatchError
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.relocate import MoveState, plan_relocation, relocate
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME, WarehouseMarker, encode_marker
from tests.support.lake import Lake
from tests.support.old_catalog import lose, reconnect

OLD, NEW = "memory://lake/warehouse", "memory://elsewhere/lake"


def move(lake: Lake, *, keep_old: bool = False) -> None:
    """Move the files as ``mv`` or a sync of the bucket does, after every client has finished."""
    lake.client.wait_for_background()
    for status in list(lake.memory.list_recursive(OLD)):
        lake.memory.write(NEW + status.location.removeprefix(OLD), lake.memory.read(status.location))
        if not keep_old:
            lake.memory.delete(status.location)


def rows(table: Table) -> int | None:
    return table.snapshot().num_rows


def test_tables_are_found_at_their_new_place_and_written_on(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.append(lake.new_table("dropped"))
    drop_table(lake.client, identifier="main.test.dropped")
    move(lake)
    lake.client.close()
    reconnect(lake, tmp_path, warehouse=NEW)
    plan = plan_relocation(lake.client, moved_from=OLD, moved_to=NEW)
    assert [(str(one.identifier), one.state, one.is_still_there) for one in plan.moves] == [
        ("main.test.dropped", MoveState.FOUND, False),
        ("main.test.t", MoveState.FOUND, False),
    ]
    assert lake.catalog.registry.load_table_by_id(table.table_id).location == table.location
    relocate(lake.client, plan)
    relocate(lake.client, plan)
    found = lake.client.table("main.test.t")
    assert found.location.startswith(f"{NEW}/") and rows(found) == 10
    assert lake.append(found).version == 2
    assert rows(undrop_table(lake.client, identifier="main.test.dropped")) == 10
    lake.new_table("another")
    assert not any(True for _ in lake.memory.list_recursive(OLD))


def test_nothing_is_relocated_while_a_table_is_not_found(lake: Lake) -> None:
    tables = [lake.new_table(name) for name in ("a", "b", "c")]
    for table in tables:
        lake.append(table)
    move(lake)
    a, b, _ = (NEW + table.location.removeprefix(OLD) for table in tables)
    for status in list(lake.memory.list_recursive(a)):
        lake.memory.delete(status.location)
    lake.memory.delete(f"{b}/_delta_log/{1:020d}.json")
    plan = plan_relocation(lake.client, moved_from=OLD, moved_to=NEW)
    assert [one.state for one in plan.moves] == [MoveState.MISSING, MoveState.OTHER, MoveState.FOUND]
    with pytest.raises(RecoveryError, match=rf"main\.test\.a from {OLD}[\s\S]* to {NEW}") as error:
        relocate(lake.client, plan)
    assert "main.test.b" in str(error.value) and "main.test.c" not in str(error.value)
    assert lake.catalog.registry.load_table_by_id(tables[2].table_id).location == tables[2].location
    only = replace(plan, moves=plan.moves[2:])
    relocate(lake.client, only)
    assert lake.catalog.registry.load_table_by_id(tables[2].table_id).location.startswith(NEW)


def test_another_table_at_the_new_place_is_not_taken_for_it(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    move(lake)
    other = lake.new_table("other")
    lake.append(other)
    target = NEW + table.location.removeprefix(OLD)
    lake.memory.write(
        f"{target}/_delta_log/{1:020d}.json", lake.memory.read(f"{other.location}/_delta_log/{1:020d}.json")
    )
    (plan, _) = plan_relocation(lake.client, moved_from=OLD, moved_to=NEW).moves[::-1]
    assert plan.state is MoveState.OTHER and "not the commit" in plan.detail


def test_a_copy_that_was_left_at_the_old_place_is_named(lake: Lake) -> None:
    lake.append(lake.new_table())
    move(lake, keep_old=True)
    (one,) = plan_relocation(lake.client, moved_from=OLD, moved_to=NEW).moves
    assert one.is_still_there and one.state is MoveState.FOUND


def test_a_place_of_another_catalog_is_refused(lake: Lake) -> None:
    lake.new_table()
    move(lake)
    lake.memory.write(f"{NEW}/{WAREHOUSE_MARKER_NAME}", encode_marker(WarehouseMarker(catalog_id="other")))
    with pytest.raises(WarehouseMismatchError, match="other"):
        plan_relocation(lake.client, moved_from=OLD, moved_to=NEW)


@pytest.mark.parametrize(("old", "new"), [(OLD, OLD), (OLD, f"{OLD}/below"), (f"{OLD}/below", OLD)])
def test_places_inside_each_other_are_refused(lake: Lake, old: str, new: str) -> None:
    with pytest.raises(InvalidArgumentError, match="inside"):
        plan_relocation(lake.client, moved_from=old, moved_to=new)


def test_a_creation_that_was_given_up_moves_along(lake: Lake) -> None:
    lake.catalog.fails = lambda method, _: CmDeltaError("stopped") if method == "register_table" else None
    with pytest.raises(CmDeltaError):
        lake.new_table()
    lake.catalog.fails = lambda method, _: None
    for status in list(lake.memory.list_recursive(OLD)):
        lake.memory.delete(status.location)
    (one,) = plan_relocation(lake.client, moved_from=OLD, moved_to=NEW).moves
    assert one.state is MoveState.EMPTY
    relocate(lake.client, plan_relocation(lake.client, moved_from=OLD, moved_to=NEW))
    (inactive,) = lake.catalog.registry.inactive_tables()
    assert inactive.location.startswith(NEW)


def test_a_lost_catalog_adopts_a_warehouse_that_moved(lake: Lake, tmp_path: Path) -> None:
    lake.append(lake.new_table())
    move(lake)
    lose(lake, tmp_path)
    recover_warehouse(lake.client, plan_warehouse_recovery(lake.client, warehouse=NEW))
    assert rows(lake.client.table("main.test.t")) == 10
