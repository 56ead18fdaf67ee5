"""Runs in a process without a Spark session, on a warehouse in S3. Prints one JSON object."""

import json
import sys

import dagster as dg
from pyspark import SparkContext
from pyspark.sql import DataFrame

from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource

computed: list[str] = []


@dg.asset
def first() -> None:
    computed.append("first")


@dg.asset(deps=[first])
def second() -> None:
    computed.append("second")


@dg.asset
def rows(spark: SparkResource) -> DataFrame:
    session = spark.spark_session
    computed.append("rows")
    return session.range(3).toDF("id")


def main() -> None:
    catalog_url, warehouse = sys.argv[1:]
    catalog = CatalogResource(url=catalog_url, warehouse=warehouse, storage_options=dg.EnvVar("TEST_STORAGE_OPTIONS"))
    spark = SparkResource(master="local[1]", config={"spark.ui.enabled": "false"})
    resources = {"spark": spark, "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)}
    done = dg.materialize([first, second], resources=resources)
    before = SparkContext._gateway is not None
    failed = dg.materialize([rows], resources=resources, raise_on_error=False)
    error = failed.failure_data_for_node("rows").error.cause.message
    seen = {
        "success": done.success,
        "computed": computed,
        "session": before,
        "failed": not failed.success,
        "error": error,
        "left": SparkContext._active_spark_context is not None,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
