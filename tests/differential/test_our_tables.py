"""What we write, read by deltalake and delta-spark: equal rows at every version."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.differential.peers import DeltaSpark, readable_copy

ROWS: list[tuple[Any, ...]] = [
    (1, "a b", decimal.Decimal("12.30"), datetime.date(2013, 1, 1), datetime.datetime(2013, 1, 1, 5, 0, 0, 123456), 1.5),
    (2, "50%", decimal.Decimal("-0.01"), datetime.date(1500, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59), float("nan")),
    (3, "x/y", None, None, None, None),
    (4, "ü+k=v#1", decimal.Decimal("0.00"), datetime.date(9999, 12, 31), datetime.datetime(2038, 1, 19, 3, 14, 8), -0.0),
    (5, None, decimal.Decimal("99999999.99"), datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3), 1e300),
]
SCHEMA = "id long, p string, amount decimal(10,2), day date, at timestamp, x double"


@pytest.fixture
def copy(tmp_path: Path, spark: SparkSession) -> tuple[Path, list[list[Any]]]:
    """A table of five versions and the rows that each had when it was the latest."""
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse", spark=spark) as connection:
        frame = spark.createDataFrame(ROWS, SCHEMA)
        table = connection.create_table("main.test.t", frame.schema, partition_by=["p"])
        expected = [[]]

        def remember() -> None:
            rows = table.to_df().selectExpr(*[f"cast({name} as string)" for name in frame.columns]).collect()
            expected.append(sorted((tuple(row) for row in rows), key=str))

        table.append(frame.limit(3))
        remember()
        table.overwrite(frame)
        remember()
        table.merge(spark.createDataFrame([(2, "50%", None, None, None, 7.0), (6, "new", None, None, None, None)], SCHEMA), on=["id"])
        remember()
        table.overwrite(frame.where("p = 'a b'"), where="p = 'a b'")
        remember()
        location = table.snapshot().location
    return readable_copy(location, tmp_path / "copy"), expected


@pytest.mark.peers
def test_delta_spark_reads_every_version(copy: tuple[Path, list[list[Any]]], delta_spark: DeltaSpark) -> None:
    """LOG-1, PATH-4, PART-3, PART-5, DML-7."""
    location, expected = copy
    columns = "id, p, amount, day, at, x"
    for version in range(1, len(expected)):
        rows = delta_spark.sql(f"select {columns} from delta.`{location}` version as of {version}")
        assert sorted((tuple(row.values()) for row in rows), key=str) == expected[version]


def test_deltalake_reads_every_version(copy: tuple[Path, list[list[Any]]]) -> None:
    """LOG-1, PATH-4, STATS-1."""
    location, expected = copy
    for version in range(1, len(expected)):
        table = deltalake.DeltaTable(str(location), version=version).to_pyarrow_table(columns=["id", "p"])
        rows = [(str(row["id"]), row["p"]) for row in table.to_pylist()]
        assert sorted(rows, key=str) == sorted(((row[0], row[1]) for row in expected[version]), key=str)
