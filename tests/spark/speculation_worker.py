"""A direct write into S3 in which two attempts of one task run at the same time. Prints one JSON object with what it saw."""

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as F

from cm_delta_dagster import connect
from tests.spark.s3_worker import session

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    # A file for each row, so that the slow attempt has closed files when it loses.
    "spark.sql.files.maxRecordsPerFile": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
}


def main(jars: str, endpoint: str, bucket: str, noted: str, master: str) -> None:
    spark = session(jars, master, SPECULATION)

    def slow_at_first(number: int) -> int:
        """The first attempt of the last task writes a row and then waits until it is killed."""
        context = TaskContext.get()
        if number >= 18 and context is not None:
            Path(noted, f"{number}-{context.attemptNumber()}").touch()
            if number == 19 and context.attemptNumber() == 0:
                time.sleep(60)
        return number

    options = {"key": "k", "secret": "s", "endpoint_url": endpoint}
    with (
        tempfile.TemporaryDirectory() as home,
        connect(
            f"sqlite:///{home}/catalog.db", warehouse=f"s3://{bucket}/w", storage_options=options, spark=spark
        ) as lake,
    ):
        rows = spark.range(0, 20, 1, 10).select(F.udf(slow_at_first, "BIGINT")("id").alias("id"))
        table = lake.create_table_as("main.sales.speculative", rows)
        snapshot = table.snapshot()
        listed = table.table.store.list_recursive(snapshot.layout.location)
        seen = {
            "rows": sorted(row.id for row in table.to_df().collect()),
            "files": snapshot.num_files,
            "stored": sum(status.location.endswith(".parquet") for status in listed),
            "attempts": sorted(path.name for path in Path(noted).iterdir()),
        }
    print(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
