"""Partition values of other writers, in forms that the protocol does not have and delta-spark reads, by every reader."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.spark.read import file_index
from tests.support.cast_cases import CAST_CASES, ZONE
from tests.support.foreign import ForeignTable, field

_COLUMNS = {
    "b": ("boolean", "boolean"),
    "i": ("integer", "int"),
    "n": ("decimal(5,2)", "decimal(5,2)"),
    "d": ("date", "date"),
    "t": ("timestamp", "timestamp"),
}
"""The partition columns, each with its type in Delta and in the table of casts."""
_NUMBERS = ("cast(b AS INT) AS b", "i", "n", "unix_date(d) AS d", "unix_micros(t) AS t")


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    url, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path / "w")
    with connect(url, warehouse=warehouse, spark=spark, time_zone=ZONE) as opened:
        yield opened


def _foreign(root: Path) -> ForeignTable:
    fields = [field(name, kind) for name, (kind, _) in _COLUMNS.items()]
    return ForeignTable(root, field("row", "long"), *fields, partitions=list(_COLUMNS))


@pytest.mark.requirements("PART-3", "PART-4", "PART-5", "PART-6")
@pytest.mark.parametrize("with_file_index", [True, False])
def test_partition_values_of_other_writers_are_read_as_delta_spark_reads_them(
    lake: Connection, tmp_path: Path, spark: SparkSession, with_file_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Spark and through Arrow."""
    if not with_file_index:
        monkeypatch.setitem(file_index._indexes, spark.sparkContext._gateway, None)
    table = _foreign(tmp_path / "t")
    columns = {name: [case for case in CAST_CASES[sql].items() if case[1]] for name, (_, sql) in _COLUMNS.items()}
    expected: dict[int, dict[str, str | None]] = {}
    actions = []
    target = table.add("f.parquet", pa.table({"row": [0]}), values=dict.fromkeys(_COLUMNS), stats={"numRecords": 1})
    for row in range(1, max(map(len, columns.values())) + 1):
        cases = {name: found[row % len(found)] for name, found in columns.items()}
        expected[row] = {name: value for name, (_, value) in cases.items()}
        path = target.with_name(f"f{row}.parquet")
        pq.write_table(pa.table({"row": [row]}), path)
        values = {name: text for name, (text, _) in cases.items()}
        add = {"path": path.name, "partitionValues": values, "size": path.stat().st_size, "modificationTime": 0}
        actions.append({"add": {**add, "dataChange": True, "stats": '{"numRecords": 1}'}})
    table.commit(*actions)
    opened = lake.path_table(str(table.root))

    by_spark = opened.to_df(where="row > 0").selectExpr("row", *_NUMBERS)
    by_arrow = opened.to_arrow(where="row > 0")
    for name in ("d", "t"):
        kind = pa.int32() if name == "d" else pa.int64()
        position = by_arrow.schema.get_field_index(name)
        by_arrow = by_arrow.set_column(position, name, by_arrow[name].combine_chunks().view(kind))
    for rows in (by_spark.toArrow().to_pylist(), by_arrow.to_pylist()):
        assert len(rows) == len(expected)
        for values in rows:
            wanted = expected[values.pop("row")]
            shown = {name: str(int(value) if name in ("b", "i", "d", "t") else value) for name, value in values.items()}
            assert shown == {**wanted, "b": str(int(wanted["b"] == "true"))}


@pytest.mark.requirements("PART-4")
def test_a_value_that_delta_spark_reads_as_null_is_refused(lake: Connection, tmp_path: Path) -> None:
    """NULL would be another partition than the writer meant."""
    table = _foreign(tmp_path / "t")
    values = {**dict.fromkeys(_COLUMNS), "d": "2024-13-01"}
    table.add("f.parquet", pa.table({"row": [1]}), values=values, stats={"numRecords": 1})
    with pytest.raises(CorruptLogError, match="2024-13-01"):
        lake.path_table(str(table.root)).to_arrow()
    with pytest.raises(CorruptLogError, match="2024-13-01"):
        lake.path_table(str(table.root)).to_df()
