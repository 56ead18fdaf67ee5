"""Void (NullType) columns: at the top level they hold NULL, in arrays and maps they are refused."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import SchemaMismatchError, TableNotFoundError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.support.builders import TableBuilder
from tests.support.creation import create_table, create_table_as

NESTED = {
    "array": "array()",
    "map": "map('k', NULL)",
    "array of structs": "array(named_struct('a', 1, 'b', NULL))",
    "struct of nothing else": "named_struct('a', NULL)",
    "deep struct of nothing else": "named_struct('a', 1, 'b', named_struct('c', NULL))",
}


def schema_with(spark: SparkSession, expression: str) -> StructType:
    return from_spark(spark.range(1).select("id", F.expr(expression).alias("odd")).schema)


@pytest.mark.requirements("UP-VOID-2")
@pytest.mark.parametrize("expression", NESTED.values(), ids=NESTED.keys())
def test_nested_void_is_refused_when_a_table_is_created(
    client: DeltaClient, spark: SparkSession, expression: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=r"odd.*void"):
        create_table(client, identifier="main.test.odd", schema=schema_with(spark, expression))
    with pytest.raises(TableNotFoundError):
        client.table("main.test.odd")


@pytest.mark.requirements("UP-VOID-2")
@pytest.mark.parametrize("mode", [SchemaMode.MERGE, SchemaMode.OVERWRITE])
@pytest.mark.parametrize("expression", NESTED.values(), ids=NESTED.keys())
def test_nested_void_is_refused_as_a_new_column(
    client: DeltaClient, spark: SparkSession, mode: SchemaMode, expression: str
) -> None:
    builder = TableBuilder(client, spark, "id long")
    builder.append((1,))
    frame = spark.range(1).select("id", F.expr(expression).alias("odd"))
    write = append if mode is SchemaMode.MERGE else overwrite
    with pytest.raises(SchemaMismatchError, match=r"odd.*void"):
        write(builder.table, frame=frame, schema_mode=mode)
    assert (builder.table.snapshot().version, builder.rows()) == (1, [(1,)])


def test_empty_arrays_without_a_type_fit_a_typed_array(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, a array<int>, m map<string,int>")
    append(builder.table, frame=spark.range(1).select("id", F.array().alias("a"), F.expr("map('k', NULL)").alias("m")))
    assert builder.rows() == [(0, [], {"k": None})]


@pytest.mark.requirements("UP-VOID-1")
def test_void_columns_and_fields_keep_every_row_and_value(client: DeltaClient, spark: SparkSession) -> None:
    """Also a struct whose other fields have values, and a struct that is NULL."""
    frame = spark.range(2).select(
        "id",
        F.lit(None).alias("nothing"),
        F.expr("if(id = 0, named_struct('a', id, 'b', NULL), NULL)").alias("part"),
    )
    design = TableDesign(schema=first_schema(from_spark(frame.schema)))
    table, _ = create_table_as(
        client, identifier="main.test.odd", design=design, write=lambda table: append(table, frame=frame)
    )
    expected = [
        {"id": 0, "nothing": None, "part": {"a": 0, "b": None}},
        {"id": 1, "nothing": None, "part": None},
    ]
    assert [
        row.asDict(recursive=True) for row in read(open_scan(table), spark=spark).orderBy("id").collect()
    ] == expected
    assert read_arrow(open_scan(table)).sort_by("id").to_pylist() == expected
    assert append(table, frame=frame).num_output_rows == 2
    typed = frame.withColumn("nothing", F.lit("x"))
    with pytest.raises(SchemaMismatchError, match="nothing"):
        append(table, frame=typed)
