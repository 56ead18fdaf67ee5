"""New rows are compared with the rows of the table as they will be stored, whatever compares them."""

import itertools
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidDataError, PartitionMismatchError
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.write import PartitionOverwrite, append, overwrite
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator
from tests.support.builders import rows_of
from tests.support.creation import create_table

_numbers = itertools.count()
UPDATE = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.UPDATE, assignments=None)
INSERT = RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=None)

NewTable = Callable[..., Table]


@pytest.fixture
def new_table(client: DeltaClient) -> NewTable:
    def create(kind: str, *, partitioned: bool = False, **more: Any) -> Table:
        schema = schema_of_columns((Column("k", kind), Column("n", "int")))
        name = f"main.stored.t{next(_numbers)}"
        return create_table(
            client, identifier=name, schema=schema, partition_columns=["k"] if partitioned else [], **more
        )

    return create


SLICE = Comparison("k", ComparisonOperator.EQ, "ab")
WAYS: Mapping[str, Callable[[Table, DataFrame], Any]] = {
    "merge by key": lambda table, frame: merge(table, frame=frame, keys=["k"]),
    "merge by key within a slice": lambda table, frame: merge(table, frame=frame, keys=["k"], where="k IN ('ab', 'x')"),
    "insert only": lambda table, frame: merge(table, frame=frame, keys=["k"], mode=MergeMode.INSERT_ONLY),
    "keys that replace": lambda table, frame: overwrite(table, frame=frame, keys=["k"]),
    "slice as text": lambda table, frame: overwrite(table, frame=frame, where="k = 'ab'"),
    "slice as a value": lambda table, frame: overwrite(table, frame=frame, where=SLICE),
    "slice that only Spark understands": lambda table, frame: overwrite(
        table, frame=frame, where="k = concat('a', 'b')"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_char_is_compared_with_its_blanks(new_table: NewTable, spark: SparkSession, way: str) -> None:
    """Each write finds the row of the write before, whose value has blanks at the end."""
    table = new_table("char(5)", partitioned=way.startswith("insert"))
    append(table, frame=spark.createDataFrame([("cd", 0)], "k string, n int"))
    for number in (1, 2):
        WAYS[way](table, spark.createDataFrame([("ab", number)], "k string, n int"))
    expected = 1 if way == "insert only" else 2
    assert rows_of(read(open_scan(table), spark=spark)) == [("ab   ", expected), ("cd   ", 0)]


@pytest.mark.parametrize(
    "way", ["merge by key", "insert only", "keys that replace", "slice of nothing but blanks", "merge by clauses"]
)
def test_the_empty_text_in_a_char_partition_is_its_blanks(new_table: NewTable, spark: SparkSession, way: str) -> None:
    """Blanks are stored, so that the row is found; other partition columns store the empty text as NULL."""
    ways: Mapping[str, Callable[[Table, DataFrame], Any]] = {
        **WAYS,
        "slice of nothing but blanks": lambda table, frame: overwrite(table, frame=frame, where="k = ''"),
        "merge by clauses": lambda table, frame: merge_rows(
            table,
            change=RowChange(
                source=frame, target_alias="t", source_alias="s", on="t.k = s.k", clauses=(UPDATE, INSERT)
            ),
        ),
    }
    table = new_table("char(3)", partitioned=True)
    append(table, frame=spark.createDataFrame([("", 0), ("cd", 0)], "k string, n int"))
    ways[way](table, spark.createDataFrame([("", 1)], "k string, n int"))
    expected = 0 if way == "insert only" else 1
    assert rows_of(read(open_scan(table), spark=spark)) == [("   ", expected), ("cd ", 0)]


COLUMNS = (
    Column("c", "char(5)"),
    Column("st", "struct<c: char(3)>"),
    Column("d", "decimal(10,2)"),
    Column("f", "float"),
    Column("t", "timestamp_ntz"),
    Column("day", "date"),
    Column("i", "int"),
    Column("p", "string"),
    Column("n", "int"),
)
SOURCE = """SELECT 'ab' c, named_struct('c', 'x') st, 1.005D d, 0.1D f, TIMESTAMP'2026-10-25 00:30:00Z' t,
    TIMESTAMP'2026-01-02 03:04:05Z' day, 1.7D i, '' p, {n} n"""
ON = """t.c = s.c AND t.st.c = s.st.c AND t.d = s.d AND t.f = s.f AND t.t <=> s.t AND s.day = t.day
    AND NOT (t.i <> s.i) AND (t.p <=> s.p)"""
CLAUSES: Mapping[str, tuple[RowClause, ...]] = {
    "all columns": (UPDATE, INSERT),
    "named columns": (
        RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.UPDATE, assignments={"n": "s.n"}),
        RowClause(
            kind=ClauseKind.NOT_MATCHED,
            action=ClauseAction.INSERT,
            assignments={item.name: f"s.{item.name}" for item in COLUMNS},
        ),
    ),
}


@pytest.mark.parametrize("clauses", CLAUSES)
def test_a_merge_with_clauses_finds_what_it_has_stored(client: DeltaClient, spark: SparkSession, clauses: str) -> None:
    """Values that a cast, blanks or a partition column change when they are stored."""
    name = f"main.stored.m{next(_numbers)}"
    table = create_table(client, identifier=name, schema=schema_of_columns(COLUMNS), partition_columns=["p"])
    for number in (1, 2):
        frame = spark.sql(SOURCE.format(n=number))
        on = ON if clauses == "all columns" else F.expr(ON)
        change = RowChange(clauses=CLAUSES[clauses], source=frame, on=on, target_alias="t", source_alias="s")
        merge_rows(table, change=change)
    assert [row.n for row in read(open_scan(table), spark=spark).collect()] == [2]


def test_partitions_of_a_char_are_replaced(new_table: NewTable, spark: SparkSession) -> None:
    """Dynamically, by a slice and by a merge; a row outside of the slice is refused."""
    table = new_table("char(5)", partitioned=True)
    append(table, frame=spark.createDataFrame([("ab", 1), ("cd", 1)], "k string, n int"))
    again = spark.createDataFrame([("ab", 2)], "k string, n int")
    overwrite(table, frame=again, partitions=PartitionOverwrite.DYNAMIC)
    overwrite(table, frame=spark.createDataFrame([("ab", 3)], "k string, n int"), where="k = 'ab'")
    merge(table, frame=spark.createDataFrame([("ab ", 4)], "k string, n int"), keys=["k"], where="k = 'ab'")
    with pytest.raises(PartitionMismatchError):
        overwrite(table, frame=again, where="k = 'cd'")
    assert rows_of(read(open_scan(table), spark=spark)) == [("ab   ", 4), ("cd   ", 1)]


@pytest.mark.parametrize(
    ("kind", "first", "second", "ddl"),
    [
        ("varchar(4)", "ab ", "ab ", "string"),
        ("decimal(10,2)", Decimal("1.5"), Decimal("1.50"), "decimal(5,2)"),
        ("double", -0.0, 0.0, "double"),
        ("double", math.nan, math.nan, "float"),
    ],
)
def test_equal_keys_replace_each_other(
    new_table: NewTable, spark: SparkSession, kind: str, first: Any, second: Any, ddl: str
) -> None:
    table = new_table(kind, partitioned=kind == "double")
    append(table, frame=spark.createDataFrame([(first, 0)], f"k {ddl}, n int"))
    merge(table, frame=spark.createDataFrame([(second, 1)], f"k {ddl}, n int"), keys=["k"])
    overwrite(table, frame=spark.createDataFrame([(second, 2)], f"k {ddl}, n int"), keys=["k"])
    assert [row.n for row in read(open_scan(table), spark=spark).collect()] == [2]


@pytest.mark.parametrize(
    ("kind", "partitioned", "value", "because"),
    [("int", False, None, "has NULL in the key column 'k'"), ("string", True, "", "the empty text, which a partition")],
)
def test_a_null_key_that_would_replace_nothing_is_refused(
    new_table: NewTable, spark: SparkSession, kind: str, partitioned: bool, value: Any, because: str
) -> None:
    table = new_table(kind, partitioned=partitioned)
    with pytest.raises(InvalidDataError, match=because):
        overwrite(table, frame=spark.createDataFrame([(value, 1)], f"k {kind}, n int"), keys=["k"])
    assert table.snapshot().version == 0
