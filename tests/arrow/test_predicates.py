"""Conditions on rows: Spark SQL's meaning, and row groups that are left out."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.arrow.predicates import row_filter
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
    Predicate,
    StartsWith,
)
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_type
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from tests.arrow.data_files import DataFiles, columns

Op = ComparisonOperator
NAN = float("nan")
UTC = dt.UTC
DAY = dt.date(2020, 1, 2)
MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 6)


def _answers(predicate: Predicate, schema: StructType, array: pa.Array) -> list[bool | None]:
    answer = row_filter(predicate, schema).answer(lambda name: array, len(array))
    return answer.to_pylist()


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    ("data_type", "values", "operator", "value", "expected"),
    [
        (LONG, [1, 2, 3, None], Op.EQ, 2, [False, True, False, None]),
        (LONG, [1, 2, None], Op.NE, 2, [True, False, None]),
        (LONG, [1, 2, None], Op.NULL_SAFE_EQ, 2, [False, True, False]),
        (LONG, [1, None], Op.NULL_SAFE_EQ, None, [False, True]),
        (LONG, [1, None], Op.EQ, None, [None, None]),
        (LONG, [1, 2], Op.GT, Decimal("1.5"), [False, True]),
        (LONG, [1, 2], Op.LT, 2**70, [True, True]),
        (LONG, [2**53 + 1, 3, None], Op.EQ, float(2**53), [True, False, None]),
        (LONG, [1], Op.LT, NAN, [True]),
        (DOUBLE, [NAN, 1.0, math.inf, None], Op.GT, 2, [True, False, True, None]),
        (DOUBLE, [NAN, 1.0, None], Op.EQ, NAN, [True, False, None]),
        (DOUBLE, [NAN, 1.0, None], Op.NE, NAN, [False, True, None]),
        (DOUBLE, [NAN, 1.0, None], Op.LE, NAN, [True, True, None]),
        (DOUBLE, [NAN, 1.0, None], Op.LT, NAN, [False, True, None]),
        (DOUBLE, [NAN, 1.0, None], Op.GT, NAN, [False, False, None]),
        (DOUBLE, [NAN, 1.0, None], Op.NE, 1.0, [True, False, None]),
        (DOUBLE, [NAN, 1.0, None], Op.NULL_SAFE_EQ, NAN, [True, False, False]),
        (DOUBLE, [-0.0, 0.0], Op.EQ, 0, [True, True]),
        (DOUBLE, [-0.0], Op.LT, 0.0, [False]),
        (FLOAT, [1.5, NAN], Op.GE, Decimal("1.5"), [True, True]),
        (DecimalType(10, 2), [Decimal("1.20"), Decimal("1.21"), None], Op.EQ, Decimal("1.2"), [True, False, None]),
        (DecimalType(38, 0), [Decimal(10**37)], Op.GT, 5, [True]),
        (DecimalType(38, 0), [Decimal(1), Decimal(0)], Op.EQ, Decimal("1.000"), [True, False]),
        (DecimalType(38, 18), [Decimal("1.5")], Op.LT, Decimal("12345678901234567890.5"), [True]),
        (STRING, ["a", "b", "é", None], Op.GT, "b", [False, False, True, None]),
        (BINARY, [b"\x01", b"\xff"], Op.GT, b"\x7f", [False, True]),
        (BOOLEAN, [True, False, None], Op.EQ, True, [True, False, None]),
        (DATE, [DAY, dt.date(1, 1, 1)], Op.GE, DAY, [True, False]),
        (DATE, [DAY], Op.EQ, "2020-01-02", [True]),
        (TIMESTAMP, [MOMENT.replace(tzinfo=UTC)], Op.EQ, MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(0))), [True]),
        (TIMESTAMP_NTZ, [MOMENT, None], Op.LT, MOMENT, [False, None]),
        (VOID, [None, None], Op.EQ, 1, [None, None]),
    ],
)
def test_comparisons_mean_what_they_mean_in_spark(
    data_type: DataType, values: list[Any], operator: ComparisonOperator, value: Any, expected: list[bool | None]
) -> None:
    """Three-valued, NaN equal to itself and greater than all, signed zeros equal, numbers exact."""
    array = pa.array(values, to_arrow_type(data_type))
    assert _answers(Comparison("C", operator, value), columns(c=data_type), array) == expected


def test_logic_is_three_valued() -> None:
    array = pa.array([1, 2, None], pa.int64())
    schema = columns(c=LONG)
    one, null = Comparison("c", Op.EQ, 1), Comparison("c", Op.EQ, None)
    assert _answers(Not(one), schema, array) == [False, True, None]
    assert _answers(And((one, null)), schema, array) == [None, False, None]
    assert _answers(Or((one, null)), schema, array) == [True, None, None]
    assert _answers(And(()), schema, array) == [True] * 3
    assert _answers(Or(()), schema, array) == [False] * 3
    assert _answers(AlwaysTrue(), schema, array) == [True] * 3
    assert _answers(In("c", (1, 5)), schema, array) == [True, False, None]
    assert _answers(In("c", (1, None)), schema, array) == [True, None, None]
    assert _answers(In("c", ()), schema, array) == [False] * 3
    assert _answers(IsNull("c"), schema, array) == [False, False, True]
    assert _answers(Not(IsNotNull("c")), schema, array) == [False, False, True]
    assert _answers(Not(StartsWith("c", "a")), columns(c=STRING), pa.array(["ab", "b", None])) == [False, True, None]


def test_fields_of_structs_are_null_where_the_struct_is() -> None:
    schema = columns(s=StructType((StructField("A", StructType((StructField("b", LONG),))),)))
    array = pa.array([{"A": {"b": 1}}, {"A": None}, None], pa.struct({"A": pa.struct({"b": pa.int64()})}))
    assert _answers(Comparison("s.a.b", Op.EQ, 1), schema, array) == [True, None, None]
    assert _answers(IsNull("S.A"), schema, array) == [False, True, True]


@pytest.mark.parametrize(
    ("predicate", "data_type", "words"),
    [
        (Opaque("upper(c) > 'A'", frozenset({"c"})), STRING, r"upper\(c\) > 'A'"),
        (Comparison("c", Op.EQ, 1), STRING, "string"),
        (Comparison("c", Op.EQ, "1"), LONG, "bigint"),
        (Comparison("c", Op.EQ, 1.5), DecimalType(5, 1), "decimal"),
        (Comparison("c", Op.EQ, 2**60), DOUBLE, "double"),
        (Comparison("c", Op.EQ, True), LONG, "bigint"),
        (Comparison("c", Op.EQ, MOMENT), TIMESTAMP, "timestamp"),
        (Comparison("c", Op.EQ, MOMENT.replace(tzinfo=UTC)), TIMESTAMP_NTZ, "timestamp_ntz"),
        (Comparison("c", Op.EQ, MOMENT), DATE, "date"),
        (Comparison("c", Op.EQ, "2020-1-2"), DATE, "date"),
        (Comparison("c", Op.EQ, Decimal("1e-50")), LONG, "bigint"),
        (Comparison("c", Op.EQ, Decimal("1.5")), DecimalType(38, 0), "decimal"),
        (Comparison("c", Op.EQ, 10**37), DecimalType(12, 2), "decimal"),
        (Comparison("c", Op.EQ, Decimal("0.0000000000000000001")), LONG, "bigint"),
        (In("c", (Decimal("0.1"), 10**37)), DecimalType(5, 5), "decimal"),
        (In("c", (Decimal("0.1"), 10**37)), LONG, "bigint"),
        (In("c", (5, 6)), DecimalType(38, 30), "decimal"),
        (In("c", (2**53, 0.5)), LONG, "bigint"),
        (Comparison("c", Op.EQ, 1), ArrayType(LONG), "array"),
        (StartsWith("c", "1"), LONG, "bigint"),
        (Comparison("other", Op.EQ, 1), LONG, "other"),
        (Comparison("c.x", Op.EQ, 1), LONG, "c.x"),
    ],
)
def test_what_only_spark_can_evaluate_is_refused_and_named(
    predicate: Predicate, data_type: DataType, words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        row_filter(And((IsNotNull("c"), predicate)), columns(c=data_type))


@pytest.mark.requirements("UP-COLL-2")
def test_a_comparison_under_a_collation_is_refused() -> None:
    """Bytes are not compared in the place of letters."""
    schema = StructType((StructField("c", STRING, True, {"__COLLATIONS": {"c": "icu.de"}}),))
    with pytest.raises(InvalidArgumentError, match="collation"):
        row_filter(Comparison("c", Op.EQ, "a"), schema)


_SCHEMA = columns(i=LONG, f=DOUBLE, s=STRING, d=DATE, t=TIMESTAMP)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([NAN, -1.0, -0.0, 0.0, 1.0, math.inf, -math.inf]),
    "s": st.sampled_from(["", "a", "ab", "b", "é", "\U0001f600", "\uffff"]),
    "d": st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 5)),
    "t": st.integers(0, 3).map(lambda second: dt.datetime(2020, 1, 1, second=second, tzinfo=UTC)),
}


def _leaf(name: str) -> st.SearchStrategy[Predicate]:
    value = st.none() | _VALUES[name]
    parts = [
        st.builds(Comparison, st.just(name), st.sampled_from(list(Op)), value),
        st.builds(In, st.just(name), st.lists(value, max_size=3).map(tuple)),
        st.builds(IsNull, st.just(name)),
        st.builds(IsNotNull, st.just(name)),
    ]
    return st.one_of(parts)


_PREDICATES = st.recursive(
    st.sampled_from(list(_VALUES)).flatmap(_leaf),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=5,
)


@pytest.mark.requirements("SKIP-1", "SKIP-2")
@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in _VALUES.items()}), max_size=12),
    predicate=_PREDICATES,
    group=st.integers(1, 4),
)
def test_leaving_out_row_groups_changes_no_answer(rows: list[dict[str, Any]], predicate: Predicate, group: int) -> None:
    """With nulls, NaN and all of a row group null."""
    schema = pa.schema([(item.name, to_arrow_type(item.type)) for item in _SCHEMA.fields])
    table = pa.Table.from_pylist(rows, schema=schema)
    wanted = row_filter(predicate, _SCHEMA)
    mask = wanted.answer(lambda name: table[name].combine_chunks(), table.num_rows)
    expected = [row for row, keep in zip(table.to_pylist(), mask.to_pylist(), strict=True) if keep]
    with TemporaryDirectory() as directory:
        data_files = DataFiles(Path(directory))
        data_files.add(table, row_group_size=group)
        found = data_files.read(_SCHEMA, predicate=predicate).to_pylist()
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("day", "2024-05-41"),
        ("at", "2024-02-30 00:00:00"),
        ("at", "2024-02-30T00:00:00Z"),
        ("local", "2024-05-01 25:00:00"),
    ],
)
def test_a_date_that_the_calendar_does_not_have_is_named(column: str, text: str) -> None:
    schema = StructType(
        (
            StructField("day", DATE),
            StructField("at", TIMESTAMP),
            StructField("local", TIMESTAMP_NTZ),
            StructField("n", LONG),
        )
    )
    for where in (f"{column} = '{text}'", f"n > 1 AND NOT {column} < '{text}'"):
        with pytest.raises(InvalidArgumentError, match=f"compares with '{text}', which is not a date or time"):
            row_filter(parse_predicate(where, schema, zone=dt.UTC), schema)
    with pytest.raises(InvalidArgumentError, match="only Spark can evaluate"):
        row_filter(parse_predicate("day = '0000-01-01'", schema), schema)  # Spark has the year 0.


def test_a_local_time_before_1970_is_compared_only_where_all_sources_have_the_same_rules() -> None:
    schema, amsterdam, berlin = columns(t=TIMESTAMP), ZoneInfo("Europe/Amsterdam"), ZoneInfo("Europe/Berlin")
    array = pa.array([dt.datetime(1930, 6, 1, tzinfo=UTC), dt.datetime(2020, 6, 1, tzinfo=UTC)])
    for text in ("t < '1930-06-01 00:00:00'", "t IN (TIMESTAMP '1930-06-01 00:00:00')", "t >= '1850'"):
        with pytest.raises(InvalidArgumentError, match="rules of Europe/Amsterdam"):
            row_filter(parse_predicate(text, schema, zone=amsterdam), schema)
        row_filter(parse_predicate(text, schema, zone=berlin), schema)
    for text in ("t < TIMESTAMP '1930-06-01 00:20:00+00:20'", "t < '1970-01-02 00:00:00'"):
        parsed = parse_predicate(text, schema, zone=amsterdam)
        assert _answers(parsed, schema, array) == ["1970" in text, False]
    early = parse_predicate("t < '1930-06-01 00:00:00'", schema, zone=berlin)
    assert _answers(early, schema, array) == [False, False], "23:00 of 31 May in UTC"
