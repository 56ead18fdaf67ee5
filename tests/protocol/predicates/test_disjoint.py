"""Predicates that exclude each other."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from cm_delta_dagster.protocol.predicates.disjoint import are_disjoint
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    Opaque,
    Or,
    Predicate,
)
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType

SCHEMA = StructType(
    tuple(
        StructField(name, PrimitiveType(kind))
        for name, kind in (("n", "long"), ("s", "string"), ("d", "date"), ("t", "timestamp"), ("w", "timestamp_ntz"))
    )
)
DISJOINT = [
    ("n = 1", "n = 2"),
    ("n = 1", "N IN (2, 3)"),
    ("n IN (1, 2)", "n IN (3, 4)"),
    ("n = 1", "n <> 1"),
    ("n < 5", "n >= 5"),
    ("n <= 5", "n > 5"),
    ("n = 7", "n > 7"),
    ("n IS NULL", "n = 1"),
    ("n IS NULL", "n IS NOT NULL"),
    ("n IS NULL", "n <=> 1"),
    ("s = 'a'", "s = 'b'"),
    ("startswith(s, 'ab')", "s = 'b'"),
    ("startswith(s, 'ab')", "startswith(s, 'ac')"),
    ("s = 'a' AND n = 1", "s = 'a' AND n = 2"),
    ("n = 1 OR n = 2", "n = 3 OR n = 4"),
    ("d >= DATE '2026-01-01' AND d < DATE '2026-01-02'", "d >= DATE '2026-01-02' AND d < DATE '2026-01-03'"),
    ("w < TIMESTAMP_NTZ '2026-01-01 00:00:00'", "w = TIMESTAMP_NTZ '2026-01-01 00:00:00'"),
    ("(d = DATE '2026-01-01' OR d = DATE '2026-01-02') AND s = 'x'", "d = DATE '2026-01-01' AND s IN ('y', 'z')"),
]
OVERLAPPING = [
    ("n = 1", "n = 1"),
    ("n = 1", "s = 'a'"),
    ("n = 1", "n IN (1, 2)"),
    ("n <= 5", "n >= 5"),
    ("n < 6", "n > 5"),
    ("n <> 1", "n <> 2"),
    ("n <> 1", "n = 2"),
    ("n IS NOT NULL", "n = 1"),
    ("n IS NULL", "n IS NULL"),
    ("n IS NULL", "n <=> NULL"),
    ("startswith(s, 'ab')", "s = 'abc'"),
    ("startswith(s, 'ab')", "startswith(s, 'a')"),
    ("s = 'a'", "s = 'A'"),
    ("s = 'a'", "s = 'a  '"),
    ("upper(s) = 'A'", "s = 'b'"),
    ("n = 1 OR s = 'a'", "n = 2 OR s = 'b'"),
    ("NOT (n = 1)", "n = 2"),
    ("d >= DATE '2026-01-01'", "d < DATE '2026-01-02'"),
]


@pytest.mark.parametrize(
    ("one", "other", "disjoint"), [(*c, True) for c in DISJOINT] + [(*c, False) for c in OVERLAPPING]
)
def test_it_is_certain_that_no_row_satisfies_both(one: str, other: str, disjoint: bool) -> None:
    first, second = parse_predicate(one, SCHEMA), parse_predicate(other, SCHEMA)
    assert are_disjoint(first, second) is are_disjoint(second, first) is disjoint


def equal(value: object) -> Comparison:
    return Comparison("x", ComparisonOperator.EQ, value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (equal(date(2026, 1, 1)), equal(datetime(2026, 1, 2))),
        (equal(datetime(2026, 1, 1)), equal(datetime(2026, 1, 2, tzinfo=UTC))),
        (equal(float("nan")), equal(float("nan"))),
        (equal(True), equal(1)),
        (equal(1), equal(Decimal("1.0"))),
        (equal(0.0), equal(-0.0)),
        (In("x", (1, None)), equal(2)),
        (AlwaysTrue(), equal(1)),
        (Opaque("f(x)"), equal(1)),
    ],
)
def test_values_that_python_does_not_compare_as_sql_are_taken_to_overlap(one: Predicate, other: Predicate) -> None:
    assert not are_disjoint(one, other) and not are_disjoint(other, one)


def test_nothing_overlaps_with_no_rows_and_deep_predicates_end() -> None:
    assert are_disjoint(Or(()), AlwaysTrue())
    deep: Predicate = equal(1)
    for _ in range(10_000):
        deep = Or((And((deep, Opaque("f(x)"))),))
    assert not are_disjoint(deep, equal(2))
