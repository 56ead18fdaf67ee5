"""The rows of a restored version are those of the time travel read, and the table is written to afterwards."""

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from tests.support.builders import TableBuilder


@pytest.mark.requirements("RESTORE-1", "RESTORE-5")
def test_rows_and_columns_of_the_restored_version_come_back(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, p string", partition_by=("p",), properties={})
    builder.append((1, "a"), (2, "b"), (3, "a"))
    delete(builder.table, spark=spark, where="id = 1")
    wider = spark.createDataFrame([(4, "c", "new")], "id long, p string, extra string")
    append(builder.table, frame=wider, schema_mode=SchemaMode.MERGE)
    restore(builder.table, version=1)
    assert sorted(builder.rows()) == [(1, "a"), (2, "b"), (3, "a")]
    builder.append((5, "a"))
    assert sorted(builder.rows()) == [(1, "a"), (2, "b"), (3, "a"), (5, "a")]
