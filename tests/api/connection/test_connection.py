"""The Python API: a connection, and tables with one method for each operation."""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.connection.table_designs import AnySchema
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
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
    assert orders.scan(where="day IS NULL").files().num_rows == 1
    assert orders.schema() == SCHEMA


def test_rows_are_overwritten_merged_and_deleted(lake: Connection, spark: SparkSession) -> None:
    orders = lake.create_table(NAME, SCHEMA)
    orders.append(spark.createDataFrame([(1, None), (2, None)], "id long, day date"))
    orders.upsert(spark.createDataFrame([(2, DAY), (3, DAY)], "id long, day date"), on="id")
    assert sorted((row.id, row.day) for row in orders.to_df(where="id > 1").collect()) == [(2, DAY), (3, DAY)]
    orders.overwrite(spark.createDataFrame([(9, None)], "id long, day date"), where="id > 1 OR id = 9")
    orders.delete("id = 1")
    assert [row.id for row in orders.to_df().collect()] == [9]
    assert [entry.version for entry in orders.history(limit=2)] == [4, 3]


@pytest.mark.requirements("TT-1", "TT-2")
def test_older_versions_are_read_by_number_and_by_time(lake: Connection, spark: SparkSession) -> None:
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


@pytest.mark.requirements("CM-M4")
def test_maintenance_follows_the_policy(lake: Connection, spark: SparkSession) -> None:
    orders = lake.create_table(NAME, SCHEMA)
    for number in range(3):
        orders.append(spark.createDataFrame([(number, None)], "id long, day date").coalesce(1))
    with pytest.raises(MaintenanceNotPermittedError):
        orders.optimize()
    lake.maintenance.set_policy("main.sales", "data_reorganization", reason="nightly")
    assert orders.plan_optimize().num_files == 3
    assert orders.optimize().num_added_files == 1
    with pytest.raises(MaintenanceNotPermittedError):
        orders.vacuum()
    for kind in ("DATA_CLEANUP", "METADATA_CLEANUP"):
        lake.maintenance.set_policy("main", kind)
    assert orders.plan_vacuum().num_files == 0
    assert orders.vacuum(datetime.timedelta(days=8)).num_files == 0
    assert orders.maintenance.plan_clean_log().num_files == 0
    assert orders.maintenance.clean_log().num_files == 0
    assert orders.maintenance.plan_clean_staged_commits().names == ()
    assert orders.maintenance.clean_staged_commits().num_files == 0
    lake.maintenance.set_policy(NAME, "CHECKPOINT", allowed=False)
    with pytest.raises(MaintenanceNotPermittedError):
        orders.maintenance.checkpoint()
    assert orders.maintenance.compact_log(0, 3).end == 3
    assert orders.maintenance.publish().published_version == 4
    assert [(rule.scope, rule.allowed) for rule in lake.maintenance.list_policies()] == [
        ("main", True),
        ("main", True),
        ("main.sales", True),
        (NAME, False),
    ]
    with pytest.raises(InvalidArgumentError, match="METADATA_CLEANUP"):
        lake.maintenance.set_policy("main", "CLEANING")


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


@pytest.mark.requirements("CM-D2")
def test_a_table_is_created_with_its_rows_in_one_commit(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, DAY), (2, None)], "id long, day date")
    orders = lake.create_table_as(NAME, frame, "day", description="what it is", properties={"owner": "us"})
    snapshot = orders.snapshot()
    assert (snapshot.version, snapshot.num_rows, snapshot.partition_columns) == (0, 2, ("day",))
    assert (snapshot.metadata.description, snapshot.metadata.configuration["owner"]) == ("what it is", "us")
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table_as(NAME, frame)
    with pytest.raises(InvalidArgumentError, match="DataFrame"):
        lake.create_table_as("main.sales.other", [(1,)])


