"""A write over Spark Connect that is interrupted; run as a process of its own. Prints one JSON object with what it saw."""

import json
import sys

from pyspark.sql import SparkSession

from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.spark.write import WriteSpec, write_files
from cm_delta_dagster.storage.local_store import LocalStore
from tests.support.interrupts import NUM_ROWS, Interrupted, interrupted_once, noted_rows, slow_rows


def main(root: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    schema = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))
    layout = TableLayout(location=f"file://{root}/t", schema=schema, partition_columns=())
    raised = False
    with interrupted_once(lambda: noted_rows(spark, "remote") > 0):
        try:
            write_files(slow_rows(spark, "remote"), store=LocalStore(), layout=layout, spec=WriteSpec())
        except Interrupted:
            raised = True
    # Both cores are needed: an operation that goes on would end first.
    spark.range(0, 4, 1, 4).selectExpr("java_method('java.lang.Thread', 'sleep', 500L)").collect()
    seen = {"raised": raised, "noted": noted_rows(spark, "remote"), "rows": NUM_ROWS, "tags": sorted(spark.getTags())}
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
