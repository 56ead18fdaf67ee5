"""Frames that may be absent: ``DataFrame | None`` as input and output, and the first partition of an asset that reads itself."""

from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from tests.orchestration.conftest import World
from tests.support.dagster_assets import refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def test_an_output_that_may_be_none_writes_nothing_and_keeps_the_data_version(world: World) -> None:
    given = [None, [(1,)], None]

    @dg.asset
    def t() -> DataFrame | None:
        rows = given.pop(0)
        return None if rows is None else world.frame(rows, "id int")

    @dg.asset(deps=[t], automation_condition=dg.AutomationCondition.eager())
    def down() -> None: ...

    definitions, requested, cursor = dg.Definitions(assets=[t, down]), [], None

    def run() -> None:
        nonlocal cursor
        world.materialize(t)
        found = dg.evaluate_automation_conditions(definitions, world.instance, cursor=cursor)
        cursor = found.cursor
        requested.append(found.total_requested)

    world.materialize(t, down, selection=[down])
    cursor = dg.evaluate_automation_conditions(definitions, world.instance).cursor
    run()
    assert world.client.registry.list_tables() == ()
    run()
    written = world.version("main.default.t")
    run()
    assert world.version("main.default.t") == written
    assert requested == [0, 1, 0], "nothing written triggers nothing"
    assert [e.metadata["cm_delta/outcome"].value for e in world.events("t")] == ["committed"]
    records = world.instance.fetch_observations(dg.AssetKey("t"), limit=10, ascending=True).records
    first, third = (record.asset_observation for record in records)
    assert [e.metadata["cm_delta/outcome"].value for e in (first, third)] == ["nothing_written"] * 2
    assert third.metadata["dagster/row_count"].value == 1
    assert "cm_delta/commit_version" not in third.metadata


def test_none_is_refused_unless_the_annotation_allows_it(world: World) -> None:
    @dg.asset
    def t() -> Any:
        return None

    error = refused(world, t)
    assert isinstance(error, InvalidArgumentError)
    assert "-> DataFrame | None" in str(error) and "-> None" in str(error)
    assert world.client.registry.list_tables() == ()


def test_an_input_that_may_be_none_is_none_without_a_table_and_a_frame_with_it(world: World) -> None:
    up = dg.AssetSpec("up").with_io_manager_key("io_manager")
    seen = []

    @dg.asset
    def down(up: DataFrame | None) -> None:
        seen.append(up if up is None else up.count())

    world.materialize(up, down)

    @dg.asset(name="up")
    def made() -> DataFrame:
        return world.frame([(1,), (2,)], "id int")

    world.materialize(made, down)
    assert seen == [None, 2]


def test_the_error_of_a_missing_input_names_the_annotation(world: World) -> None:
    @dg.asset
    def down(up: DataFrame) -> None: ...

    error = refused(world, dg.AssetSpec("up").with_io_manager_key("io_manager"), down)
    assert isinstance(error, TableNotFoundError)
    assert "up: DataFrame | None" in str(error) and "main.default.up" in str(error)


def test_an_asset_that_reads_its_own_day_before_begins_with_none(world: World) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        partitions_def=days,
        ins={"total": dg.AssetIn(partition_mapping=before)},
        metadata={"partition_expr": "day"},
    )
    def total(context: dg.AssetExecutionContext, total: DataFrame | None) -> DataFrame:
        day = date.fromisoformat(context.partition_key)
        if total is None:
            return world.frame([(day, 1)], "day date, n int")
        return total.select(
            (F.col("day") + F.expr("INTERVAL 1 DAY")).cast("date").alias("day"), (F.col("n") + 1).alias("n")
        )

    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        world.materialize(total, partition_key=day)
    first = date(2026, 1, 1)
    assert world.rows("main.default.total") == [(first + timedelta(days=number), number + 1) for number in range(3)]
