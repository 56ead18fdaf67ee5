"""Files of other writers with every Arrow type, through every read, with and without a condition and deleted rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.api.table.table_reads import TableReads
from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.types import schema_to_json
from tests.support.foreign import ForeignTable, field
from tests.support.stored_types import STORED_TYPES, StoredType

_WRITES_VECTORS = "delta.enableDeletionVectors = true, delta.enableChangeDataFeed = true"


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"), spark=spark) as opened:
        yield opened


def _reads(table: TableReads[Any], *, by_spark: bool) -> dict[str, Callable[[], pa.Table]]:
    """Each way to read the table; ``i`` is never negative."""
    reads: dict[str, Callable[[], pa.Table]] = {
        "arrow": table.to_arrow,
        "arrow where": lambda: table.to_arrow(where="i >= 0"),
        "polars": lambda: table.to_polars().to_arrow(),
        "polars where": lambda: table.scan().lazy().filter(pl.col("i") >= 0).collect().to_arrow(),
        "dataset where": lambda: table.scan().dataset().to_table(filter=pds.field("i") >= 0),
        "duckdb": lambda: table.scan().duckdb().to_arrow_table(),
        "duckdb where": lambda: table.scan().duckdb().filter("i >= 0").to_arrow_table(),
    }
    if by_spark:
        reads["spark where"] = lambda: table.to_df(where="i >= 0").toArrow()
    return reads


def _check(table: TableReads[Any], expected: dict[int, dict[str, Any]], *, by_spark: bool) -> None:
    for name, result in _reads(table, by_spark=by_spark).items():
        rows = {row["i"]: row for row in result().to_pylist()}
        assert rows.keys() == expected.keys(), name
        for number, row in rows.items():
            assert {column: row[column] for column in expected[number]} == expected[number], name


def _adopted(lake: Connection, root: Path, cases: list[StoredType]) -> Any:
    """A table whose only file another writer made, with a column of each case."""
    content = pa.table({"i": pa.array([0, 1, 2]), **{case.name: case.array() for case in cases}})
    schema = from_arrow_schema(pa.schema([("i", pa.int64()), *((case.name, case.plain) for case in cases)]))
    foreign = ForeignTable(root, field("i", "long"), features=["timestampNtz"])
    metadata = foreign.metadata()
    metadata["metaData"]["schemaString"] = schema_to_json(schema)
    foreign.commit(metadata)
    foreign.add("a.parquet", content, stats={"numRecords": 3})
    table = lake.onboarding.adopt(str(root), "main.s.t")
    lake.sql(f"ALTER TABLE main.s.t SET TBLPROPERTIES ({_WRITES_VECTORS})")
    return table


@pytest.mark.requirements("PQ-2", "DV-2", "CDF-2")
@pytest.mark.parametrize("by_spark", [True, False])
def test_every_stored_type_goes_through_every_read_and_small_change(
    lake: Connection, tmp_path: Path, by_spark: bool
) -> None:
    """Columns that Spark refuses in any table are read and changed without it."""
    cases = [case for case in STORED_TYPES if case.unread_by_spark is not by_spark]
    table = _adopted(lake, tmp_path / "t", cases)
    rows = {number: {case.name: case.expected[number] for case in cases} for number in range(3)}
    _check(table, rows, by_spark=by_spark)
    table.delete("i = 1")
    table.update({"i": "i + 10"}, "i = 2")
    _check(table, {0: rows[0], 12: rows[2]}, by_spark=by_spark)
    changes = table.changes(starting_version=table.version() - 1, where="i >= 1").to_arrow()
    assert sorted(zip(changes["i"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)) == [
        (1, "delete"),
        (2, "update_preimage"),
        (12, "update_postimage"),
    ]
    for change in changes.to_pylist():
        source = rows[1 if change["i"] == 1 else 2]
        assert {name: change[name] for name in source} == source


def test_what_spark_does_not_read_is_not_called_damaged(lake: Connection, tmp_path: Path) -> None:
    table = _adopted(lake, tmp_path / "t", [case for case in STORED_TYPES if case.name == "float16"])
    with pytest.raises(UnsupportedFeatureError, match="not damaged"):
        table.upsert(table.to_df(), on="i")


def test_tables_of_polars_and_deltalake_are_read_and_changed(lake: Connection, tmp_path: Path) -> None:
    """They store views."""
    path = str(tmp_path / "theirs")
    frame = pl.DataFrame(
        {
            "i": [1, 2, 3],
            "s": ["x", None, "y" * 40],
            "b": [b"x", None, b"y"],
            "l": [["a"], None, ["b", None]],
            "st": [{"p": "q", "r": ["s"]}, None, {"p": None, "r": None}],
            "a": pl.Series([["a", "b"], None, ["c", None]], dtype=pl.Array(pl.String, 2)),
        }
    )
    frame.write_delta(path)
    rows: dict[int, dict[str, Any]] = {row.pop("i"): row for row in frame.to_arrow().to_pylist()}
    _check(lake.path_table(path), rows, by_spark=False)
    assert lake.path_table(path).to_arrow(where="s = 'x'")["i"].to_pylist() == [1]

    theirs = deltalake.DeltaTable(path)
    theirs.update(predicate="i = 1", updates={"s": "'z'"})
    source = pl.DataFrame({"i": [3, 4], "s": ["m", "n"]}).to_arrow()
    merge = theirs.merge(source, "t.i = s.i", source_alias="s", target_alias="t").when_matched_update({"s": "s.s"})
    merge.when_not_matched_insert({"i": "s.i", "s": "s.s"}).execute()
    rows[1]["s"], rows[3]["s"], rows[4] = "z", "m", dict.fromkeys(rows[1]) | {"s": "n"}
    _check(lake.path_table(path), rows, by_spark=False)

    table = lake.onboarding.adopt(path, "main.s.theirs")
    lake.sql(f"ALTER TABLE main.s.theirs SET TBLPROPERTIES ({_WRITES_VECTORS})")
    table.delete("i = 2")
    del rows[2]
    _check(table, rows, by_spark=True)
    table.update({"s": "'u'"}, "i = 3")
    rows[3]["s"] = "u"
    _check(table, rows, by_spark=False)
