"""The result of a write that is read from its commit equals the one that the write itself gives."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.writing.committed_write import committed_write
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from tests.support.builders import TableBuilder

COLUMNS = "id long, letter string"

WRITES: dict[str, Callable[[TableBuilder, SparkSession], WriteResult]] = {
    "append": lambda builder, spark: append(
        builder.table, frame=spark.createDataFrame([(4, "a"), (5, None)], COLUMNS).coalesce(1)
    ),
    "new column": lambda builder, spark: append(
        builder.table,
        frame=spark.createDataFrame([(4, "a", 1)], f"{COLUMNS}, n long"),
        schema_mode=SchemaMode.MERGE,
    ),
    "overwrite": lambda builder, spark: overwrite(
        builder.table, frame=spark.createDataFrame([(9, "b")], COLUMNS), where="letter = 'b'"
    ),
    "merge": lambda builder, spark: merge(
        builder.table, frame=spark.createDataFrame([(1, "a"), (7, "c")], COLUMNS), keys=("id",)
    ),
    "delete": lambda builder, spark: delete(builder.table, spark=spark, where="id = 1"),
}


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("name", WRITES)
def test_what_is_read_from_a_commit_is_what_its_write_said(
    client: DeltaClient, spark: SparkSession, name: str, vectors: str
) -> None:
    builder = TableBuilder(
        client,
        spark,
        COLUMNS,
        partition_by=("letter",),
        properties={"delta.enableDeletionVectors": vectors, "delta.columnMapping.mode": "name"},
    )
    builder.append((1, "a"), (2, "a"), (3, "b"))
    expected = WRITES[name](builder, spark)
    figures = committed_write(builder.table, expected.version)
    for field in WriteResult.__dataclass_fields__.keys() - {"snapshot"}:
        assert getattr(figures, field) == getattr(expected, field), field
    assert figures.snapshot.version == expected.version and figures.snapshot.num_rows == expected.snapshot.num_rows
