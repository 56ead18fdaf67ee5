"""The front door: one connection, and tables with one method for each verb."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.connection import Connection, connect
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.schema import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores

NAME = "main.sales.orders"
SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("day", PrimitiveType("date"))))
DAY = datetime.date(2026, 1, 1)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        yield connection


def test_a_table_is_created_written_and_read(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, DAY), (2, None)], "id long, day date")
    orders = lake.create_table(NAME, frame.schema, partition_by=["day"])
    assert (orders.name, orders.version()) == (NAME, 0)
    assert orders.append(frame).version == 1
    assert sorted(row.id for row in orders.to_df().collect()) == [1, 2]
    assert [row.id for row in orders.to_df(["id"], where="day = DATE '2026-01-01'").collect()] == [1]
    assert orders.files("day IS NULL").num_rows == 1
    assert orders.schema() == SCHEMA


def test_rows_are_overwritten_merged_and_deleted(lake: Connection, spark: SparkSession) -> None:
    orders = lake.create_table(NAME, SCHEMA)
    orders.append(spark.createDataFrame([(1, None), (2, None)], "id long, day date"))
    orders.merge(spark.createDataFrame([(2, DAY), (3, DAY)], "id long, day date"), on="id")
    assert sorted((row.id, row.day) for row in orders.to_df(where="id > 1").collect()) == [(2, DAY), (3, DAY)]
    orders.overwrite(spark.createDataFrame([(9, None)], "id long, day date"), where="id > 1 OR id = 9")
    orders.delete("id = 1")
    assert [row.id for row in orders.to_df().collect()] == [9]
    assert [entry.version for entry in orders.history(limit=2)] == [4, 3]


def test_older_versions_are_read_by_number_and_by_time(lake: Connection, spark: SparkSession) -> None:
    """TT-1, TT-2"""
    orders = lake.create_table(NAME, SCHEMA)
    orders.append(spark.createDataFrame([(1, None)], "id long, day date"))
    orders.append(spark.createDataFrame([(2, None)], "id long, day date"))
    at = orders.snapshot(version=1).timestamp_ms
    assert orders.to_df(version=1).count() == 1
    assert orders.to_df(timestamp=at).count() == 1
    moment = datetime.datetime.fromtimestamp(at / 1000, datetime.UTC)
    assert orders.snapshot(timestamp=moment + datetime.timedelta(microseconds=500)).version == 1
    with pytest.raises(VersionNotFoundError):
        orders.to_df(version=7)
    with pytest.raises(InvalidArgumentError, match="time zone"):
        orders.to_df(timestamp=datetime.datetime(2026, 1, 1))


def test_maintenance_follows_the_policy(lake: Connection, spark: SparkSession) -> None:
    """CM-M4"""
    orders = lake.create_table(NAME, SCHEMA)
    for number in range(3):
        orders.append(spark.createDataFrame([(number, None)], "id long, day date").coalesce(1))
    with pytest.raises(MaintenanceNotPermittedError):
        orders.optimize()
    lake.allow("main.sales", "data_reorganization", "nightly")
    assert orders.plan_optimize().num_files == 3
    assert orders.optimize().num_added_files == 1
    with pytest.raises(MaintenanceNotPermittedError):
        orders.vacuum()
    for kind in ("DATA_CLEANUP", "METADATA_CLEANUP"):
        lake.allow("main", kind)
    assert orders.plan_vacuum().num_files == 0
    assert orders.vacuum(datetime.timedelta(days=8)).num_files == 0
    assert orders.plan_clean_log().num_files == 0
    assert orders.clean_log().num_files == 0
    assert orders.clean_staged_commits().num_files == 0
    lake.deny(NAME, "CHECKPOINT")
    with pytest.raises(MaintenanceNotPermittedError):
        orders.checkpoint()
    assert orders.compact_log(0, 3).end == 3
    assert orders.publish().published_version == 4
    assert [(rule.scope, rule.allowed) for rule in lake.policy()] == [
        ("main", True),
        ("main", True),
        ("main.sales", True),
        (NAME, False),
    ]
    with pytest.raises(InvalidArgumentError, match="METADATA_CLEANUP"):
        lake.allow("main", "CLEANING")


def test_tables_are_listed_opened_and_dropped(lake: Connection) -> None:
    lake.create_table(NAME, pa.schema([pa.field("id", pa.int64())]), description="x")
    lake.open_or_create("main.other.t", SCHEMA)
    assert lake.tables() == ("main.other.t", NAME)
    assert lake.tables("main.sales") == (NAME,)
    assert lake.table(NAME).schema().names == ["id"] or lake.table(NAME).schema().names == ("id",)
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table(NAME, SCHEMA)
    with pytest.raises(SchemaMismatchError):
        lake.open_or_create(NAME, SCHEMA)
    lake.drop(NAME)
    with pytest.raises(TableNotFoundError):
        lake.table(NAME)


def test_something_that_is_no_schema_is_refused(lake: Connection) -> None:
    with pytest.raises(InvalidArgumentError, match="schema"):
        lake.create_table(NAME, "id long")  # type: ignore[arg-type]


def test_the_running_session_is_used_when_none_is_given(tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as connection:
        assert connection.spark is spark


def test_storage_options_go_to_the_file_system_of_the_warehouse(tmp_path: Path) -> None:
    options = {"key": "k"}
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse="s3://bucket/w", storage_options=options) as connection:
        stores = connection.client.stores
        assert isinstance(stores, Stores)
        assert stores._storage_options == {"s3": options}


def test_a_closed_connection_leaves_the_session_running(tmp_path: Path, spark: SparkSession) -> None:
    connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark).close()
    assert spark.range(1).count() == 1


def test_what_is_shown_of_a_table_names_it(lake: Connection) -> None:
    assert NAME in repr(lake.create_table(NAME, SCHEMA))
    assert "catalog.db" in repr(lake)
