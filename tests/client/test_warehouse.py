"""A warehouse belongs to one catalog, and tables are marked with what the catalog says of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import read_table_marker, read_warehouse_marker
from cm_delta_dagster.errors import CatalogUnavailableError, StorageError, WarehouseMismatchError
from cm_delta_dagster.operations.recovery.recover import plan_recovery
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.log.markers import (
    TABLE_MARKER_NAME,
    WAREHOUSE_MARKER_NAME,
    MarkedState,
    WarehouseMarker,
    encode_marker,
)
from tests.support.lake import Lake, broken_storage

WAREHOUSE = "memory://lake/warehouse"
MARKER = f"{WAREHOUSE}/{WAREHOUSE_MARKER_NAME}"
NAME = "main.test.t"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def give_to(lake: Lake, catalog_id: str) -> None:
    lake.memory.write(MARKER, encode_marker(WarehouseMarker(catalog_id=catalog_id)))


def marker_of(lake: Lake, table: Table) -> tuple[str, MarkedState]:
    marker = read_table_marker(lake.memory, table.location)
    assert marker is not None
    assert (marker.table_id, marker.catalog_id) == (table.table_id, lake.catalog.registry.identity().catalog_id)
    return marker.name, marker.state


def test_the_first_creation_marks_the_warehouse_and_later_ones_do_not_look_again(lake: Lake) -> None:
    lake.new_table()
    marker = read_warehouse_marker(lake.memory, WAREHOUSE)
    assert marker == WarehouseMarker(catalog_id=lake.catalog.registry.identity().catalog_id)
    lake.store.calls.clear()
    lake.new_table("second")
    lake.client.wait_for_background()
    assert [argument for _, argument in lake.store.calls if WAREHOUSE_MARKER_NAME in str(argument)] == []


def test_a_catalog_does_not_create_in_the_warehouse_of_another_one(lake: Lake, tmp_path: Path) -> None:
    lake.new_table()
    lake.client.wait_for_background()
    (tmp_path / "typo").mkdir()
    other = Lake(tmp_path / "typo")
    other.store._real = lake.memory
    files = {status.location for status in lake.memory.list_recursive(WAREHOUSE)}
    with pytest.raises(WarehouseMismatchError) as error:
        other.new_table()
    for part in (
        lake.catalog.registry.identity().catalog_id,
        other.catalog.registry.identity().catalog_id,
        "mistyped",
        "was lost",
    ):
        assert part in str(error.value)
    assert {status.location for status in lake.memory.list_recursive(WAREHOUSE)} == files
    assert other.catalog.registry.inactive_tables() == ()
    other.client.close()


def test_recovery_and_purge_refuse_a_foreign_warehouse(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    table = lake.new_table()
    lake.new_table("other")
    drop_table(lake.client, identifier=NAME)
    give_to(lake, "other")
    with pytest.raises(WarehouseMismatchError, match="other"):
        plan_recovery(lake.client)
    with pytest.raises(WarehouseMismatchError, match="other"):
        purge(lake.client, plan_purge(lake.client, retention_ms=0))
    assert lake.files(table, "_delta_log")


def test_a_marker_that_cannot_be_decoded_is_not_replaced(lake: Lake) -> None:
    lake.memory.write(MARKER, b"{")
    with pytest.raises(WarehouseMismatchError, match="delete it"):
        lake.new_table()
    assert lake.memory.read(MARKER) == b"{"
    lake.memory.delete(MARKER)
    lake.new_table()


def test_a_marker_that_another_client_leaves_at_the_same_moment_decides(lake: Lake) -> None:
    def overtake(method: str, location: object) -> None:
        if method == "write_if_absent" and location == MARKER:
            give_to(lake, "other")

    lake.store.fails = overtake
    with pytest.raises(WarehouseMismatchError, match="other"):
        lake.new_table()


def test_a_failed_look_at_the_marker_is_repeated_by_the_next_creation(lake: Lake) -> None:
    lake.store.fails = broken_storage("read", WAREHOUSE_MARKER_NAME)
    with pytest.raises(StorageError):
        lake.new_table()
    lake.store.fails = lambda method, argument: None
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("gone") if method == "identity" else None
    with pytest.raises(CatalogUnavailableError):
        lake.new_table()
    lake.catalog.fails = lambda method, _: None
    assert lake.catalog.registry.inactive_tables() == ()
    lake.new_table()


def test_the_marker_of_a_table_follows_its_name_and_state(lake: Lake) -> None:
    table = lake.new_table()
    assert marker_of(lake, table) == (NAME, MarkedState.ACTIVE)
    rename_table(lake.client, identifier=NAME, to="main.test.renamed")
    assert marker_of(lake, table) == ("main.test.renamed", MarkedState.ACTIVE)
    drop_table(lake.client, identifier="main.test.renamed")
    assert marker_of(lake, table) == ("main.test.renamed", MarkedState.DROPPED)
    undrop_table(lake.client, identifier="main.test.renamed")
    assert marker_of(lake, table) == ("main.test.renamed", MarkedState.ACTIVE)


def test_a_marker_that_cannot_be_written_fails_nothing(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.store.fails = broken_storage("write", TABLE_MARKER_NAME)
    table = lake.new_table()
    rename_table(lake.client, identifier=NAME, to="main.test.renamed")
    drop_table(lake.client, identifier="main.test.renamed")
    undrop_table(lake.client, identifier="main.test.renamed")
    assert read_table_marker(lake.memory, table.location) is None
    assert lake.client.table("main.test.renamed").snapshot().version == 0
    assert sum("was not written" in text for text in caplog.messages) == 4


def test_no_marker_is_written_where_the_log_is_gone(lake: Lake) -> None:
    table = lake.new_table()
    lake.client.wait_for_background()
    for status in list(lake.memory.list_recursive(table.location)):
        lake.memory.delete(status.location)
    drop_table(lake.client, identifier=NAME)
    assert lake.files(table) == set()
