"""Assets of each library in a process that cannot start Java, and that perhaps has no PySpark; prints the results as JSON.

Usage: without_java_worker.py DIRECTORY
"""

import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource

DAYS = dg.StaticPartitionsDefinition(["a", "b"])


@dg.asset
def arrow() -> pa.Table:
    return pa.table({"id": [1, 2]})


@dg.asset
def batches(arrow: pa.RecordBatchReader) -> pa.RecordBatchReader:
    return arrow


@dg.asset
def frames(batches: pl.LazyFrame) -> pl.LazyFrame:
    return batches.with_columns(double=pl.col("id") * 2)


@dg.asset(metadata={"mode": "append"})
def pandas(frames: pl.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": [int(frames["double"].sum())]})


@dg.asset
def relation(pandas: pd.DataFrame) -> duckdb.DuckDBPyRelation:
    return duckdb.sql("SELECT total + 1 AS more FROM pandas")


@dg.asset
def read(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    return pa.table({"seen": [relation.fetchall()[0][0]]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def parts(context: dg.AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"day": [context.partition_key], "n": [len(context.run.run_id)]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, name="parts")
def misplaced(context: dg.AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"day": ["other"], "n": [1]})


@dg.asset(metadata={"mode": "merge", "on": ["id"]}, name="arrow")
def merged() -> pa.Table:
    return pa.table({"id": [2, 3]})


_CLAUSE = {"when": "matched", "then": "delete", "condition": "reverse(source.id) = '1'"}


@dg.asset(metadata={"mode": "merge", "on": ["id"], "merge_clauses": [_CLAUSE]}, name="arrow")
def merged_by_clauses() -> pa.Table:
    return pa.table({"id": [3]})


def reader_of_spark() -> dg.AssetsDefinition:
    """An asset with an input of PySpark, which this imports."""
    from pyspark.sql import DataFrame

    @dg.asset
    def reads_spark(arrow: DataFrame) -> None: ...

    return reads_spark


def _error(run: Callable[[], Any]) -> str:
    """The error of the call as Python prints it; empty if there is none."""
    try:
        run()
    except Exception as error:
        return "\n".join(traceback.format_exception(error))
    return ""


def main(directory: str) -> dict[str, Any]:
    catalog = CatalogResource(url=f"sqlite:///{directory}/catalog.db", warehouse=f"{directory}/warehouse")
    resources = {"io_manager": CatalogManagedDeltaIOManager(catalog=catalog)}
    with dg.DagsterInstance.ephemeral() as instance:

        def materialize(*assets: Any, **arguments: Any) -> None:
            dg.materialize(list(assets), instance=instance, resources=resources, **arguments)

        materialize(arrow, batches, frames, pandas, relation, read)
        for key in ("a", "b", "a"):
            materialize(parts, partition_key=key)
        materialize(merged)
        errors = {
            "misplaced": _error(lambda: materialize(misplaced, partition_key="a")),
            "merge": _error(lambda: materialize(merged_by_clauses)),
        }
        imported = sorted(name for name in ("pyspark", "py4j", "pandas", "polars", "duckdb") if name in sys.modules)
        if importlib.util.find_spec("pyspark") is not None:
            errors["input"] = _error(lambda: materialize(reader_of_spark(), dg.AssetSpec("arrow")))
        errors["session"] = _error(lambda: catalog.lake.spark)
        parts_event = instance.get_latest_materialization_event(dg.AssetKey("parts"))
        assert parts_event is not None and parts_event.asset_materialization is not None
        metadata = parts_event.asset_materialization.metadata
    names = ("arrow", "batches", "frames", "pandas", "relation", "read", "parts")
    tables = {name: catalog.lake.table(f"main.default.{name}") for name in names}
    contents = {name: table.to_arrow() for name, table in tables.items()}
    rows = {name: content.sort_by(content.column_names[0]).to_pylist() for name, content in contents.items()}
    versions = {name: table.snapshot().version for name, table in tables.items()}
    catalog.close()
    return {
        "rows": rows,
        "versions": versions,
        "errors": errors,
        "partition_rows": metadata["dagster/partition_row_count"].value,
        "imported": imported,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
