"""Assets as tables: modes, schemas, reads and metadata, with Spark and a Dagster instance."""

import logging
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.orchestration.conftest import World
from tests.support.creation import create_table
from tests.support.dagster_assets import asset, refused

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def test_an_asset_becomes_a_table_and_a_downstream_asset_reads_it(world: World) -> None:
    up = asset("up", lambda _: world.frame([(1, "a"), (2, "b")], "id int, name string"))

    @dg.asset
    def down(up: DataFrame) -> DataFrame:
        return up.where("id > 1")

    world.materialize(up, down)
    assert world.rows("main.default.up") == [(1, "a"), (2, "b")]
    assert world.rows("main.default.down") == [(2, "b")]


def test_the_standard_metadata_and_the_data_version_are_reported(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1, "a"), (2, "b")], "id int, name string"), key_prefix=["sales"])
    result = world.materialize(made)
    (event,) = world.events("sales/t")
    metadata = {key: value.value for key, value in event.metadata.items()}
    snapshot = world.client.table("main.sales.t").snapshot()
    assert metadata["dagster/row_count"] == 2
    assert metadata["dagster/table_name"] == "main.sales.t"
    assert metadata["dagster/uri"] == snapshot.location
    assert metadata["dagster/storage_kind"] == "deltalake"
    assert [(c.name, c.type, c.constraints.nullable) for c in metadata["dagster/column_schema"].columns] == [
        ("id", "int", True),
        ("name", "string", True),
    ]
    assert metadata["cm_delta/commit_version"] == 0 == snapshot.version
    assert metadata["cm_delta/table_id"] == snapshot.table_id
    assert metadata["cm_delta/added_files"] == 1
    assert metadata["cm_delta/conflict_retries"] == 0
    assert event.tags["dagster/data_version"] == f"{snapshot.table_id}@0"
    entry = world.client.catalog.feed.feed(after=0, limit=10)[-1]
    assert entry.summary.tags["dagster/run_id"] == result.run_id
    assert entry.summary.tags["dagster/asset_key"] == "sales/t"


def test_a_data_version_set_by_the_user_has_priority(world: World) -> None:
    @dg.asset
    def t() -> dg.Output[Any]:
        return dg.Output(world.frame([(1,)], "id int"), data_version=dg.DataVersion("mine"))

    world.materialize(t)
    assert world.events("t")[0].tags["dagster/data_version"] == "mine"


def test_modes_append_overwrite_and_merge(world: World) -> None:
    rows = {"now": [(1, "a")]}

    def made(mode: str, **metadata: Any) -> dg.AssetsDefinition:
        return asset("t", lambda _: world.frame(rows["now"], "id int, v string"), metadata={"mode": mode, **metadata})

    world.materialize(made("append"))
    rows["now"] = [(2, "b")]
    world.materialize(made("append"))
    assert world.rows("main.default.t") == [(1, "a"), (2, "b")]
    rows["now"] = [(2, "B"), (3, "c")]
    world.materialize(made("merge", on=["id"]))
    assert world.rows("main.default.t") == [(1, "a"), (2, "B"), (3, "c")]
    rows["now"] = [(9, "z"), (3, "C")]
    world.materialize(made("merge", on="id", merge_mode="update_only"))
    assert world.rows("main.default.t") == [(1, "a"), (2, "B"), (3, "C")]
    rows["now"] = [(7, "x")]
    world.materialize(made("replace_where", where="id >= 3 OR id = 7"))
    assert world.rows("main.default.t") == [(1, "a"), (2, "B"), (7, "x")]
    rows["now"] = [(5, "o")]
    world.materialize(made("overwrite"))
    assert world.rows("main.default.t") == [(5, "o")]
    error = refused(world, made("error_if_exists"))
    assert isinstance(error, TableAlreadyExistsError)
    assert world.rows("main.default.t") == [(5, "o")]


def test_create_or_replace_writes_the_rows_and_the_new_schema(world: World) -> None:
    """A peer commits an empty table here and reports success."""
    world.materialize(asset("t", lambda _: world.frame([(1,)], "id int")))
    replaced = asset(
        "t", lambda _: world.frame([("a", 2.0)], "k string, v double"), metadata={"mode": "create_or_replace"}
    )
    world.materialize(replaced)
    assert world.rows("main.default.t") == [("a", 2.0)]


