"""Tables at a location that the creator chooses."""

from pathlib import Path

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    InvalidArgumentError,
    TableAlreadyExistsError,
    WarehouseMismatchError,
)
from cm_delta_dagster.operations.tables.create import TableDesign, create_empty
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from cm_delta_dagster.operations.tables.replace import CreationMode, create_or_replace
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME, WarehouseMarker, encode_marker
from tests.support.lake import SCHEMA, Lake

NAME = "main.test.t"
LOCATION = "memory://lake/elsewhere/t"
DESIGN = TableDesign(schema=SCHEMA, location=LOCATION)


def objects(lake: Lake) -> set[str]:
    return {status.location for status in lake.memory.list_recursive("memory://lake/elsewhere")}


def test_a_table_is_created_at_a_given_location(lake: Lake) -> None:
    table = create_empty(lake.client, identifier=NAME, design=DESIGN)
    assert table.location == LOCATION
    assert lake.client.table(NAME).snapshot().location == LOCATION
    assert f"{LOCATION}/_delta_log/00000000000000000000.json" in objects(lake)


def test_the_files_of_a_dropped_table_at_a_given_location_stay(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    create_empty(lake.client, identifier=NAME, design=DESIGN)
    lake.client.wait_for_background()
    drop_table(lake.client, identifier=NAME)
    before = objects(lake)
    lake.clock.pass_days(400)
    plan = plan_purge(lake.client)
    assert plan.candidates == plan.denied == ()
    assert purge(lake.client, plan).num_files == 0
    lake.new_table("other")
    lake.client.wait_for_background()
    assert objects(lake) == before
    assert undrop_table(lake.client, identifier=NAME).snapshot().version == 0


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("memory://lake/warehouse/mine", "is in the warehouse"),
        ("memory://lake/warehouse", "is in the warehouse"),
        ("memory://lake/elsewhere/used", "is not empty"),
        (" ", "it is empty"),
        ("/tmp/\udc80", "a character that no Unicode text has"),
        ("memory://lake/elsewhere/delta/part", "is below the Delta table"),
    ],
)
def test_a_location_that_is_not_free_is_refused(lake: Lake, location: str, message: str) -> None:
    lake.memory.write("memory://lake/elsewhere/used/file.txt", b"theirs")
    lake.memory.write("memory://lake/elsewhere/delta/_delta_log/00000000000000000000.json", b"{}")
    before = objects(lake)
    with pytest.raises(InvalidArgumentError, match=message):
        create_empty(lake.client, identifier=NAME, design=TableDesign(schema=SCHEMA, location=location))
    assert objects(lake) == before
    assert lake.catalog.registry.inactive_tables() == ()


def test_a_link_into_the_warehouse_is_not_a_location(client: DeltaClient, tmp_path: Path) -> None:
    create_empty(client, identifier=NAME, design=TableDesign(schema=SCHEMA))
    (tmp_path / "link").symlink_to(tmp_path / "warehouse")
    design = TableDesign(schema=SCHEMA, location=f"{tmp_path}/link/mine")
    with pytest.raises(InvalidArgumentError, match="is in the warehouse"):
        create_empty(client, identifier="main.test.u", design=design)
    assert not (tmp_path / "warehouse" / "mine").exists()


def test_a_location_in_the_warehouse_of_another_catalog_is_refused(lake: Lake) -> None:
    marker = encode_marker(WarehouseMarker(catalog_id="another"))
    lake.memory.write(f"memory://lake/elsewhere/{WAREHOUSE_MARKER_NAME}", marker)
    with pytest.raises(WarehouseMismatchError, match="No table was created"):
        create_empty(lake.client, identifier=NAME, design=DESIGN)


def test_two_tables_do_not_share_a_location(lake: Lake) -> None:
    create_empty(
        lake.client, identifier=NAME, design=TableDesign(schema=SCHEMA, location="memory://lake/elsewhere/a/b")
    )
    with pytest.raises(TableAlreadyExistsError, match=r"main\.test\.t .*is not free for another table"):
        lake.catalog.registry.create_staging_table(
            TableIdentifier.parse("main.test.u"), location="memory://lake/elsewhere/a"
        )


def test_a_creation_that_loses_the_name_deletes_only_its_own_files(lake: Lake) -> None:
    winners = []

    def overtake(method: str, location: object) -> None:
        if method == "write_if_absent" and str(location).startswith(LOCATION) and not winners:
            winners.append(location)
            lake.memory.write(f"{LOCATION}/theirs.txt", b"theirs")
            lake.new_table("t")

    lake.store.fails = overtake
    with pytest.raises(TableAlreadyExistsError):
        create_empty(lake.client, identifier=NAME, design=DESIGN)
    assert objects(lake) == {f"{LOCATION}/theirs.txt"}


def test_an_abandoned_creation_frees_its_location_and_deletes_no_file(lake: Lake) -> None:
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("gone") if method == "register_table" else None
    with pytest.raises(Exception, match="did not answer"):
        create_empty(lake.client, identifier=NAME, design=DESIGN)
    lake.catalog.fails = lambda method, _: None
    before = objects(lake)
    assert before
    lake.clock.pass_days(8)
    lake.new_table("other")
    lake.client.wait_for_background()
    assert objects(lake) == before
    assert lake.catalog.registry.inactive_tables() == ()
    with pytest.raises(InvalidArgumentError, match="is not empty"):
        create_empty(lake.client, identifier=NAME, design=DESIGN)


def test_a_replaced_table_keeps_its_location(lake: Lake) -> None:
    table = create_empty(lake.client, identifier=NAME, design=DESIGN)
    mode = CreationMode.CREATE_OR_REPLACE
    assert create_or_replace(lake.client, identifier=NAME, design=DESIGN, mode=mode).table_id == table.table_id
    other = TableDesign(schema=SCHEMA, location="memory://lake/elsewhere/u")
    with pytest.raises(InvalidArgumentError, match="keeps its location"):
        create_or_replace(lake.client, identifier=NAME, design=other, mode=mode)
    assert lake.client.table(NAME).location == LOCATION
