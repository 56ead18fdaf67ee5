"""The catalog has the marks of tables that operations create, clone, adopt, recover and restore."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import TABLES
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.release import release
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, clone
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.protocol.features.row_tracking import high_water_mark
from cm_delta_dagster.protocol.schema.types import LONG, STRING, StructField, StructType
from tests.support.lake import Lake
from tests.support.old_catalog import back_up, lose
from tests.support.old_catalog import restore as restore_catalog

NAME = "main.test.t"
NUMBER = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
    "delta.identity.highWaterMark": 40,
}
SCHEMA = StructType((StructField(name="day", type=STRING), StructField(name="number", type=LONG, metadata=NUMBER)))


@pytest.fixture
def table(lake: Lake) -> Table:
    """Ten rows: the highest row id is 9."""
    properties = {"delta.feature.rowTracking": "supported", "delta.feature.identityColumns": "supported"}
    table = lake.new_table(schema=SCHEMA, partition_columns=("day",), properties=properties)
    lake.append(table, "a.parquet")
    return table


def _marks(lake: Lake, name: str = NAME) -> tuple[int | None, dict[str, int]]:
    """The highest row id, and the high-water marks of the identity columns by name."""
    table_id = lake.client.table(name).table_id
    columns = sa.select(TABLES.c.row_id_mark, TABLES.c.identity_marks).where(TABLES.c.table_id == table_id)
    row = lake.sql_catalog._database.read(lambda connection: connection.execute(columns).one())
    return row.row_id_mark, {column: mark[2] for column, mark in json.loads(row.identity_marks or "{}").items()}


def _clone(lake: Lake, table: Table, _: Path) -> str:
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest())
    return "main.test.c"


def _deep_clone(lake: Lake, table: Table, _: Path) -> str:
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest(mode=CloneMode.DEEP))
    return "main.test.c"


def _adopt(lake: Lake, table: Table, _: Path) -> str:
    location = release(lake.client, identifier=NAME).location
    adopt(lake.client, location=location, identifier=NAME)
    return NAME


def _adopt_those_of_a_lost_catalog(lake: Lake, _: Table, directory: Path) -> str:
    lose(lake, directory)
    recover_warehouse(lake.client, plan_warehouse_recovery(lake.client, warehouse="memory://lake/warehouse"))
    return NAME


def _recover(lake: Lake, table: Table, directory: Path) -> str:
    back_up(directory)
    lake.append(table, "b.parquet")
    restore_catalog(lake, directory)
    recover(lake.client, plan_recovery(lake.client, tables=[NAME]))
    return NAME


def _restore(lake: Lake, table: Table, _: Path) -> str:
    lake.append(table, "b.parquet")
    restore(table, version=0)
    return NAME


@pytest.mark.parametrize("bring", [_clone, _deep_clone, _adopt, _adopt_those_of_a_lost_catalog, _recover, _restore])
def test_the_catalog_has_the_marks_of_a_table(
    lake: Lake, table: Table, tmp_path: Path, bring: Callable[[Lake, Table, Path], str]
) -> None:
    assert _marks(lake) == (9, {"number": 40})
    name = bring(lake, table, tmp_path)
    mark = high_water_mark(lake.client.table(name).snapshot().domains)
    assert mark == (19 if bring in (_recover, _restore) else 9)
    assert _marks(lake, name) == (mark, {"number": 40})
