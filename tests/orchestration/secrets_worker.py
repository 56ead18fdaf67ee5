"""Run in a separate process: loads definitions whose settings are in the environment, and executes a run that writes and fails.

Prints what Dagster stores of the definitions. The process is the code location, and the process of the run.
"""

import sys
from pathlib import Path

import dagster as dg
import pandas as pd
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.orchestration import (
    CatalogManagedDeltaIOManager,
    CatalogResource,
    CatalogSettings,
    MaintenancePolicy,
    SparkResource,
    build_maintenance_jobs,
)
from cm_delta_dagster.orchestration.components.connection import SparkSettings

CATALOG = """
url: "{{ env.TEST_URL }}"
warehouse: "{{ env.TEST_HOME }}/warehouse"
storage_options: {env: TEST_OPTIONS}
"""
SPARK = """
master: local[1]
config: {env: TEST_SPARK}
"""


@dg.asset(io_manager_key="delta", metadata={"table": "main.s.orders"})
def orders(spark: SparkResource) -> DataFrame:
    session: SparkSession = spark.spark_session
    print("settings", spark, session)
    return session.createDataFrame(pd.DataFrame({"id": [1, 2]}))


@dg.asset(deps=[orders])
def stored(context: dg.AssetExecutionContext, catalog: CatalogResource) -> str:
    store = catalog.client.stores.store_for("s3://bucket/x")
    context.log.info(
        f"{catalog!r} {catalog.client!r} {catalog.client.catalog!r} {store!r} {store.list_from('s3://bucket/x')}"
    )
    return repr(catalog)


@dg.asset(deps=[stored])
def fails(catalog: CatalogResource) -> None:
    catalog.client.stores.store_for("s3://no-such-bucket/x").read("s3://no-such-bucket/x")


def definitions() -> dg.Definitions:
    catalog = CatalogSettings.resolve_from_yaml(CATALOG).resource()
    spark = SparkSettings.resolve_from_yaml(SPARK).resource()
    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)
    return dg.Definitions(
        assets=[orders, stored, fails],
        jobs=[
            dg.define_asset_job("everything", "*"),
            *build_maintenance_jobs(MaintenancePolicy(tables=("main.s.orders",))),
        ],
        resources={"catalog": catalog, "spark": spark, "delta": manager},
        executor=dg.in_process_executor,
    )


if __name__ == "__main__":
    snapshot = Path(sys.argv[1])
    loaded = definitions()
    repository = loaded.get_repository_def()
    parts = [RepositorySnap.from_def(repository), *(job.get_job_snapshot() for job in repository.get_all_jobs())]
    snapshot.write_text("\n".join(map(serialize_value, parts)))
    with dg.DagsterInstance.get() as instance:
        job = loaded.resolve_job_def("everything")
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        failed = [event.step_key for event in result.all_events if event.is_step_failure]
        with snapshot.open("a") as file:
            file.writelines(f"{serialize_value(entry)}\n" for entry in instance.all_logs(result.run_id))
            file.write(serialize_value(instance.get_run_by_id(result.run_id)))
    print("failed", failed)
