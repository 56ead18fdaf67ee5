"""One of two processes that append to one table through the IO manager at the same moment. Prints the version it wrote."""

import os
import sys

import dagster as dg
from pyspark.sql import DataFrame

from cm_delta_dagster.orchestration import SparkResource
from tests.orchestration.process_jobs import ROOT, resources, root
from tests.support.waiting import until


def main(directory: str, number: int) -> None:
    os.environ[ROOT] = directory

    @dg.asset(metadata={"mode": "append"})
    def t(spark: SparkResource) -> DataFrame:
        frame = spark.spark_session.createDataFrame([(number,)], "id int")
        (root() / f"ready-{number}").touch()
        until(lambda: len(list(root().glob("ready-*"))) == 2)
        return frame

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([t], resources=resources(), instance=instance)
        (event,) = result.asset_materializations_for_node("t")
        print(event.metadata["cm_delta/commit_version"].value)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