def test_the_mode_can_be_changed_for_one_run_or_by_one_output(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1,)], "id int"))
    world.materialize(made)
    world.materialize(made, tags={"cm_delta/mode": "append"})
    assert world.rows("main.default.t") == [(1,), (1,)]

    @dg.asset(name="t")
    def chooses() -> dg.Output[Any]:
        return dg.Output(world.frame([(2,)], "id int"), metadata={"cm_delta/mode": "append"})

    world.materialize(chooses)
    assert world.rows("main.default.t") == [(1,), (1,), (2,)]


@pytest.mark.parametrize("key", ["modee", "append", "predicate", "schema_mod", "cm-delta/mode"])
def test_a_misspelt_or_foreign_key_leaves_the_rows_of_the_table(world: World, key: str) -> None:
    world.materialize(asset("t", lambda _: world.frame([(1,), (2,)], "id int")))

    @dg.asset(name="t")
    def at_run_time() -> dg.Output[Any]:
        return dg.Output(world.frame([(3,)], "id int"), metadata={key: "append"})

    for changed in (asset("t", lambda _: world.frame([(3,)], "id int"), metadata={key: "append"}), at_run_time):
        assert isinstance(refused(world, changed), InvalidArgumentError)
    assert world.rows("main.default.t") == [(1,), (2,)]


_BY_ID = {"partition_by": ["id"]}


def test_other_partition_columns_than_those_of_the_table_are_refused(world: World) -> None:
    """As the Python API refuses them; a merge, which has no such argument there, too."""

    def made(**metadata: object) -> dg.AssetsDefinition:
        return asset("t", lambda _: world.frame([(1, "a")], "id int, p string"), metadata=metadata)

    def columns() -> tuple[str, ...]:
        return world.client.table("main.default.t").snapshot().partition_columns

    world.materialize(made(partition_by="p"))
    for metadata in (
        {},
        {"mode": "append"},
        {"mode": "merge", "on": ["id"]},
        {"mode": "replace_where", "where": "id = 1"},
        {"schema_mode": "merge"},
    ):
        error = refused(world, made(**_BY_ID, **metadata))
        assert isinstance(error, InvalidArgumentError)
        assert "main.default.t is partitioned by ['p']; the call says partitioned by ['id']" in str(error)
    world.materialize(made(partition_by="P", mode="append"))
    assert (columns(), world.rows("main.default.t")) == (("p",), [(1, "a"), (1, "a")])
    world.materialize(made(**_BY_ID, mode="create_or_replace"))
    assert (columns(), world.rows("main.default.t")) == (("id",), [(1, "a")])


def test_a_misspelt_condition_of_an_input_is_an_error(world: World) -> None:
    up = asset("up", lambda _: world.frame([(1,), (2,)], "id int"))

    @dg.asset(ins={"up": dg.AssetIn(metadata={"wher": "id = 1"})})
    def down(up: DataFrame) -> DataFrame:
        return up

    assert "probably 'where' is meant" in str(refused(world, up, down))


def test_new_columns_need_schema_mode_merge(world: World) -> None:
    world.materialize(asset("t", lambda _: world.frame([(1,)], "id int")))
    wider = {"metadata": {"mode": "append"}}
    error = refused(world, asset("t", lambda _: world.frame([(2, "x")], "id int, v string"), **wider))
    assert isinstance(error, SchemaMismatchError)
    merged = {"metadata": {"mode": "append", "schema_mode": "merge"}}
    merges = asset("t", lambda _: world.frame([(2, "x")], "id int, v string"), **merged)
    world.materialize(merges)
    assert world.rows("main.default.t") == [(1, None), (2, "x")]
    world.materialize(merges)
    found = [
        event.metadata["cm_delta/schema_changes"]
        for event in world.events("t")
        if "cm_delta/schema_changes" in event.metadata
    ]
    assert [record.data for table in found for record in table.records] == [
        {"column": "v", "change": "added", "before": "", "after": "string"}
    ]


