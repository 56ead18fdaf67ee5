"""Assets as tables: modes, partitions, schemas, reads and metadata, with Spark and a Dagster instance."""

import logging
from datetime import UTC, date, datetime

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    PartitionMismatchError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.tables.create import create_table
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def asset(name, function, **arguments):
    """An asset whose rows come from ``function(context)``."""

    @dg.asset(name=name, **arguments)
    def made(context: dg.AssetExecutionContext) -> DataFrame:
        return function(context)

    return made


def raised(result_or_error: BaseException) -> BaseException:
    error: BaseException | None = result_or_error
    while error is not None and not isinstance(error, CmDeltaError):
        error = error.__cause__ or error.__context__
    assert error is not None, result_or_error
    return error


def refused(world, *assets, **arguments) -> BaseException:
    with pytest.raises(Exception) as caught:
        world.materialize(*assets, **arguments)
    return raised(caught.value)


def test_an_asset_becomes_a_table_and_a_downstream_asset_reads_it(world):
    up = asset("up", lambda _: world.frame([(1, "a"), (2, "b")], "id int, name string"))

    @dg.asset
    def down(up: DataFrame) -> DataFrame:
        return up.where("id > 1")

    world.materialize(up, down)
    assert world.rows("main.default.up") == [(1, "a"), (2, "b")]
    assert world.rows("main.default.down") == [(2, "b")]


def test_the_standard_metadata_and_the_data_version_are_reported(world):
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
    entry = world.client.catalog.feed(after=0, limit=10)[-1]
    assert entry.summary.tags["dagster/run_id"] == result.run_id
    assert entry.summary.tags["dagster/asset_key"] == "sales/t"


def test_a_data_version_set_by_the_user_has_priority(world):
    @dg.asset
    def t() -> dg.Output[DataFrame]:
        return dg.Output(world.frame([(1,)], "id int"), data_version=dg.DataVersion("mine"))

    world.materialize(t)
    assert world.events("t")[0].tags["dagster/data_version"] == "mine"


def test_modes_append_overwrite_and_merge(world):
    rows = {"now": [(1, "a")]}

    def made(mode, **metadata):
        return asset("t", lambda _: world.frame(rows["now"], "id int, v string"), metadata={"mode": mode, **metadata})

    world.materialize(made("append"))
    rows["now"] = [(2, "b")]
    world.materialize(made("append"))
    assert world.rows("main.default.t") == [(1, "a"), (2, "b")]
    rows["now"] = [(2, "B"), (3, "c")]
    world.materialize(made("merge", merge_keys=["id"]))
    assert world.rows("main.default.t") == [(1, "a"), (2, "B"), (3, "c")]
    rows["now"] = [(9, "z"), (3, "C")]
    world.materialize(made("merge", merge_keys="id", merge_mode="update_only"))
    assert world.rows("main.default.t") == [(1, "a"), (2, "B"), (3, "C")]
    rows["now"] = [(7, "x")]
    world.materialize(made("replace_where", replace_where="id >= 3 OR id = 7"))
    assert world.rows("main.default.t") == [(1, "a"), (2, "B"), (7, "x")]
    rows["now"] = [(5, "o")]
    world.materialize(made("overwrite"))
    assert world.rows("main.default.t") == [(5, "o")]
    error = refused(world, made("error_if_exists"))
    assert isinstance(error, TableAlreadyExistsError)
    assert world.rows("main.default.t") == [(5, "o")]


def test_create_or_replace_writes_the_rows_and_the_new_schema(world):
    """A peer commits an empty table here and reports success."""
    world.materialize(asset("t", lambda _: world.frame([(1,)], "id int")))
    replaced = asset(
        "t", lambda _: world.frame([("a", 2.0)], "k string, v double"), metadata={"mode": "create_or_replace"}
    )
    world.materialize(replaced)
    assert world.rows("main.default.t") == [("a", 2.0)]


