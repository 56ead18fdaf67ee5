"""Conditions on generated columns that follow from conditions on their sources."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.protocol.features.generated_filters import with_generated_filters
from cm_delta_dagster.protocol.predicates.predicates import (
    Comparison,
    In,
    IsNull,
    Or,
    column_path,
    conjuncts,
    quote_column,
)
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import (
    DATE,
    INTEGER,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    StructField,
    StructType,
)


def schema(source: DataType, target: DataType, expression: str) -> StructType:
    generated = {"delta.generationExpression": expression}
    return StructType((StructField("At", source), StructField("g", target, True, generated)))


def derived(source: DataType, target: DataType, expression: str, condition: str) -> list[tuple[str, Any]]:
    columns = schema(source, target, expression)
    found = conjuncts(with_generated_filters(parse_predicate(condition, columns, zone=dt.UTC), columns))
    return [
        (part.operator.value, part.value)
        for part in found
        if isinstance(part, Comparison) and column_path(part.column) == ("g",)
    ]


@pytest.mark.requirements("GEN-1")
@pytest.mark.parametrize(
    ("source", "target", "expression", "condition", "expected"),
    [
        (TIMESTAMP, DATE, "CAST(at AS DATE)", "at >= TIMESTAMP '2024-05-01 12:00:00Z'", [(">=", dt.date(2024, 4, 30))]),
        (TIMESTAMP, DATE, "to_date(`At`)", "at < TIMESTAMP '2024-05-01 12:00:00Z'", [("<=", dt.date(2024, 5, 2))]),
        (DATE, INTEGER, "year(at)", "at = DATE '2024-05-01'", [(">=", 2024), ("<=", 2024)]),
        (TIMESTAMP, INTEGER, "year(at)", "at <= TIMESTAMP '2024-12-31 12:00:00Z'", [("<=", 2025)]),
        (TIMESTAMP, INTEGER, "year(at)", "at >= TIMESTAMP '2024-01-01 12:00:00Z'", [(">=", 2023)]),
        (STRING, STRING, "substring(at, 1, 2)", "at IN ('abc', 'xyz')", [(">=", "ab"), ("<=", "xy")]),
        (TIMESTAMP, TIMESTAMP, "date_trunc('HOUR', at)", "at > TIMESTAMP '2024-05-01 12:30:00Z'",
         [(">=", dt.datetime(2024, 5, 1, 10, 30, tzinfo=dt.UTC))]),
        (TIMESTAMP, DATE, "to_date(at)", "at <= TIMESTAMP '9999-12-31 12:00:00Z'", []),
        (TIMESTAMP, DATE, "to_date(at)", "at >= TIMESTAMP '0001-01-01 12:00:00Z'", []),
        (TIMESTAMP_NTZ, DATE, "to_date(at)", "at >= TIMESTAMP_NTZ '2024-05-01 12:00:00'", [(">=", dt.date(2024, 5, 1))]),
        (DATE, STRING, "CAST(at AS DATE)", "at = DATE '2024-05-01'", []),
        (DATE, STRING, "year(at)", "at = DATE '2024-05-01'", []),
        (TIMESTAMP, STRING, "date_trunc('HOUR', at)", "at > TIMESTAMP '2024-05-01 12:30:00Z'", []),
        (DATE, DATE, "date_trunc('HOUR', at)", "at > DATE '2024-05-01'", []),
        (STRING, DATE, "to_date(at)", "at = '2024-05-01'", []),
        (STRING, STRING, "substring(at, 1, 0)", "at = 'abc'", []),
        (STRING, STRING, "substring(at, 1, 25)", "at = 'abc'", [(">=", "abc"), ("<=", "abc")]),
        (STRING, STRING, "substring(at, 1, 26)", "at = 'abc'", []),
        (DATE, INTEGER, "month(at)", "at = DATE '2024-05-01'", []),
        (DATE, DATE, "date_add(at, 1)", "at = DATE '2024-05-01'", []),
        (DATE, INTEGER, "year(at)", "at <> DATE '2024-05-01' OR at IS NULL", []),
    ],
)  # fmt: skip
def test_conditions_of_monotone_expressions(
    source: DataType, target: DataType, expression: str, condition: str, expected: list[tuple[str, Any]]
) -> None:
    assert derived(source, target, expression, condition) == expected


@pytest.mark.requirements("GEN-1")
@pytest.mark.parametrize(
    ("condition", "has_null"),
    [("at = ''", True), ("at IN ('', 'x')", True), ("at <= 'x'", True), ("at < 'x'", True), ("at >= ''", True),
     ("at = 'x'", False), ("at >= 'x'", False), ("at IN ('x', 'y')", False)],
)  # fmt: skip
def test_the_empty_text_that_partitions_store_as_null_stays_within_bounds(condition: str, has_null: bool) -> None:
    columns = schema(STRING, STRING, "substring(at, 1, 1)")
    first, *found = conjuncts(with_generated_filters(parse_predicate(condition, columns, zone=dt.UTC), columns))
    assert first == parse_predicate(condition, columns, zone=dt.UTC) and found
    assert all(isinstance(part, Or) and IsNull(quote_column(("g",))) in part.parts for part in found) is has_null
    assert all(isinstance(part, Comparison) for part in found) is not has_null


@pytest.mark.requirements("GEN-1")
@given(
    value=st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9990, 1, 1), timezones=st.just(dt.UTC)),
    bound=st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9990, 1, 1), timezones=st.just(dt.UTC)),
    offset=st.integers(-18 * 60, 18 * 60),
)
def test_no_row_is_excluded_in_any_zone(value: dt.datetime, bound: dt.datetime, offset: int) -> None:
    """The writer's session may have had any time zone."""
    local = value.astimezone(dt.timezone(dt.timedelta(minutes=offset)))
    columns = schema(TIMESTAMP, DATE, "CAST(at AS DATE)")
    for part in conjuncts(with_generated_filters(In("at", (value, bound)), columns)):
        if isinstance(part, Comparison) and column_path(part.column) == ("g",):
            assert local.date() >= part.value if part.operator.value == ">=" else local.date() <= part.value