def test_columns_filter_and_version_of_an_input(world: World) -> None:
    """A peer returns a column called make_array("a") here."""
    made = asset("t", lambda _: world.frame([(1, "a", 0), (2, "b", 0)], "id int, v string, w int"))
    world.materialize(made)
    first = world.version("main.default.t")
    world.materialize(asset("t", lambda _: world.frame([(3, "c", 0), (4, "d", 0)], "id int, v string, w int")))
    seen = {}

    def reader(name: str, **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name=name, ins={"t": dg.AssetIn(metadata=metadata)})
        def reads(t: DataFrame) -> None:
            seen[name] = (t.columns, sorted(tuple(row) for row in t.collect()))

        return reads

    readers = [
        reader("now", columns=["v"], where="id > 3"),
        reader("then", columns=["v", "id"], version=first),
        reader("both", version=first, where="w = 0 AND id = 1"),
    ]
    world.materialize(made, *readers, selection=["now", "then", "both"])
    assert seen["now"] == (["v"], [("d",)])
    assert seen["then"] == (["v", "id"], [("a", 1), ("b", 2)])
    assert seen["both"][1] == [(1, "a", 0)]


def test_all_inputs_of_a_run_read_one_version(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1,)], "id int"))
    world.materialize(made)
    counts = []

    @dg.asset
    def first(t: DataFrame) -> None:
        counts.append(t.count())
        world.materialize(made, tags={"cm_delta/mode": "append"})  # Another run commits in between.

    @dg.asset(deps=[first])
    def second(t: DataFrame) -> None:
        counts.append(t.count())

    result = world.materialize(made, first, second, selection=["first", "second"])
    assert counts == [1, 1]
    assert len(world.rows("main.default.t")) == 2
    observed = world.instance.fetch_observations(dg.AssetKey("t"), limit=10).records
    versions = [
        r.asset_observation.metadata["cm_delta/version_read"].value for r in observed if r.run_id == result.run_id
    ]
    assert versions == [0, 0]


def test_what_a_run_writes_is_seen_by_its_later_reads(world: World) -> None:
    world.materialize(asset("t", lambda _: world.frame([(1,)], "id int")))

    @dg.asset
    def before(t: DataFrame) -> None: ...

    again = asset("u", lambda _: world.frame([(1,), (2,)], "id int"), deps=["before"], metadata={"table": "default.t"})
    counts = []

    @dg.asset(deps=["u"], ins={"t": dg.AssetIn()})
    def after(t: DataFrame) -> None:
        counts.append(t.count())

    source = dg.AssetSpec("t").with_io_manager_key("io_manager")
    world.materialize(source, before, again, after)
    assert counts == [2]


def test_an_input_annotated_as_snapshot_needs_no_rows(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1,)], "id int"))
    seen = []

    @dg.asset
    def down(t: Snapshot) -> None:
        seen.append(t.num_rows)

    world.materialize(made, down)
    assert seen == [1]


def test_a_wrong_type_is_refused_and_none_writes_nothing(world: World) -> None:
    @dg.asset
    def wrong() -> Any:
        return [1, 2]

    assert isinstance(refused(world, wrong), InvalidArgumentError)

    @dg.asset
    def nothing() -> None:
        return None

    world.materialize(nothing)
    assert world.client.registry.list_tables() == ()


def test_an_op_output_needs_a_table_name(world: World) -> None:
    @dg.op(out=dg.Out(metadata={"table": "main.ops.t"}))
    def write() -> Any:
        return world.frame([(1,)], "id int")

    counts = []

    @dg.op
    def count(frame: DataFrame) -> Any:
        counts.append(frame.count())

    @dg.job(resource_defs=world.resources)
    def job() -> None:
        count(write())

    job.execute_in_process(instance=world.instance)
    assert counts == [1]


def test_the_io_manager_works_without_a_run(world: World) -> None:
    manager = world.resources["io_manager"]
    for _ in range(2):  # Twice: a unit test has no run by which the second write would be a repetition.
        context = dg.build_output_context(asset_key=["s", "t"], name="result", definition_metadata={"mode": "append"})
        manager.handle_output(context, world.frame([(1,)], "id int"))
        assert context.get_logged_metadata()["dagster/table_name"].value == "main.s.t"
    loaded = manager.load_input(dg.build_input_context(asset_key=["s", "t"], upstream_output=context, name="t"))
    with pytest.raises(TableNotFoundError, match="never materialized"):
        manager.load_input(dg.build_input_context(asset_key=["s", "absent"], name="absent"))
    with pytest.raises(InvalidArgumentError, match="returned None"):
        manager.handle_output(dg.build_output_context(asset_key=["s", "t"], name="result"), None)
    assert loaded.count() == 2
    parted = dg.build_output_context(
        asset_key=["s", "p"],
        name="result",
        partition_key="1",
        asset_partitions_def=dg.StaticPartitionsDefinition(["1", "2", "3"]),
        definition_metadata={"partition_expr": "p"},
    )
    manager.handle_output(parted, world.frame([(1, 5)], "p int, v int"))
    assert world.rows("main.s.p") == [(1, 5)]


