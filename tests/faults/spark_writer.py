"""A writer process with a slow Spark job, so that it can be killed during the job.

Arguments: catalog URL, warehouse, table, number of rows. It appends the rows ``0 .. n-1``; the tasks of the
second half sleep between rows.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import connect

QUICK_TASKS, SLOW_TASKS = 4, 4


def main() -> None:
    url, warehouse, name, rows = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    # The later tasks sleep every 500 rows; the first tasks have completed their files by then.
    slow = (F.col("id") >= int(rows) // 2) & (F.col("id") % 500 == 0)
    delay = F.when(slow, F.expr("java_method('java.lang.Thread', 'sleep', 50L)"))
    frame = spark.range(0, int(rows), 1, QUICK_TASKS + SLOW_TASKS).select(
        "id", F.concat(F.uuid(), F.coalesce(delay, F.lit(""))).alias("text")
    )
    with connect(url, warehouse=warehouse, spark=spark) as lake:
        lake.table(name).append(frame)
    print("committed", flush=True)


if __name__ == "__main__":
    main()
