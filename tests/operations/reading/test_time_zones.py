"""Times that state no time zone: in partition values, in conditions and as timestamps of a read, by every reader."""

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.table.path_delta_table import PathDeltaTable
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.predicates.predicates import raw_sql
from tests.support.foreign import ForeignTable, field

ZONE = "spark.sql.session.timeZone"
NEW_YORK = "America/New_York"
UTC = dt.UTC


def at(hour: int, day: int = 1) -> dt.datetime:
    """An hour of a day of July 2024 in UTC."""
    return dt.datetime(2024, 7, day, hour, tzinfo=UTC)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """Row 1 at 12:00 without a zone, row 2 at 12:00 UTC, row 3 without a value; each in a file, with a change feed."""
    table = ForeignTable(
        tmp_path / "t",
        field("id", "long"),
        field("at", "timestamp"),
        partitions=["at"],
        writer_features=["changeDataFeed"],
        properties={"delta.enableChangeDataFeed": "true"},
    )
    for number, text in ((1, "2024-07-01 12:00:00"), (2, "2024-07-01T12:00:00.000000Z"), (3, None)):
        table.add(f"f{number}.parquet", pa.table({"id": [number]}), values={"at": text}, stats={"numRecords": 1})
    return str(table.root)


@pytest.fixture
def in_new_york(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, in the time zone of New York."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, NEW_YORK)
    yield spark
    spark.conf.set(ZONE, before)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"), spark=spark) as opened:
        yield opened


def moments(table: pa.Table) -> list[Any]:
    return [row["at"] for row in sorted(table.to_pylist(), key=lambda row: row["id"])]


def by_each_reader(table: PathDeltaTable, **given: Any) -> dict[str, list[Any]]:
    """The moments that each reader returns, by its name."""
    stream = table.stream(**given).to_batches()
    return {
        "to_df": moments(table.to_df(**given).toArrow()),
        "to_arrow": moments(table.to_arrow(**given)),
        "to_batches": moments(table.scan(**given).to_batches().read_all()),
        "stream": moments(pa.concat_tables([batch.to_arrow() for batch in stream])),
        "changes": moments(table.changes(starting_version=1, **given).to_df().toArrow()),
        "changes as arrow": moments(table.changes(starting_version=1, **given).to_arrow()),
    }


def assert_all(found: dict[str, list[Any]], expected: list[Any]) -> None:
    assert found == dict.fromkeys(found, expected)


@pytest.mark.requirements("PART-5")
def test_every_reader_takes_the_zone_of_the_session(lake: Connection, location: str, in_new_york: SparkSession) -> None:
    """As delta-spark; a value that states its zone, and NULL, do not depend on it."""
    table = lake.path_table(location)
    assert_all(by_each_reader(table), [at(16), at(12), None])
    in_new_york.conf.set(ZONE, "UTC")
    assert_all(by_each_reader(table), [at(12), at(12), None])


@pytest.mark.requirements("PART-5")
def test_a_zone_that_is_given_goes_before_that_of_the_session(
    lake: Connection, location: str, in_new_york: SparkSession, tmp_path: Path
) -> None:
    """Of the call, else of path_table, else of connect."""
    table = lake.path_table(location, time_zone="Asia/Tokyo")
    assert_all(by_each_reader(table), [at(3), at(12), None])
    assert_all(by_each_reader(table, time_zone="+02:00"), [at(10), at(12), None])
    with connect(
        f"sqlite:///{tmp_path}/d.db", spark=in_new_york, time_zone=dt.timezone(dt.timedelta(hours=1))
    ) as other:
        for zone, hour in ((None, 11), ("UTC", 12)):
            opened = other.path_table(location, time_zone=zone)
            assert moments(opened.to_arrow()) == [at(hour), at(12), None]
            assert moments(opened.to_df().toArrow()) == [at(hour), at(12), None]


@pytest.mark.requirements("PART-5", "SKIP-1")
@pytest.mark.parametrize(("zone", "hour"), [(None, 16), ("Asia/Tokyo", 3)])
def test_filters_on_partitions_skip_files_in_the_same_zone(
    lake: Connection, location: str, in_new_york: SparkSession, zone: str | None, hour: int
) -> None:
    """Typed literals, literals without a zone, and the change feed."""
    table = lake.path_table(location, time_zone=zone)
    own = f"at = TIMESTAMP '2024-07-01 {hour:02d}:00:00Z'"
    assert_all(by_each_reader(table, where="at = TIMESTAMP '2024-07-01 12:00:00'"), [at(hour)])
    for where in (own, "at = '2024-07-01 12:00:00'", "at IN ('2024-07-01 12:00:00')"):
        assert moments(table.to_arrow(where=where)) == [at(hour)]
        assert table.scan(where=where).count() == 1
    assert table.to_df(where=own).count() == 1
    assert table.scan(where=own).plan().files_read == 1
    assert len(table.to_df(where=own).inputFiles()) == 1


@pytest.mark.requirements("PART-5", "STREAM-1")
@pytest.mark.exhaustive
def test_a_stream_of_spark_reads_the_same_zone(
    lake: Connection, location: str, in_new_york: SparkSession, tmp_path: Path
) -> None:
    for number, (zone, hour) in enumerate(((None, 16), ("Asia/Tokyo", 3))):
        frame = lake.path_table(location).stream(time_zone=zone, where="at = TIMESTAMP '2024-07-01 12:00:00'").to_df()
        query = frame.writeStream.format("memory").queryName(f"zones{number}")
        running = query.option("checkpointLocation", str(tmp_path / f"c{number}")).trigger(availableNow=True).start()
        assert running.awaitTermination(120)
        assert moments(in_new_york.table(f"zones{number}").toArrow()) == [at(hour)]


@pytest.mark.requirements("PART-5")
def test_without_a_session_partition_values_are_in_utc_and_literals_need_a_zone(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with connect(f"sqlite:///{tmp_path}/c.db") as lake:
        table = lake.path_table(location)
        assert moments(table.to_arrow()) == [at(12), at(12), None]
        assert moments(table.changes(starting_version=1).to_arrow()) == [at(12), at(12), None]
        for where in ("at < TIMESTAMP '2024-07-01 13:00:00'", "at < '2024-07-01'", "at IN ('2024-07-01 12:00:00')"):
            with pytest.raises(InvalidArgumentError, match=r"a time without a time zone.*the connection a time zone"):
                table.to_arrow(where=where)
        where = "at < TIMESTAMP '2024-07-01 08:30:00'"
        assert moments(table.to_arrow(where=where, time_zone="America/New_York")) == [at(12)]


def test_a_zone_that_does_not_exist_is_refused(lake: Connection, location: str) -> None:
    for call in (
        lambda: connect("sqlite://", time_zone="Mars/Base"),
        lambda: lake.path_table(location, time_zone="Mars/Base"),
        lambda: lake.path_table(location).to_arrow(time_zone="Mars/Base"),
        lambda: lake.path_table(location).to_df(time_zone=3),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgumentError, match="is not a time zone"):
            call()


@pytest.mark.requirements("PART-5")
def test_a_session_zone_that_python_does_not_know_is_refused_only_where_it_matters(
    lake: Connection, location: str, spark: SparkSession, tmp_path: Path
) -> None:
    plain = ForeignTable(tmp_path / "p", field("id", "long"), field("at", "timestamp"), partitions=["at"])
    plain.add("f.parquet", pa.table({"id": [2]}), values={"at": "2024-07-01T12:00:00.000000Z"})
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "SystemV/PST8PDT")
    try:
        table = lake.path_table(location)
        for read in (table.to_arrow, table.to_df, lambda: table.changes(starting_version=1).to_arrow()):
            with pytest.raises(InvalidArgumentError, match="time zone is 'SystemV/PST8PDT'"):
                read()
        assert moments(lake.path_table(str(plain.root)).to_arrow()) == [at(12)]
        assert moments(table.to_arrow(time_zone="UTC")) == [at(12), at(12), None]
    finally:
        spark.conf.set(ZONE, before)


@pytest.mark.requirements("TT-9")
def test_timestamps_of_a_read_are_in_the_zone_that_is_given(lake: Connection, location: str) -> None:
    table = lake.path_table(location)
    for version in range(4):
        moment = at(12).timestamp() + 3600 * version
        os.utime(f"{location}/_delta_log/{version:020d}.json", (moment, moment))
    assert table.to_arrow(timestamp="2024-07-01 17:30:00", time_zone="+03:00").num_rows == 2
    assert table.to_df(timestamp="2024-07-01 14:30:00", time_zone="+01:00").count() == 1
    assert lake.path_table(location, time_zone="UTC").snapshot(timestamp="2024-07-01 12:30:00").version == 0


@pytest.mark.requirements("PROT-4")
def test_an_older_version_is_opened_although_the_latest_one_is_refused(lake: Connection, tmp_path: Path) -> None:
    """By path_table, which opens no version."""
    table = ForeignTable(tmp_path / "t", field("id", "long"))
    table.add("f.parquet", pa.table({"id": [1]}))
    features = {"readerFeatures": ["unknown"], "writerFeatures": ["unknown"]}
    table.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    opened = lake.path_table(str(table.root))
    for read in (opened.to_arrow, opened.to_df):
        with pytest.raises(UnsupportedFeatureError, match="unknown"):
            read()
    assert opened.to_arrow(version=1)["id"].to_pylist() == [1]
    assert opened.to_df(version=1).count() == 1
    assert len(opened.history()) == 3


@pytest.mark.requirements("PROT-4")
def test_changes_before_a_refused_version_and_a_registered_name_are_read(lake: Connection, tmp_path: Path) -> None:
    """What ends before the version needs only older ones."""
    properties = {"delta.enableChangeDataFeed": "true"}
    table = ForeignTable(tmp_path / "t", field("id", "long"), writer_features=["changeDataFeed"], properties=properties)
    table.add("f.parquet", pa.table({"id": [1]}))
    features = {"readerFeatures": ["unknown"], "writerFeatures": ["unknown", "changeDataFeed"]}
    table.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    opened = lake.path_table(str(table.root))
    end = opened.snapshot(version=1).timestamp_ms
    ends: list[dict[str, Any]] = [{"ending_version": 1}, {"ending_timestamp": end}]
    for given in ends:
        assert opened.changes(starting_version=0, **given).to_arrow()["id"].to_pylist() == [1]
    assert [row.id for row in opened.changes(starting_version=0, ending_version=1).to_df().collect()] == [1]
    refused: list[dict[str, Any]] = [{}, {"ending_version": 2}, {"ending_version": 3}]
    for given in refused:
        with pytest.raises(UnsupportedFeatureError, match="unknown"):
            opened.changes(starting_version=0, **given).to_arrow()
    lake.client.registry.register_path(TableIdentifier.parse("main.ext.t"), f"file://{table.root}")
    assert lake.sql("SELECT id FROM main.ext.t VERSION AS OF 1").first() == (1,)
    assert lake.sql("DESCRIBE HISTORY main.ext.t").count() == 3
    with pytest.raises(UnsupportedFeatureError, match="unknown"):
        lake.sql("SELECT id FROM main.ext.t")


@pytest.mark.requirements("PART-5")
def test_a_registered_name_is_read_in_the_zone_of_the_connection(
    location: str, in_new_york: SparkSession, tmp_path: Path
) -> None:
    """By lake.sql and by DuckDB, as by path_table."""
    for zone, hour in (("Asia/Tokyo", 3), (None, 16)):
        with connect(f"sqlite:///{tmp_path}/{hour}.db", spark=in_new_york, time_zone=zone) as lake:
            lake.onboarding.register(location, "main.ext.t")
            assert moments(lake.path_table("main.ext.t").to_arrow()) == [at(hour), at(12), None]
            assert moments(lake.sql("SELECT * FROM main.ext.t").toArrow()) == [at(hour), at(12), None]
            found = lake.duckdb().sql('SELECT id, epoch_ms("at") FROM main.ext.t ORDER BY id').fetchall()
            assert found == [(1, int(at(hour).timestamp() * 1000)), (2, int(at(12).timestamp() * 1000)), (3, None)]


@pytest.mark.requirements("PART-5")
def test_a_delete_by_a_partition_value_follows_the_zone(
    lake: Connection, in_new_york: SparkSession, tmp_path: Path
) -> None:
    """A condition without a zone, and a value that states one."""
    frame = in_new_york.sql("SELECT 1L AS id, TIMESTAMP '2024-07-01 12:00:00' AS at")
    table = lake.create_table_as("main.test.times", frame, partition_by=["at"])
    assert moments(table.to_arrow(time_zone="Asia/Tokyo")) == [at(16)]
    table.delete("at = TIMESTAMP '2024-07-01 12:00:00'")
    assert table.scan().count() == 0


@pytest.mark.parametrize(
    "where",
    [
        "at + interval 0 hours >= '2024-07-01 12:00:00'",
        "coalesce(at, at) >= '2024-07-01 12:00:00'",
        "id > 0 AND hour(at) >= 12",
        lambda: F.expr("at >= '2024-07-01 12:00:00'"),
        raw_sql("at >= '2024-07-01 12:00:00'"),
    ],
    ids=["interval", "function", "hour", "column", "raw"],
)
def test_a_condition_that_spark_would_evaluate_in_another_zone_is_refused(
    tmp_path: Path, spark: SparkSession, where: Any
) -> None:
    """Also where it would delete rows: one condition has one time zone."""
    where = where() if callable(where) else where
    with connect(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w"), spark=spark, time_zone="America/Los_Angeles"
    ) as lake:
        rows = spark.range(24).selectExpr("id", "timestamp '2024-07-01 00:00:00Z' + make_interval(0,0,0,0,id) AS at")
        table = lake.create_table_as("main.sales.hours", rows)
        for act in (
            lambda: table.to_df(where=where),
            lambda: table.delete(where),
            lambda: table.overwrite(rows, where=where),
            lambda: table.upsert(rows, on=["id"], where=where),
        ):
            with pytest.raises(InvalidArgumentError, match=r"spark\.sql\.session\.timeZone"):
                act()
        assert table.version() == 0
        understood = table.to_df(where="at >= '2024-07-01 12:00:00'")
        assert sorted(row.id for row in understood.collect()) == [*range(19, 24)]
