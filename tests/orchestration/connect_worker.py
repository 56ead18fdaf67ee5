"""The IO manager on a Spark Connect session; a process of its own, because a process has one kind of session.

Prints one JSON object with what it saw.
"""

import json
import os
import sys

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, SparkResource
from cm_delta_dagster.spark.session.session import is_connect
from tests.orchestration.process_jobs import ROOT, resources

LETTERS = dg.StaticPartitionsDefinition(["a", "b"])
seen: dict[str, object] = {}


@dg.asset(partitions_def=LETTERS, metadata={"partition_expr": "p"})
def letters(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    seen["connect"] = is_connect(spark.spark_session)
    return spark.spark_session.range(3).select(F.lit(context.partition_key).alias("p"), "id")


@dg.asset(metadata={"mode": "merge", "on": ["p"]})
def totals(letters: DataFrame) -> DataFrame:
    return letters.groupBy("p").agg(F.sum("id").alias("total"))


@dg.asset
def check(totals: DataFrame | None, letters: DataFrame) -> None:
    assert totals is not None
    seen["totals"] = sorted([row["p"], row["total"]] for row in totals.collect())
    seen["letters"] = letters.count()


def main(directory: str) -> None:
    os.environ[ROOT] = directory
    catalog = resources()["catalog"]
    spark = SparkResource(remote="local[1]", config={"spark.sql.shuffle.partitions": "1"})
    given = {"spark": spark, "io_manager": CatalogManagedDeltaIOManager(catalog=catalog, spark=spark)}
    every = [letters, totals, check]
    with dg.DagsterInstance.ephemeral() as instance:
        for key in ("a", "b", "a"):
            dg.materialize(every, selection=[letters], partition_key=key, resources=given, instance=instance)
        for _ in range(2):
            dg.materialize(every, selection=[totals], resources=given, instance=instance)
        dg.materialize(every, selection=[check], resources=given, instance=instance)
        event = instance.get_latest_materialization_event(dg.AssetKey("totals"))
        assert event is not None and event.asset_materialization is not None
        seen["rows"] = event.asset_materialization.metadata["dagster/row_count"].value
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
