"""What :func:`apply_declaration` checks before it commits; the tests of Dagster assets show what it changes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.operations.tables.declaration import TableDeclaration, apply_declaration
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.schema.types import LONG, ArrayType, StructField, StructType
from tests.support.lake import Lake, vector

MAPPED = {"delta.columnMapping.mode": "name"}
TRACKED = {"delta.enableRowTracking": "true"}
ICEBERG = {"delta.enableIcebergCompatV2": "true", "delta.enableDeletionVectors": "false"}
ARRAYS = StructType((StructField("id", LONG), StructField("items", ArrayType(LONG, True))))


def no_spark() -> SparkSession:
    raise AssertionError("nothing here needs Spark")


def declare(table: Table, properties: Mapping[str, str]) -> AlterResult:
    return apply_declaration(table, TableDeclaration(properties=properties), spark=no_spark)


@pytest.mark.requirements("ICEV2-3")
def test_iceberg_compatibility_is_refused_for_files_that_lack_its_ids(lake: Lake) -> None:
    table = lake.new_table(schema=ARRAYS, partition_columns=(), properties=MAPPED)
    lake.append(table, partition_values={})
    with pytest.raises(InvalidArgumentError, match="ids of array elements"):
        declare(table, ICEBERG)
    assert table.snapshot().version == 1
    empty = lake.new_table("empty", schema=ARRAYS, partition_columns=(), properties=MAPPED)
    assert declare(empty, ICEBERG).version == 1


@pytest.mark.requirements("ICEV2-2")
def test_iceberg_compatibility_is_refused_for_deletion_vectors(lake: Lake) -> None:
    table = lake.new_table(partition_columns=(), properties=MAPPED)
    lake.append(table, "a.parquet", partition_values={}, deletion_vector=vector())
    with pytest.raises(InvalidArgumentError, match="deletion vectors"):
        declare(table, ICEBERG)
    assert table.snapshot().version == 1


@pytest.mark.requirements("ROWTRK-8")
def test_files_that_another_writer_adds_before_row_tracking_get_row_ids(lake: Lake) -> None:
    table = lake.new_table()
    added: list[str] = []

    def append_first(method: str, argument: object) -> Exception | None:
        if method == "write_if_absent" and "_staged_commits" in str(argument) and not added:
            added.append("a.parquet")
            lake.append(table, "a.parquet")
        return None

    lake.store.fails = append_first
    declare(table, TRACKED)
    snapshot = table.snapshot()
    assert row_tracking.is_enabled(snapshot.protocol, snapshot.metadata)
    assert snapshot.files["path"].to_pylist() == added
    assert snapshot.files["baseRowId"].to_pylist() == [0]


@pytest.mark.requirements("UP-RT-1")
def test_row_tracking_that_is_suspended_is_refused_before_the_first_commit(lake: Lake) -> None:
    table = lake.new_table()
    lake.append(table)
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="SET TBLPROPERTIES")
    configuration = {**snapshot.metadata.configuration, row_tracking.SUSPENDED: "true"}
    transaction.set_metadata(replace(snapshot.metadata, configuration=configuration))
    transaction.commit()
    with pytest.raises(InvalidArgumentError, match="rowTrackingSuspended is true"):
        declare(table, {**TRACKED, "owner": "sales"})
    assert table.snapshot().version == 2