def test_the_mode_can_be_changed_for_one_run_or_by_one_output(world):
    made = asset("t", lambda _: world.frame([(1,)], "id int"))
    world.materialize(made)
    world.materialize(made, tags={"cm_delta/mode": "append"})
    assert world.rows("main.default.t") == [(1,), (1,)]

    @dg.asset(name="t")
    def chooses() -> dg.Output[DataFrame]:
        return dg.Output(world.frame([(2,)], "id int"), metadata={"cm_delta/mode": "append"})

    world.materialize(chooses)
    assert world.rows("main.default.t") == [(1,), (1,), (2,)]


def test_new_columns_need_schema_mode_merge(world):
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


INTS = dg.StaticPartitionsDefinition(["1", "2", "3"])


def by_partition(world, definition, column, kind, value_of, **arguments):
    """An asset that writes one row for each partition key, counting how often it was computed."""

    def rows(context):
        return world.frame([(value_of(key), key) for key in context.partition_keys], f"{column} {kind}, v string")

    metadata = {"partition_expr": column, **arguments.pop("metadata", {})}
    return asset("t", rows, partitions_def=definition, metadata=metadata, **arguments)


def test_partitions_of_an_integer_column_keep_each_other(world):
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
def test_hourly_partitions_keep_each_other(world, kind):
    """A peer keeps only the last one here."""
    hourly = dg.HourlyPartitionsDefinition("2026-01-01-00:00")

    def value(key):
        moment = datetime.strptime(key, "%Y-%m-%d-%H:%M")
        return {"timestamp": moment.replace(tzinfo=UTC), "timestamp_ntz": moment, "string": key}[kind]

    made = by_partition(world, hourly, "at", kind, value)
    for key in ("2026-01-01-01:00", "2026-01-01-02:00", "2026-01-01-01:00"):
        world.materialize(made, partition_key=key)
    assert [row[1] for row in world.rows("main.default.t")] == ["2026-01-01-01:00", "2026-01-01-02:00"]


def test_weekly_partitions_can_be_written_twice(world):
    """Peers fail on the second write, or overwrite."""
    weekly = dg.WeeklyPartitionsDefinition("2026-01-04")
    made = by_partition(world, weekly, "day", "date", date.fromisoformat)
    for key in ("2026-01-04", "2026-01-11", "2026-01-04"):
        world.materialize(made, partition_key=key)
    assert [row[1] for row in world.rows("main.default.t")] == ["2026-01-04", "2026-01-11"]


def test_a_range_of_partitions_is_one_commit_and_keeps_the_others(world):
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


def test_an_empty_output_clears_only_its_partition(world):
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
def test_rows_outside_of_the_partition_are_refused_and_nothing_is_committed(world, mode):
    metadata = {"partition_expr": "p", "mode": mode, **({"merge_keys": ["v"]} if mode == "merge" else {})}
    made = asset(
        "t", lambda _: world.frame([(1, "x"), (2, "y")], "p int, v string"), partitions_def=INTS, metadata=metadata
    )
    assert isinstance(refused(world, made, partition_key="1"), PartitionMismatchError)
    assert world.client.catalog.list_tables() == ()


def test_a_key_without_a_value_in_its_column_leaves_no_table_behind(world):
    made = asset(
        "t",
        lambda _: world.frame([(1, "x")], "p int, v string"),
        partitions_def=dg.StaticPartitionsDefinition(["one"]),
        metadata={"partition_expr": "p"},
    )
    assert isinstance(refused(world, made, partition_key="one"), InvalidArgumentError)
    assert world.client.catalog.list_tables() == ()


