"""Clones with rows: read and written through Spark and Arrow."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.errors import InvalidArgumentError
from tests.support.foreign import ForeignTable, field

ROWS = [(1, "a b"), (2, "50%"), (3, None)]


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    warehouse = f"{tmp_path}/ware house"
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse, spark=spark) as connection:
        connection.maintenance.set_policy("main", "data_cleanup")
        connection.maintenance.set_policy("main", "data_reorganization")
        yield connection


@pytest.fixture
def source(lake: Connection, spark: SparkSession) -> DeltaTable:
    return lake.create_table_as("main.a.t", spark.createDataFrame(ROWS, "id long, p string"), partition_by=["p"])


def by_spark(table: DeltaTable) -> list[tuple[int, str | None]]:
    return sorted((row.id, row.p) for row in table.to_df().collect())


def by_arrow(table: DeltaTable) -> list[tuple[int, str | None]]:
    return sorted((row["id"], row["p"]) for row in table.to_arrow().to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.exhaustive)])
def test_a_shallow_clone_is_read_written_and_maintained(
    lake: Connection, source: DeltaTable, spark: SparkSession, vectors: str
) -> None:
    """With deletion vectors, and by rewriting the files of the source."""
    lake.onboarding.clone(source, "main.a.c", properties={"delta.enableDeletionVectors": vectors})
    copy = lake.table("main.a.c")
    assert by_spark(copy) == by_arrow(copy) == ROWS
    assert by_spark(copy) == sorted((row.id, row.p) for row in copy.to_df(where="id < 9").collect())
    copy.append(spark.createDataFrame([(4, "a b"), (5, "a b")], "id long, p string"))
    copy.delete("id = 4")
    copy.upsert(spark.createDataFrame([(1, "a b"), (6, "x")], "id long, p string"), on="id")
    copy.optimize()
    copy.vacuum(timedelta(0), force=True)
    expected = [(1, "a b"), (2, "50%"), (3, None), (5, "a b"), (6, "x")]
    assert by_spark(copy) == by_arrow(copy) == expected
    source.vacuum(timedelta(0), force=True)
    assert by_spark(source) == by_arrow(source) == ROWS
    source.overwrite(spark.createDataFrame([(9, "z")], "id long, p string"))
    source.vacuum(timedelta(0), force=True)
    assert by_spark(copy) == by_arrow(copy) == expected
    copy.restore(version=0)
    assert by_arrow(copy) == ROWS


@pytest.mark.slow
def test_a_deep_clone_does_not_need_its_source(lake: Connection, source: DeltaTable) -> None:
    result = source.clone("main.a.c", mode="deep")
    assert result.num_copied_files == result.num_files == 3
    for file in Path(source.location.removeprefix("file://")).rglob("*.parquet"):
        file.unlink()
    copy = lake.table("main.a.c")
    assert by_spark(copy) == by_arrow(copy) == ROWS
    with pytest.raises(InvalidArgumentError, match="one of shallow, deep"):
        source.clone("main.a.d", mode="flat")


def test_a_foreign_table_is_cloned_by_its_path(lake: Connection, tmp_path: Path) -> None:
    foreign = ForeignTable(tmp_path / "for eign", field("id", "long"), field("p", "string"))
    foreign.add("a b.parquet", pa.table({"id": [1, 2], "p": ["a", None]}))
    path = f"{tmp_path}/for eign"
    for number, source in enumerate((path, f"delta.`{path}`", lake.path_table(path))):
        result = lake.onboarding.clone(source, f"main.a.c{number}")
        assert result.warning is not None and result.num_copied_files == 0
        copy = lake.table(f"main.a.c{number}")
        assert by_spark(copy) == by_arrow(copy) == [(1, "a"), (2, None)]
