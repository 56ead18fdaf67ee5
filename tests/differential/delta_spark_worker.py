"""Runs delta-spark: a JSON string with one SQL statement a line in, one JSON object a line out."""

import json
import os
import sys


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", sys.argv[1])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", sys.argv[2] + "/spark-warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            frame = session.sql(json.loads(line))
            rows = frame.selectExpr(*[f"cast(`{name}` as string) as `{name}`" for name in frame.columns]).collect()
            answer = {"rows": [row.asDict() for row in rows]}
        except Exception as error:  # Whatever delta-spark says is the answer.
            answer = {"error": str(error)[:4000]}
        print(json.dumps(answer), file=answers)
    session.stop()


if __name__ == "__main__":
    main()
