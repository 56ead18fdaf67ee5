"""Reads of the Python API, on tables of the catalog and on tables of other writers."""

import copy
import datetime as dt
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    InvalidArgumentError,
    StreamSourceChangedError,
    TableNotFoundError,
    TableStorageMissingError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.arguments import epoch_milliseconds
from cm_delta_dagster.protocol.predicates.timestamps import zone_of


def lake_in(directory: Path, spark: SparkSession | None = None) -> Connection:
    return connect(f"sqlite:///{directory / 'catalog.db'}", warehouse=str(directory / "warehouse"), spark=spark)


def foreign_table(directory: Path) -> str:
    """Three versions: three rows in two partitions, one more row, one row deleted; change data feed is on."""
    from deltalake import DeltaTable

    path = str(directory / "foreign table")
    first = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "region": ["eu", "eu", "us"]})
    properties = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, first, partition_by=["region"], configuration=properties)
    write_deltalake(path, pa.table({"id": pa.array([4], pa.int64()), "region": ["us"]}), mode="append")
    DeltaTable(path).delete("id = 1")
    return path


def test_reads_of_a_table_without_its_directory_name_the_location(tmp_path: Path, spark: SparkSession) -> None:
    """The client has the state of the table in memory, so that only the data files are opened."""
    with lake_in(tmp_path, spark) as lake:
        table = lake.create_table_as("main.sales.t", spark.range(3))
        assert table.version() == 0
        shutil.rmtree(table.location.removeprefix("file://"))
        for read in (table.to_arrow, lambda: table.scan().to_batches().read_all(), lambda: table.to_df().collect()):
            with pytest.raises(TableStorageMissingError, match="Likely causes") as caught:
                read()
            assert table.location in str(caught.value)


@pytest.mark.requirements("TT-1", "SKIP-6")
def test_a_table_of_another_writer_is_read_by_its_path_without_java(tmp_path: Path) -> None:
    path = foreign_table(tmp_path)
    with lake_in(tmp_path) as lake:
        table = lake.path_table(path)

        assert table.version() == 2
        assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 4]
        assert sorted(table.to_arrow(version=0)["id"].to_pylist()) == [1, 2, 3]
        assert table.to_arrow(["id"], where="region = 'us' AND id > 3").to_pydict() == {"id": [4]}
        with table.scan(["id"]).to_batches() as batches:
            assert sum(batch.num_rows for batch in batches) == 3
        assert [entry.version for entry in table.history(limit=2)] == [2, 1]
        assert table.schema().names == ("id", "region")
        assert table.scan(where="region = 'us'").plan().files_skipped == 1
        assert "foreign table" in repr(table)


@pytest.mark.requirements("SKIP-6")
def test_rows_are_counted_by_the_log_or_else_by_reading(tmp_path: Path) -> None:
    with lake_in(tmp_path) as lake:
        table = lake.path_table(foreign_table(tmp_path))

        assert table.scan().count() == 3
        assert table.scan(where="region = 'us'").count() == 2
        assert table.scan(where="id = 4").aggregates().num_rows is None
        assert table.scan(where="id = 4").count() == 1
        assert table.scan(["id"]).aggregates().maximums == {"id": 4}


@pytest.mark.requirements("CDF-7", "CDF-8")
def test_changes_are_read_by_version_and_by_time(tmp_path: Path) -> None:
    with lake_in(tmp_path) as lake:
        table = lake.path_table(foreign_table(tmp_path))
        changes = table.changes(starting_version=1, columns=["id", "_change_type", "_commit_version"]).to_arrow()
        times = [entry.timestamp_ms for entry in table.history()]
        assert times[0] is not None

        assert sorted(changes.to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "_change_type": "delete", "_commit_version": 2},
            {"id": 4, "_change_type": "insert", "_commit_version": 1},
        ]
        newest = dt.datetime.fromtimestamp(times[0] / 1000, dt.UTC)
        with table.changes(starting_timestamp=newest).to_batches() as batches:
            assert {value for batch in batches for value in batch["_commit_version"].to_pylist()} == {2}
        with pytest.raises(InvalidArgumentError, match="time zone"):
            table.changes(starting_timestamp=dt.datetime(2024, 1, 1)).to_arrow()


