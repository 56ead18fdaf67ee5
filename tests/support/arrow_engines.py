"""The same rows written by both engines: rows, partition values and statistics of the tables must be equal."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_schema
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.spark.expressions.schema import to_spark
from tests.support.arrow_cases import RowCase


def check_same_tables(lake: Connection, spark: SparkSession, case: RowCase, *, suffix: str = "") -> None:
    """Write the rows of a case to two tables, and compare what readers of both kinds and the log have of them."""
    arrow, by_spark = (
        lake.create_table(
            f"main.test.{engine}{suffix}",
            case.columns,
            partition_by=case.partition_by,
            properties=dict(case.properties),
        )
        for engine in ("arrow", "spark")
    )
    result = arrow.append(case.rows)
    offered = ArrowRows.of(case.rows).schema
    frame = spark.createDataFrame(case.rows.cast(to_arrow_schema(offered)), to_spark(offered)).coalesce(1)
    expected = by_spark.append(frame)
    assert result.num_output_rows == expected.num_output_rows == case.rows.num_rows
    assert sorted_rows(arrow.to_arrow()) == sorted_rows(by_spark.to_arrow())
    assert sorted(map(repr, arrow.to_df().collect())) == sorted(map(repr, by_spark.to_df().collect()))
    assert log_of(arrow.snapshot()) == log_of(by_spark.snapshot())


def sorted_rows(table: pa.Table) -> list[str]:
    """Rows as texts, which NaN and nested values have too."""
    return sorted(repr(row) for row in table.to_pylist())


def log_of(snapshot: Snapshot) -> list[Any]:
    """Partition values and statistics of the files; physical names, which differ from table to table, as positions."""
    names = {
        str(item.metadata.get("delta.columnMapping.physicalName", item.name)): f"column {number}"
        for number, item in enumerate(_all_fields(snapshot.schema))
    }

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(key, key): renamed(entry) for key, entry in value.items()}
        return value

    files = [
        (renamed(dict(file["partitionValues"] or ())), renamed(json.loads(file["stats"])))
        for file in snapshot.files.select(["partitionValues", "stats"]).to_pylist()
    ]
    return sorted(files, key=repr)


def _all_fields(schema: StructType) -> Iterator[StructField]:
    for item in schema.fields:
        yield item
        if isinstance(item.type, StructType):
            yield from _all_fields(item.type)
