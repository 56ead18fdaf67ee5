"""Distributing rows over files along a curve."""

import datetime
import itertools
from decimal import Decimal

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.arrow.write.curve_order import sort_key
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType
from cm_delta_dagster.protocol.statistics.curve_ranges import KeyValues, LayoutColumn, RangeBounds
from cm_delta_dagster.protocol.statistics.curves import curve_for
from cm_delta_dagster.spark.write.clustering import _kind, _range, _sort_key, along_curve
from tests.arrow.curve_values import VALUES, rows_of

COLUMNS: dict[str, tuple[str, DataType]] = {
    "a": ("int", PrimitiveType("integer")),
    "s": ("string", PrimitiveType("string")),
    "d": ("double", PrimitiveType("double")),
    "m": ("decimal(10,2)", DecimalType(10, 2)),
    "e": ("date", PrimitiveType("date")),
    "t": ("timestamp", PrimitiveType("timestamp")),
}
NUMBERS = [1.5, float("nan"), float("inf"), -float("inf"), None]


def _row(number: int) -> tuple[object, ...]:
    return (
        number,
        ["b", "a", "é", None, "zz"][number % 5],
        NUMBERS[number % 5],
        Decimal(number) / 10,
        datetime.date(2020, 1, 1 + number % 28),
        datetime.datetime(2020, 1, 1, number % 24, tzinfo=datetime.UTC),
    )


def _tasks(session: SparkSession, names: list[str], num_files: int) -> list[list[Row]]:
    ddl = ", ".join(f"`{name}` {kind}" for name, (kind, _) in COLUMNS.items())
    rows = [(None,) * 6, *map(_row, range(60))]
    frame = session.createDataFrame(rows, ddl).repartition(3)
    columns = [LayoutColumn(path=(name,), type=COLUMNS[name][1]) for name in names]
    curve = curve_for(len(columns), hilbert=len(columns) <= 4)
    spread = along_curve(frame, columns, curve, num_files=num_files, num_rows=len(rows))
    assert spread.columns == frame.columns
    found = spread.select("*", F.spark_partition_id().alias("task")).collect()
    assert sorted(str(row[:6]) for row in found) == sorted(str(Row(*row)[:6]) for row in frame.collect())
    return [[row for row in found if row.task == task] for task in range(num_files)]


def test_one_column_gives_consecutive_ranges_of_equal_size(spark: SparkSession) -> None:
    tasks = _tasks(spark, ["a"], 4)
    bounds = [[-1 if row.a is None else row.a for row in rows] for rows in tasks]
    assert all(rows == sorted(rows) for rows in bounds)
    assert all(12 <= len(rows) <= 18 for rows in bounds)
    assert sorted(value for rows in bounds for value in rows) == [-1, *range(60)]
    ordered = sorted(bounds)
    assert all(before[-1] < after[0] for before, after in itertools.pairwise(ordered))


def test_columns_of_all_types_together_keep_every_row(spark: SparkSession) -> None:
    """NULL, NaN and infinite values have a place too."""
    tasks = _tasks(spark, list(COLUMNS), 5)
    assert sum(map(len, tasks)) == 61
    assert all(6 <= len(rows) <= 18 for rows in tasks)


@pytest.mark.requirements("OPT-5", "CLUST-5")
def test_spark_and_arrow_have_the_same_ranges(spark: SparkSession) -> None:
    """For every type, from the same sample."""
    rows = rows_of(300)
    columns = [LayoutColumn(path=(name,), type=data_type) for name, (data_type, _) in VALUES.items()]
    keys = [KeyValues.of(sort_key(rows, column)) for column in columns]
    bounds = [RangeBounds.of(values, 16) for values in keys]
    expected = [ends.ranges(values).tolist() for ends, values in zip(bounds, keys, strict=True)]
    frame = spark.createDataFrame(rows)
    ranges = [
        _range(_sort_key(column), ends, _kind(column)).alias(column.path[0])
        for column, ends in zip(columns, bounds, strict=True)
    ]
    ordered = frame.select("n", *ranges).toArrow()
    by_number = {row["n"]: row for row in ordered.to_pylist()}
    numbers = rows["n"].to_pylist()
    for column, of_column in zip(columns, expected, strict=True):
        assert [by_number[number][column.path[0]] for number in numbers] == of_column, column.path
        assert len(set(of_column)) > 2, column.path


@pytest.mark.slow
def test_equal_values_fill_several_files(spark: SparkSession) -> None:
    frame = spark.range(400).select(F.lit("same").alias("s"))
    columns = [LayoutColumn(path=("s",), type=PrimitiveType("string"))]
    spread = along_curve(frame, columns, curve_for(1, hilbert=True), num_files=4, num_rows=400)
    counts = spread.groupBy(F.spark_partition_id()).count().collect()
    assert len(counts) == 4
