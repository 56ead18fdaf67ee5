"""Reading tables with column mapping through Spark, of any writer."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from tests.support.builders import rows_of
from tests.support.foreign import ForeignTable, array, mapped, mapping, struct, with_id


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def as_json(frame: DataFrame) -> dict[str, Any]:
    return json.loads(frame.schema.json())


def nested_table(root: Path, mode: str) -> ForeignTable:
    """Columns in structs, lists of structs, and maps of structs to structs."""
    return ForeignTable(
        root,
        mapped("Id", "long", 1, "c1", comment="the key"),
        mapped(
            "place",
            struct(mapped("City", "string", 3, "c3", comment="inner"), mapped("Zip", "integer", 4, "c4")),
            2,
            "c2",
        ),
        mapped("tags", array(struct(mapped("Name", "string", 6, "c6"), mapped("Rank", "long", 7, "c7"))), 5, "c5"),
        mapped(
            "book", mapping(struct(mapped("K", "string", 9, "c9")), struct(mapped("V", "long", 10, "c10"))), 8, "c8"
        ),
        mapped("Day", "date", 11, "c11"),
        partitions=["Day"],
        features=["columnMapping"],
        properties={"delta.columnMapping.mode": mode},
    )


def nested_file(names: dict[int, str]) -> pa.Table:
    """One row whose columns have the ids of :func:`nested_table` and the given names."""
    place = pa.struct([with_id(names[4], pa.int32(), 4), with_id(names[3], pa.string(), 3)])
    tag = pa.struct([with_id(names[6], pa.string(), 6), with_id(names[7], pa.int64(), 7)])
    book = pa.map_(pa.struct([with_id(names[9], pa.string(), 9)]), pa.struct([with_id(names[10], pa.int64(), 10)]))
    schema = pa.schema(
        [
            with_id(names[5], pa.list_(tag), 5),
            with_id(names[8], book, 8),
            with_id(names[1], pa.int64(), 1),
            with_id(names[2], place, 2),
        ]
    )
    return pa.table(
        {
            names[5]: [[{names[6]: "x", names[7]: 1}, None, {names[6]: None, names[7]: 2}]],
            names[8]: [[({names[9]: "k"}, {names[10]: 5})]],
            names[1]: [7],
            names[2]: [{names[4]: 10, names[3]: "Bonn"}],
        },
        schema=schema,
    )


PHYSICAL = {number: f"c{number}" for number in range(1, 12)}
ROW = (7, ("Bonn", 10), [("x", 1), None, (None, 2)], {("k",): (5,)}, dt.date(2020, 1, 1))


@pytest.mark.requirements("COLMAP-name-1", "COLMAP-id-1", "COLMAP-id-2", "COLMAP-9")
@pytest.mark.parametrize("mode", ["name", "id"])
def test_every_nesting_level_comes_under_its_logical_name(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """With the schema of the table to the letter."""
    table = nested_table(tmp_path, mode)
    table.add("ab/f.parquet", nested_file(PHYSICAL), values={"c11": "2020-01-01"})
    table.add("c11=2021-01-01/f.parquet", nested_file(PHYSICAL), values={"c11": "2021-01-01"})
    frame = read(open_scan(table.open()), spark=spark)
    assert as_json(frame) == table.schema
    assert [tuple(row) for row in frame.orderBy("Day").collect()] == [ROW, (*ROW[:-1], dt.date(2021, 1, 1))]
    assert rows_of(
        read(open_scan(table.open(), where="place.city = 'Bonn' AND day > '2020-06-01'", columns=["id"]), spark=spark)
    )
    assert not rows_of(read(open_scan(table.open(), where="place.zip = 11"), spark=spark))


@pytest.mark.requirements("COLMAP-id-1")
def test_files_of_one_table_may_call_a_column_differently_in_id_mode(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever names the file uses, also that of another column; conditions are not led astray."""
    table = nested_table(tmp_path, "id")
    table.add("a.parquet", nested_file(PHYSICAL), values={"c11": "2020-01-01"})
    misleading = {**PHYSICAL, 1: "c2", 2: "c1", 3: "c4", 4: "c3", 6: "Rank", 7: "Name", 5: "c11"}
    table.add("b.parquet", nested_file(misleading), values={"c11": "2020-01-01"})
    assert [tuple(row) for row in read(open_scan(table.open()), spark=spark).collect()] == [ROW, ROW]
    assert (
        len(rows_of(read(open_scan(table.open(), where="id = 7 AND place.zip = 10", columns=["id"]), spark=spark))) == 2
    )
    assert read(open_scan(table.open()), spark=spark).where("place.City = 'Bonn' AND Id < 8").count() == 2