@pytest.mark.requirements("CM-D2", "DML-4", "DML-7")
def test_writes_by_name_create_a_missing_table(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, DAY)], "id long, day date")
    other = spark.createDataFrame([(2, None)], "id long, day date")
    wider = frame.withColumn("note", F.lit("x"))
    versions = [lake.open_or_create(NAME, like=frame, partition_by=["day"]).append(frame).version for _ in range(2)]
    assert versions == [1, 2] and lake.table(NAME).snapshot().partition_columns == ("day",)
    assert lake.open_or_create(NAME, like=other).overwrite(other, where="day IS NULL").version == 3
    orders = lake.open_or_create(NAME, partition_by="day", like=wider)
    assert orders.append(wider, schema_mode=SchemaMode.MERGE).version == 4, (
        "columns are those of the table until a write adds some"
    )
    assert sorted(row.id for row in orders.to_df().collect()) == [1, 1, 1, 2]
    assert lake.open_or_create(NAME, like=frame).to_df().columns == ["id", "day", "note"]
    with pytest.raises(SchemaMismatchError, match="partitioned by"):
        lake.open_or_create(NAME, partition_by=["id"], like=frame)
    for columns in (None, SCHEMA):
        with pytest.raises(InvalidArgumentError, match=r"either as schema=\.\.\. or as like=frame"):
            lake.open_or_create(NAME, columns, like=None if columns is None else frame)
    assert orders.version() == 4 and lake.tables() == (NAME,)


@pytest.mark.requirements("CM-M4", "CM-M5")
def test_maintenance_decision_follows_rules_and_their_removal(lake: Connection) -> None:
    orders = lake.create_table(NAME, SCHEMA)
    lake.maintenance.set_policy("main", "data_cleanup", reason="nightly")
    lake.maintenance.set_policy(NAME, "DATA_CLEANUP", reason="kept for the auditors", allowed=False)
    decision = orders.maintenance.decision("data_cleanup")
    assert (decision.allowed, decision.decided_by, decision.reason) == (False, NAME, "kept for the auditors")
    lake.maintenance.remove_policy(NAME, "Data_Cleanup")
    assert orders.maintenance.decision(MaintenanceKind.DATA_CLEANUP).decided_by == "main"
    lake.maintenance.remove_policy(NAME, "DATA_CLEANUP")
    assert [rule.scope for rule in lake.maintenance.list_policies()] == ["main"]
    with pytest.raises(InvalidArgumentError, match="CHECKPOINT"):
        orders.maintenance.decision("cleaning")
    with pytest.raises(InvalidArgumentError, match="METADATA_CLEANUP"):
        lake.maintenance.remove_policy("main", "cleaning")


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.date32())]),
        T.StructType([T.StructField("id", T.LongType()), T.StructField("day", T.DateType())]),
        "id bigint, day date",
        "(id BIGINT, `day` DATE)",
    ],
    ids=["own", "pyarrow", "pyspark", "text", "text in brackets"],
)
def test_a_schema_may_be_of_this_package_pyarrow_pyspark_or_sql(lake: Connection, schema: AnySchema) -> None:
    assert lake.create_table(NAME, schema, "day").schema() == SCHEMA
    assert lake.open_or_create(NAME, schema, ["day"]).version() == 0


def test_a_value_that_is_not_a_schema_is_refused(lake: Connection) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"The schema is of type int\. Give a text such as .* a pyspark StructType"
    ):
        lake.create_table(NAME, 5)  # type: ignore[arg-type]  # The error is the point.


