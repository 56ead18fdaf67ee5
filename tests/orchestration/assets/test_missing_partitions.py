"""Upstream partitions that were never materialized are not read as no rows."""

from datetime import date, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import PartitionNotFoundError
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.write import append
from tests.orchestration.conftest import World
from tests.support.dagster_assets import asset, raised, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-11")
BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
ALLOWED = {"allow_missing_partitions": True}


def daily(world: World, *, column: str = "date", rows: int = 1) -> dg.AssetsDefinition:
    """One row each day, in a column of type date by which the table is partitioned, or timestamp_ntz, which it is not."""
    kind = date if column == "date" else datetime

    def frame(context: dg.AssetExecutionContext) -> DataFrame:
        return world.frame([(kind.fromisoformat(context.partition_key), 1)] * rows, f"day {column}, n int")

    return asset("up", frame, partitions_def=DAYS, metadata={"partition_expr": "day"})


def reader(
    seen: list[int],
    *,
    mapping: dg.PartitionMapping | None = None,
    partitions: dg.PartitionsDefinition[Any] | None = DAYS,
    **metadata: Any,
) -> dg.AssetsDefinition:
    """Reads ``up`` without Spark."""

    @dg.asset(partitions_def=partitions, ins={"up": dg.AssetIn(partition_mapping=mapping, metadata=metadata)})
    def down(up: pa.Table) -> None:
        seen.append(up.num_rows)

    return down


def read(world: World, up: dg.AssetsDefinition, down: dg.AssetsDefinition, key: str | None = None) -> None:
    world.materialize(up, down, selection=["down"], partition_key=key)


def missing(world: World, up: dg.AssetsDefinition, down: dg.AssetsDefinition, key: str | None = None) -> str:
    error = refused(world, up, down, selection=["down"], partition_key=key)
    assert isinstance(error, PartitionNotFoundError)
    return str(error)


@pytest.mark.parametrize("column", ["date", "timestamp_ntz"])
def test_a_partition_that_was_never_materialized_is_an_error_that_names_it(world: World, column: str) -> None:
    """But not one without rows, one that another program has written, one whose rows were deleted, or one in a range of these."""
    up, seen = daily(world, column=column), []
    for day in ("2026-01-02", "2026-01-04"):
        world.materialize(up, partition_key=day)
    world.materialize(daily(world, column=column, rows=0), partition_key="2026-01-03")
    table, kind = world.client.table("main.default.up"), date if column == "date" else datetime
    delete(table, where="day < '2026-01-03'", spark=world.spark)
    append(table, frame=world.frame([(kind(2026, 1, 6), 1)], f"day {column}, n int"))
    for key, rows in (("2026-01-02", 0), ("2026-01-03", 0), ("2026-01-04", 1), ("2026-01-06", 1)):
        read(world, up, reader(seen), key)
        assert seen.pop() == rows
    text = missing(world, up, reader(seen), "2026-01-05")
    assert "reads the partitions 2026-01-05 of up" in text and "'allow_missing_partitions': True" in text
    read(world, up, reader(seen, mapping=dg.TimeWindowPartitionMapping(start_offset=-1)), "2026-01-04")
    assert seen.pop() == 1
    three = dg.TimeWindowPartitionMapping(start_offset=-2)
    assert "the partitions 2026-01-05 of up" in missing(world, up, reader(seen, mapping=three), "2026-01-06")
    read(world, up, reader(seen, mapping=three, **ALLOWED), "2026-01-06")
    assert seen.pop() == 2


def test_an_input_of_all_partitions_reads_the_whole_table_and_misses_none(world: World) -> None:
    up, seen = daily(world), []
    world.materialize(up, partition_key="2026-01-02")
    for down, key in (
        (reader(seen, partitions=None), None),
        (reader(seen, mapping=dg.AllPartitionMapping()), "2026-01-05"),
    ):
        read(world, up, down, key)
    assert seen == [1, 1]
    for mapping in (dg.SpecificPartitionsPartitionMapping(["2026-01-05"]), dg.LastPartitionMapping()):
        assert "2026-01-" in missing(world, up, reader(seen, mapping=mapping, partitions=None))


