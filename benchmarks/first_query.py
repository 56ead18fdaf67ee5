"""One process, one query: what a script or a sensor pays that has just started. Prints the number of rows."""

import importlib
import os
import sys
from typing import Any


def main() -> None:
    engine, home, place, where, with_spark, jars = sys.argv[1:7]
    if with_spark:
        print(_spark(engine, home, place, where, jars))
        return
    print(_without_spark(engine, home, place, where), flush=True)
    os._exit(0)  # A thread that deltalake started can abort the process while the interpreter ends, after the answer.


def _without_spark(engine: str, home: str, place: str, where: str) -> int:
    if engine == "deltalake":
        deltalake, dataset = importlib.import_module("deltalake"), importlib.import_module("pyarrow.dataset")
        low, high = (int(part.rpartition(" ")[2]) for part in where.split(" AND "))
        wanted = (dataset.field("id") >= low) & (dataset.field("id") < high)
        return int(deltalake.DeltaTable(place).to_pyarrow_table(columns=["amount"], filters=wanted).num_rows)
    with _lake(home) as lake:
        return int(lake.table("main.bench.few").to_arrow(["amount"], where=where).num_rows)


def _spark(engine: str, home: str, place: str, where: str, jars: str) -> int:
    spark_session = importlib.import_module("benchmarks.engines").spark_session
    if engine == "ours":
        session = spark_session()
        with _lake(home) as lake:
            return int(lake.table("main.bench.few").to_df(where=where).count())
    if engine == "delta-spark":
        session = spark_session(
            **{
                "spark.jars": jars,
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            }
        )
        return int(session.read.format("delta").load(place).where(where).count())
    return int(spark_session().read.option("recursiveFileLookup", "true").parquet(place).where(where).count())


def _lake(home: str) -> Any:
    package = importlib.import_module("cm_delta_dagster")
    return package.connect(f"sqlite:///{home}/queries.db", warehouse=f"file://{home}/queries")


if __name__ == "__main__":
    main()
