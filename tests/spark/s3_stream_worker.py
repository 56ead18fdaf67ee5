"""A stream of one table in S3 into another, on a cluster whose executors have this package. Prints one JSON object."""

import json
import sys
from pathlib import Path
from typing import Any

from cm_delta_dagster import connect
from cm_delta_dagster.api.table.delta_table import DeltaTable
from tests.spark.s3_worker import KEY, SECRET, ids, python_of_executors, session

ROOT = Path(__file__).parents[2]


def main(jars: str, endpoint: str, bucket: str, master: str, home: str) -> None:
    spark = session(jars, master, {"spark.executorEnv.PYTHONPATH": str(ROOT)})
    options = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
    Path(home).mkdir()
    seen: dict[str, Any] = {"rows": [], "batches": []}
    with connect(
        f"sqlite:///{home}/catalog.db", warehouse=f"s3://{bucket}/tables", storage_options=options, spark=spark
    ) as lake:
        source = lake.create_table_as("main.sales.orders", spark.range(0, 20, 1, 4))
        target = lake.create_table("main.sales.copies", spark.range(1).schema)
        for _ in range(2):
            copy(source, target, f"{home}/checkpoint")
            seen["rows"].append(ids(target.to_df()))
            seen["batches"].append(target.version())
            source.append(spark.range(20, 25, 1, 1))
        seen["read by"] = python_of_executors(spark)
        seen["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        progress = "".join(
            path.read_text(errors="replace") for path in Path(f"{home}/checkpoint").rglob("*") if path.is_file()
        )
    seen["secrets"] = [text for text in (KEY, SECRET) if text in json.dumps(seen) + progress]
    print(json.dumps(seen))
    spark.stop()


def copy(source: DeltaTable, target: DeltaTable, checkpoint: str) -> None:
    """Add the rows of the source that the target does not have yet."""
    rows = source.stream(max_files=2).to_df()
    query = target.write_stream(rows, checkpoint=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
