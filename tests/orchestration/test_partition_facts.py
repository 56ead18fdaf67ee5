"""Facts about partitions: counts where the table is not partitioned by them, versions read for several at once; and
keys and names that mean the same thing twice."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.write import append
from tests.orchestration.conftest import World
from tests.support.dagster_assets import asset, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-02-00:00")


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC)


def hourly(world: World, rows: list[tuple[datetime, int]], **arguments: Any) -> dg.AssetsDefinition:
    def made(context: dg.AssetExecutionContext) -> DataFrame:
        keys = {int(key[11:13]) for key in context.partition_keys}
        return world.frame([row for row in rows if row[0].hour in keys], "at timestamp, v int")

    return asset("t", made, partitions_def=HOURS, metadata={"partition_expr": "at"}, **arguments)


def test_rows_of_a_time_window_are_counted_though_the_table_is_not_partitioned_by_it(world: World) -> None:
    rows = [(at(1), 1), (at(1, 59), 2), (at(2), 3)]
    made = hourly(world, rows)
    for hour in (1, 2, 3):
        world.materialize(made, partition_key=f"2026-01-01-0{hour}:00")
    assert world.client.table("main.default.t").snapshot().partition_columns == ()
    counts = [event.metadata["dagster/partition_row_count"].value for event in world.events("t")]
    assert counts == [2, 1, 0]


def test_a_count_that_the_log_cannot_prove_is_omitted(world: World) -> None:
    """A foreign file spans two hours; the count of another hour is still reported."""
    rows = [(at(1), 1), (at(5), 1)]
    made = hourly(world, rows)
    world.materialize(made, partition_key="2026-01-01-05:00")
    table: Table = world.client.table("main.default.t")
    append(table, frame=world.frame([(at(1, 30), 8), (at(2, 30), 9)], "at timestamp, v int"))
    world.materialize(
        asset(
            "t",
            lambda _: world.frame(rows[:1], "at timestamp, v int"),
            partitions_def=HOURS,
            metadata={"partition_expr": "at", "mode": "append"},
        ),
        partition_key="2026-01-01-01:00",
    )
    world.materialize(made, partition_key="2026-01-01-05:00")
    _, unprovable, proven = world.events("t")
    assert "dagster/partition_row_count" not in unprovable.metadata
    assert unprovable.metadata["dagster/row_count"].value == 4
    assert proven.metadata["dagster/partition_row_count"].value == 1


def test_a_range_reports_the_rows_of_each_partition_and_never_their_sum(world: World) -> None:
    policy = dg.BackfillPolicy.single_run()
    made = hourly(world, [(at(1), 1), (at(1, 30), 2), (at(2), 3)], backfill_policy=policy)
    tags = {
        "dagster/asset_partition_range_start": "2026-01-01-01:00",
        "dagster/asset_partition_range_end": "2026-01-01-03:00",
    }
    world.materialize(made, tags=tags)
    counts = {event.partition: event.metadata.get("dagster/partition_row_count") for event in world.events("t")}
    assert counts.pop("2026-01-01-03:00").value == 0
    assert counts == {"2026-01-01-01:00": None, "2026-01-01-02:00": None}, "one file holds both hours"


def test_an_input_of_several_partitions_records_the_version_that_it_read(world: World) -> None:
    letters = dg.StaticPartitionsDefinition(["a", "b", "c"])
    made = asset(
        "t",
        lambda context: world.frame([(context.partition_key, 1)], "p string, n int"),
        partitions_def=letters,
        metadata={"partition_expr": "p"},
    )
    for key in "ab":
        world.materialize(made, partition_key=key)

    @dg.asset
    def down(t: DataFrame) -> None:
        t.count()

    result = world.materialize(made, down, selection=[down])
    records = world.instance.fetch_observations(dg.AssetKey("t"), limit=10).records
    (seen,) = [record.asset_observation for record in records if record.run_id == result.run_id]
    assert seen.metadata["cm_delta/version_read"].value == world.version("main.default.t")
    assert seen.metadata["cm_delta/table_id"].value == world.client.table("main.default.t").table_id
    assert seen.metadata["cm_delta/partitions_read"].value == "a,b,c"
    assert seen.partition is None


def test_two_static_keys_for_one_decimal_are_refused_before_anything_is_written(world: World) -> None:
    made = asset(
        "t",
        lambda _: world.frame([(Decimal("1.00"), 1)], "p decimal(5,2), n int"),
        partitions_def=dg.StaticPartitionsDefinition(["1.0", "2", "1.00"]),
        metadata={"partition_expr": "p"},
    )
    error = refused(world, made, partition_key="1.0")
    assert isinstance(error, InvalidArgumentError)
    assert "'1.0'" in str(error) and "'1.00'" in str(error)
    assert world.client.registry.list_tables() == ()


def named(world: World, *path: str, **metadata: Any) -> dg.AssetsDefinition:
    return asset(
        path[-1],
        lambda _: world.frame([(path[0],)], "who string"),
        key_prefix=list(path[:-1]),
        metadata={"mode": "append", **metadata},
    )


@pytest.mark.parametrize("second", [("us", "sales", "orders"), ("sales", "orders")])
def test_two_assets_with_the_same_implied_table_are_refused(world: World, second: Any) -> None:
    eu = ("eu", "sales", "orders")
    for first, then in ((eu, second), (second, eu)):
        world.materialize(named(world, *first))
        error = refused(world, named(world, *then))
        assert isinstance(error, InvalidArgumentError)
        assert "eu/sales/orders" in str(error) and "/".join(second) in str(error)
        assert world.rows("main.sales.orders") == [(first[0],)]
        world.materialize(named(world, *first))
        world.client.registry.drop_table(world.client.table("main.sales.orders").identifier)


def test_assets_may_share_a_table_that_both_name(world: World) -> None:
    shared = {"table": "main.sales.orders"}
    world.materialize(named(world, "eu", "sales", "orders", **shared))
    world.materialize(named(world, "us", "sales", "orders", **shared))
    assert world.rows("main.sales.orders") == [("eu",), ("us",)]
