"""Inputs and outputs of every type: Arrow, pandas, polars and Spark; graphs, ops and assets with several outputs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.rows import no_session
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, cm_delta_definitions
from cm_delta_dagster.orchestration.assets.output_rows import output_rows
from cm_delta_dagster.orchestration.metadata.frame_types import FrameType, frame_type, without_none
from tests.orchestration.conftest import World
from tests.orchestration.log_tables import SCHEMA
from tests.support.creation import create_table
from tests.support.dagster_assets import asset, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([datetime(2026, 1, 1), None], pa.timestamp("us"))})


def test_annotations_are_recognized() -> None:
    known = {
        pa.Table: FrameType.ARROW_TABLE,
        pa.RecordBatchReader: FrameType.ARROW_READER,
        pd.DataFrame: FrameType.PANDAS,
        pl.DataFrame: FrameType.POLARS,
        pl.LazyFrame: FrameType.POLARS_LAZY,
        DataFrame: FrameType.SPARK,
        int: None,
    }
    assert {kind: frame_type(kind) for kind in known} == known
    assert without_none(pl.DataFrame | None) is pl.DataFrame
    assert frame_type(without_none(int | None)) is None


class NoSpark(dg.ConfigurableResource):
    """Fails if an asset starts Spark."""

    @property
    def spark_session(self) -> NoReturn:
        raise AssertionError("Spark was started")


def test_every_type_is_read_without_spark(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    create_table(catalog.client, identifier="main.default.up", schema=SCHEMA)
    seen = []

    def reader(kind: type) -> dg.AssetsDefinition:
        @dg.asset(name=f"read_{kind.__module__.split('.')[0]}_{kind.__name__}".lower())
        def made(up: kind) -> None:
            seen.append(type(up.lazy() if kind is pl.LazyFrame else up))

        return made

    kinds = [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame]
    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=NoSpark())
    result = dg.materialize(
        [*map(reader, kinds), dg.AssetSpec("up")], resources={"io_manager": manager}, instance=instance
    )
    assert result.success
    assert {kind.__name__ for kind in seen} == {kind.__name__ for kind in kinds}
    observed = instance.fetch_observations(dg.AssetKey("up"), limit=10).records
    assert {each.asset_observation.metadata["cm_delta/operation"].value for each in observed} == {"read"}
    assert {each.asset_observation.metadata["cm_delta/read_lag_versions"].value for each in observed} == {0}
    assert "read_polars_lazyframe" in {each.asset_observation.metadata["cm_delta/read_by"].value for each in observed}


def test_reads_can_be_left_unreported(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    create_table(catalog.client, identifier="main.default.up", schema=SCHEMA)

    @dg.asset(ins={"up": dg.AssetIn(metadata={"report_reads": False})})
    def quiet(up: pa.Table) -> None: ...

    @dg.asset
    def loud(up: pa.Table) -> None: ...

    def run(made: dg.AssetsDefinition, **settings: Any) -> int:
        manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=NoSpark(), **settings)
        dg.materialize([made, dg.AssetSpec("up")], resources={"io_manager": manager}, instance=instance)
        return len(instance.fetch_observations(dg.AssetKey("up"), limit=10).records)

    assert [run(quiet), run(loud, report_reads=False), run(loud)] == [0, 0, 1]


VALUES = {
    "arrow": lambda: ROWS,
    "reader": lambda: ROWS.to_reader(),
    "pandas": lambda: pd.DataFrame({"id": [1, 2], "at": [datetime(2026, 1, 1), None]}),
    "polars": lambda: pl.from_arrow(ROWS),
    "lazy": lambda: pl.from_arrow(ROWS).lazy(),
}


@pytest.mark.parametrize(
    "name", [name if name == "lazy" else pytest.param(name, marks=pytest.mark.slow) for name in VALUES]
)
def test_every_type_is_written(world: World, name: Any) -> None:
    @dg.asset(name=name)
    def made() -> Any:
        return VALUES[name]()

    world.materialize(made)
    assert world.rows(f"main.default.{name}") == [(1, datetime(2026, 1, 1)), (2, None)]


def test_types_that_spark_has_not_are_written_without_a_change_of_values(world: World) -> None:
    codes = pa.array(["a", "b"]).dictionary_encode()
    given = pa.table(
        {
            "large": pa.array([0, 2**64 - 1], pa.uint64()),
            "half": pa.array([1.5, None], pa.float32()).cast(pa.float16()),
            "codes": pa.ListArray.from_arrays([0, 1, 2], codes),
            "views": pa.StructArray.from_arrays([pa.array(["x", None], pa.string_view())], ["v"]),
            "seconds": pa.array([1, None], pa.timestamp("s")),
            "nanoseconds": pa.array([1_000, None], pa.timestamp("ns", "UTC")),
        }
    )

    @dg.asset
    def t() -> Any:
        return given

    world.materialize(t)
    rows = read_arrow(open_scan(world.client.table("main.default.t"))).sort_by("large").to_pylist()
    assert [int(row["large"]) for row in rows] == [0, 2**64 - 1]
    assert [row["half"] for row in rows] == [1.5, None]
    assert [row["codes"] for row in rows] == [["a"], ["b"]]
    assert [row["views"] for row in rows] == [{"v": "x"}, {"v": None}]
    assert rows[0]["seconds"] == datetime(1970, 1, 1, 0, 0, 1)
    assert rows[0]["nanoseconds"] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "value", [pd.DataFrame({"a": [1, "x"]}), pd.DataFrame([[1, 2]], columns=["a", "a"])], ids=["types", "names"]
)
def test_a_frame_that_arrow_cannot_hold_is_refused_before_spark(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"DataFrame that t returned .*'a'|column a"):
        output_rows(value, name="t", session=no_session)


def test_what_is_no_frame_and_what_delta_cannot_store_is_refused(world: World) -> None:
    @dg.asset
    def t() -> Any:
        return {"id": 1}

    assert "polars.DataFrame" in str(refused(world, t))

    @dg.asset(name="t")
    def times() -> Any:
        return pa.table({"at": pa.array([1], pa.time64("us"))})

    assert isinstance(refused(world, times), InvalidArgumentError)
    assert world.client.registry.list_tables() == ()


def test_a_table_that_passes_through_pandas_keeps_its_types_and_values(world: World) -> None:
    row = (
        "9007199254740993, true, DATE'0001-01-01', 1.50BD, TIMESTAMP'9999-01-01 00:00:00Z', array(1L, NULL), "
        "named_struct('x', 1)"
    )
    nulls = ", ".join(["NULL"] * 7)
    query = f"SELECT * FROM VALUES ({row}), ({nulls}) AS t(n, flag, day, price, at, items, part)"
    world.materialize(asset("up", lambda _: world.spark.sql(query)))
    dtypes = []

    @dg.asset(metadata={"mode": "overwrite"})
    def down(up: pd.DataFrame) -> pd.DataFrame:
        dtypes.append(str(up["n"].dtype))
        return up

    @dg.asset(ins={"up": dg.AssetIn(metadata={"dtype_backend": "numpy_nullable"})})
    def nullable(up: pd.DataFrame) -> None:
        dtypes.append(str(up["n"].dtype))

    world.materialize(down, dg.AssetSpec("up"))
    world.materialize(nullable, dg.AssetSpec("up"))
    assert dtypes == ["int64[pyarrow]", "Int64"]
    up, copied = (
        read_arrow(open_scan(world.client.table(f"main.default.{name}"))).sort_by("n") for name in ("up", "down")
    )
    assert copied.schema.types == up.schema.types
    assert copied.to_pylist() == up.to_pylist()


def test_changes_are_read_as_arrow(world: World) -> None:
    world.materialize(asset("up", lambda _: world.frame([(1,)], "id int")))
    seen = []

    @dg.asset(ins={"changed": dg.AssetIn("up", metadata={"changes": True, "columns": ["id", "_change_type"]})})
    def down(changed: pl.DataFrame) -> None:
        seen.append(changed.rows())

    world.materialize(down, dg.AssetSpec("up"))
    assert seen == [[(1, "insert")]]


def test_graphs_ops_and_several_outputs_have_their_tables(world: World) -> None:
    @dg.op
    def rows() -> DataFrame:
        return world.frame([(1,)], "id int")

    @dg.op(out=dg.Out(metadata={"table": "main.s.of_op"}))
    def more(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("id + 1 AS id")

    @dg.op(out=dg.Out(metadata={"table": "main.s.rows"}))
    def first() -> DataFrame:
        return world.frame([(1,)], "id int")

    @dg.graph_asset(metadata={"table": "main.s.of_graph", "mode": "append"})
    def grouped() -> Any:
        return rows()

    @dg.job(resource_defs=world.resources)
    def plain() -> None:
        more(first())

    spec = dg.AssetSpec("a", metadata={"table": "main.s.a"})

    @dg.multi_asset(outs={"a": dg.AssetOut.from_spec(spec), "b": dg.AssetOut()})
    def both() -> Iterator[dg.MaterializeResult]:
        yield dg.MaterializeResult(asset_key="a", value=world.frame([(3,)], "id int"))
        yield dg.MaterializeResult(asset_key="b", value=world.frame([(4,)], "id int"))

    world.materialize(grouped)
    world.materialize(grouped)
    world.materialize(both)
    plain.execute_in_process(instance=world.instance)
    names = ("main.s.of_graph", "main.s.a", "main.default.b", "main.s.of_op")
    assert [world.rows(name) for name in names] == [[(1,), (1,)], [(3,)], [(4,)], [(2,)]]


def test_values_of_specs_that_name_the_io_manager_are_written(world: World) -> None:
    """Dagster refuses values of the others. The definitions are checked and completed as those of other assets."""
    letters = dg.StaticPartitionsDefinition(["a", "b"])
    in_parts = {"partitions_def": letters, "metadata": {"partition_expr": "p"}}
    specs = [
        dg.AssetSpec("left", **in_parts).with_io_manager_key("io_manager"),
        dg.AssetSpec("right", **in_parts).with_io_manager_key("io_manager"),
    ]

    @dg.multi_asset(specs=specs, can_subset=True)
    def both(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        for key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=key, value=pa.table({"p": [context.partition_key], "v": [1]}))

    for partition in ("a", "b", "a"):
        world.materialize(both, partition_key=partition, selection=["right"] if partition == "b" else None)
    assert world.rows("main.default.left") == [("a", 1)]
    assert world.rows("main.default.right") == [("a", 1), ("b", 1)]
    assert [event.partition for event in world.events("left")] == ["a", "a"]
    defs = dg.Definitions([both], resources=world.resources, executor=dg.in_process_executor)
    names = {spec.metadata["dagster/table_name"] for spec in cm_delta_definitions(defs).resolve_all_asset_specs()}
    assert names == {"main.default.left", "main.default.right"}

    @dg.multi_asset(specs=[dg.AssetSpec("lost")])
    def without() -> Iterator[dg.MaterializeResult]:
        yield dg.MaterializeResult(asset_key="lost", value=ROWS)

    with pytest.raises(dg.DagsterTypeCheckDidNotPass):
        world.materialize(without)


def test_only_an_overwrite_of_a_whole_table_can_be_the_last_that_wins(world: World) -> None:
    def made(**metadata: Any) -> dg.AssetsDefinition:
        return asset("t", lambda _: world.frame([(1,)], "id int"), metadata=metadata)

    world.materialize(made(on_conflict="last_wins"))
    assert isinstance(refused(world, made(on_conflict="last_wins", mode="append")), InvalidArgumentError)
    assert world.rows("main.default.t") == [(1,)]


def test_a_preview_is_shown_if_it_is_switched_on(world: World) -> None:
    manager = world.resources["io_manager"]
    world.resources["io_manager"] = CatalogManagedDeltaIOManager(
        catalog=world.catalog, spark=manager.spark, preview_rows=1
    )
    world.materialize(asset("t", lambda _: world.frame([(1, "a|b"), (2, "c")], "id int, v string")))
    (event,) = world.events("t")
    assert event.metadata["cm_delta/preview"].value == "| id | v |\n| --- | --- |\n| 1 | a\\|b |"
    assert event.metadata["cm_delta/table_files"].value == 1
    assert event.metadata["cm_delta/small_files"].value == 1
    assert event.metadata["cm_delta/unpublished_commits"].value in (0, 1)