def test_a_merge_stays_within_its_partition(world):
    rows = {"1": [(1, "k", "a")], "2": [(2, "k", "b")]}
    made = asset(
        "t",
        lambda context: world.frame(rows[context.partition_key], "p int, id string, v string"),
        partitions_def=INTS,
        metadata={"partition_expr": "p", "mode": "merge", "merge_keys": ["id"]},
    )
    world.materialize(made, partition_key="1")
    world.materialize(made, partition_key="2")
    rows["2"] = [(2, "k", "B")]
    world.materialize(made, partition_key="2")
    assert world.rows("main.default.t") == [(1, "k", "a"), (2, "k", "B")]


def test_a_partition_that_holds_rows_is_not_written_by_error_if_exists(world):
    made = by_partition(world, INTS, "p", "int", int, metadata={"mode": "error_if_exists"})
    world.materialize(made, partition_key="1")
    world.materialize(made, partition_key="2")
    assert isinstance(refused(world, made, partition_key="2"), TableAlreadyExistsError)
    assert world.rows("main.default.t") == [(1, "1"), (2, "2")]


def test_dimensions_static_and_dynamic_work_together(world):
    """The base class of peers fails for this (no instance to load partitions)."""
    both = dg.MultiPartitionsDefinition(
        {"tenant": dg.DynamicPartitionsDefinition(name="tenants"), "day": dg.DailyPartitionsDefinition("2026-01-01")}
    )
    world.instance.add_dynamic_partitions("tenants", ["acme", "zoo"])

    def rows(context):
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


def test_a_mapped_read_need_not_be_contiguous(world):
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


def test_columns_filter_and_version_of_an_input(world):
    """A peer returns a column called make_array("a") here."""
    made = asset("t", lambda _: world.frame([(1, "a", 0), (2, "b", 0)], "id int, v string, w int"))
    world.materialize(made)
    first = world.version("main.default.t")
    world.materialize(asset("t", lambda _: world.frame([(3, "c", 0), (4, "d", 0)], "id int, v string, w int")))
    seen = {}

    def reader(name, **metadata):
        @dg.asset(name=name, ins={"t": dg.AssetIn(metadata=metadata)})
        def reads(t: DataFrame) -> None:
            seen[name] = (t.columns, sorted(tuple(row) for row in t.collect()))

        return reads

    readers = [
        reader("now", columns=["v"], filter="id > 3"),
        reader("then", columns=["v", "id"], version=first),
        reader("both", version=first, filter="w = 0 AND id = 1"),
    ]
    world.materialize(made, *readers, selection=["now", "then", "both"])
    assert seen["now"] == (["v"], [("d",)])
    assert seen["then"] == (["v", "id"], [("a", 1), ("b", 2)])
    assert seen["both"][1] == [(1, "a", 0)]


def test_all_inputs_of_a_run_read_one_version(world):
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


def test_what_a_run_writes_is_seen_by_its_later_reads(world):
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


def test_an_input_annotated_as_snapshot_needs_no_rows(world):
    made = asset("t", lambda _: world.frame([(1,)], "id int"))
    seen = []

    @dg.asset
    def down(t: Snapshot) -> None:
        seen.append(t.num_rows)

    world.materialize(made, down)
    assert seen == [1]


def test_a_wrong_type_is_refused_and_none_writes_nothing(world):
    @dg.asset
    def wrong():
        return [1, 2]

    assert isinstance(refused(world, wrong), InvalidArgumentError)

    @dg.asset
    def nothing() -> None:
        return None

    world.materialize(nothing)
    assert world.client.catalog.list_tables() == ()


def test_an_op_output_needs_a_table_name(world):
    @dg.op(out=dg.Out(metadata={"table": "main.ops.t"}))
    def write() -> DataFrame:
        return world.frame([(1,)], "id int")

    counts = []

    @dg.op
    def count(frame: DataFrame):
        counts.append(frame.count())

    @dg.job(resource_defs=world.resources)
    def job():
        count(write())

    job.execute_in_process(instance=world.instance)
    assert counts == [1]


def test_the_io_manager_works_without_a_run(world):
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
        asset_partitions_def=INTS,
        definition_metadata={"partition_expr": "p"},
    )
    manager.handle_output(parted, world.frame([(1, 5)], "p int, v int"))
    assert world.rows("main.s.p") == [(1, 5)]


