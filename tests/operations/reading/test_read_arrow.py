"""Reading tables as Arrow: without a JVM, and with the answers of Spark."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import PathTable, open_path_table
from cm_delta_dagster.errors import InvalidArgumentError, ObjectNotFoundError, VersionNotFoundError
from cm_delta_dagster.operations.reading.read_arrow import read_arrow, read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.predicates.predicates import (
    Comparison,
    ComparisonOperator,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from cm_delta_dagster.storage.stores import Stores
from tests.support.builders import TableBuilder


@pytest.fixture
def table(tmp_path: Path) -> PathTable:
    """Three versions of a partitioned table of another writer."""
    for start in (0, 100, 200):
        ids = list(range(start, start + 100))
        rows = pa.table({"id": ids, "p": [str(number % 3) for number in ids], "x": [number / 2 for number in ids]})
        write_deltalake(tmp_path / "t", rows, partition_by=["p"], mode="append")
    return open_path_table(Stores(), str(tmp_path / "t"))


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.requirements("TT-1")
def test_a_table_of_another_writer_is_read_as_that_writer_reads_it(table: PathTable, tmp_path: Path) -> None:
    """The latest version, and each one before."""
    for version in (None, 0, 1, 2):
        theirs = DeltaTable(tmp_path / "t", version=version).to_pyarrow_table()
        assert _sorted(read_arrow(open_scan(table, version=version))) == _sorted(theirs)
    with pytest.raises(VersionNotFoundError):
        read_arrow(open_scan(table, version=3))
    with pytest.raises(InvalidArgumentError, match="True"):
        read_arrow(open_scan(table, version=True))


@pytest.mark.requirements("SKIP-1")
def test_columns_and_conditions_are_applied(table: PathTable) -> None:
    """The condition need not be about returned columns."""
    found = read_arrow(open_scan(table, columns=["X", "p"], where="id BETWEEN 10 AND 12 AND p <> '1'"))
    assert _sorted(found) == [{"x": 5.5, "p": "2"}, {"x": 6.0, "p": "0"}]
    assert read_arrow(open_scan(table, columns=["id"], where="p = '1' OR x > 149")).num_rows == 101


def test_what_arrow_cannot_evaluate_is_refused_with_the_name_of_the_table(table: PathTable) -> None:
    with pytest.raises(InvalidArgumentError, match=r"upper\(p\)") as caught:
        read_arrow(open_scan(table, where="upper(p) = 'A'"))
    assert str(table.identifier) in str(caught.value)


@pytest.mark.requirements("ROWTRK-16")
def test_row_ids_of_a_table_without_them_are_refused(table: PathTable) -> None:
    with pytest.raises(InvalidArgumentError, match="rowTracking"):
        read_arrow(open_scan(table, columns=["id", "_row_id"]))


def test_a_missing_file_is_an_error_of_the_stream_too(table: PathTable, tmp_path: Path) -> None:
    lost = next(path for path in sorted((tmp_path / "t").rglob("*.parquet")))
    lost.unlink()
    with pytest.raises(ObjectNotFoundError, match=lost.name):
        read_arrow(open_scan(table))
    stream = read_batches(open_scan(table))
    with pytest.raises(ObjectNotFoundError, match=rf"{table.identifier} version 2: .*{lost.name}"):
        stream.read_all()


def test_polars_takes_the_result_as_it_is(table: PathTable) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(read_arrow(open_scan(table)))
    assert (frame.shape, frame["id"].sum()) == ((300, 3), sum(range(300)))
    assert polars.DataFrame(read_batches(open_scan(table))).shape == (300, 3)


def test_duckdb_takes_the_result_as_it_is(table: PathTable) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = read_arrow(open_scan(table))
    stream = read_batches(open_scan(table, columns=["id"]))
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.register("stream", stream)
        assert connection.execute("SELECT count(*), sum(id) FROM rows WHERE p = '1'").fetchone() == (100, 14950)
        assert connection.execute("SELECT max(id) FROM stream").fetchone() == (299,)


def test_nothing_of_spark_is_imported(table: PathTable, tmp_path: Path) -> None:
    """A sensor or a notebook without Java reads all the same."""
    code = f"""
import sys
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.storage.stores import Stores
assert read_arrow(open_scan(open_path_table(Stores(), {str(tmp_path / "t")!r}), where="id < 5")).num_rows == 5
loaded = [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j", "dagster")]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def builder(client: DeltaClient, spark: SparkSession) -> Iterator[TableBuilder]:
    columns = "id long, p string, v double, d decimal(10,2), t timestamp, s struct<a:int,b:string>, c string"
    builder = TableBuilder(
        client, spark, columns, partition_by=["p"], properties={"delta.enableDeletionVectors": "true"}
    )
    spark_rows = spark.range(40).selectExpr(
        "id",
        "CASE id % 4 WHEN 0 THEN NULL ELSE concat('p ', id % 4) END AS p",
        "CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0D ELSE id / 3 END AS v",
        "cast(id * 1.25 - 10 AS decimal(10,2)) AS d",
        "timestamp_micros(1577836800000000 + id * 1000001) AS t",
        "CASE id % 6 WHEN 0 THEN NULL ELSE named_struct('a', cast(id AS int), 'b', concat('x', id)) END AS s",
        "CASE id % 7 WHEN 0 THEN NULL ELSE chr(cast(60 + id AS int)) END AS c",
    )
    append(builder.table, frame=spark_rows.coalesce(2))
    delete(builder.table, spark=spark, where="id IN (3, 4, 17)")
    yield builder


_CONDITIONS: tuple[Predicate | str | None, ...] = (
    None,
    "p IS NULL",
    "p = 'p 1' AND v > 1",
    "v > 5",
    "v <= 5",
    Comparison("v", ComparisonOperator.EQ, float("nan")),
    Not(Comparison("v", ComparisonOperator.LT, float("nan"))),
    "v <=> NULL",
    "NOT (v < 5)",
    "v = 0",
    "d >= 3.75 AND d < 20",
    "d = 15",
    "t >= TIMESTAMP '2020-01-01 00:00:10+00:00'",
    "s.a > 20",
    Or((IsNull("s"), StartsWith("s.b", "x3"))),
    "s.b <> 'x5'",
    "c IN ('A', 'B', NULL)",
    "NOT c IN ('A', 'B')",
    "c >= 'S' OR id = 1",
    "id NOT IN (1, 2, 3) AND p <> 'p 2'",
)


@pytest.mark.requirements("SKIP-1", "DV-4", "PART-1")
def test_spark_and_arrow_give_the_same_rows(builder: TableBuilder) -> None:
    """For conditions of every sort, on a table with deletion vectors and partitions."""
    for condition in _CONDITIONS:
        ours = read_arrow(open_scan(builder.table, where=condition))
        theirs = builder.table_frame(where=condition).toArrow()
        # As text, in which NaN is like NaN and -0.0 is not like 0.0.
        assert repr(_sorted(ours)) == repr(_sorted(theirs.cast(ours.schema))), condition
        assert ours.num_rows < 38