@pytest.mark.requirements("COLMAP-id-4", "COLMAP-name-2", "COLMAP-12")
def test_an_absent_id_or_physical_name_is_null(spark: SparkSession, tmp_path: Path) -> None:
    """Even where the file has a column of the display name."""
    for mode in ("id", "name"):
        table = ForeignTable(
            tmp_path / mode,
            mapped("a", "long", 1, "c1"),
            mapped("s", struct(mapped("old", "long", 3, "c3"), mapped("late", "string", 9, "c9")), 2, "c2"),
            mapped("b", "long", 4, "c4"),
            features=["columnMapping"],
            properties={"delta.columnMapping.mode": mode},
        )
        inner = pa.struct([with_id("c3", pa.int64(), 3), with_id("late", pa.string(), 77)])
        schema = pa.schema([with_id("c1", pa.int64(), 1), with_id("b", pa.int64(), 78), with_id("c2", inner, 2)])
        content = pa.table({"c1": [1], "b": [5], "c2": [{"c3": 2, "late": "no"}]}, schema=schema)
        table.add("f.parquet", content)
        assert rows_of(read(open_scan(table.open()), spark=spark)) == [(1, (2, None), None)]
        assert rows_of(
            read(open_scan(table.open(), where="b IS NULL AND s.late IS NULL", columns=["a"]), spark=spark)
        ) == [(1,)]


@pytest.mark.requirements("DV-5")
@pytest.mark.parametrize("mode", ["name", "id"])
def test_deleted_rows_and_conditions_on_renamed_fields_go_together(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """Positions count all rows, whatever condition has reached the file."""
    table = ForeignTable(
        tmp_path,
        mapped("a", "long", 1, "c1"),
        mapped("s", struct(mapped("x", "long", 3, "c3")), 2, "c2"),
        mapped("absent", "long", 4, "c4"),
        features=["columnMapping", "deletionVectors"],
        properties={"delta.columnMapping.mode": mode},
    )
    inner = pa.struct([with_id("c3", pa.int64(), 3)])
    schema = pa.schema([with_id("c1", pa.int64(), 1), with_id("c2", inner, 2)])
    content = pa.table({"c1": list(range(100)), "c2": [{"c3": n} for n in range(100)]}, schema=schema)
    vector = encode_inline([3, 50, 99])
    stored = {
        "storageType": "i",
        "pathOrInlineDv": vector.path_or_inline_dv,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    table.add("f.parquet", content, deletionVector=stored)
    frame = read(
        open_scan(table.open(), where="s.x >= 48 AND s.x < 52 OR s.x = 99", columns=["s", "a", "absent"]), spark=spark
    )
    assert rows_of(frame) == [((n,), n, None) for n in (48, 49, 51)]


@pytest.mark.requirements("COLMAP-id-3")
def test_a_file_without_field_ids_is_refused_in_id_mode(spark: SparkSession, tmp_path: Path) -> None:
    """By name, before any row; so is one that gives an id twice."""
    for content, said in (
        (pa.table({"c1": [1]}), "no field ids"),
        (
            pa.table([[1], [2]], schema=pa.schema([with_id("x", pa.int64(), 1), with_id("y", pa.int64(), 1)])),
            "to two columns",
        ),
    ):
        table = ForeignTable(
            tmp_path / said,
            mapped("a", "long", 1, "c1"),
            features=["columnMapping"],
            properties={"delta.columnMapping.mode": "id"},
        )
        table.add("bad.parquet", content)
        with pytest.raises(CorruptLogError, match=said) as raised:
            read(open_scan(table.open()), spark=spark)
        assert "bad.parquet" in str(raised.value) and f"{table.root} version 1" in str(raised.value)


@pytest.mark.requirements("COLMAP-none-1", "COLMAP-2")
def test_mapping_metadata_without_the_feature_means_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Display names count."""
    table = ForeignTable(tmp_path, mapped("a", "long", 1, "c1"), properties={"delta.columnMapping.mode": "name"})
    table.add("f.parquet", pa.table({"a": [1], "c1": [2]}))
    frame = read(open_scan(table.open()), spark=spark)
    assert (rows_of(frame), as_json(frame)) == ([(1,)], table.schema)


@pytest.mark.requirements("COLMAP-11")
@pytest.mark.file_index
def test_renamed_columns_still_let_spark_skip_what_it_does_not_need(spark: SparkSession, tmp_path: Path) -> None:
    """Conditions reach the Parquet reader, and of structs only the wanted fields are read."""
    table = nested_table(tmp_path, "name")
    table.add("f.parquet", nested_file(PHYSICAL), values={"c11": "2020-01-01"})
    frame = read(open_scan(table.open()), spark=spark)
    plan = plan_of(frame.where("Id = 7").select("place.City"))
    assert "EqualTo(c1,7)" in plan
    assert "ReadSchema: struct<c1:bigint,c2:struct<c3:string>>" in plan
    plan = plan_of(read(open_scan(table.open(), where="place.Zip > 5", columns=["Id"]), spark=spark))
    assert "GreaterThan(c2.c4,5)" in plan
