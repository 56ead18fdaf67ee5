"""Predicates as values: columns, conjunctions and SQL text."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Opaque,
    Or,
    StartsWith,
    column_path,
    columns_of,
    conjunction,
    conjuncts,
    literal_sql,
    partition_only,
    quote_column,
    to_sql,
)

A = Comparison("a", ComparisonOperator.GT, 1)
B = IsNull("b")


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3))
def test_a_quoted_column_reads_back_as_its_path(path: list[str]) -> None:
    assert column_path(quote_column(path)) == tuple(path)


@pytest.mark.parametrize(
    ("text", "path"), [("a", ("a",)), ("a b.c", ("a b", "c")), ("a.`b.c`", ("a", "b.c")), ("`x``y`", ("x`y",))]
)
def test_a_column_is_split_at_dots_outside_of_back_quotes(text: str, path: tuple[str, ...]) -> None:
    assert column_path(text) == path


@pytest.mark.parametrize("text", ["", "a.", ".a", "`a", "`a`b", "a`b", "``", "a..b"])
def test_a_column_that_cannot_be_split_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        column_path(text)


def test_conjuncts_flatten_and_conjunction_joins_again() -> None:
    assert conjuncts(And((A, And((B, AlwaysTrue()))))) == (A, B)
    assert conjuncts(AlwaysTrue()) == ()
    assert conjunction([A, AlwaysTrue()]) == A
    assert conjunction([A, B]) == And((A, B))
    assert conjunction([]) == AlwaysTrue()


def test_columns_are_collected_from_every_branch() -> None:
    predicate = Or(
        (And((A, B)), Not(In("c", (1,))), StartsWith("d", "x"), Opaque("f(e)", frozenset({"e"})), Opaque("?"))
    )
    assert columns_of(predicate) == {"a", "b", "c", "d", "e"}


def test_only_predicates_that_partition_values_decide_are_partition_only() -> None:
    assert partition_only(And((A, Not(Or((B, AlwaysTrue()))))), ["A", "b"])
    assert not partition_only(And((A, B)), ["a"])
    assert not partition_only(Opaque("a > 1", frozenset({"a"})), ["a"])
    assert not partition_only(IsNull("a.x"), ["a"])


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "-5"),
        (2**63, "9223372036854775808BD"),
        (1.5, "1.5D"),
        (float("nan"), "CAST('NaN' AS DOUBLE)"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
        (Decimal("1E+3"), "1000BD"),
        (Decimal("-12.30"), "-12.30BD"),
        ("it's \\ ${x}", "'it\\'s \\\\ \\u0024{x}'"),
        (b"\xab\x00", "X'AB00'"),
        (date(1, 2, 3), "DATE '0001-02-03'"),
        (datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))), "TIMESTAMP '2020-01-01 01:00:00+00:00'"),
        (datetime(2020, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "TIMESTAMP '2020-01-01 00:00:00.000005+00:00'"),
        (datetime(2020, 1, 1), "TIMESTAMP_NTZ '2020-01-01 00:00:00'"),
    ],
)
def test_literals_are_written_with_their_own_type(value: object, sql: str) -> None:
    assert literal_sql(value) == sql


@pytest.mark.parametrize("value", [object(), [1], Decimal("NaN")])
def test_a_value_without_a_literal_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentError):
        literal_sql(value)


@pytest.mark.parametrize(
    ("predicate", "sql"),
    [
        (A, "`a` > 1"),
        (Comparison("s.`x.y`", ComparisonOperator.NULL_SAFE_EQ, None), "`s`.`x.y` <=> NULL"),
        (In("a", (1, None)), "`a` IN (1, NULL)"),
        (In("a", ()), "FALSE"),
        (Not(IsNotNull("a")), "NOT (`a` IS NOT NULL)"),
        (StartsWith("a", "x"), "startswith(`a`, 'x')"),
        (And((A, Or((B, Opaque("f(x) -- c\n"))))), "(`a` > 1) AND ((`b` IS NULL) OR (f(x) -- c\n))"),
        (And(()), "TRUE"),
        (Or(()), "FALSE"),
        (AlwaysTrue(), "TRUE"),
    ],
)
def test_predicates_are_written_as_bracketed_sql(predicate: object, sql: str) -> None:
    assert to_sql(predicate) == sql
