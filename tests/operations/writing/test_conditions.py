"""Conditions of reads and writes by Spark: which are allowed, and that each evaluation gives the same result."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError
from cm_delta_dagster.operations.reading.read import plan_read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.write import overwrite
from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    Opaque,
    Or,
    columns_of,
    raw_sql,
    to_sql,
)
from cm_delta_dagster.protocol.predicates.sql_functions import (
    CLOCK,
    DETERMINISTIC,
    OVER_ROWS,
    SYNTAX,
    VARYING,
    words,
)
from cm_delta_dagster.spark.expressions.conditions import column_predicate
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.support.builders import TableBuilder

ROWS = ((1, "a"), (2, "b"), (3, "c"))

RAW_ONLY = words(
    """
    collations from_avro from_protobuf from_xml java_method python_worker_logs reflect schema_of_avro
    schema_of_xml sql_keywords to_avro to_protobuf to_xml try_reflect xpath xpath_boolean xpath_double
    xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    """
)
"""Built-in functions that call Java methods, load files or descriptors, or parse formats that can refer to files."""


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[[], TableBuilder]:
    def table() -> TableBuilder:
        builder = TableBuilder(client, spark, "id long, s string")
        builder.append(*ROWS)
        return builder

    return table


def refused_by_every_write(builder: TableBuilder, where: Any, match: str) -> None:
    frame = builder.frame((1, "a"))
    with pytest.raises(InvalidArgumentError, match=match):
        delete(builder.table, spark=builder.spark, where=where)
    with pytest.raises(InvalidArgumentError, match=match):
        overwrite(builder.table, frame=frame, where=where)
    with pytest.raises(InvalidArgumentError, match=match):
        merge(builder.table, frame=frame, keys=["id"], where=where)
    assert builder.table.snapshot().version == 1


def test_every_function_of_spark_is_classified(spark: SparkSession) -> None:
    """Fails for a new release of Spark with functions that are not classified."""
    known = [DETERMINISTIC, VARYING, CLOCK, OVER_ROWS, RAW_ONLY]
    for position, names in enumerate(known):
        assert not names & frozenset().union(*known[position + 1 :])
    operators = {"and", "or", "not", "in", "between", "like", "ilike", "rlike", "regexp", "div", "case", "when"}
    present = {str(row[0]) for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert {name for name in present if name.isidentifier()} - operators - SYNTAX == frozenset().union(*known)


@pytest.mark.requirements("DML-2")
@pytest.mark.parametrize(
    "call", ["rand() < 0.5", "uuid() > s", "input_file_name() LIKE '%x'", "id > monotonically_increasing_id()"]
)
def test_a_write_refuses_functions_whose_value_varies(build: Callable[[], TableBuilder], call: str) -> None:
    """The condition is evaluated once to find the rows and once to keep the others."""
    builder = build()
    name = next(word for word in ("rand", "uuid", "input_file_name", "monotonically_increasing_id") if word in call)
    refused_by_every_write(builder, f"id = 1 OR {call}", rf"{name}\(\)")
    refused_by_every_write(builder, raw_sql(call), rf"{name}\(\)")
    refused_by_every_write(builder, F.expr(call), rf"{name}\(\)")


def test_a_write_refuses_what_spark_calls_non_deterministic(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    function = F.udf(lambda value: True, "boolean", useArrow=False).asNondeterministic()
    refused_by_every_write(builder, function(F.col("id")), "not deterministic")
    builder.spark.udf.register("cm_test_random", function)
    refused_by_every_write(builder, raw_sql("cm_test_random(id)"), "not deterministic")


def test_a_read_may_take_a_random_sample(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    assert builder.rows(where="rand() >= 0") == builder.rows(where=F.rand() >= 0) == list(ROWS)


@pytest.mark.requirements("DML-1")
def test_current_timestamp_is_the_time_of_the_call(client: DeltaClient, spark: SparkSession) -> None:
    """The date is that of the session's time zone."""
    builder = TableBuilder(client, spark, "id long, day date, ts timestamp", partition_by=["day"])
    now = dt.datetime.fromtimestamp(builder.table.services.now_ms() / 1000, dt.UTC)
    old = now - dt.timedelta(days=10)
    builder.append((1, old.date(), old), (2, now.date() + dt.timedelta(days=10), now + dt.timedelta(days=10)))
    result = delete(builder.table, spark=spark, where="day < current_date() AND ts < now()")
    assert [row[0] for row in builder.rows()] == [2]
    predicate = str(result.snapshot.commit_info.operation_parameters) if hasattr(result.snapshot, "commit_info") else ""
    assert "current_date" not in predicate
    with pytest.raises(InvalidArgumentError, match=r"current_date\(\)"):
        delete(builder.table, spark=spark, where=raw_sql("day < current_date()"))