@pytest.mark.requirements("STREAM-1", "STREAM-3")
def test_a_consumer_without_spark_keeps_its_own_offset(tmp_path: Path) -> None:
    path = foreign_table(tmp_path)
    with lake_in(tmp_path) as lake:
        table = lake.path_table(path)
        (first,) = table.stream(columns=["id"]).to_batches()
        assert first.to_arrow().num_rows == 3
        write_deltalake(path, pa.table({"id": pa.array([5], pa.int64()), "region": ["eu"]}), mode="append")
        (second,) = table.stream(first.offset.to_json()).to_batches()
        assert second.to_arrow().to_pylist() == [{"id": 5, "region": "eu"}]
        newest = table.history(limit=1)[0].timestamp_ms
        assert newest is not None
        since = dt.datetime.fromtimestamp(newest / 1000, dt.UTC)
        assert [
            batch.to_arrow()["id"].to_pylist() for batch in table.stream(starting_timestamp=since).to_batches()
        ] == [[5]]
        with pytest.raises(StreamSourceChangedError, match="Version 2"):
            list(table.stream(starting_version=0).to_batches())


@pytest.mark.requirements("CM-R8")
def test_what_cannot_be_opened_by_path_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake_in(tmp_path) as lake:
        managed = lake.create_table("main.sales.orders", pa.schema({"id": pa.int64()}))

        with pytest.raises(CatalogManagedAccessError, match="catalog"):
            lake.path_table(managed.location)
        with pytest.raises(TableNotFoundError, match="nothing here"):
            lake.path_table(str(tmp_path / "nothing here"))
        path = foreign_table(tmp_path)
        with pytest.raises(VersionNotFoundError, match="7"):
            lake.path_table(path).to_arrow(version=7)
        monkeypatch.chdir(tmp_path)
        assert lake.path_table("foreign table").scan().count() == 3


def test_what_a_table_by_path_cannot_do_says_where_to_do_it(tmp_path: Path) -> None:
    with lake_in(tmp_path) as lake:
        table: Any = lake.path_table(foreign_table(tmp_path))
        with pytest.raises(AttributeError, match=r"PathDeltaTable has no attribute 'append'.*lake\.onboarding\.adopt"):
            table.append(None)
        assert not hasattr(table, "vacuum") and copy.copy(table).name == table.name


def test_a_text_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    with lake_in(tmp_path) as lake:
        methods: Any = lake
        with pytest.raises(InvalidArgumentError, match=r"names is the text 'main\.s\.t'; give a list"):
            methods.snapshots("main.s.t")
        with pytest.raises(InvalidArgumentError, match=r"names is TableIdentifier.*; give a list"):
            methods.snapshots(TableIdentifier("main", "s", "t"))


@pytest.mark.requirements("CM-R2")
def test_the_catalogs_tables_answer_arrow_and_spark_alike(spark: SparkSession, tmp_path: Path) -> None:
    with lake_in(tmp_path, spark) as lake:
        frame = spark.range(10).selectExpr("id", "CAST(id % 2 AS STRING) AS parity")
        table = lake.create_table_as("main.sales.numbers", frame, partition_by=["parity"])

        assert sorted(table.to_arrow(where="parity = '1'")["id"].to_pylist()) == [1, 3, 5, 7, 9]
        assert sorted(row.id for row in table.to_df(where="parity = '1'").collect()) == [1, 3, 5, 7, 9]
        assert table.scan(where="parity = '0'").count() == 5
        assert table.to_df().dtypes == frame.dtypes


def test_names_that_are_no_text_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with lake_in(tmp_path) as lake:
        with pytest.raises(InvalidArgumentError, match=r"^partition_by is \[None\]; give a text or a list of texts"):
            lake.create_table("main.sales.orders", pa.schema({"id": pa.int64()}), partition_by=[None])
        assert lake.tables() == ()


def hours(given: Any) -> float:
    """How long after the beginning of 2024 in UTC the moment is, in a session in New York."""
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    zone = zone_of("America/New_York")
    assert zone is not None
    return (epoch_milliseconds(given, zone=lambda: zone) / 1000 - start.timestamp()) / 3600


