"""The resources of dagster-pyspark, which another package configures, wherever a resource with a Spark session is taken."""

from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.orchestration import (
    CatalogManagedDeltaIOManager,
    CatalogResource,
    MaintenancePolicy,
    MaintenanceTask,
    SparkSqlAsset,
    build_maintenance_jobs,
    table_checks,
)
from tests.orchestration.conftest import World

pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),  # Of dagster-spark.
]

NAME = "main.sales.orders"


@pytest.fixture(params=[LazyPySparkResource, PySparkResource])
def resources(request: pytest.FixtureRequest, world: World) -> dict[str, Any]:
    spark = request.param(spark_config={})
    catalog = CatalogResource(url=world.catalog.url, warehouse=world.catalog.warehouse, spark=spark)
    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)
    return {"catalog": catalog, "spark": spark, "io_manager": manager}


def test_assets_queries_and_checks_use_the_session_of_dagster_pyspark(world: World, resources: dict[str, Any]) -> None:
    @dg.asset(key=["sales", "orders"])
    def orders() -> DataFrame:
        return world.frame([(1, 2.0), (2, 3.0)], "id int, amount double")

    @dg.asset(key=["sales", "copy"], ins={"orders": dg.AssetIn(["sales", "orders"])})
    def copy(orders: DataFrame, catalog: CatalogResource) -> DataFrame:
        return orders.union(catalog.lake.sql(f"SELECT * FROM {NAME}"))

    @dg.asset_check(asset=orders)
    def has_rows(catalog: CatalogResource) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=catalog.lake.table(NAME).to_df().count() == 2)

    component = SparkSqlAsset(asset=dg.AssetSpec(["sales", "report"]), sql=f"SELECT sum(amount) AS a FROM {NAME}")
    (report,) = component.build_defs(dg.ComponentTree.for_test().load_context).assets or ()
    checks = [has_rows, *table_checks(orders)]
    defs = dg.Definitions(assets=[orders, copy, report], asset_checks=checks, resources=resources)
    made = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=world.instance)
    assert made.success and all(evaluation.passed for evaluation in made.get_asset_check_evaluations())
    assert world.rows("main.sales.report") == [(5.0,)]
    assert len(world.rows("main.sales.copy")) == 4


def test_compaction_uses_the_session_of_dagster_pyspark(world: World, resources: dict[str, Any]) -> None:
    lake = world.catalog.lake
    lake.sql(f"CREATE TABLE {NAME} (id INT)")
    for number in range(3):
        lake.sql(f"INSERT INTO {NAME} VALUES ({number})")
    lake.maintenance.set_policy(NAME, MaintenanceKind.DATA_REORGANIZATION)
    (job,) = build_maintenance_jobs(MaintenancePolicy(tables=(NAME,)))
    actions = {task.value: "run" if task.value == "compact" else "skip" for task in MaintenanceTask}
    config = {"ops": {task: {"config": {"action": action}} for task, action in actions.items()}}
    defs = dg.Definitions(jobs=[job], resources=resources)
    defs.resolve_job_def(job.name).execute_in_process(run_config=config, instance=world.instance)
    assert lake.table(NAME).snapshot().num_files == 1
