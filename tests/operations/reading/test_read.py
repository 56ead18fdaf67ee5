"""Reading tables: columns, conditions, versions."""

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError, VersionNotFoundError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan, open_scan
from cm_delta_dagster.operations.writing.write import overwrite
from tests.support.builders import TableBuilder, rows_of


@pytest.fixture
def builder(client: DeltaClient, spark: SparkSession) -> TableBuilder:
    builder = TableBuilder(client, spark, "id long, p string, v double", partition_by=["p"])
    builder.append((1, "a", 1.5), (2, "b", None))
    builder.append((3, None, float("nan")))
    return builder


@pytest.mark.requirements("SKIP-1")
def test_columns_and_conditions_are_applied(builder: TableBuilder) -> None:
    """The condition need not be about returned columns."""
    assert builder.rows(columns=["V"], where="p = 'a'") == [(1.5,)]
    assert builder.rows(columns=["id"], where="p IS NULL OR v > 1") == [(1,), (3,)]
    assert builder.rows(columns=["id"], where="length(p) = 1 AND id < 2") == [(1,)]


def test_unknown_columns_and_broken_conditions_are_named(builder: TableBuilder) -> None:
    with pytest.raises(InvalidArgumentError, match="'x'"):
        builder.rows(columns=["x"])
    with pytest.raises(InvalidArgumentError, match="x"):
        builder.rows(where="x = 1")
    with pytest.raises(InvalidArgumentError, match="nofunction"):
        builder.rows(where="nofunction(id)")


@pytest.mark.requirements("TT-1", "TT-2", "LOG-19")
def test_versions_and_times_are_read_as_they_were(builder: TableBuilder) -> None:
    second = builder.table.snapshot()
    overwrite(builder.table, frame=builder.frame((9, "z", 0.0)))
    assert [row[0] for row in builder.rows(version=1)] == [1, 2]
    assert [row[0] for row in builder.rows(timestamp_ms=second.timestamp_ms)] == [1, 2, 3]
    frame = read(SnapshotScan(snapshot=second, store=builder.table.store, columns=["id"]), spark=builder.spark)
    assert rows_of(frame) == [(1,), (2,), (3,)]
    with pytest.raises(VersionNotFoundError):
        read(open_scan(builder.table, version=99), spark=builder.spark)


def test_an_empty_table_has_its_columns(client: DeltaClient, spark: SparkSession) -> None:
    frame = read(open_scan(TableBuilder(client, spark, "id long, p date", partition_by=["p"]).table), spark=spark)
    assert (frame.columns, frame.count()) == (["id", "p"], 0)
