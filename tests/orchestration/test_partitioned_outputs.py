"""Assets with partitions as tables, with Spark and a Dagster instance."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.errors import (
    InvalidArgumentError,
    PartitionMismatchError,
    TableAlreadyExistsError,
)
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from tests.orchestration.conftest import World
from tests.support.creation import create_table
from tests.support.dagster_assets import asset, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


INTS = dg.StaticPartitionsDefinition(["1", "2", "3"])


def by_partition(
    world: World,
    definition: dg.PartitionsDefinition[Any],
    column: str,
    kind: str,
    value_of: Callable[[str], Any],
    **arguments: Any,
) -> dg.AssetsDefinition:
    """An asset that writes one row for each partition key, counting how often it was computed."""

    def rows(context: dg.AssetExecutionContext) -> DataFrame:
        return world.frame([(value_of(key), key) for key in context.partition_keys], f"{column} {kind}, v string")

    metadata = {"partition_expr": column, **arguments.pop("metadata", {})}
    return asset("t", rows, partitions_def=definition, metadata=metadata, **arguments)


def test_partitions_of_an_integer_column_keep_each_other(world: World) -> None:
    """A peer overwrites the whole table here."""
    made = by_partition(world, INTS, "p", "int", int)
    for key in ("1", "2", "1"):
        world.materialize(made, partition_key=key)
    assert world.rows("main.default.t") == [(1, "1"), (2, "2")]
    assert world.client.table("main.default.t").snapshot().partition_columns == ("p",)
    event = world.events("t")[-1]
    assert event.partition == "1"
    assert event.metadata["dagster/partition_row_count"].value == 1
    assert event.metadata["dagster/row_count"].value == 2


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "string"])
def test_hourly_partitions_keep_each_other(world: World, kind: str) -> None:
    """A peer keeps only the last one here."""
    hourly = dg.HourlyPartitionsDefinition("2026-01-01-00:00")

    def value(key: str) -> datetime | str:
        moment = datetime.strptime(key, "%Y-%m-%d-%H:%M")
        return {"timestamp": moment.replace(tzinfo=UTC), "timestamp_ntz": moment, "string": key}[kind]

    made = by_partition(world, hourly, "at", kind, value)
    for key in ("2026-01-01-01:00", "2026-01-01-02:00", "2026-01-01-01:00"):
        world.materialize(made, partition_key=key)
    assert [row[1] for row in world.rows("main.default.t")] == ["2026-01-01-01:00", "2026-01-01-02:00"]


def test_weekly_partitions_can_be_written_twice(world: World) -> None:
    """Peers fail on the second write, or overwrite."""
    weekly = dg.WeeklyPartitionsDefinition("2026-01-04")
    made = by_partition(world, weekly, "day", "date", date.fromisoformat)
    for key in ("2026-01-04", "2026-01-11", "2026-01-04"):
        world.materialize(made, partition_key=key)
    assert [row[1] for row in world.rows("main.default.t")] == ["2026-01-04", "2026-01-11"]


def test_a_range_of_partitions_is_one_commit_and_keeps_the_others(world: World) -> None:
    """A peer wipes partition c when a to b are written in one run."""
    letters = dg.StaticPartitionsDefinition(["a", "b", "c"])
    policy = dg.BackfillPolicy.single_run()
    made = by_partition(world, letters, "p", "string", str, backfill_policy=policy)
    world.materialize(made, partition_key="c")
    before = world.version("main.default.t")
    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
    world.materialize(made, tags=tags)
    assert world.version("main.default.t") == before + 1
    assert world.rows("main.default.t") == [("a", "a"), ("b", "b"), ("c", "c")]
    written = world.events("t")[-2:]
    assert {event.partition: event.metadata["dagster/partition_row_count"].value for event in written} == {
        "a": 1,
        "b": 1,
    }
    for event in written:
        assert event.metadata["dagster/row_count"].value == 3
        assert event.metadata["cm_delta/output_rows"].value == 1, "of this partition, not of the run"
        assert event.metadata["cm_delta/partition_files"].value == 1
        assert event.metadata["cm_delta/partition_bytes"].value > 0


@pytest.mark.parametrize("mode", ["overwrite", "append", "error"])
def test_the_keys_of_a_char_column_need_no_blanks(world: World, mode: str) -> None:
    """Each key writes its rows, whatever checks that they are inside of the partition; rows of another key are refused."""
    schema = schema_of_columns([Column("p", "char(3)"), Column("v", "string")])
    create_table(world.client, identifier="main.default.t", schema=schema, partition_columns=["p"])
    letters = dg.StaticPartitionsDefinition(["a", "b", "c"])
    made = by_partition(world, letters, "p", "string", lambda key: {"c": "x"}.get(key, key), metadata={"mode": mode})
    for key in ("a", "b", *(["a"] if mode == "overwrite" else [])):
        world.materialize(made, partition_key=key)
    assert world.rows("main.default.t") == [("a  ", "a"), ("b  ", "b")]
    assert world.events("t")[-1].metadata["dagster/partition_row_count"].value == 1
    assert isinstance(refused(world, made, partition_key="c"), PartitionMismatchError)


def test_an_empty_output_clears_only_its_partition(world: World) -> None:
    rows = {"1": [(1, "x")], "2": [(2, "y")]}
    made = asset(
        "t",
        lambda context: world.frame(rows[context.partition_key], "p int, v string"),
        partitions_def=INTS,
        metadata={"partition_expr": "p"},
    )
    world.materialize(made, partition_key="1")
    world.materialize(made, partition_key="2")
    rows["1"] = []
    world.materialize(made, partition_key="1")
    assert world.rows("main.default.t") == [(2, "y")]


@pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
def test_rows_outside_of_the_partition_are_refused_and_nothing_is_committed(world: World, mode: str) -> None:
    metadata = {"partition_expr": "p", "mode": mode, **({"on": ["v"]} if mode == "merge" else {})}
    made = asset(
        "t", lambda _: world.frame([(1, "x"), (2, "y")], "p int, v string"), partitions_def=INTS, metadata=metadata
    )
    assert isinstance(refused(world, made, partition_key="1"), PartitionMismatchError)
    assert world.client.registry.list_tables() == ()


def test_a_key_without_a_value_in_its_column_leaves_no_table_behind(world: World) -> None:
    made = asset(
        "t",
        lambda _: world.frame([(1, "x")], "p int, v string"),
        partitions_def=dg.StaticPartitionsDefinition(["one"]),
        metadata={"partition_expr": "p"},
    )
    assert isinstance(refused(world, made, partition_key="one"), InvalidArgumentError)
    assert world.client.registry.list_tables() == ()


def test_a_merge_stays_within_its_partition(world: World) -> None:
    rows = {"1": [(1, "k", "a")], "2": [(2, "k", "b")]}
    made = asset(
        "t",
        lambda context: world.frame(rows[context.partition_key], "p int, id string, v string"),
        partitions_def=INTS,
        metadata={"partition_expr": "p", "mode": "merge", "on": ["id"]},
    )
    world.materialize(made, partition_key="1")
    world.materialize(made, partition_key="2")
    rows["2"] = [(2, "k", "B")]
    world.materialize(made, partition_key="2")
    assert world.rows("main.default.t") == [(1, "k", "a"), (2, "k", "B")]


def test_a_partition_that_holds_rows_is_not_written_by_error_if_exists(world: World) -> None:
    made = by_partition(world, INTS, "p", "int", int, metadata={"mode": "error_if_exists"})
    world.materialize(made, partition_key="1")
    world.materialize(made, partition_key="2")
    assert isinstance(refused(world, made, partition_key="2"), TableAlreadyExistsError)
    assert world.rows("main.default.t") == [(1, "1"), (2, "2")]


def test_dimensions_static_and_dynamic_work_together(world: World) -> None:
    """The base class of peers fails for this (no instance to load partitions)."""
    both = dg.MultiPartitionsDefinition(
        {"tenant": dg.DynamicPartitionsDefinition(name="tenants"), "day": dg.DailyPartitionsDefinition("2026-01-01")}
    )
    world.instance.add_dynamic_partitions("tenants", ["acme", "zoo"])

    def rows(context: dg.AssetExecutionContext) -> DataFrame:
        key = context.partition_key.keys_by_dimension
        return world.frame([(key["tenant"], date.fromisoformat(key["day"]), 1)], "tenant string, d date, n int")

    made = asset("t", rows, partitions_def=both, metadata={"partition_expr": {"tenant": "tenant", "day": "d"}})

    @dg.asset(partitions_def=both)
    def down(context: dg.AssetExecutionContext, t: DataFrame) -> None:
        context.add_output_metadata({"seen": t.count()})

    for tenant, day in (("acme", "2026-01-01"), ("zoo", "2026-01-01"), ("acme", "2026-01-02"), ("acme", "2026-01-01")):
        world.materialize(made, down, partition_key=dg.MultiPartitionKey({"tenant": tenant, "day": day}))
    assert len(world.rows("main.default.t")) == 3
    assert world.events("down")[-1].metadata["seen"].value == 1


def test_a_mapped_read_need_not_be_contiguous(world: World) -> None:
    """A peer raises here, because it asks for a range of keys."""
    letters = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])
    up = by_partition(world, letters, "p", "string", str)
    for key in "abcd":
        world.materialize(up, partition_key=key)
    seen = []

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(["outer"]),
        ins={"t": dg.AssetIn(partition_mapping=dg.StaticPartitionMapping({"a": "outer", "d": "outer"}))},
    )
    def down(t: DataFrame) -> None:
        seen.extend(sorted(row["p"] for row in t.collect()))

    world.materialize(up, down, selection=["down"], partition_key="outer")
    assert seen == ["a", "d"]


EMPTY_KEY_MODES = {
    "append": {},
    "overwrite": {},
    "error_if_exists": {},
    "merge": {"on": ["id"]},
    "replace_where": {"where": "id > 0"},
}


@pytest.mark.parametrize("mode", EMPTY_KEY_MODES)
def test_the_empty_partition_key_is_refused_in_every_mode(world: World, mode: Any) -> None:
    """Delta stores it as NULL, so that no key would find the rows again."""

    def frame(_: object) -> DataFrame:
        return world.frame([(1, "", "s")], "id int, name string, size string")

    names = dg.StaticPartitionsDefinition(["", "a"])
    pairs = dg.MultiPartitionsDefinition({"name": names, "size": dg.StaticPartitionsDefinition(["s"])})
    metadata = {"mode": mode, **EMPTY_KEY_MODES[mode]}
    one = asset("one", frame, partitions_def=names, metadata={**metadata, "partition_expr": "name"})
    two_columns = {"name": "name", "size": "size"}
    two = asset("two", frame, partitions_def=pairs, metadata={**metadata, "partition_expr": two_columns})
    for made, key in ((one, ""), (two, dg.MultiPartitionKey({"name": "", "size": "s"}))):
        assert isinstance(refused(world, made, partition_key=key), InvalidArgumentError)
    assert world.client.registry.list_tables() == ()