def test_functions_outside_of_the_list_need_raw_sql(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    text = "java_method('java.lang.Math', 'abs', CAST(id AS INT)) = '2'"
    refused_by_every_write(builder, text, r"java_method\(\).*raw_sql")
    for read in (builder.rows, lambda where: read_arrow(open_scan(builder.table, where=where))):
        with pytest.raises(InvalidArgumentError, match="raw_sql"):
            read(where=text)
    assert builder.rows(where=raw_sql(text)) == [(2, "b")]
    # Spark treats results of Java methods as non-deterministic.
    refused_by_every_write(builder, raw_sql(text), "not deterministic")


def test_functions_and_queries_of_the_session_work_as_raw_sql(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    builder.spark.udf.register("cm_test_even", F.udf(lambda value: value % 2 == 0, "boolean", useArrow=False))
    refused_by_every_write(builder, "cm_test_even(id)", "cm_test_even")
    delete(builder.table, spark=builder.spark, where=raw_sql("cm_test_even(id) -- of the session"))
    assert builder.rows() == [(1, "a"), (3, "c")]


@pytest.mark.parametrize(
    "where",
    [1, object(), 1.5, b"id = 1", ["id = 1"], True, Or(("id = 1",)), And((1,))],
    ids=lambda value: type(value).__name__,
)  # type: ignore[arg-type]
def test_an_argument_that_is_not_a_condition_is_refused(build: Callable[[], TableBuilder], where: Any) -> None:
    builder = build()
    refused_by_every_write(builder, where, r"A condition is .* of type \w+\. Give SQL text")
    with pytest.raises(InvalidArgumentError, match="Give SQL text"):
        builder.rows(where=where)
    with pytest.raises(InvalidArgumentError, match="Give SQL text"):
        read_arrow(open_scan(builder.table, where=where))


def test_a_delete_without_a_condition_says_how_to_delete_all(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    with pytest.raises(InvalidArgumentError, match="write TRUE"):
        delete(builder.table, spark=builder.spark, where=None)  # type: ignore[arg-type]


def test_arrow_says_that_a_column_needs_spark(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    with pytest.raises(InvalidArgumentError, match="where Spark reads or writes, a Column"):
        read_arrow(open_scan(builder.table, where=F.col("id") == 1))  # type: ignore[arg-type]


COLUMN_TEXTS: list[tuple[Callable[[], Column], str]] = [
    (lambda: F.col("id") == 1, "`id` = 1"),
    (lambda: F.col("ID").isin(1, 2) | ~(F.col("s") == "it's \\ x"), None),  # type: ignore[list-item]
    (lambda: F.col("s").isNull() & F.col("s").isNotNull(), "(`s` IS NULL) AND (`s` IS NOT NULL)"),
    (lambda: F.col("s").startswith("a"), "startswith(`s`, 'a')"),
    (lambda: F.col("id").between(1, 3), "(`id` >= 1) AND (`id` <= 3)"),
    (lambda: F.col("id").eqNullSafe(None), "`id` IS NULL"),
    (lambda: F.col("st.in") > F.lit(Decimal("1.5")), "`st`.`in` > 1.5BD"),
    (lambda: F.col("day") >= F.lit(dt.date(2020, 1, 2)), "`day` >= DATE '2020-01-02'"),
    (lambda: F.col("`a.b`") != 2, "`a.b` <> 2"),
]


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(("column", "sql"), COLUMN_TEXTS)
def test_columns_are_translated_like_sql_text(
    spark: SparkSession, column: Callable[[], Column], sql: str | None
) -> None:
    """They select files by statistics."""
    ddl = "id long, s string, st struct<in: long>, day date, `a.b` long"
    schema = from_spark(spark.createDataFrame([], ddl).schema)
    predicate = column_predicate(column(), schema)
    assert not any(isinstance(leaf, Opaque) and leaf.expression is not None for leaf in (predicate,))
    if sql is not None:
        assert to_sql(predicate).replace("NOT (`a.b` = 2)", "`a.b` <> 2") == sql
    frame = spark.createDataFrame([(1, "it's \\ x", (2,), dt.date(2020, 1, 2), 3), (None, None, None, None, None)], ddl)
    assert frame.where(column()).collect() == frame.where(to_sql(predicate)).collect()


@pytest.mark.requirements("DML-1", "DML-4", "DML-7")
def test_columns_are_conditions_of_every_operation(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    assert builder.rows(where=F.col("id") > 1) == [(2, "b"), (3, "c")]
    delete(builder.table, spark=builder.spark, where=F.col("id") == 1)
    assert builder.rows() == [(2, "b"), (3, "c")]
    overwrite(builder.table, frame=builder.frame((2, "B")), where=F.col("id") == F.lit(2))
    merge(builder.table, frame=builder.frame((3, "C")), keys=["id"], where=F.col("id") >= 3)
    assert builder.rows() == [(2, "B"), (3, "C")]
    with pytest.raises(InvalidArgumentError, match="nope"):
        delete(builder.table, spark=builder.spark, where=F.col("nope") == 1)


@pytest.mark.requirements("DML-1", "DML-7")
def test_a_column_that_only_spark_can_evaluate_works(build: Callable[[], TableBuilder]) -> None:
    builder = build()
    odd = F.udf(lambda value: value % 2 == 1, "boolean", useArrow=False)
    assert builder.rows(where=odd("id")) == [(1, "a"), (3, "c")]
    assert (
        plan_read(
            open_scan(builder.table, where=column_predicate(odd("id"), builder.table.snapshot().schema))
        ).files.num_rows
        == 1
    )
    overwrite(builder.table, frame=builder.frame((5, "e")), where=odd("id"))
    merge(builder.table, frame=builder.frame((5, "E")), keys=["id"], where=odd("id"))
    assert builder.rows() == [(2, "b"), (5, "E")]
    delete(builder.table, spark=builder.spark, where=odd("id"))
    assert builder.rows() == [(2, "b")]


@pytest.mark.requirements("OCC-9")
def test_a_column_that_only_spark_can_evaluate_conflicts_with_every_change(build: Callable[[], TableBuilder]) -> None:
    """Nothing is known of the rows that it reads."""
    builder = build()
    builder.append((10, "x"))
    odd = F.udf(lambda value: value == 1, "boolean", useArrow=False)
    predicate = column_predicate(odd("id"), builder.table.snapshot().schema)
    transaction = builder.table.start_transaction(builder.table.snapshot(), operation="DELETE", parameters={})
    transaction.read(predicate)
    delete(builder.table, spark=builder.spark, where="id = 10")
    transaction.set_metadata(builder.table.snapshot().metadata)
    with pytest.raises(CommitConflictError):
        transaction.commit()


@pytest.mark.requirements("DML-1", "DML-4", "DML-7")
@pytest.mark.exhaustive
@pytest.mark.slow
def test_ten_thousand_comparisons_work_in_every_operation(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, s string")
    builder.append(*((number, "x") for number in range(6)))
    even = " OR ".join(f"id = {2 * number}" for number in range(9_999))
    odd = And(tuple(Comparison("id", ComparisonOperator.NE, 2 * number) for number in range(10_000)))
    assert [row[0] for row in builder.rows(where=even)] == [0, 2, 4]
    assert sorted(read_arrow(open_scan(builder.table, where=even))["id"].to_pylist()) == [0, 2, 4]
    merge(builder.table, frame=builder.frame((0, "m")), keys=["id"], where=even)
    overwrite(builder.table, frame=builder.frame((1, "o"), (3, "o")), where=odd)
    delete(builder.table, spark=builder.spark, where=f"({even}) AND abs(id) > 1")
    assert builder.rows() == [(0, "m"), (1, "o"), (3, "o")]
    assert columns_of(odd) == {"id"}
