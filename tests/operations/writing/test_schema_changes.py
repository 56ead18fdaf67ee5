"""Rows before and after changes of the schema, by alterations and by writes, are read together."""

import json
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import AddColumns, DropColumns, NewColumn, RenameColumn
from cm_delta_dagster.operations.tables.constraints import add_constraint
from cm_delta_dagster.operations.tables.create import first_schema
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.features.column_mapping import field_id
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import schema_text, walk_fields
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.support.creation import create_table

_FIRST = "cast(id as smallint) AS n, cast(id as smallint) AS p, named_struct('d', cast(1.25 as decimal(5,2))) AS s"
_WIDER = "100000 AS n, 100000 AS p, named_struct('d', cast(123456.789 as decimal(12,4))) AS s, array(cast(1 as short)) AS new"


@pytest.mark.requirements("SCHEVO-4", "UP-TW-2", "UP-TW-3", "UP-TW-5")
def test_an_append_widens_types_if_the_table_allows_it(client: DeltaClient, spark: SparkSession) -> None:
    """Also of a partition column and inside of a struct."""
    first, wider = spark.sql(f"SELECT {_FIRST} FROM range(2)"), spark.sql(f"SELECT {_WIDER}")
    properties = {"delta.enableTypeWidening": "true"}
    schema = first_schema(from_spark(first.schema))
    for name, given in (("plain", {}), ("widening", properties)):
        create_table(client, identifier=f"main.test.{name}", schema=schema, partition_columns=("p",), properties=given)
    plain, table = client.table("main.test.plain"), client.table("main.test.widening")
    with pytest.raises(SchemaMismatchError, match="is smallint in the table"):
        append(plain, frame=wider, schema_mode=SchemaMode.MERGE)
    append(table, frame=first)
    append(table, frame=wider, schema_mode=SchemaMode.MERGE)
    found = table.snapshot()
    assert schema_text(found.schema).split("\n") == [
        "  n: int", "  p: int", "  s: struct", "    d: decimal(12,4)", "  new: array<smallint>",
    ]  # fmt: skip
    recorded = json.loads(found.metadata.schema_string)["fields"]
    assert [item["metadata"].get("delta.typeChanges") for item in recorded] == [
        [{"fromType": "short", "toType": "integer"}],
        [{"fromType": "short", "toType": "integer"}],
        None,
        None,
    ]
    expected = [(0, 0, Decimal("1.2500")), (1, 1, Decimal("1.2500")), (100000, 100000, Decimal("123456.7890"))]
    rows = read(open_scan(table), spark=spark).selectExpr("n", "p", "s.d").collect()
    assert sorted(map(tuple, rows)) == expected
    arrow = read_arrow(open_scan(table, where="p < 100000")).to_pylist()
    assert sorted((row["n"], row["p"], row["s"]["d"]) for row in arrow) == expected[:2]
    append(table, frame=first, schema_mode=SchemaMode.MERGE)
    assert table.snapshot().schema == found.schema


@pytest.mark.requirements("UP-TW-3")
def test_a_write_does_not_widen_a_column_that_a_constraint_uses(client: DeltaClient, spark: SparkSession) -> None:
    """Values that fit are appended, wider ones are refused, as by an alteration."""
    properties = {"delta.enableTypeWidening": "true"}
    schema = first_schema(from_spark(spark.sql("SELECT 1 AS n").schema))
    table = create_table(client, identifier="main.test.checked", schema=schema, properties=properties)
    add_constraint(table, spark=spark, name="positive", check="n > 0")
    with pytest.raises(InvalidArgumentError, match="'n' cannot be changed to a wider type: the constraint 'positive'"):
        append(table, frame=spark.sql("SELECT 5000000000 AS n"), schema_mode=SchemaMode.MERGE)
    append(table, frame=spark.sql("SELECT 1S AS n"), schema_mode=SchemaMode.MERGE)
    assert read_arrow(open_scan(table)).to_pylist() == [{"n": 1}]


@pytest.mark.requirements("COLMAP-5", "COLMAP-8", "COLMAP-10", "COLMAP-11", "COLMAP-12")
@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_of_a_table_with_rows_are_renamed_dropped_and_added_again(
    client: DeltaClient, spark: SparkSession, mode: str
) -> None:
    """A dropped value does not come back under its old name."""
    rows = spark.sql(
        "SELECT 1 AS id, 'a' AS p, named_struct('x', 10, 'y', 'old') AS s, array(named_struct('v', 5)) AS l"
    )
    table = create_table(
        client,
        identifier="main.test.mapped",
        schema=first_schema(from_spark(rows.schema)),
        partition_columns=("p",),
        properties={"delta.columnMapping.mode": mode},
    )
    append(table, frame=rows)
    for alteration in (
        RenameColumn("p", "the part"),
        RenameColumn("s.x", "renamed"),
        DropColumns(["s.y"]),
        AddColumns([NewColumn("s.y", "string"), NewColumn("l.element.w", "int", first=True)]),
    ):
        alter_table(table, alteration)
    later = spark.sql(
        "SELECT 2 AS id, 'b' AS `the part`, named_struct('renamed', 20, 'y', 'new') AS s, array(named_struct('w', 7, 'v', 6)) AS l,"
        " 1.5D AS extra"
    )
    append(table, frame=later, schema_mode=SchemaMode.MERGE)
    expected = [
        {"id": 1, "the part": "a", "s": {"renamed": 10, "y": None}, "l": [{"w": None, "v": 5}], "extra": None},
        {"id": 2, "the part": "b", "s": {"renamed": 20, "y": "new"}, "l": [{"w": 7, "v": 6}], "extra": 1.5},
    ]
    found = [row.asDict(recursive=True) for row in read(open_scan(table), spark=spark).orderBy("id").collect()]
    assert found == expected
    assert sorted(read_arrow(open_scan(table)).to_pylist(), key=lambda row: row["id"]) == expected
    assert table.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"] == "10"
    overwrite(table, frame=rows.withColumnRenamed("p", "the part"), schema_mode=SchemaMode.OVERWRITE)
    after = table.snapshot()
    ids = {".".join(path): field_id(item) for path, item in walk_fields(after.schema)}
    assert (ids["id"], ids["the part"], ids["s"], ids["s.x"], ids["l.element.v"]) == (1, 2, 3, 11, 7)
    assert read_arrow(open_scan(table)).to_pylist()[0]["s"] == {"x": 10, "y": "old"}