def test_a_schema_as_text_has_what_create_table_takes(lake: Connection) -> None:
    text = "id bigint NOT NULL COMMENT 'key', n bigint GENERATED ALWAYS AS IDENTITY, p struct<a: int, b: array<string>>"
    by_text = lake.create_table("main.sales.by_text", text)
    lake.sql(f"CREATE TABLE main.sales.by_sql ({text}) USING delta")
    assert by_text.schema() == lake.table("main.sales.by_sql").schema()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a name at line 1, column 1"),
        ("id", "needs the type of the column"),
        ("id bigint,", "needs a name at line 1, column 11"),
        ("id bigint name string", "'name' follows the type"),
        ("(id bigint) x", "needs a comma or the end at line 1, column 13"),
        ("id bigint; drop table main.sales.orders", "cannot be read"),
        ("id money", "'money' is not a type"),
        ("id bigint PRIMARY KEY", "does not support PRIMARY"),
    ],
)
def test_a_text_that_is_not_a_list_of_columns_is_refused(lake: Connection, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        lake.create_table(NAME, text)
    assert lake.tables() == ()


def test_the_running_session_is_used_when_none_is_given(tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as connection:
        assert connection.spark is spark


def test_storage_options_go_to_the_file_system_of_the_warehouse(tmp_path: Path) -> None:
    options = {"key": "k"}
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse="s3://bucket/w", storage_options=options) as connection:
        stores = connection.client.stores
        assert isinstance(stores, Stores)
        assert stores.storage_options.for_location("s3a://another/x") == options


def test_a_connection_without_a_warehouse_reads_and_creates_no_table(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with connect(url, warehouse=str(tmp_path / "warehouse")) as lake:
        lake.create_table("main.sales.orders", SCHEMA)
    before = sorted(tmp_path.rglob("*"))
    with connect(url) as lake:
        assert lake.table("main.sales.orders").to_arrow().num_rows == 0
        with pytest.raises(InvalidArgumentError, match=r"has no warehouse.*connect\(url, warehouse="):
            lake.create_table("main.sales.order", SCHEMA)
    assert sorted(tmp_path.rglob("*")) == before


def test_settings_go_to_the_client(tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path}/catalog.db", ClientSettings(max_commit_attempts=3)
    with connect(url, warehouse=f"{tmp_path}/warehouse", settings=settings) as connection:
        assert connection.client.settings.max_commit_attempts == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": {"max_commit_attempts": 3}}, "settings is of type dict; give ClientSettings"),
        ({"settings": 3}, "settings is of type int"),
        ({"warehouse": 5}, "warehouse is of type int; give the directory or URI"),
        ({"warehouse": Path("w")}, "warehouse is of type .*Path"),
        ({"storage_options": "x"}, "storage_options is of type str; give a mapping"),
        ({"storage_options": []}, "storage_options is of type list"),
        ({"storage_options": {1: "x"}}, "storage_options has keys that are not text"),
    ],
    ids=str,
)
def test_an_argument_of_another_type_is_refused_before_the_catalog_is_created(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        connect(f"sqlite:///{tmp_path}/catalog.db", **arguments)
    assert not list(tmp_path.iterdir())


def test_a_closed_connection_leaves_the_session_running(tmp_path: Path, spark: SparkSession) -> None:
    connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark).close()
    assert spark.range(1).count() == 1


def test_the_representation_of_a_table_names_it(lake: Connection) -> None:
    assert NAME in repr(lake.create_table(NAME, SCHEMA))
    assert "catalog.db" in repr(lake)


def test_the_commit_mode_is_set_by_scope(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        lake.settings.set_commit_mode("main", "put_if_absent")
        orders = lake.create_table(NAME, SCHEMA)
        lake.settings.set_commit_mode(NAME, "auto", inline_max_bytes=1000)
        assert [(rule.scope, str(rule.policy)) for rule in lake.settings.list_commit_modes()] == [
            ("main", "put_if_absent"),
            (NAME, "auto:1000"),
        ]
        lake.settings.remove_commit_mode(NAME)
        lake.settings.remove_commit_mode("main")
        assert lake.settings.list_commit_modes() == () and orders.version() == 1
        with pytest.raises(InvalidArgumentError, match="not a commit mode"):
            lake.settings.set_commit_mode("main", "quick")
        with pytest.raises(InvalidArgumentError, match="Switching is a state"):
            lake.settings.set_commit_mode(NAME, "switching")


@pytest.mark.requirements("CM-D6", "CM-D7")
def test_a_table_is_renamed_dropped_restored_and_purged(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse") as lake:
        lake.create_table(NAME, SCHEMA)
        assert lake.rename(NAME, "main.sales.old").name == "main.sales.old"
        lake.drop("main.sales.old")
        report = lake.undrop("main.sales.old").doctor()
        assert (report.healthy, report.version, report.findings) == (True, 0, ())
        lake.drop("main.sales.old")
        assert lake.maintenance.plan_purge().candidates == ()
        lake.maintenance.set_policy("main", "table_purge")
        plan = lake.maintenance.plan_purge("main.sales", retention=datetime.timedelta(0))
        assert [found.table.identifier.table for found in plan.candidates] == ["old"]
        assert plan.apply().num_files == plan.num_files > 0
        with pytest.raises(TableNotFoundError):
            lake.undrop("main.sales.old")
