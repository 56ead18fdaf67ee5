"""Columns of interval types, in files that Spark wrote and a log written by hand."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, InvalidDataError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.schema.interval_types import DAY_TIME_NAMES, YEAR_MONTH_NAMES
from cm_delta_dagster.spark.session.errors import mapped as as_our_error
from tests.support.foreign import ForeignTable, array, field, mapping, struct

YEAR_MONTH, DAY_TIME = "interval year to month", "interval day to second"
NAMES = sorted(YEAR_MONTH_NAMES | DAY_TIME_NAMES)


def months(*values: int | None) -> pa.Array:
    given = [None if value is None else pa.MonthDayNano((value, 0, 0)) for value in values]
    return pa.array(given, pa.month_day_nano_interval())


def spans(*values: int | None) -> pa.Array:
    return pa.array(values, pa.duration("us"))


def spark_file(spark: SparkSession, table: ForeignTable, query: str, **extra: Any) -> Path:
    """The rows of a query in one file that Spark writes, in a commit written by hand."""
    directory = table.root / f"written{table.version}"
    spark.sql(query).coalesce(1).write.parquet(str(directory))
    (file,) = directory.glob("*.parquet")
    table.register(f"{directory.name}/{file.name}", size=file.stat().st_size, **extra)
    return file


@pytest.mark.requirements("UP-INT-1")
def test_intervals_that_spark_wrote_are_read_by_both_readers(spark: SparkSession, tmp_path: Path) -> None:
    """At the top, in structs, in lists, and as values of maps; plain INT32 and INT64 in the file."""
    table = ForeignTable(
        tmp_path,
        field("id", "long"),
        field("ym", YEAR_MONTH),
        field("dt", DAY_TIME),
        field("s", struct(field("ym", YEAR_MONTH), field("dt", DAY_TIME))),
        field("l", array(DAY_TIME)),
        field("ls", array(struct(field("ym", YEAR_MONTH)))),
        field("m", mapping("string", YEAR_MONTH)),
    )
    file = spark_file(
        spark,
        table,
        "SELECT 1L id, INTERVAL '1-2' YEAR TO MONTH ym, INTERVAL '1 00:00:00.000001' DAY TO SECOND dt, "
        "named_struct('ym', INTERVAL '-1-2' YEAR TO MONTH, 'dt', INTERVAL '-3' SECOND) s, "
        "array(INTERVAL '1' DAY, NULL) l, array(named_struct('ym', INTERVAL '5' MONTH), NULL) ls, "
        "map('a', INTERVAL '1' YEAR, 'b', NULL) m UNION ALL SELECT 2L, NULL, NULL, NULL, NULL, NULL, NULL",
    )
    physical = pq.ParquetFile(file).schema
    kinds = {physical.column(i).path: physical.column(i).physical_type for i in range(len(physical.names))}
    assert (kinds["ym"], kinds["dt"]) == ("INT32", "INT64")

    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    texts = frame.selectExpr(
        "id", "CAST(ym AS STRING)", "CAST(dt AS STRING)", "CAST(s.ym AS STRING)", "s.dt", "l", "CAST(ls[0].ym AS STRING)",
        "CAST(m['a'] AS STRING)",
    ).orderBy("id")  # fmt: skip
    assert [tuple(row) for row in texts.collect()] == [
        (1, "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1 00:00:00.000001' DAY TO SECOND",
         "INTERVAL '-1-2' YEAR TO MONTH", dt.timedelta(seconds=-3), [dt.timedelta(days=1), None],
         "INTERVAL '0-5' YEAR TO MONTH", "INTERVAL '1-0' YEAR TO MONTH"),
        (2, *[None] * 7),
    ]  # fmt: skip

    rows = read_arrow(open_scan(table.open())).sort_by("id")
    assert rows["ym"].combine_chunks().equals(months(14, None))
    assert rows["dt"].combine_chunks().equals(spans(86_400_000_001, None))
    assert rows.schema.field("s").type == pa.struct({"ym": pa.month_day_nano_interval(), "dt": pa.duration("us")})
    first = rows.slice(0, 1).to_pylist()[0]
    assert first["s"] == {"ym": pa.MonthDayNano((-14, 0, 0)), "dt": dt.timedelta(seconds=-3)}
    assert first["l"] == [dt.timedelta(days=1), None]
    assert first["ls"] == [{"ym": pa.MonthDayNano((5, 0, 0))}, None]
    assert first["m"] == [("a", pa.MonthDayNano((12, 0, 0))), ("b", None)]


@pytest.mark.requirements("UP-INT-1")
def test_narrowed_spellings_keep_their_fields_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The type text of the log is kept, and the values are those of the family."""
    table = ForeignTable(tmp_path, *(field(name.replace(" ", "_"), name) for name in NAMES))
    chosen = [
        f"CAST(INTERVAL '{'2' if name in YEAR_MONTH_NAMES else '3'}' {'YEAR' if name in YEAR_MONTH_NAMES else 'DAY'} AS {name}) "
        f"{name.replace(' ', '_')}"
        for name in NAMES
    ]
    spark_file(spark, table, f"SELECT {', '.join(chosen)}")
    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    assert frame.schema["interval_hour_to_minute"].dataType == T.DayTimeIntervalType(1, 2)
    assert frame.schema["interval_month"].dataType == T.YearMonthIntervalType(1, 1)
    same = [f"{name.replace(' ', '_')} = INTERVAL '{'2' if name in YEAR_MONTH_NAMES else '3'}' "
            f"{'YEAR' if name in YEAR_MONTH_NAMES else 'DAY'}" for name in NAMES]  # fmt: skip
    assert frame.where(" AND ".join(same)).count() == 1
    (row,) = read_arrow(open_scan(table.open())).to_pylist()
    assert row == {
        name.replace(" ", "_"): pa.MonthDayNano((24, 0, 0)) if name in YEAR_MONTH_NAMES else dt.timedelta(days=3)
        for name in NAMES
    }


