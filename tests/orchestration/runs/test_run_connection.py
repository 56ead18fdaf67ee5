"""``catalog.lake``: the Python API in assets, ops, checks and sensors, with the run's context, pins and Spark session."""

import subprocess
import sys
import threading
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import (
    CatalogResource,
    FirstTick,
    ratified_commit_sensor,
)
from tests.orchestration.conftest import RunningSpark, World


def _catalog(tmp_path: Path, **more: object) -> CatalogResource:
    return CatalogResource(url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse", **more)


def _tags(world: World, table: str, version: int) -> dict[str, str]:
    (entry,) = [entry for entry in world.catalog.lake.table(table).history() if entry.version == version]
    return dict(entry.commit_info.tags or {})


def test_an_asset_runs_sql_whose_commits_name_the_run_the_step_and_the_asset(world: World) -> None:
    days = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
    sums = []

    @dg.asset(key=["sales", "orders"], partitions_def=days)
    def orders(context: dg.AssetExecutionContext, catalog: CatalogResource) -> None:
        catalog.lake.sql("CREATE TABLE IF NOT EXISTS main.sales.orders (id INT, amount DOUBLE)")
        catalog.lake.sql("INSERT INTO main.sales.orders VALUES (1, 2.0), (2, 3.0)")
        sums.append(catalog.lake.sql("SELECT sum(amount) FROM main.sales.orders").first()[0])

    made = world.materialize(orders, partition_key="2026-01-01")
    assert sums == [5.0]
    assert _tags(world, "main.sales.orders", 1) == {
        "dagster/run_id": made.run_id,
        "dagster/step_key": "sales__orders",
        "dagster/asset_key": "sales/orders",
        "dagster/partition_key": "2026-01-01",
    }


def test_commits_of_an_op_and_of_a_thread_of_its_own_name_the_run(world: World) -> None:
    @dg.op
    def appends(catalog: CatalogResource) -> None:
        catalog.lake.sql("CREATE TABLE main.s.t (id INT)")
        thread = threading.Thread(target=lambda: catalog.lake.sql("INSERT INTO main.s.t VALUES (1)"))
        thread.start()
        thread.join()

    @dg.job(resource_defs={"catalog": world.catalog})
    def job() -> None:
        appends()

    made = job.execute_in_process(instance=world.instance)
    assert _tags(world, "main.s.t", 0) == {"dagster/run_id": made.run_id, "dagster/step_key": "appends"}
    assert _tags(world, "main.s.t", 1) == {"dagster/run_id": made.run_id}


def test_a_check_queries_with_duckdb_what_the_asset_has_written(world: World) -> None:
    @dg.asset(key=["sales", "orders"])
    def orders() -> DataFrame:
        return world.frame([(1, 2.0), (2, -3.0)], "id int, amount double")

    @dg.asset_check(asset=orders)
    def amounts_are_positive(catalog: CatalogResource) -> dg.AssetCheckResult:
        with catalog.lake.duckdb() as connection:
            ((wrong,),) = connection.sql("SELECT count(*) FROM main.sales.orders WHERE amount < 0").fetchall()
        return dg.AssetCheckResult(passed=wrong == 0, metadata={"wrong": wrong})

    defs = dg.Definitions(assets=[orders], asset_checks=[amounts_are_positive], resources=world.resources)
    made = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=world.instance)
    (evaluation,) = made.get_asset_check_evaluations()
    assert not evaluation.passed and evaluation.metadata["wrong"].value == 1