def test_the_root_logger_is_not_changed(world):
    """A peer forces it to DEBUG on every write and read."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    made = asset("t", lambda _: world.frame([(1,)], "id int"))

    @dg.asset
    def down(t: DataFrame) -> None:
        t.count()

    world.materialize(made, down)
    assert (root.level, list(root.handlers)) == before


def test_columns_that_a_plan_proves_to_be_filled_stay_nullable(world):
    world.materialize(asset("t", lambda _: world.spark.range(1).select(F.lit("x").alias("v"))))
    assert world.client.table("main.default.t").snapshot().schema.field("v").nullable


def test_another_resource_with_a_spark_session_is_accepted(world):
    from dagster_pyspark import LazyPySparkResource

    manager = type(world.resources["io_manager"])(catalog=world.catalog, spark=LazyPySparkResource(spark_config={}))
    made = asset("t", lambda _: world.frame([(1,)], "id int"))

    @dg.asset
    def down(t: DataFrame) -> None:
        t.count()

    dg.materialize([made, down], instance=world.instance, resources={"io_manager": manager})
    assert world.rows("main.default.t") == [(1,)]


def test_a_first_write_that_fails_leaves_no_table_behind(world):
    failing = asset("t", lambda _: world.spark.range(1).select(F.raise_error(F.lit("boom")).cast("int").alias("id")))
    assert not world.materialize(failing, raises=False).success
    assert world.client.catalog.list_tables() == ()
    world.materialize(asset("t", lambda _: world.frame([(1,)], "id int")))
    assert world.rows("main.default.t") == [(1,)]


def test_an_asset_cannot_pin_a_version_for_its_readers(world):
    made = asset("t", lambda _: world.frame([(1,)], "id int"), metadata={"cm_delta/version": 1})
    assert "cm_delta/version" in str(refused(world, made))


def test_columns_of_an_asset_are_the_default_of_its_readers(world):
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


def test_a_run_that_is_executed_again_has_its_own_pin(world):
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


def test_error_if_exists_accepts_an_empty_table(world):
    create_table(
        world.client, identifier="main.default.t", schema=StructType((StructField("id", PrimitiveType("integer")),))
    )
    made = asset("t", lambda _: world.frame([(1,)], "id int"), metadata={"mode": "error_if_exists"})
    world.materialize(made)
    assert isinstance(refused(world, made), TableAlreadyExistsError)
    assert world.rows("main.default.t") == [(1,)]


EMPTY_KEY_MODES = {
    "append": {},
    "overwrite": {},
    "error_if_exists": {},
    "merge": {"merge_keys": ["id"]},
    "replace_where": {"replace_where": "id > 0"},
}


@pytest.mark.parametrize("mode", EMPTY_KEY_MODES)
def test_the_empty_partition_key_is_refused_in_every_mode(world, mode):
    """Delta stores it as NULL, so that no key would find the rows again."""

    def frame(_):
        return world.frame([(1, "", "s")], "id int, name string, size string")

    names = dg.StaticPartitionsDefinition(["", "a"])
    pairs = dg.MultiPartitionsDefinition({"name": names, "size": dg.StaticPartitionsDefinition(["s"])})
    metadata = {"mode": mode, **EMPTY_KEY_MODES[mode]}
    one = asset("one", frame, partitions_def=names, metadata={**metadata, "partition_expr": "name"})
    two_columns = {"name": "name", "size": "size"}
    two = asset("two", frame, partitions_def=pairs, metadata={**metadata, "partition_expr": two_columns})
    for made, key in ((one, ""), (two, dg.MultiPartitionKey({"name": "", "size": "s"}))):
        assert isinstance(refused(world, made, partition_key=key), InvalidArgumentError)
    assert world.client.catalog.list_tables() == ()