@pytest.mark.requirements("TT-9")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (dt.date(2024, 1, 1), 5),
        ("2024", 5),
        ("2024-1", 5),
        ("2024-01-01", 5),
        (" 2024-01-01 12:00 ", 17),
        ("2024-1-1T12:00:00.5", 17 + 0.5 / 3600),
        ("2024-01-01T12:00:00Z", 12),
        ("2024-01-01T12:00:00.123456789 UTC", 12 + 0.123 / 3600),
        ("2024-01-01T12:00:00+02:00", 10),
        ("2024-01-01T12:00:00UTC-3", 15),
        ("2024-01-01 12:00:00 Europe/Berlin", 11),
        ("2024-03-10 02:30:00", 69 * 24 + 7.5),
        ("0001-01-01", None),
        ("9999-12-31 23:59:59", None),
    ],
)
def test_text_and_days_without_a_zone_are_of_the_sessions_zone(text: Any, expected: float | None) -> None:
    """In the hour that a spring leaves out the clock is taken to have gone on, as Spark has it."""
    if expected is not None:
        assert hours(text) == pytest.approx(expected, abs=1e-9)
    else:
        assert abs(hours(text)) > 10_000


@pytest.mark.parametrize("name", ["UTC", "Z", "GMT+1", "UTC+01:00", "+1", "+01:00", "-0130", "UTC+8", "Asia/Tokyo"])
def test_zones_are_those_of_spark(name: str, spark: SparkSession) -> None:
    zone = zone_of(name)
    assert zone is not None
    usual = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", name)
        (row,) = spark.sql("SELECT unix_millis(TIMESTAMP '2024-06-01 12:00:00') AS ms").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", usual)
    assert epoch_milliseconds("2024-06-01 12:00:00", zone=lambda: zone) == row.ms


@pytest.mark.parametrize("name", ["", "Mars/Base", "Europe", "../etc/passwd", "+99:00", "UTC+"])
def test_what_names_no_zone_is_none(name: str) -> None:
    assert zone_of(name) is None


@pytest.mark.parametrize(
    "given",
    [
        "",
        "yesterday",
        "2024-13-01",
        "20240101",
        "2024-01-01 12:00:00 Mars/Base",
        dt.datetime(2024, 1, 1),
        True,
        1.5,
        dt.time(12),
    ],
)
def test_what_is_no_moment_is_refused(given: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"give a datetime with a time zone.*, a date, text as in '2026-01-31'"
    ):
        epoch_milliseconds(given, zone=lambda: dt.UTC)


@pytest.mark.requirements("TT-9", "TT-2")
def test_a_day_without_a_zone_is_of_the_session_and_refused_without_one(tmp_path: Path, spark: SparkSession) -> None:
    """Version 0 is of the last evening of 2023 in New York, version 1 of the hour after."""
    path = str(tmp_path / "table")
    for number, at in enumerate(("2024-01-01T04:30:00Z", "2024-01-01T05:30:00Z")):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
        log = tmp_path / "table" / "_delta_log" / f"{number:020d}.json"
        moment = dt.datetime.fromisoformat(at).timestamp()
        os.utime(log, (moment, moment))

    def version_at(day: str) -> int:
        with lake_in(tmp_path, spark) as lake:
            return lake.path_table(path).snapshot(timestamp=day).version

    with lake_in(tmp_path) as lake, ThreadPoolExecutor(1) as pool:  # Of another thread no session is active.
        with pytest.raises(InvalidArgumentError, match="names no time zone, and no Spark session runs"):
            pool.submit(lambda: lake.path_table(path).snapshot(timestamp="2024-01-01")).result()
        table = pool.submit(lambda: lake.path_table(path).to_arrow(timestamp="2024-01-01T05:00:00Z")).result()
        assert table.num_rows == 1
    usual = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("America/New_York", "-05:00"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert version_at("2024-01-01") == 0
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        with pytest.raises(VersionNotFoundError, match="as of"):
            version_at("2024-01-01")
        assert version_at("2024-01-01 05:00:00") == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", usual)
