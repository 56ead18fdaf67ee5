"""Cases of invalid input: the call, the error, and words that the message must contain."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.support.creation import create_table

NAME = "main.test.orders"
DDL = "id long, name string, day date, place struct<zip:string,city:string>, tags array<string>"
DAY = dt.date(2026, 1, 1)
ROWS = [(1, "a", DAY, ("1", "x"), ["t"]), (2, "b", DAY, ("1", "x"), None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """The tables, rows and session that a case uses."""

    spark: SparkSession
    good: DataFrame
    orders: Table
    plain: Table

    def rows(self, *rows: Any, columns: str = DDL) -> DataFrame:
        return self.spark.createDataFrame(list(rows), columns).coalesce(1)

    def some(self, columns: str = "") -> DataFrame:
        """Return one row for ``plain`` with additional columns."""
        return self.spark.sql(f"SELECT 5L id, 'a' p, 1 v{', ' + columns if columns else ''}")


Case = tuple[str, type[CmDeltaError], tuple[str, ...], Callable[[Act], object]]


def _deletes_matches(source: Any) -> RowChange:
    clause = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE)
    return RowChange(clauses=(clause,), source=source, on="target.id = source.id")


COLUMNS: list[Case] = [
    (
        "a wrong type",
        SchemaMismatchError,
        (NAME, "'id' is bigint in the table and string", "Cast"),
        lambda act: append(act.orders, frame=act.good.withColumn("id", F.col("name"))),
    ),
    (
        "a type that would have to be narrowed",
        SchemaMismatchError,
        ("main.test.plain", "'v' is int in the table and bigint", "Cast"),
        lambda act: append(act.plain, frame=act.some().withColumn("v", F.lit(1).cast("long"))),
    ),
    (
        "text for a partition column of dates",
        SchemaMismatchError,
        (NAME, "'day' is date in the table and string", "Cast"),
        lambda act: append(act.orders, frame=act.good.withColumn("day", F.lit("yesterday"))),
    ),
    (
        "an unknown column",
        SchemaMismatchError,
        (NAME, "'extra' does not exist", "drop the columns", "schema to be merged"),
        lambda act: append(act.orders, frame=act.good.withColumn("extra", F.lit(1))),
    ),
    (
        "an unknown column in an overwrite",
        SchemaMismatchError,
        (NAME, "'extra' does not exist"),
        lambda act: overwrite(act.orders, frame=act.good.withColumn("extra", F.lit(1)), where="id = 1"),
    ),
    (
        "an unknown column in a merge",
        SchemaMismatchError,
        (NAME, "'extra' does not exist"),
        lambda act: merge(act.orders, frame=act.good.withColumn("extra", F.lit(1)), keys=["id"]),
    ),
    (
        "a required column that is missing",
        SchemaMismatchError,
        (NAME, "'id' is missing", "does not allow null"),
        lambda act: append(act.orders, frame=act.good.drop("id")),
    ),
    (
        "a required nested column that is missing",
        SchemaMismatchError,
        (NAME, "'place.zip' is missing"),
        lambda act: append(act.orders, frame=act.good.withColumn("place", F.struct(F.lit("x").alias("city")))),
    ),
    (
        "a partition column that is missing",
        SchemaMismatchError,
        ("main.test.plain", "partition column 'p'", "Add the column"),
        lambda act: append(act.plain, frame=act.some().drop("p")),
    ),
    (
        "a partition column that is missing in an overwrite",
        SchemaMismatchError,
        ("main.test.plain", "partition column 'p'", "Add the column"),
        lambda act: overwrite(act.plain, frame=act.some().drop("p")),
    ),
    (
        "a partition column that is missing in a new schema",
        SchemaMismatchError,
        ("main.test.plain", "partition column 'p'", "Keep it"),
        lambda act: overwrite(act.plain, frame=act.some().drop("p"), schema_mode=SchemaMode.OVERWRITE),
    ),
    (
        "no columns at all",
        SchemaMismatchError,
        ("main.test.plain", "no columns", "id, p, v"),
        lambda act: append(act.plain, frame=act.some().select()),
    ),
    (
        "two columns that differ in case only",
        SchemaMismatchError,
        ("main.test.plain", "'v' and 'V'", "Rename or drop"),
        lambda act: append(act.plain, frame=act.some("2 V")),
    ),
    (
        "an interval",
        SchemaMismatchError,
        ("main.test.plain", "'i'", "interval", "Cast"),
        lambda act: append(act.plain, frame=act.some("interval 1 day i"), schema_mode=SchemaMode.MERGE),
    ),
    (
        "a name that Parquet cannot hold",
        SchemaMismatchError,
        ("main.test.plain", "'a b'", "Rename"),
        lambda act: append(act.plain, frame=act.some("1 `a b`"), schema_mode=SchemaMode.MERGE),
    ),
    (
        "a new schema by an append",
        InvalidArgumentError,
        ("main.test.plain", "append", "Use overwrite"),
        lambda act: append(act.plain, frame=act.some(), schema_mode=SchemaMode.OVERWRITE),
    ),
    (
        "a dictionary for a DataFrame",
        InvalidArgumentError,
        (NAME, "DataFrame of Spark", "builtins.dict", "list of dictionaries"),
        lambda act: append(act.orders, frame={"id": 1}),
    ),
    (
        "a number for the source of a merge",
        InvalidArgumentError,
        (NAME, "DataFrame of Spark", "builtins.int", "pyarrow.Table"),
        lambda act: merge_rows(act.orders, change=_deletes_matches(5)),
    ),
]

VALUES: list[Case] = [
    (
        "NULL in a required column",
        InvalidDataError,
        (NAME, "'id' is NOT NULL", "id = NULL, name = z", "Fill the value or drop the row"),
        lambda act: append(act.orders, frame=act.rows(ROWS[0], (None, "z", DAY, ("1", "x"), None))),
    ),
    (
        "NULL in a required nested column",
        InvalidDataError,
        (NAME, "'place.zip' is NOT NULL", "name = z"),
        lambda act: append(act.orders, frame=act.rows((3, "z", DAY, (None, "x"), None))),
    ),
    (
        "NULL for a struct with a required field",
        InvalidDataError,
        (NAME, "'place.zip' is NOT NULL", "or in the struct around it", "name = z"),
        lambda act: append(act.orders, frame=act.rows((3, "z", DAY, None, None))),
    ),
    (
        "NULL as an element",
        InvalidDataError,
        (NAME, "'tags.element' is NOT NULL", "name = z"),
        lambda act: overwrite(act.orders, frame=act.rows((3, "z", DAY, ("1", "x"), ["t", None]))),
    ),
    (
        "a partition value that no reader could parse",
        InvalidDataError,
        (NAME, "'day'", "+20000-01-01", "Replace the value"),
        lambda act: append(act.orders, frame=act.good.withColumn("day", F.expr("make_date(20000, 1, 1)"))),
    ),
    (
        "a constant that its column cannot hold",
        InvalidDataError,
        ("main.test.plain", "cannot be stored as", "x0"),
        lambda act: update(act.plain, spark=act.spark, assignments={"v": "'x0'"}, where="id < 0"),
    ),
    (
        "a value that cannot be cast",
        InvalidDataError,
        ("main.test.plain", "'x0'", "Correct the rows"),
        lambda act: append(
            act.plain,
            frame=act.spark.range(1).selectExpr("id", "'a' p", "CAST(concat('x', id) AS int) v"),
        ),
    ),
    (
        "rows outside of the slice",
        PartitionMismatchError,
        (NAME, "DATE '2026-02-01'", "day = 2026-01-01", "widen the condition"),
        lambda act: overwrite(act.orders, frame=act.good, where="day = DATE '2026-02-01'"),
    ),
    (
        "rows outside of a slice within files",
        PartitionMismatchError,
        (NAME, "`id` > 1", "id = 1", "widen the condition"),
        lambda act: overwrite(act.orders, frame=act.good, where="id > 1"),
    ),
]

MERGES: list[Case] = [
    (
        "duplicate keys",
        InvalidDataError,
        (NAME, "id = 2", "Make the keys unique"),
        lambda act: merge(act.orders, frame=act.good.union(act.good.where("id = 2")), keys=["id"]),
    ),
    (
        "a key that the rows lack",
        InvalidArgumentError,
        (NAME, "'name' is not in the source", "id, day, place, tags"),
        lambda act: merge(act.orders, frame=act.good.drop("name"), keys=["name"]),
    ),
    (
        "a key that the table lacks",
        InvalidArgumentError,
        (NAME, "'k' is not in the table", "id, name, day, place, tags"),
        lambda act: merge(act.orders, frame=act.good.withColumn("k", F.lit(1)), keys=["k"]),
    ),
    (
        "no keys",
        InvalidArgumentError,
        (NAME, "at least one key column"),
        lambda act: merge(act.orders, frame=act.good, keys=[]),
    ),
    (
        "keys as one text",
        InvalidArgumentError,
        (NAME, "'id'", "list"),
        lambda act: merge(act.orders, frame=act.good, keys="id"),
    ),
    (
        "a NULL key where the table has NOT NULL",
        InvalidDataError,
        (NAME, "'id' is NOT NULL", "name = z"),
        lambda act: merge(act.orders, frame=act.rows(ROWS[0], (None, "z", DAY, ("1", "x"), None)), keys=["id"]),
    ),
    (
        "a row outside of the slice of the merge",
        PartitionMismatchError,
        (NAME, "id = ", "DATE '2027-01-01'", "widen the slice"),
        lambda act: merge(
            act.orders,
            frame=act.good,
            keys=["id"],
            where="day = DATE '2027-01-01'",
            mode=MergeMode.DELETE_UNMATCHED,
        ),
    ),
    (
        "a slice with an unknown function",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: merge(act.orders, frame=act.good, keys=["id"], where="nosuchfunction(id) > 1"),
    ),
]

CONDITIONS: list[Case] = [
    (
        "an unknown column in a condition",
        InvalidArgumentError,
        (NAME, "'nope'", "Use one of its columns"),
        lambda act: delete(act.orders, spark=act.spark, where="nope = 1"),
    ),
    (
        "no SQL",
        InvalidArgumentError,
        (NAME, "'day ===='", "Write only what would follow WHERE"),
        lambda act: delete(act.orders, spark=act.spark, where="day ===="),
    ),
    (
        "an unknown function",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: delete(act.orders, spark=act.spark, where="nosuchfunction(id) > 1"),
    ),
    (
        "an unknown function in the condition of an overwrite",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: overwrite(act.orders, frame=act.good, where="nosuchfunction(id) > 1"),
    ),
    (
        "an unknown function in the condition of a read",
        InvalidArgumentError,
        (NAME, "nosuchfunction"),
        lambda act: read(open_scan(act.orders, where="nosuchfunction(id) > 1"), spark=act.spark),
    ),
    (
        "an update without values",
        InvalidArgumentError,
        (NAME, "values to set", "mapping"),
        lambda act: update(act.orders, spark=act.spark, assignments={}),
    ),
    (
        "an update of an unknown column",
        InvalidArgumentError,
        (NAME, "'nope'", "it has id"),
        lambda act: update(act.orders, spark=act.spark, assignments={"nope": "1"}),
    ),
    (
        "an update by a function whose value varies",
        InvalidArgumentError,
        (NAME, "rand()", "before the call"),
        lambda act: update(act.orders, spark=act.spark, assignments={"name": "CAST(rand() AS string)"}),
    ),
    (
        "an update by a Python value",
        InvalidArgumentError,
        (NAME, "'name' is None of type NoneType", "SQL text"),
        lambda act: update(act.orders, spark=act.spark, assignments={"name": None}),
    ),
    (
        "an update by an aggregate",
        InvalidArgumentError,
        (NAME, "for each row", "max(", "before"),
        lambda act: update(act.orders, spark=act.spark, assignments={"name": "max(name)"}),
    ),
    (
        "a condition that is a number",
        InvalidArgumentError,
        (NAME, "deleting", "BIGINT"),
        lambda act: delete(act.orders, spark=act.spark, where="id + 1"),
    ),
    (
        "a slice that is a number",
        InvalidArgumentError,
        (NAME, "BIGINT"),
        lambda act: overwrite(act.orders, frame=act.good, where="id + 1"),
    ),
    (
        "an update by a value that the column cannot hold",
        InvalidDataError,
        (NAME, "The value is x", "nothing was committed"),
        lambda act: update(act.orders, spark=act.spark, assignments={"id": "'x'"}),
    ),
    (
        "an update by a query",
        InvalidArgumentError,
        (NAME, "contains a query"),
        lambda act: update(act.orders, spark=act.spark, assignments={"id": "(SELECT 1)"}),
    ),
    (
        "dynamic partitions and a condition",
        InvalidArgumentError,
        (NAME, "where and partitions", "Leave"),
        lambda act: overwrite(act.orders, frame=act.good, where="id = 1", partitions="dynamic"),
    ),
    (
        "a condition that fails on a row",
        InvalidDataError,
        (NAME, "'a'", "INT", "Correct"),
        lambda act: delete(act.orders, spark=act.spark, where="CAST(name AS int) = 1"),
    ),
    (
        "a version of the future",
        VersionNotFoundError,
        (NAME, "Version 99", "0 to 1"),
        lambda act: read(open_scan(act.orders, version=99), spark=act.spark),
    ),
    (
        "a negative version",
        VersionNotFoundError,
        (NAME, "Version -1", "0 to 1"),
        lambda act: read(open_scan(act.orders, version=-1), spark=act.spark),
    ),
    (
        "a version as text",
        InvalidArgumentError,
        (NAME, "'1'", "whole number"),
        lambda act: read(open_scan(act.orders, version="1"), spark=act.spark),
    ),
    (
        "a time before the table",
        VersionNotFoundError,
        (NAME, "as of 1970-01-01T00:00:00.001Z", "oldest readable version 0"),
        lambda act: read(open_scan(act.orders, timestamp_ms=1), spark=act.spark),
    ),
    (
        "a time of the future",
        VersionNotFoundError,
        (NAME, "latest version 1", "Leave the timestamp out"),
        lambda act: read(open_scan(act.orders, timestamp_ms=10**15), spark=act.spark),
    ),
    (
        "a version and a time",
        InvalidArgumentError,
        (NAME, "not both"),
        lambda act: read(open_scan(act.orders, version=0, timestamp_ms=1), spark=act.spark),
    ),
    (
        "an unknown column to read",
        InvalidArgumentError,
        (NAME, "'nope'", "id, name, day, place, tags"),
        lambda act: read(open_scan(act.orders, columns=["nope"]), spark=act.spark),
    ),
    (
        "columns as one text",
        InvalidArgumentError,
        (NAME, "'name'", "list"),
        lambda act: read(open_scan(act.orders, columns="name"), spark=act.spark),
    ),
]

CREATIONS: list[Case] = [
    (
        "a name that is taken",
        TableAlreadyExistsError,
        ("main.test.plain", "choose another name"),
        lambda act: created(act, "main.test.plain", "SELECT 1 a"),
    ),
    (
        "a name of one part",
        InvalidArgumentError,
        ("'orders'", "catalog.schema.table"),
        lambda act: created(act, "orders", "SELECT 1 a"),
    ),
    (
        "an interval as a column",
        SchemaMismatchError,
        ("'x'", "interval", "Cast"),
        lambda act: created(act, "main.test.new", "SELECT interval 1 day x"),
    ),
    (
        "a variant as a partition column",
        InvalidArgumentError,
        ("'x'", "variant", "Partition by"),
        lambda act: created(act, "main.test.new", "SELECT parse_json('1') x, 1 a", "x"),
    ),
    (
        "an array as a partition column",
        InvalidArgumentError,
        ("'x'", "array<int>", "Partition by"),
        lambda act: created(act, "main.test.new", "SELECT array(1) x, 1 a", "x"),
    ),
    (
        "a partition column that is missing",
        InvalidArgumentError,
        ("'x'", "a, b", "Partition by"),
        lambda act: created(act, "main.test.new", "SELECT 1 a, 1 b", "x"),
    ),
    (
        "nothing but partition columns",
        InvalidArgumentError,
        ("partition column", "Keep at least one"),
        lambda act: created(act, "main.test.new", "SELECT 1 a, 1 b", "a", "b"),
    ),
    (
        "columns that differ in case only",
        SchemaMismatchError,
        ("'a' and 'A'", "Rename or drop"),
        lambda act: created(act, "main.test.new", "SELECT 1 a, 1 A"),
    ),
    (
        "an unusable property",
        InvalidArgumentError,
        ("delta.appendOnly", "maybe"),
        lambda act: created(act, "main.test.new", "SELECT 1 a", **{"delta.appendOnly": "maybe"}),
    ),
]


def created(act: Act, name: str, rows: str, *partitions: str, **properties: str) -> object:
    schema = from_spark(act.spark.sql(rows).schema)
    client = act.orders.services
    assert isinstance(client, DeltaClient)
    return create_table(client, identifier=name, schema=schema, partition_columns=partitions, properties=properties)
