"""Expressions in the metadata of a table: the columns that they use, and the functions that they may call."""

from contextlib import nullcontext

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.expressions import (
    check_clock_brackets,
    check_deterministic,
    checked_text,
    columns_of_expression,
    known_columns,
    uses_column,
)
from cm_delta_dagster.protocol.schema.types import INTEGER, ArrayType, StructField, StructType

SCHEMA = StructType(
    (
        StructField("Id", INTEGER),
        StructField("st", StructType((StructField("A", INTEGER),))),
        StructField("arr", ArrayType(StructType((StructField("z", INTEGER),)))),
    )
)


@pytest.mark.requirements("CHK-5", "GEN-4")
@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("x.a BETWEEN 0 AND 5", [("x", "a")]),
        ("CAST(ts AS DATE)", [("ts",)]),
        ("a.b.c.d.e.f > A", [("a", "b", "c", "d", "e", "f"), ("A",)]),
        ("exists(arr, y -> y.z > q.w)", [("arr",), ("q", "w")]),
        ("`a b`.c = 'x.y' AND m['k'].x = 1", [("a b", "c"), ("m",)]),
        ("current_date() > DATE'2020-01-01' + interval 1 day", []),
    ],
)
def test_columns_of_an_expression(text: str, columns: list[tuple[str, ...]]) -> None:
    assert sorted(columns_of_expression(text)) == sorted(columns)


@pytest.mark.requirements("CHK-5")
def test_a_text_that_cannot_be_parsed_may_use_every_name() -> None:
    """Fails closed."""
    assert ("odd",) in columns_of_expression("odd ~~~ ) name")


@pytest.mark.requirements("CHK-5", "GEN-4")
def test_parents_and_children_of_a_column_count_as_used() -> None:
    assert uses_column("ST.a > 1", ("st",)) and uses_column("st IS NULL", ("st", "a"))
    assert not uses_column("st.a > 1", ("st", "b"))
    assert known_columns("ID > st.a AND arr[0].z > 1 AND missing = 1", SCHEMA) == (("Id",), ("st", "A"), ("arr",))


@pytest.mark.requirements("GEN-4", "CHK-2")
@pytest.mark.parametrize(
    "text", ["rand() < 2", "uuid() = s", "current_timestamp() > ts", "sum(x) > 1", "x IN (SELECT 1)"]
)
def test_an_expression_of_several_rows_or_moments_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_deterministic(text, what="a test")
    # Only conditions of reads and writes can be passed to Spark unchecked.
    assert "raw_sql" not in str(caught.value)
    assert str(caught.value).startswith("The expression ")


@pytest.mark.requirements("CHK-2")
@pytest.mark.parametrize(
    ("text", "bare"), [("x < now()", False), ("x < current_date", True), ("x < current_time(3)", False)]
)
def test_the_current_time_may_be_called_where_a_query_evaluates_it_once(text: str, bare: bool) -> None:
    """With its brackets, without which delta-spark looks for a column."""
    check_deterministic(text, what="a test", allows_clock=True)
    with pytest.raises(InvalidArgumentError, match="rand"):
        check_deterministic(f"{text} AND rand() < 2", what="a test", allows_clock=True)
    with pytest.raises(InvalidArgumentError, match="Write current_date") if bare else nullcontext():
        check_clock_brackets(text, what="a test")


@pytest.mark.requirements("CHK-2")
def test_comments_are_removed() -> None:
    assert checked_text("  a > 1 -- why\n AND /* b */ c ") == "a > 1 AND c"
