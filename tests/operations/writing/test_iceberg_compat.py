"""Writes to tables with Iceberg compatibility: what files hold, and which definitions are refused."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import (
    Connection,
    DeltaTable,
    InvalidArgumentError,
    MaintenanceKind,
    NewColumn,
    SchemaMode,
    connect,
)

NAME = "main.test.t"
V1 = {"delta.enableIcebergCompatV1": "true"}
V2 = {"delta.enableIcebergCompatV2": "true"}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        yield connection


def files_of(table: DeltaTable) -> list[pq.ParquetFile]:
    root = table.location.removeprefix("file://")
    return [pq.ParquetFile(f"{root}/{path}") for path in table.scan().files()["path"].to_pylist()]


def ids_of(file: pq.ParquetFile) -> list[int]:
    """The field ids of all leaves."""
    text = str(file.schema)
    return [int(part.split()[0]) for part in text.replace(";", " ").replace(")", " ").split("field_id=")[1:]]


@pytest.mark.requirements("ICEV1-5", "ICEV2-1", "ICEV2-2", "ICEV2-3", "ICEV2-4", "ICEV2-5", "ICEV2-7", "UP-ICE-1")
@pytest.mark.slow
def test_files_hold_partition_columns_and_ids_of_elements(lake: Connection) -> None:
    rows = lake.spark.sql(
        "SELECT 1L id, 'a' p, array(array(1, 2)) l, map('k', named_struct('s', array(5))) m, TIMESTAMP'2024-05-01 00:00:00' t"
    )
    table = lake.create_table_as(NAME, rows, "p", properties=V2)
    snapshot = table.snapshot()
    assert snapshot.properties.column_mapping_mode == "name" and not snapshot.properties.deletion_vectors_enabled
    by_name = {item.name: item.metadata for item in snapshot.schema.fields}
    assert [path.partition(".")[2] for path in by_name["l"]["delta.columnMapping.nested.ids"]] == [
        "element",
        "element.element",
    ]
    assert [path.partition(".")[2] for path in by_name["m"]["delta.columnMapping.nested.ids"]] == ["key", "value"]
    table.append(lake.spark.sql("SELECT 2L id, CAST(NULL AS string) p, NULL l, NULL m, NULL t"))
    table.update({"p": "'b'"}, "id = 2")
    lake.maintenance.set_policy(NAME, MaintenanceKind.DATA_REORGANIZATION, reason="small files")
    table.optimize()
    table.alter.rename_column("p", "q")
    assert sorted(map(str, table.to_arrow()["q"].to_pylist())) == ["a", "b"]
    expected = [(1, "a", [[1, 2]], {"k": (("s", [5]),)}), (2, "b", None, None)]
    assert [(r.id, r.q, r.l, r.m) for r in table.to_df().sort("id").collect()][1] == expected[1]
    assert table.to_df().where("q = 'a'").collect()[0]["m"]["k"]["s"] == [5]
    highest = int(snapshot.metadata.configuration["delta.columnMapping.maxColumnId"])
    for file in files_of(table):
        names = file.schema_arrow.names
        assert len(names) == 5 and names[-1] == by_name["p"]["delta.columnMapping.physicalName"]
        found = [number for number in ids_of(file) if number >= 0]
        assert sorted(found) == list(range(1, highest + 1))
        assert "INT96" not in str(file.schema)
    assert all("numRecords" in text for text in table.scan().files()["stats"].to_pylist())


@pytest.mark.requirements("ICEV1-2", "ICEV1-3", "ICEV1-6", "ICEV2-6", "ICEV2-8")
@pytest.mark.parametrize(
    ("properties", "ddl", "message"),
    [
        (V1 | V2, "id long", "the other version"),
        (V1, "id long, l array<int>", "type array<int>"),
        (V2, "id long, v variant", "type variant"),
        (V2 | {"delta.columnMapping.mode": "none"}, "id long", "no column mapping"),
        (V2 | {"delta.enableDeletionVectors": "true"}, "id long", "deletion vectors"),
        (V1 | {"delta.feature.deletionVectors": "supported"}, "id long", "feature deletionVectors"),
    ],
)
def test_definitions_that_do_not_comply_are_refused(
    lake: Connection, properties: dict[str, str], ddl: str, message: str
) -> None:
    """No table is created."""
    schema = lake.spark.createDataFrame([], ddl).schema
    with pytest.raises(InvalidArgumentError, match=message):
        lake.create_table(NAME, schema, properties=properties)
    assert NAME not in lake.tables("main.test")


@pytest.mark.requirements("ICEV1-1", "ICEV1-2", "ICEV1-3", "ICEV1-4", "ICEV1-7")
def test_changes_that_do_not_comply_are_refused(lake: Connection) -> None:
    """The table stays as it was."""
    rows = lake.spark.sql("SELECT 1L id, 'a' p")
    table = lake.create_table_as(NAME, rows, "p", properties=V1)
    (file,) = files_of(table)
    assert len(file.schema_arrow.names) == 2
    version = table.version()
    for change in (
        lambda: table.alter.set_properties({"delta.enableDeletionVectors": "true"}),
        lambda: table.alter.set_properties({"delta.columnMapping.mode": "none"}),
        lambda: table.alter.add_columns(NewColumn("l", "array<int>")),
        lambda: table.alter.set_properties(V2),
        lambda: table.alter.drop_feature("columnMapping"),
        lambda: table.overwrite(rows, schema_mode=SchemaMode.OVERWRITE, partition_by=()),
    ):
        with pytest.raises(InvalidArgumentError, match=r"Iceberg|iceberg"):
            change()
    plain = lake.create_table_as("main.test.plain", rows, "p", properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidArgumentError, match="Iceberg compatibility"):
        plain.alter.set_properties(V1)
    assert table.version() == version
