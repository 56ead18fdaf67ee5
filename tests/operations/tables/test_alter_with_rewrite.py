"""Alterations that rewrite data files: column mapping is removed, and features that files need are dropped."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, SchemaMismatchError, connect
from cm_delta_dagster.errors import InvalidArgumentError

NAME = "main.test.t"


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        yield connection


def rows_of(table: DeltaTable) -> list[tuple[object, ...]]:
    return sorted(map(tuple, table.to_df([*table.schema().names, "_row_id"]).collect()), key=str)


def columns_of_files(table: DeltaTable) -> set[str]:
    root = table.location.removeprefix("file://")
    paths = table.scan().files()["path"].to_pylist()
    return {name for path in paths for name in pq.read_schema(f"{root}/{path}").names}


@pytest.mark.slow
def test_column_mapping_is_removed_by_rewriting_the_files(lake: Connection) -> None:
    """Rows and their ids stay, the files have the names of the columns."""
    rows = lake.spark.createDataFrame([(1, "a", 7), (2, "b", 8), (3, None, 9)], "id long, p string, gone int")
    properties = {"delta.columnMapping.mode": "id", "delta.enableRowTracking": "true"}
    table = lake.create_table_as(NAME, rows, "p", properties=properties)
    table.alter.rename_column("p", "q")
    table.alter.drop_column("gone")
    table.alter.add_columns({"with blank": "int"})
    table.delete("id = 2")
    before = rows_of(table)
    with pytest.raises(SchemaMismatchError, match="with blank"):
        table.alter.set_properties({"delta.columnMapping.mode": "none"})
    table.alter.rename_column("with blank", "more")
    result = table.alter.set_properties({"delta.columnMapping.mode": "none", "owner": "me"})
    assert len(result.versions) == 1
    configuration = table.snapshot().metadata.configuration
    assert configuration["delta.columnMapping.mode"] == "none" and configuration["owner"] == "me"
    assert "physicalName" not in table.snapshot().metadata.schema_string
    assert rows_of(table) == before
    assert {"id", "more"} <= columns_of_files(table) and not columns_of_files(table) & {"gone", "q", "p"}
    assert [row["q"] for row in table.to_df().where("q = 'a'").collect()] == ["a"]
    assert table.alter.drop_feature("columnMapping").versions == (result.version + 1,)
    assert "columnMapping" not in (table.snapshot().protocol.writer_features or ())
    table.append(lake.spark.sql("SELECT 4L id, 'a' q, 1 more"))
    assert table.scan().count() == 3


@pytest.mark.requirements("UP-TW-7")
@pytest.mark.slow
def test_features_are_dropped_with_the_files_that_need_them(lake: Connection) -> None:
    """Deletion vectors, changed types, physical names and clustering columns go with the feature."""
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.enableTypeWidening": "true",
        "delta.enableRowTracking": "true",
    }
    table = lake.create_table_as(
        NAME, lake.spark.range(200, numPartitions=1).selectExpr("id", "1 AS n"), properties=properties, cluster_by="id"
    )
    table.alter.change_type("n", "bigint")
    table.delete("id = 5")
    before = rows_of(table)
    for feature in ("deletionVectors", "typeWidening", "columnMapping", "clustering"):
        table.alter.drop_feature(feature)
        assert feature not in (table.snapshot().protocol.writer_features or ())
        assert rows_of(table) == before
    snapshot = table.snapshot()
    assert snapshot.files["deletionVector"].null_count == snapshot.num_files == 1
    assert "typeChanges" not in snapshot.metadata.schema_string
    assert {
        str(item.type)
        for item in pq.read_schema(f"{table.location.removeprefix('file://')}/{table.scan().files()['path'][0]}")
        if item.name == "n"
    } == {"int64"}
    table.update({"n": "n + 1"}, "id = 6")
    assert table.scan().count() == 199


@pytest.mark.requirements("TF-14", "DOM-7")
def test_metadata_domains_go_with_their_feature(lake: Connection) -> None:
    """In a commit before, as delta-spark does it."""
    table = lake.create_table(NAME, lake.spark.range(1).schema, cluster_by="id")
    with pytest.raises(InvalidArgumentError, match="the features clustering need it"):
        table.alter.drop_feature("domainMetadata")
    table.alter.drop_feature("clustering")
    assert table.snapshot().domains
    assert len(table.alter.drop_feature("domainMetadata").versions) == 2
    snapshot = table.snapshot()
    assert not snapshot.domains and "domainMetadata" not in (snapshot.protocol.writer_features or ())
    infos = [entry.commit_info for entry in table.history(limit=2)]
    operations = [None if info is None else info.operation for info in infos]
    assert operations == ["DROP FEATURE", "DOMAIN METADATA CLEANUP"]


def test_column_mapping_of_a_table_without_rows_is_removed(lake: Connection) -> None:
    table = lake.create_table(NAME, lake.spark.range(1).schema, properties={"delta.columnMapping.mode": "name"})
    table.alter.unset_properties("delta.columnMapping.mode")
    assert not any("columnMapping" in key for key in table.snapshot().metadata.configuration)
    table.append(lake.spark.range(1))
    assert columns_of_files(table) == {"id"}
