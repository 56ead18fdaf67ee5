"""The steps between a verb and the data files: hidden columns, rows that only move, casts that lose nothing."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.spark.write.write import write_files
from cm_delta_dagster.spark.write.write_pipeline import columns_of_files, rows_to_store
from cm_delta_dagster.storage.local_store import LocalStore


def layout(schema: StructType, root: Path = Path("/nowhere"), **properties: str) -> TableLayout:
    return TableLayout(location=f"file://{root}", schema=schema, properties=TableProperties(properties))


@pytest.mark.requirements("SCHEMA-1")
def test_rows_that_fit_take_no_step(spark: SparkSession) -> None:
    """A plain append adds nothing to the plan."""
    frame = spark.createDataFrame([(1, "a")], "id long, s string")
    table = layout(from_spark(frame.schema))
    rows = rows_to_store(frame, table)
    assert rows is frame and columns_of_files(rows, table) is frame


@pytest.mark.requirements("CHK-4")
def test_rows_that_move_are_not_checked(spark: SparkSession, tmp_path: Path) -> None:
    """A constraint concerns new rows."""
    frame = spark.createDataFrame([(-1,)], "id long")
    table = layout(from_spark(frame.schema), tmp_path, **{"delta.constraints.positive": "id > 0"})
    with pytest.raises(InvalidDataError, match=r"'positive'.*id = -1"):
        write_files(frame, store=LocalStore(), layout=table, spec=WriteSpec())
    assert list(tmp_path.iterdir()) == []
    assert write_files(frame, store=LocalStore(), layout=table, spec=WriteSpec(checked=False)).num_rows == 1


@pytest.mark.requirements("CDF-1")
def test_hidden_columns_are_stored_beside_those_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    """Below another directory, with partition columns and without statistics."""
    frame = spark.createDataFrame([("x", 1, 7)], "p string, id long, `_row-id` long")
    schema = StructType(tuple(item for item in from_spark(frame.schema).fields if item.name != "_row-id"))
    table = TableLayout(location=f"file://{tmp_path}", schema=schema, partition_columns=("p",))
    spec = WriteSpec(hidden_columns=(StructField("_row-id", LONG),), root="_change_data/")
    (add,) = write_files(frame, store=LocalStore(), layout=table, spec=spec).adds
    assert add.path.startswith("_change_data/delta.txn=") and add.partition_values == {"p": "x"}
    file = pq.ParquetFile(tmp_path / decode_path(add.path))
    assert file.read().to_pydict() == {"id": [1], "_row-id": [7]}


@pytest.mark.requirements("SCHEMA-1")
def test_variants_are_not_shredded(spark: SparkSession, tmp_path: Path) -> None:
    """A table that lists variantType alone has readers that know only the two binary parts."""
    frame = spark.range(3).selectExpr("id", "parse_json('{\"a\": 1}') v").coalesce(1)
    written = write_files(
        frame, store=LocalStore(), layout=layout(from_spark(frame.schema), tmp_path), spec=WriteSpec()
    )
    (add,) = written.adds
    stored = pq.ParquetFile(tmp_path / decode_path(add.path)).schema_arrow.field("v").type
    assert {stored.field(position).name for position in range(stored.num_fields)} == {"value", "metadata"}


@pytest.mark.requirements("SCHEMA-1")
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("offered", "wanted", "value", "fits"),
    [
        ("long", "int", 2**31, False),
        ("long", "int", 2**31 - 1, True),
        ("decimal(10,2)", "decimal(4,2)", "123.45", False),
        ("string", "int", "'x'", False),
        ("double", "int", "1.9D", True),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(
    spark: SparkSession, ansi: str, offered: str, wanted: str, value: Any, fits: bool
) -> None:
    """Never NULL or another number, whatever the session's ANSI mode is."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.range(1).selectExpr(f"CAST({value} AS {offered}) v")
        rows = rows_to_store(frame, layout(from_spark(spark.createDataFrame([], f"v {wanted}").schema)))
        if fits:
            assert rows.collect()[0][0] == int(float(str(value).rstrip("D")))
            return
        with pytest.raises(Exception, match=r"cannot be stored as .* in the column 'v'"):
            rows.collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))
