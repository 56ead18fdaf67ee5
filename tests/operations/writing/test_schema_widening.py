"""Writes that merge schemas widen types, and old and new files are read together."""

import json
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.tables.create import create_table
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import schema_text
from cm_delta_dagster.spark.schema import from_spark

_FIRST = "cast(id as smallint) AS n, cast(id as smallint) AS p, named_struct('d', cast(1.25 as decimal(5,2))) AS s"
_WIDER = "100000 AS n, 100000 AS p, named_struct('d', cast(123456.789 as decimal(12,4))) AS s, array(cast(1 as short)) AS new"


def test_an_append_widens_types_if_the_table_allows_it(client: DeltaClient, spark: SparkSession) -> None:
    """SCHEVO-4, UP-TW-2, UP-TW-3, UP-TW-5: also of a partition column and inside of a struct."""
    first, wider = spark.sql(f"SELECT {_FIRST} FROM range(2)"), spark.sql(f"SELECT {_WIDER}")
    properties = {"delta.enableTypeWidening": "true"}
    schema = from_spark(first.schema)
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
    rows = read(table, spark=spark).selectExpr("n", "p", "s.d").collect()
    assert sorted(map(tuple, rows)) == expected
    arrow = read_arrow(table, where="p < 100000").to_pylist()
    assert sorted((row["n"], row["p"], row["s"]["d"]) for row in arrow) == expected[:2]
    append(table, frame=first, schema_mode=SchemaMode.MERGE)
    assert table.snapshot().schema == found.schema
