"""What an asset's metadata declares of its table: at creation, and on a later write."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.catalog.ratification import CommitSummary
from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError, PartitionMismatchError
from tests.faults.refusals import files_below
from tests.orchestration.conftest import World
from tests.support.dagster_assets import asset, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

ORDERS = "id bigint, amount int, day date"


def orders(
    world: World, rows: Sequence[tuple[Any, ...]] = ((1, 5, None),), columns: str = ORDERS, **metadata: Any
) -> dg.AssetsDefinition:
    return asset("t", lambda _: world.frame(list(rows), columns), metadata={"mode": "append", **metadata})


def state(world: World, name: str = "main.default.t") -> tuple[int, dict[str, str]]:
    snapshot = world.client.table(name).snapshot()
    configuration = snapshot.metadata.configuration
    return snapshot.version, {key: value for key, value in configuration.items() if "constraints" in key}


def test_a_table_is_created_as_declared(world: World) -> None:
    declared = orders(
        world,
        rows=[(5, None)],
        columns="amount int, day date",
        constraints={"Positive": "amount > 0"},
        generated={"doubled": "amount * 2"},
        identity={"id": {"start": 10}},
        defaults={"day": "date'2024-01-01'"},
        table_properties={"delta.enableChangeDataFeed": "true"},
        cluster_by=["amount"],
    )
    world.materialize(declared)
    snapshot = world.client.table("main.default.t").snapshot()
    assert snapshot.version == 0
    assert snapshot.clustering_columns == (("amount",),)
    assert snapshot.metadata.configuration["delta.enableChangeDataFeed"] == "true"
    assert world.rows("main.default.t") == [(5, None, 10, 10)]
    world.materialize(declared)
    assert state(world) == (1, {"delta.constraints.positive": "amount > 0"})
    assert [row[-1] for row in world.rows("main.default.t")] == [10, 11]
    bad = orders(world, rows=[(-1, None)], columns="amount int, day date", constraints={"positive": "amount > 0"})
    assert isinstance(refused(world, bad), InvalidDataError)


def test_a_table_is_brought_in_line_before_the_write_and_only_once(world: World) -> None:
    world.materialize(orders(world))
    declared = orders(
        world,
        constraints={"positive": "amount > 0"},
        cluster_by="id",
        table_properties={"delta.enableChangeDataFeed": "true", "owner": "sales"},
        defaults={"amount": "7"},
    )
    world.materialize(declared)
    version, constraints = state(world)
    assert (version, constraints) == (2, {"delta.constraints.positive": "amount > 0"})
    assert [event.operation for event in history(world)] == ["WRITE", "ALTER TABLE", "CREATE TABLE AS SELECT"]
    observed = world.instance.fetch_observations(dg.AssetKey("t"), limit=10).records
    assert [each.asset_observation.metadata["cm_delta/commit_version"].value for each in observed] == [1]
    world.materialize(declared)
    assert state(world)[0] == 3
    changed = orders(world, constraints={"positive": "amount > 1"}, defaults={"amount": None}, cluster_by=[])
    world.materialize(changed)
    assert state(world) == (5, {"delta.constraints.positive": "amount > 1"})
    assert not world.client.table("main.default.t").snapshot().clustering_columns
    world.materialize(orders(world, constraints={"positive": None}))
    assert state(world) == (7, {})


def history(world: World) -> list[CommitSummary]:
    return [entry.summary for entry in reversed(world.client.catalog.feed.feed(after=0, limit=100))]


IMPOSSIBLE = (
    ({"constraints": {"c": "amount > 5"}}, InvalidDataError),
    ({"constraints": {"c": "other > 5"}}, InvalidArgumentError),
    ({"constraints": {"c": "amount + 5"}}, InvalidArgumentError),
    ({"defaults": {"other": "1"}}, InvalidArgumentError),
    ({"generated": {"amount": "id + 1"}}, InvalidArgumentError),
    ({"identity": "id"}, InvalidArgumentError),
    ({"cluster_by": "other"}, InvalidArgumentError),
    ({"table_properties": {"delta.columnMapping.mode": "id"}}, InvalidArgumentError),
)


def test_a_change_that_cannot_be_made_changes_nothing(world: World) -> None:
    world.materialize(orders(world))
    for metadata, error in IMPOSSIBLE:
        declared = orders(world, **{"table_properties": {"owner": "sales"}, **metadata})
        assert isinstance(refused(world, declared), error), metadata
        assert state(world)[0] == 0, metadata
    assert world.rows("main.default.t") == [(1, 5, None)]


def test_types_are_widened_by_a_write_that_enables_widening(world: World) -> None:
    world.materialize(orders(world, rows=[(1, 5)], columns="id bigint, amount int"))
    wide = orders(
        world,
        rows=[(2, 1 << 40)],
        columns="id bigint, amount bigint",
        schema_mode="merge",
        table_properties={"delta.enableTypeWidening": "true"},
    )
    world.materialize(wide)
    assert world.rows("main.default.t") == [(1, 5), (2, 1 << 40)]


CLAUSES = [
    {"when": "matched", "then": "delete", "condition": "source.amount = 0"},
    {"when": "matched", "then": "update", "set": {"amount": "target.amount + source.amount"}},
    {"when": "not_matched", "then": "insert", "condition": "source.amount > 0"},
    {"when": "not_matched_by_source", "then": "delete", "condition": "target.id > 2"},
]


def test_a_merge_by_clauses(world: World) -> None:
    world.materialize(orders(world, rows=[(1, 5), (2, 5), (3, 5), (4, 5)], columns="id int, amount int"))
    given = {"on": ["id"], "merge_clauses": CLAUSES, "mode": "merge"}
    rows = [(1, 1), (2, 0), (3, 2), (9, 9), (8, 0)]
    world.materialize(orders(world, rows=rows, columns="id int, amount int", **given))
    assert world.rows("main.default.t") == [(1, 6), (3, 7), (9, 9)]
    plain = orders(world, rows=[(1, 100)], columns="id int, amount int")
    tags = {
        "cm_delta/mode": "merge",
        "cm_delta/on": "target.id = source.id",
        "cm_delta/merge_clauses": '[{"when": "matched", "then": "delete"}]',
    }
    world.materialize(plain, tags=tags)
    assert world.rows("main.default.t") == [(3, 7), (9, 9)]


def _matched(then: str, **more: Any) -> dict[str, Any]:
    return {"when": "matched", "then": then, **more}


BAD_MERGES = (
    ({"on": "target.id == == source.id", "merge_clauses": [_matched("delete")]}, "== =="),
    ({"on": "id = source.id", "merge_clauses": [_matched("delete")]}, "mbiguous"),
    ({"on": ["id"], "merge_clauses": [_matched("delete", condition="source.nothing = 1")]}, "nothing"),
    ({"on": ["id"], "merge_clauses": [_matched("delete", condition="rand() > 0.5")]}, "rand()"),
    ({"on": ["id"], "merge_clauses": [_matched("delete"), _matched("update")]}, "can never apply"),
    ({"on": ["id"], "merge_clauses": [_matched("update", set={"nothing": "1"})]}, "'nothing'"),
    ({"on": ["id"], "merge_clauses": [_matched("update", set={"doubled": "3"})]}, "'doubled'"),
    ({"on": ["id"], "merge_clauses": [_matched("update", set={"amount": "'many'"})]}, "many"),
    ({"on": ["nothing"], "merge_clauses": [_matched("delete")]}, "nothing"),
)


@pytest.mark.requirements("DML-6")
def test_a_merge_that_cannot_be_made_writes_no_file(world: World) -> None:
    """The message is that of the error which fails the step; the directory has the same files."""
    columns = "id int, amount int"
    world.materialize(orders(world, rows=[(1, 5)], columns=columns, generated={"doubled": "amount * 2"}))
    directory = Path(world.client.table("main.default.t").location.removeprefix("file://"))
    world.client.wait_for_background()
    before = files_below(directory)
    for metadata, word in BAD_MERGES:
        error = refused(world, orders(world, rows=[(1, 7)], columns=columns, **{"mode": "merge", **metadata}))
        assert word in str(error), f"{metadata}: {error}"
        world.client.wait_for_background()
        assert files_below(directory) == before, metadata
    for generated in ("rand()", "max(amount)", "nothing + 1", "amount + + +"):
        new = asset("u", lambda _: world.frame([(1, 7)], columns), metadata={"generated": {"g": generated}})
        assert "'g'" in str(refused(world, new)), generated
    assert [str(name) for name in world.client.registry.list_tables()] == ["main.default.t"]
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    assert (state(world)[0], world.rows("main.default.t")) == (0, [(1, 5, 10)])


def test_clauses_stay_within_the_partitions_of_the_run(world: World) -> None:
    partitions = dg.StaticPartitionsDefinition(["a", "b"])
    rows = {"now": [("a", 1, 5), ("a", 2, 5)]}
    clauses = [
        {"when": "matched", "then": "update"},
        {"when": "not_matched", "then": "insert"},
        {"when": "not_matched_by_source", "then": "delete"},
    ]

    def made(**metadata: Any) -> dg.AssetsDefinition:
        return asset(
            "t",
            lambda _: world.frame(rows["now"], "part string, id int, amount int"),
            partitions_def=partitions,
            metadata={"partition_expr": "part", **metadata},
        )

    by_clauses = made(mode="merge", on="id", merge_clauses=clauses)
    world.materialize(made(), partition_key="a")
    rows["now"] = [("b", 1, 7)]
    world.materialize(by_clauses, partition_key="b")
    assert world.rows("main.default.t") == [("a", 1, 5), ("a", 2, 5), ("b", 1, 7)]
    rows["now"] = [("a", 2, 6)]
    world.materialize(by_clauses, partition_key="a")
    assert world.rows("main.default.t") == [("a", 2, 6), ("b", 1, 7)]
    rows["now"] = [("a", 3, 6)]
    assert isinstance(refused(world, by_clauses, partition_key="b"), PartitionMismatchError)
    moving = made(mode="merge", on="id", merge_clauses=[{"when": "matched", "then": "update", "set": {"part": "'b'"}}])
    assert isinstance(refused(world, moving, partition_key="a"), InvalidArgumentError)


@pytest.mark.slow
def test_a_frame_without_the_declared_columns_reads_back(world: World) -> None:
    world.materialize(orders(world, rows=[(3, 4)], columns="id bigint, amount int", generated={"size": "amount > 3"}))

    @dg.asset
    def down(t: DataFrame) -> DataFrame:
        return t.where(F.col("size"))

    world.materialize(orders(world, rows=[(4, 1)], columns="id bigint, amount int"), down)
    assert world.rows("main.default.down") == [(3, 4, True)]
