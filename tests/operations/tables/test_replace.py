"""CREATE OR REPLACE TABLE: a new definition and new rows for a table that keeps its id and its history."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import (
    Column,
    Connection,
    IllegalCommitError,
    InvalidArgumentError,
    InvalidDataError,
    SchemaMismatchError,
    SchemaMode,
    TableAlreadyExistsError,
    TableNotFoundError,
    connect,
)

NAME = "main.test.t"


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        yield connection


@pytest.mark.requirements("TF-14")
def test_a_replacement_keeps_id_history_and_features(lake: Connection) -> None:
    """The protocol loses no feature; older versions are read and restored as they were."""
    rows = lake.spark.createDataFrame([(1, "a"), (2, "b")], "id long, p string")
    mapped = {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true", "owner": "me"}
    first = lake.create_table_as(NAME, rows, ["p"], properties=mapped, description="old")
    first.alter.add_constraint("positive", "id > 0")
    before = first.snapshot()
    new = [Column("n", "int", default="7"), Column("q", "string", nullable=False)]
    properties = {"delta.columnMapping.mode": "none", "delta.feature.allowColumnDefaults": "supported"}
    table = lake.create_table(NAME, new, properties=properties, mode="create_or_replace")
    after = table.snapshot()
    assert (after.table_id, after.metadata.id, table.location) == (before.table_id, before.metadata.id, first.location)
    assert after.schema.names == ("n", "q") and after.partition_columns == () and after.num_files == 0
    assert after.metadata.description is None and "owner" not in after.metadata.configuration
    assert not any("constraints" in key for key in after.metadata.configuration)
    assert {"columnMapping", "rowTracking", "checkConstraints"} <= set(after.protocol.writer_features or ())
    assert table.history(limit=1)[0].commit_info.operation == "CREATE OR REPLACE TABLE"
    with pytest.raises(InvalidDataError, match="NOT NULL"):
        table.append(lake.spark.sql("SELECT 1 n, CAST(NULL AS string) q"))
    table.append(lake.spark.sql("SELECT 'x' q"))
    assert [tuple(row) for row in table.to_df().collect()] == [(7, "x")]
    assert table.to_arrow(version=before.version).num_rows == 2
    table.restore(version=before.version)
    assert sorted(map(tuple, table.to_df().collect())) == [(1, "a"), (2, "b")]


def test_a_table_is_replaced_by_rows_that_are_read_from_it(lake: Connection) -> None:
    table = lake.create_table_as(NAME, lake.spark.range(6), cluster_by=["id"])
    kept = table.to_df().where("id > 3").selectExpr("id", "id % 2 AS odd")
    table = lake.create_table_as(NAME, kept, cluster_by=["odd"], mode="replace")
    assert sorted(map(tuple, table.to_df().collect())) == [(4, 0), (5, 1)]
    assert table.snapshot().clustering_columns == (("odd",),)
    assert lake.create_table(NAME, kept.schema, mode="replace").snapshot().clustering_columns == ()
    with pytest.raises(InvalidArgumentError, match="clustered table"):
        lake.create_table(NAME, kept.schema, "odd", mode="replace")


def test_row_tracking_stays_enabled_unless_the_replacement_disables_it(lake: Connection) -> None:
    """As in delta-spark. New rows have new ids."""
    enabled = "delta.enableRowTracking"
    table = lake.create_table_as(NAME, lake.spark.range(2), properties={enabled: "true"})
    before = table.snapshot().metadata.configuration
    lake.create_table_as(NAME, lake.spark.range(3), mode="replace")
    after = table.snapshot().metadata.configuration
    assert {key: value for key, value in after.items() if "owTracking" in key} == {
        key: value for key, value in before.items() if "owTracking" in key
    }
    assert sorted(table.to_arrow(["_row_id"])["_row_id"].to_pylist()) == [2, 3, 4]
    lake.create_table_as(NAME, lake.spark.range(3), properties={enabled: "false"}, mode="replace")
    assert table.snapshot().metadata.configuration[enabled] == "false"


def test_rows_and_dropped_columns_are_not_one_commit_of_a_change_feed(lake: Connection) -> None:
    """As in delta-spark: a range of versions of the feed has one schema."""
    fed = {"delta.enableChangeDataFeed": "true"}
    mapped = {**fed, "delta.columnMapping.mode": "name"}
    rows = lake.spark.createDataFrame([(1, "a")], "id long, p string")
    table = lake.create_table_as(NAME, rows, properties=fed)
    with pytest.raises(InvalidArgumentError, match=r"sets delta\.columnMapping\.mode = 'name'"):
        lake.create_table_as(NAME, rows, properties=mapped, mode="replace")
    table.alter.set_properties(mapped)
    version = table.version()
    for change in (
        lambda: table.overwrite(rows.select("id"), schema_mode=SchemaMode.OVERWRITE),
        lambda: table.overwrite(rows.withColumnRenamed("p", "P"), schema_mode=SchemaMode.OVERWRITE),
        lambda: lake.create_table_as(NAME, rows, properties=mapped, mode="replace"),
        lambda: lake.create_table(NAME, [Column("id", "bigint")], properties=mapped, mode="replace"),
    ):
        with pytest.raises(InvalidArgumentError, match="drops or renames the column"):
            change()
    assert table.version() == version
    table.overwrite(rows.selectExpr("*", "1 AS n"), schema_mode=SchemaMode.OVERWRITE)
    table.alter.drop_column("p")
    assert table.schema().names == ("id", "n")


def test_the_mode_of_schema_changes_can_be_text(lake: Connection) -> None:
    rows = lake.spark.createDataFrame([(1, "a")], "id long, p string")
    table = lake.create_table_as(NAME, rows)
    text: Any = "overwrite"
    table.overwrite(rows.select("id"), schema_mode=text)
    assert table.schema().names == ("id",)
    text = "strict"
    with pytest.raises(SchemaMismatchError):
        table.append(rows, schema_mode=text)
    text = "replace"
    with pytest.raises(InvalidArgumentError, match="schema_mode is 'replace'"):
        table.append(rows, schema_mode=text)
    assert table.version() == 1


def test_what_cannot_be_replaced_is_refused(lake: Connection) -> None:
    schema = lake.spark.range(1).schema
    with pytest.raises(TableNotFoundError):
        lake.create_table(NAME, schema, mode="replace")
    table = lake.create_table(NAME, schema, properties={"delta.appendOnly": "true"}, mode="create_or_replace")
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table(NAME, schema)
    with pytest.raises(InvalidArgumentError, match="create_or_replace"):
        lake.create_table(NAME, schema, mode="overwrite")
    table.append(lake.spark.range(1))
    with pytest.raises(IllegalCommitError, match="append-only"):
        lake.create_table(NAME, schema, mode="replace")
    assert table.version() == 1