def test_partitions_of_several_dimensions_and_dynamic_ones_are_named(world: World) -> None:
    pairs = dg.MultiPartitionsDefinition({"day": DAYS, "who": dg.DynamicPartitionsDefinition(name="who")})
    world.instance.add_dynamic_partitions("who", ["a", "b"])

    def frame(context: dg.AssetExecutionContext) -> DataFrame:
        keys = context.partition_key.keys_by_dimension
        return world.frame([(date.fromisoformat(keys["day"]), keys["who"], 1)], "day date, who string, n int")

    up = asset("up", frame, partitions_def=pairs, metadata={"partition_expr": {"day": "day", "who": "who"}})
    seen: list[int] = []
    one, other = (dg.MultiPartitionKey({"day": "2026-01-02", "who": who}) for who in "ab")
    world.materialize(up, partition_key=one)
    read(world, up, reader(seen, partitions=pairs), one)
    assert "the partitions 2026-01-02|b of up" in missing(world, up, reader(seen, partitions=pairs), other)
    assert "2026-01-02|b" in missing(world, up, reader(seen), "2026-01-02")
    assert seen == [1]


@pytest.fixture
def total(world: World) -> dg.AssetsDefinition:
    """A running total, which reads its own day before."""

    @dg.asset(
        name="up",
        partitions_def=DAYS,
        ins={"up": dg.AssetIn(partition_mapping=BEFORE)},
        metadata={"partition_expr": "day"},
    )
    def made(context: dg.AssetExecutionContext, up: pa.Table | None) -> pa.Table:
        rows = 1 if up is None else up.num_rows + 1
        days = [date.fromisoformat(key) for key in context.partition_keys] * rows
        return pa.table({"day": pa.array(days, pa.date32()), "n": pa.array([1] * len(days), pa.int32())})

    return made


def test_a_running_total_may_lack_the_day_before_the_first_and_has_no_gap(
    world: World, total: dg.AssetsDefinition
) -> None:
    for key in ("2026-01-01", "2026-01-02", "2026-01-01"):
        world.materialize(total, partition_key=key)
    assert len(world.rows("main.default.up")) == 3
    error = refused(world, total, partition_key="2026-01-04")
    assert isinstance(error, PartitionNotFoundError) and "the partitions 2026-01-03 of up" in str(error)
    assert len(world.rows("main.default.up")) == 3


def test_a_range_of_a_running_total_may_lack_the_days_that_it_materializes(
    world: World, total: dg.AssetsDefinition
) -> None:
    """In one run: the function gets the rows before the range, and computes those within."""
    job = dg.Definitions(
        assets=[total],
        resources=world.resources,
        jobs=[dg.define_asset_job("all", executor_def=dg.in_process_executor)],
    ).resolve_job_def("all")
    world.materialize(total, partition_key="2026-01-01")

    def run(start: str, end: str) -> dg.ExecuteInProcessResult:
        tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        return job.execute_in_process(instance=world.instance, tags=tags)

    run("2026-01-02", "2026-01-04")
    assert len(world.rows("main.default.up")) == 7
    with pytest.raises(Exception) as caught:
        run("2026-01-06", "2026-01-07")
    assert "the partitions 2026-01-05 of up" in str(raised(caught.value))


def test_a_partition_with_nothing_to_write_is_not_missing(world: World) -> None:
    world.materialize(daily(world), partition_key="2026-01-01")

    @dg.asset(name="up", partitions_def=DAYS, metadata={"partition_expr": "day"})
    def nothing() -> pa.Table | None:
        return None

    seen: list[int] = []
    world.materialize(nothing, reader(seen), partition_key="2026-01-02")
    assert seen == [0]


def test_a_materialization_counts_only_if_the_version_that_is_read_includes_it(world: World) -> None:
    """Of a later version than the input names, and of a table that was dropped; an event without a version counts."""
    up, seen = daily(world), []
    for day in ("2026-01-02", "2026-01-03"):
        world.materialize(up, partition_key=day)
    read(world, up, reader(seen, version=1), "2026-01-03")
    assert "up to version 0 of main.default.up" in missing(world, up, reader(seen, version=0), "2026-01-03")
    world.client.registry.drop_table(TableIdentifier.parse("main.default.up"))
    world.materialize(up, partition_key="2026-01-04")
    assert "the partitions 2026-01-03 of up" in missing(world, up, reader(seen), "2026-01-03")
    world.instance.report_runless_asset_event(dg.AssetMaterialization("up", partition="2026-01-05"))
    read(world, up, reader(seen), "2026-01-05")
    assert seen == [1, 0]


def test_outside_of_a_run_nothing_is_checked(world: World) -> None:
    up = daily(world)
    world.materialize(up, partition_key="2026-01-01")
    context = dg.build_input_context(
        asset_key=dg.AssetKey("up"),
        partition_key="2026-01-05",
        asset_partitions_def=DAYS,
        definition_metadata={},
        upstream_output=dg.build_output_context(
            asset_key=dg.AssetKey("up"), definition_metadata={"partition_expr": "day"}
        ),
        dagster_type=dg.PythonObjectDagsterType(pa.Table),
    )
    assert world.resources["io_manager"].load_input(context).num_rows == 0
