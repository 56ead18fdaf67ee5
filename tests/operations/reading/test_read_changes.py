"""Change data feed through Spark: the answers of the reader without a JVM."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import CmDeltaError, EngineError, InvalidArgumentError
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_changes_arrow
from cm_delta_dagster.spark.session.errors import mapped
from tests.support.changes_of import path_table, write
from tests.support.foreign import ForeignTable, field
from tests.support.golden_tables import unpack_golden_tables


def canonical(rows: pa.Table) -> list[str]:
    utc = pa.timestamp("us", "UTC")
    moments = [position for position, field in enumerate(rows.schema) if pa.types.is_timestamp(field.type)]
    for position in moments:
        rows = rows.set_column(position, rows.schema.names[position], rows.column(position).cast(utc))
    return sorted(map(repr, rows.to_pylist()))


def long_history(path: Path, appends: int) -> None:
    """One file a version, then an update, a deletion and a removal of all files: every file is met twice or more."""
    for number in range(appends):
        write(path, pa.table({"k": [number], "p": [f"a {number % 3}%"], "v": ["x"]}), mode="append", partition_by=["p"])
    table = deltalake.DeltaTable(str(path))
    table.update(updates={"v": "'y'"}, predicate="k = 2")
    table.delete("k = 3")
    table.delete()


@pytest.mark.requirements("CDF-5", "CDF-6", "CDF-7")
@pytest.mark.parametrize("appends", [3, 20])
def test_spark_gives_the_changes_that_arrow_gives(tmp_path: Path, spark: SparkSession, appends: int) -> None:
    """In one scan for each part, and in few scans that find the version by the file."""
    long_history(tmp_path / "t", appends)
    table = path_table(tmp_path / "t")
    queries: list[dict[str, Any]] = [
        {},
        {"where": "p = 'a 2%' and _commit_version > 1", "columns": ["_commit_version", "k"]},
        {"where": "_change_type <> 'insert' or k = 1"},
    ]
    for query in queries:
        frame = read_changes(open_changes(table, ChangeRange(starting_version=0), **query), spark=spark)
        expected = read_changes_arrow(open_changes(table, ChangeRange(starting_version=0), **query))
        assert frame.columns == expected.schema.names
        assert canonical(frame.toArrow()) == canonical(expected)
        assert expected.num_rows


@pytest.mark.requirements("CDF-7")
def test_the_feed_has_the_schema_of_delta_spark(tmp_path: Path, spark: SparkSession) -> None:
    long_history(tmp_path / "t", 1)
    table = path_table(tmp_path / "t")
    for version in (0, 1):  # With and without files.
        frame = read_changes(
            open_changes(table, ChangeRange(starting_version=version, ending_version=version)), spark=spark
        )
        fields = [(item.name, item.dataType.simpleString(), item.nullable) for item in frame.schema.fields]
        assert fields[-3:] == [
            ("_change_type", "string", True),
            ("_commit_version", "bigint", True),
            ("_commit_timestamp", "timestamp", True),
        ]


@pytest.mark.requirements("CDF-6", "COLMAP-15")
@pytest.mark.parametrize("name", ["krs-data/cdf-table-with-cdc-and-dvs", "spark44/cdf_cm_id_dv"])
def test_deletion_vectors_and_ids_of_columns_in_a_long_history(tmp_path: Path, spark: SparkSession, name: str) -> None:
    unpack_golden_tables(tmp_path, lambda path: path.startswith(f"{name}/delta/"))
    table = path_table(tmp_path / name / "delta")
    expected = read_changes_arrow(open_changes(table, ChangeRange(starting_version=0)))
    assert canonical(
        read_changes(open_changes(table, ChangeRange(starting_version=0)), spark=spark).toArrow()
    ) == canonical(expected)


def test_what_spark_refuses_is_an_error_of_ours(tmp_path: Path, spark: SparkSession) -> None:
    long_history(tmp_path / "t", 1)
    with pytest.raises(InvalidArgumentError, match="nope"):
        read_changes(
            open_changes(path_table(tmp_path / "t"), ChangeRange(starting_version=0), where="nope = 1"), spark=spark
        )
    with pytest.raises(CmDeltaError, match="before they begin"):
        read_changes(
            open_changes(path_table(tmp_path / "t"), ChangeRange(starting_version=1, ending_version=0)), spark=spark
        )


@pytest.mark.requirements("CDF-4")
def test_a_change_file_with_an_unknown_kind_of_change_is_named_in_plain_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark shows the text as it is, since the rows are computed by an action of the user."""
    table = ForeignTable(
        tmp_path / "t",
        field("id", "long"),
        writer_features=["changeDataFeed"],
        properties={"delta.enableChangeDataFeed": "true"},
    )
    target = table.root / "cdc.parquet"
    pq.write_table(pa.table({"id": [1], "_change_type": ["moved"]}), target)
    table.commit(
        {"cdc": {"path": "cdc.parquet", "partitionValues": {}, "size": target.stat().st_size, "dataChange": False}}
    )
    frame = read_changes(open_changes(table.open(), ChangeRange(starting_version=1)), spark=spark)
    with pytest.raises(PySparkException, match=r"A change data file of version 1 says .* is 'moved'") as raised:
        frame.collect()
    assert "[cm-delta" not in str(raised.value)
    found = mapped(raised.value, "reading")
    assert isinstance(found, EngineError) and str(found).startswith("A change data file of version 1 says")
    assert "USER_RAISED_EXCEPTION" not in str(found) and "cm-delta" not in str(found)