@pytest.mark.requirements("UP-INT-1")
def test_a_condition_on_an_interval_leaves_out_no_file_by_its_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """Bounds in the log, which no writer should have put there, are not believed; counts of nulls are."""
    table = ForeignTable(tmp_path, field("id", "long"), field("d", DAY_TIME), field("y", YEAR_MONTH))
    false_bounds = {"d": 0, "y": 0}
    stats = {
        "numRecords": 2,
        "minValues": false_bounds,
        "maxValues": false_bounds,
        "nullCount": {"id": 0, "d": 1, "y": 1},
    }
    query = "VALUES (1L, INTERVAL '5 00:00:00' DAY TO SECOND, INTERVAL '1-0' YEAR TO MONTH), (2L, NULL, NULL) AS t(id, d, y)"
    spark_file(spark, table, f"SELECT * FROM {query}", stats=stats)
    for text in ("d = INTERVAL '5' DAY", "y > INTERVAL '11' MONTH", "d IS NOT NULL AND y IS NOT NULL"):
        assert [row.id for row in read(open_scan(table.open(), where=text), spark=spark).select("id").collect()] == [
            1
        ], text
    for text, found in (("d IS NULL", [2]), ("y IS NOT NULL", [1]), ("y <=> NULL", [2])):
        assert read_arrow(open_scan(table.open(), columns=["id"], where=text))["id"].to_pylist() == found
    for text in ("d = INTERVAL '5' DAY", "d = 5", "y IN (1)"):
        with pytest.raises(InvalidArgumentError, match="only Spark can evaluate"):
            read_arrow(open_scan(table.open(), where=text))