def test_the_root_logger_is_not_changed(world: World) -> None:
    """A peer forces it to DEBUG on every write and read."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    made = asset("t", lambda _: world.frame([(1,)], "id int"))

    @dg.asset
    def down(t: DataFrame) -> None:
        t.count()

    world.materialize(made, down)
    assert (root.level, list(root.handlers)) == before


def test_columns_that_a_plan_proves_to_be_filled_stay_nullable(world: World) -> None:
    world.materialize(asset("t", lambda _: world.spark.range(1).select(F.lit("x").alias("v"))))
    assert world.client.table("main.default.t").snapshot().schema.field("v").nullable


def test_another_resource_with_a_spark_session_is_accepted(world: World) -> None:
    from dagster_pyspark import LazyPySparkResource

    manager = type(world.resources["io_manager"])(catalog=world.catalog, spark=LazyPySparkResource(spark_config={}))
    made = asset("t", lambda _: world.frame([(1,)], "id int"))

    @dg.asset
    def down(t: DataFrame) -> None:
        t.count()

    dg.materialize([made, down], instance=world.instance, resources={"io_manager": manager})
    assert world.rows("main.default.t") == [(1,)]


def test_a_first_write_that_fails_leaves_no_table_behind(world: World) -> None:
    failing = asset("t", lambda _: world.spark.range(1).select(F.raise_error(F.lit("boom")).cast("int").alias("id")))
    assert not world.materialize(failing, raises=False).success
    assert world.client.registry.list_tables() == ()
    world.materialize(asset("t", lambda _: world.frame([(1,)], "id int")))
    assert world.rows("main.default.t") == [(1,)]


def test_an_asset_cannot_pin_a_version_for_its_readers(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1,)], "id int"), metadata={"cm_delta/version": 1})
    assert "cm_delta/version" in str(refused(world, made))


def test_columns_of_an_asset_are_the_default_of_its_readers(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1, 2)], "a int, b int"), metadata={"columns": ["a"]})
    seen = []

    @dg.asset
    def down(t: DataFrame) -> None:
        seen.append(t.columns)

    @dg.asset(ins={"t": dg.AssetIn(metadata={"columns": ["b"]})})
    def other(t: DataFrame) -> None:
        seen.append(t.columns)

    world.materialize(made, down, other)
    assert sorted(seen) == [["a"], ["b"]]


def test_a_run_that_is_executed_again_has_its_own_pin(world: World) -> None:
    made = asset("t", lambda _: world.frame([(1,)], "id int"), metadata={"mode": "append"})
    counts = []

    @dg.asset
    def down(t: DataFrame) -> None:
        counts.append(t.count())

    world.materialize(made)
    first = world.materialize(made, down, selection=[down])
    world.materialize(made)
    job = dg.Definitions(
        [made, down],
        resources=world.resources,
        jobs=[dg.define_asset_job("again", [down], executor_def=dg.in_process_executor)],
    )
    job = job.resolve_job_def("again")
    tags = {**world.instance.get_run_by_id(first.run_id).tags, "dagster/is_resume_retry": "true"}
    run = world.instance.create_run_for_job(job, parent_run_id=first.run_id, root_run_id=first.run_id, tags=tags)
    assert execute_run(InMemoryJob(job), run, world.instance).success
    assert counts == [1, 2]


def test_error_if_exists_accepts_an_empty_table(world: World) -> None:
    create_table(
        world.client, identifier="main.default.t", schema=StructType((StructField("id", PrimitiveType("integer")),))
    )
    made = asset("t", lambda _: world.frame([(1,)], "id int"), metadata={"mode": "error_if_exists"})
    world.materialize(made)
    assert isinstance(refused(world, made), TableAlreadyExistsError)
    assert world.rows("main.default.t") == [(1,)]