def test_a_sensor_lists_tables_and_starts_no_spark(tmp_path: Path) -> None:
    program = f"""
import sys
import dagster as dg
from cm_delta_dagster.orchestration import CatalogResource, SparkResource
from pyspark import SparkContext

catalog = CatalogResource(
    url="sqlite:///{tmp_path}/catalog.db", warehouse="{tmp_path}/warehouse", spark=SparkResource(master="local[1]")
)

@dg.sensor(target="*")
def new_tables(catalog: CatalogResource) -> dg.SkipReason:
    import pyarrow as pa
    catalog.lake.create_table("main.s.t", pa.schema([("id", pa.int64())]))
    return dg.SkipReason(", ".join(catalog.lake.tables()))

with dg.build_sensor_context(resources={{"catalog": catalog}}) as context:
    print(new_tables.evaluate_tick(context).skip_message)
assert SparkContext._gateway is None, "a JVM was started"
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.splitlines()[-1:]) == (0, ["main.s.t"]), result.stderr


def test_reads_see_the_version_that_the_run_has_pinned_until_the_run_writes(world: World) -> None:
    seen: list[object] = []

    @dg.asset(ins={"t": dg.AssetIn(["s", "t"])})
    def reads(t: DataFrame, catalog: CatalogResource) -> None:
        _append(world, 1)
        lake = catalog.lake
        table = lake.table("main.s.t")
        seen.append((t.count(), table.to_df().count(), table.to_arrow().num_rows, _count(lake), _duckdb_count(lake)))
        seen.append((table.version(), table.to_df(version=1).count()))
        lake.sql("INSERT INTO main.s.copy SELECT * FROM main.s.t")
        seen.append(lake.table("main.s.copy").to_arrow().num_rows)
        lake.sql("INSERT INTO main.s.t SELECT * FROM main.s.t")
        seen.append((table.to_arrow().num_rows, _count(lake)))

    world.catalog.lake.sql("CREATE TABLE main.s.copy (id INT)")
    world.catalog.lake.sql("CREATE TABLE main.s.t AS SELECT 1 AS id")
    spec = dg.AssetSpec(["s", "t"]).with_io_manager_key("io_manager")
    world.materialize(spec, reads, selection=[reads])
    assert seen == [(1, 1, 1, 1, 1), (1, 2), 1, (4, 4)]


def test_all_steps_of_a_run_see_what_the_first_read_saw(world: World) -> None:
    counts: list[int] = []

    @dg.asset
    def first(catalog: CatalogResource) -> None:
        counts.append(_count(catalog.lake))
        _append(world, 1)

    @dg.asset(deps=[first])
    def second(catalog: CatalogResource) -> None:
        counts.append(_count(catalog.lake))

    world.catalog.lake.sql("CREATE TABLE main.s.t AS SELECT 1 AS id")
    world.materialize(first, second)
    world.materialize(second)
    assert counts == [1, 1, 2]


def test_a_write_to_several_tables_moves_the_pins_of_all(world: World) -> None:
    counts: list[int] = []

    @dg.asset
    def writes(catalog: CatalogResource) -> None:
        lake = catalog.lake
        names = ("main.s.a", "main.s.b")
        for name in names:
            lake.create_table(name, pa.schema([("id", pa.int32())]))
            assert lake.table(name).to_arrow().num_rows == 0
        with lake.transaction() as tx:
            for name in names:
                tx.table(name).append(world.frame([(1,)], "id int"))
        counts.extend(lake.table(name).to_arrow().num_rows for name in names)

    world.materialize(writes)
    assert counts == [1, 1]


def test_the_sensor_reports_a_commit_that_the_run_has_not_reported_after_the_run(world: World) -> None:
    ticks = []

    @dg.asset(key=["s", "t"])
    def t(catalog: CatalogResource) -> None:
        catalog.lake.sql("INSERT INTO main.s.t VALUES (2)")
        ticks.append(tick())

    sensor = ratified_commit_sensor(name="changed", assets=[t], first_tick=FirstTick.FROM_BEGINNING)

    def tick() -> list[str]:
        resources = {"catalog": world.catalog}
        with dg.build_sensor_context(instance=world.instance, resources=resources) as context:
            events = sensor.evaluate_tick(context).asset_events
        return [str(event.metadata["cm_delta/commit_version"].value) for event in events]

    world.catalog.lake.sql("CREATE TABLE main.s.t (id INT)")
    world.materialize(t)
    assert (ticks, tick()) == ([["0"]], ["0", "1"])


def test_closing_the_connection_leaves_the_catalog_of_the_run_open(world: World) -> None:
    @dg.asset(key=["s", "t"])
    def t(catalog: CatalogResource) -> DataFrame:
        with catalog.lake as lake:
            lake.tables()
        assert catalog.lake.tables() == ()
        return world.frame([(1,)], "id int")

    world.materialize(t)
    assert world.rows("main.s.t") == [(1,)]


def test_the_connection_has_the_time_zone_the_tags_and_the_principal_of_the_resource(
    spark: SparkSession, tmp_path: Path
) -> None:
    resource = _catalog(
        tmp_path, settings={"time_zone": "Asia/Tokyo"}, commit_tags={"owner": "etl"}, principal="loader"
    )
    with resource.process_config_and_initialize_cm() as catalog:
        lake = catalog.lake
        lake.sql("CREATE TABLE main.s.t (id INT)")
        assert str(lake.client.settings.time_zone) == "Asia/Tokyo"
        assert lake.client.context.tags == {"owner": "etl"}
        assert lake.table("main.s.t").history()[0].commit_info.tags == {"owner": "etl"}


def test_the_spark_session_is_that_of_the_resource(spark: SparkSession, tmp_path: Path) -> None:
    with _catalog(tmp_path, spark=RunningSpark()).process_config_and_initialize_cm() as catalog:
        assert catalog.lake.spark is spark
    other = _catalog(tmp_path, spark=dg.ResourceDefinition.hardcoded_resource("no session"))
    with (
        other.process_config_and_initialize_cm() as catalog,
        pytest.raises(InvalidArgumentError, match="SparkResource"),
    ):
        catalog.lake.spark  # noqa: B018  # The property starts the session.


def _append(world: World, number: int) -> None:
    """A commit of another program."""
    with _other(world) as lake:
        lake.table("main.s.t").append(world.frame([(number,)], "id int"))


def _other(world: World) -> Connection:
    return connect(world.catalog.url, warehouse=world.catalog.warehouse)


def _count(lake: Connection) -> int:
    return lake.sql("SELECT * FROM main.s.t").count()


def _duckdb_count(lake: Connection) -> int:
    with lake.duckdb() as connection:
        return int(connection.sql("SELECT count(*) FROM main.s.t").fetchall()[0][0])