@pytest.mark.requirements("UP-INT-1")
def test_interval_partition_values_are_literals_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """The text that Spark's cast gives, narrowed or not; data skipping by null only."""
    table = ForeignTable(
        tmp_path,
        field("id", "long"),
        field("y", YEAR_MONTH),
        field("h", "interval hour to minute"),
        partitions=["y", "h"],
    )
    given = [("INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '26:13' HOUR TO MINUTE"), (None, ""),
             ("INTERVAL '3' MONTH", "INTERVAL '-1 02:00:00' DAY TO SECOND")]  # fmt: skip
    for number, (y, h) in enumerate(given):
        table.add(f"y={number}/h=x/f{number}.parquet", pa.table({"id": [number]}), values={"y": y, "h": h})
    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    rows = frame.selectExpr("id", "CAST(y AS STRING)", "CAST(h AS STRING)").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [
        (0, "INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '26:13' HOUR TO MINUTE"),
        (1, None, None),
        (2, "INTERVAL '0-3' YEAR TO MONTH", "INTERVAL '-26:00' HOUR TO MINUTE"),
    ]
    arrow = read_arrow(open_scan(table.open())).sort_by("id")
    assert arrow["y"].combine_chunks().equals(months(-14, None, 3))
    assert arrow["h"].combine_chunks().equals(spans(1573 * 60_000_000, None, -26 * 3_600_000_000))
    assert read_arrow(open_scan(table.open(), columns=["id"], where="y IS NULL"))["id"].to_pylist() == [1]
    assert [
        row.id
        for row in read(open_scan(table.open(), where="y = INTERVAL '3' MONTH"), spark=spark).select("id").collect()
    ] == [2]


@pytest.mark.requirements("UP-INT-1")
def test_a_partition_value_that_is_no_literal_is_refused_by_both_readers(spark: SparkSession, tmp_path: Path) -> None:
    """A plain number could mean anything."""
    table = ForeignTable(tmp_path, field("id", "long"), field("y", YEAR_MONTH), partitions=["y"])
    table.add("y=14/f.parquet", pa.table({"id": [1]}), values={"y": "14"})
    with pytest.raises(CorruptLogError, match="'14' in the log is not a value of type interval year to month"):
        read(open_scan(table.open()), spark=spark)
    with pytest.raises(CorruptLogError, match="'14' in the log is not a value of type interval year to month"):
        read_arrow(open_scan(table.open()))


@pytest.mark.requirements("SCHEMA-9", "UP-INT-1")
def test_a_null_where_an_interval_is_promised_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = ForeignTable(tmp_path, *(field(f"c{i}", name, nullable=False) for i, name in enumerate(NAMES)))
    query = ", ".join(f"CAST(NULL AS {name}) c{i}" for i, name in enumerate(NAMES))
    spark_file(spark, table, f"SELECT {query}")
    frame = read(open_scan(table.open()), spark=spark)
    assert json.loads(frame.schema.json()) == table.schema
    for i in range(len(NAMES)):
        with pytest.raises(Exception, match=f"c{i}") as raised:
            frame.select(f"c{i}").collect()
        assert isinstance(as_our_error(raised.value, "reading"), InvalidDataError)


@pytest.mark.requirements("UP-INT-1")
def test_a_number_of_the_wrong_width_is_no_interval(tmp_path: Path) -> None:
    """Months are INT32 and microseconds INT64; nothing else is guessed."""
    wrong = [(YEAR_MONTH, pa.int64()), (DAY_TIME, pa.int32()), (DAY_TIME, pa.duration("ns"))]
    for number, (kind, stored) in enumerate(wrong):
        table = ForeignTable(tmp_path / str(number), field("c", kind))
        table.add("f.parquet", pa.table({"c": pa.array([1], stored)}))
        with pytest.raises(CorruptLogError, match=f"'c' of the data file .*f.parquet .*cannot be read as {kind}"):
            read_arrow(open_scan(table.open()))


@pytest.mark.requirements("UP-INT-1")
def test_duckdb_takes_both_interval_types_as_they_are(tmp_path: Path) -> None:
    table = ForeignTable(tmp_path, field("y", YEAR_MONTH), field("d", DAY_TIME))
    table.add(
        "f.parquet", pa.table({"y": pa.array([13, None], pa.int32()), "d": pa.array([1_500_000, None], pa.int64())})
    )
    rows = read_arrow(open_scan(table.open()))
    answer = duckdb.sql("SELECT DATE '2020-01-31' + y, d FROM rows WHERE y IS NOT NULL").fetchall()
    assert answer == [(dt.datetime(2021, 2, 28), dt.timedelta(seconds=1.5))]
    assert rows.num_rows == 2
