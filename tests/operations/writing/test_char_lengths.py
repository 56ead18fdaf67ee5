"""Columns declared as ``char(n)`` and ``varchar(n)``: blanks that fill a ``char``, and lengths that are refused."""

import itertools

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import ChangeColumn
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from tests.support.builders import rows_of
from tests.support.creation import create_table

_numbers = itertools.count()
COLUMNS = (
    Column("id", "int"),
    Column("c", "char(4)"),
    Column("v", "varchar(3)"),
    Column("st", "struct<n: varchar(2), m: char(2)>"),
    Column("a", "array<struct<x: char(2)>>"),
    Column("m", "map<varchar(1), varchar(2)>"),
)
DDL = "id int, c string, v string, st struct<n:string,m:string>, a array<struct<x:string>>, m map<string,string>"


@pytest.fixture
def table(client: DeltaClient) -> Table:
    return create_table(client, identifier=f"main.chars.t{next(_numbers)}", schema=schema_of_columns(COLUMNS))


@pytest.mark.requirements("SCHEMA-1")
def test_char_values_are_filled_with_blanks(table: Table, spark: SparkSession) -> None:
    """Nested too; a varchar keeps its blanks."""
    given = [(1, "ab", "x ", ("ab", "x"), [("y",), None, (None,)], {"k": "v"}), (2, None, "日本語", None, None, None)]
    append(table, frame=spark.createDataFrame(given, DDL))
    assert rows_of(read(open_scan(table), spark=spark)) == [
        (1, "ab  ", "x ", ("ab", "x "), [("y ",), None, (None,)], {"k": "v"}),
        (2, None, "日本語", None, None, None),
    ]


@pytest.mark.parametrize(
    ("column", "row"),
    [
        ("c", (1, "abcde", None, None, None, None)),
        ("c", (1, "ab    ", None, None, None, None)),
        ("v", (1, None, "abcd", None, None, None)),
        ("st", (1, None, None, ("abc", "x"), None, None)),
        ("a", (1, None, None, None, [("a",), ("abc",)], None)),
        ("m", (1, None, None, None, None, {"k": "v", "long": "v"})),
        ("m", (1, None, None, None, None, {"k": "long"})),
    ],
)
def test_longer_strings_are_refused(table: Table, spark: SparkSession, column: str, row: tuple[object, ...]) -> None:
    """Blanks at the end count, as in delta-spark."""
    with pytest.raises(InvalidDataError, match=f"a string in column '{column}' that is longer"):
        append(table, frame=spark.createDataFrame([row], DDL))
    assert table.snapshot().version == 0


@pytest.mark.parametrize("wider", ["varchar(9)", "string"])
def test_a_char_that_becomes_longer_has_the_text_that_was_written(
    client: DeltaClient, spark: SparkSession, wider: str
) -> None:
    """As in delta-spark: only a char has blanks. Also after rows were moved to another file, and in partition columns."""
    columns = (Column("id", "int"), Column("c", "char(4)"), Column("p", "char(3)"))
    table = create_table(
        client,
        identifier=f"main.chars.t{next(_numbers)}",
        schema=schema_of_columns(columns),
        partition_columns=["p"],
        properties={"delta.enableDeletionVectors": "false"},
    )
    rows = [(1, "ab", "x"), (2, "abcd", "x"), (3, None, "x"), (4, "ab", ""), (5, "z", "x")]
    append(table, frame=spark.createDataFrame(rows, "id int, c string, p string").coalesce(1))
    delete(table, spark=spark, where="c = 'z'")
    kept = [(1, "ab  ", "x  "), (2, "abcd", "x  "), (3, None, "x  "), (4, "ab  ", "   ")]
    assert rows_of(read(open_scan(table), spark=spark)) == kept
    for column in ("c", "p"):
        alter_table(table, ChangeColumn(column=column, type=wider))
    assert rows_of(read(open_scan(table), spark=spark)) == [
        (1, "ab", "x"), (2, "abcd", "x"), (3, None, "x"), (4, "ab", "   ")
    ]  # fmt: skip
    assert sorted(read_arrow(open_scan(table, where="c = 'ab'"))["id"].to_pylist()) == [1, 4]
