"""Predicates from SQL text: conditions that are understood, left to the engine, or refused."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

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
    Predicate,
    StartsWith,
    leaves,
    to_sql,
)
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import (
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

Op = ComparisonOperator
COLUMNS: dict[str, DataType] = {
    "i": PrimitiveType("integer"),
    "d": PrimitiveType("double"),
    "f": PrimitiveType("float"),
    "c": DecimalType(10, 2),
    "s": PrimitiveType("string"),
    "b": PrimitiveType("boolean"),
    "bin": PrimitiveType("binary"),
    "day": PrimitiveType("date"),
    "ts": PrimitiveType("timestamp"),
    "ntz": PrimitiveType("timestamp_ntz"),
    "my.col": PrimitiveType("integer"),
    "St": StructType((StructField("In", PrimitiveType("integer")),)),
    "m": MapType(PrimitiveType("string"), PrimitiveType("integer")),
}
SCHEMA = StructType(tuple(StructField(name, kind) for name, kind in COLUMNS.items()))


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("I = 1", Comparison("i", Op.EQ, 1)),
        ("i == -1", Comparison("i", Op.EQ, -1)),
        ("1 < i", Comparison("i", Op.GT, 1)),
        ("i <> (2)", Comparison("i", Op.NE, 2)),
        ("i <=> null", IsNull("i")),
        ("null <=> i", IsNull("i")),
        ("i is not distinct from null", IsNull("i")),
        ("st <=> null", IsNull("St")),
        ("m is not distinct from null", IsNull("m")),
        ("m is distinct from null", IsNotNull("m")),
        ("not st <=> null", IsNotNull("St")),
        ("i is distinct from 3", Not(Comparison("i", Op.NULL_SAFE_EQ, 3))),
        ("i = '5'", Comparison("i", Op.EQ, 5)),
        ("i > 1.5", Comparison("i", Op.GT, Decimal("1.5"))),
        ("i = 5L", Comparison("i", Op.EQ, 5)),
        ("i in (1, -2, null)", In("i", (1, -2, None))),
        ("i not in (1)", Not(In("i", (1,)))),
        ("i between 1 and 2", And((Comparison("i", Op.GE, 1), Comparison("i", Op.LE, 2)))),
        ("st is null", IsNull("St")),
        ("m is not null", IsNotNull("m")),
        ("i is null or not (i >= 3)", Or((IsNull("i"), Not(Comparison("i", Op.GE, 3))))),
        ("i is not null", IsNotNull("i")),
        ("d = 0.1", Comparison("d", Op.EQ, 0.1)),
        ("d < 1e3", Comparison("d", Op.LT, 1000.0)),
        ("d = 1.5D", Comparison("d", Op.EQ, 1.5)),
        ("c = 1.50", Comparison("c", Op.EQ, Decimal("1.50"))),
        ("c = 12.3BD", Comparison("c", Op.EQ, Decimal("12.3"))),
        ("s = 'a'", Comparison("s", Op.EQ, "a")),
        ('s = "a"', Comparison("s", Op.EQ, "a")),
        ("s like 'ab%'", StartsWith("s", "ab")),
        ("s like 'ab'", Comparison("s", Op.EQ, "ab")),
        ("startswith(s, 'q')", StartsWith("s", "q")),
        ("b", Comparison("b", Op.EQ, True)),
        ("not b", Not(Comparison("b", Op.EQ, True))),
        ("b is false", Comparison("b", Op.NULL_SAFE_EQ, False)),
        ("bin = X'AB'", Comparison("bin", Op.EQ, b"\xab")),
        ("day >= '2020-01-01'", Comparison("day", Op.GE, date(2020, 1, 1))),
        ("day >= DATE '2020-01-01'", Comparison("day", Op.GE, date(2020, 1, 1))),
        ("day = cast('2020-01-01' as date)", Comparison("day", Op.EQ, date(2020, 1, 1))),
        ("ts < timestamp '2020-01-01 00:00:00Z'", Comparison("ts", Op.LT, datetime(2020, 1, 1, tzinfo=UTC))),
        ("ts < '2020-01-01T00:00:00.5+00:00'", Comparison("ts", Op.LT, datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC))),
        ("ntz = TIMESTAMP_NTZ '2020-01-01 00:00:00'", Comparison("ntz", Op.EQ, datetime(2020, 1, 1))),
        ("`my.col` = 3", Comparison("`my.col`", Op.EQ, 3)),
        ("s = 'it\\'s'", Comparison("s", Op.EQ, "it's")),
        ("s in ('O''Brien', r'\\d', 'a' 'b')", In("s", ("O'Brien", "\\d", "ab"))),
        ("day = DATE '2020' '-01-01'", Comparison("day", Op.EQ, date(2020, 1, 1))),
        ("s like 'a\\_b'", Comparison("s", Op.EQ, "a_b")),
        ("s not like 'O''#%%' escape '#'", Not(StartsWith("s", "O'%"))),
        ("st.in = 3", Comparison("St.In", Op.EQ, 3)),
        ("true", AlwaysTrue()),
        ("i = 1 and (s = 'a' and b)", And((
            Comparison("i", Op.EQ, 1), Comparison("s", Op.EQ, "a"), Comparison("b", Op.EQ, True)))),
    ],
)  # fmt: skip
def test_conditions_are_understood(text: str, predicate: Predicate) -> None:
    assert parse_predicate(text, SCHEMA) == predicate


@pytest.mark.parametrize(
    "text",
    [
        "upper(s) = 'A'", "i = i", "s = 5", "i = 'x'", "c = 1.5D", "day = '2020-1-1'",
        "ts <> '2020-01-01'", "i <> 1e3", "i = 1e17",
        "cast(s as date) = '2020-01-01'", "cast(i as date) = 1e3", "cast(ts as timestamp) = '2020-01-01'",
        "ts > '0001-01-01'", "ts = ''", "s not like 'a_b'", "s like 'a\\\\x%'",
        "s like 'a%' escape ''", "to_date(s, 'yyyy') = '2020-01-01'",
        "ts + interval 1 day > '2020-01-01'",
        "day = 'today'",
        "s = '\\ud83d'", "s = '\\U00110000'", "s like 'a#_%_' escape '#'", "s like '_b'", "s like '%a'", "s ilike 'a%'",
        "i + 1 = 2",
        "m['k'] = 1",
        "i in (1, 'x')", "day > current_date()", "i = cast('7.5' as int)", "f = cast(0.1 as float)",
        "i = cast(70000 as smallint)", "c = cast(1.555 as decimal(3,1))",
        "exists(array(1), x -> x > 1)", "i between 1 and i", "case when b then b else b end",
        "s rlike 'a'", "bin = X'ABC'",
    ],
)  # fmt: skip
def test_conditions_that_depend_on_settings_are_left_to_the_engine(text: str) -> None:
    predicate = parse_predicate(text, SCHEMA)
    assert isinstance(predicate, Opaque)
    assert to_sql(predicate) == text


def utc(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


AFTER, BEFORE = Comparison("ts", Op.GE, utc(2019, 12, 30)), Comparison("ts", Op.LE, utc(2020, 1, 3))


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    ("text", "weaker"),
    [
        ("ts > '2020-01-01'", (AFTER,)),
        ("'2020-01-01' > ts", (BEFORE,)),
        ("ts > DATE '2020-01-01'", (AFTER,)),
        ("ts <= TIMESTAMP '2020-01-01 00:00:00'", (BEFORE,)),
        ("ts <=> '2020-01-01'", (AFTER, BEFORE)),
        ("ts between '2020-01-01' and '2020-01-01 00:00:00'", (AFTER, BEFORE)),
        ("ts in ('2020-01-01')", (AFTER, BEFORE)),
        ("cast(ts as date) = DATE '2020-01-01'", (AFTER, BEFORE)),
        ("date(ts) = '2020-01-01'", (AFTER, BEFORE)),
        ("to_date(ts) = '2020-01-01'", (AFTER, BEFORE)),
        ("ntz < '2020-01-01T02:00:00+02:00'", (Comparison("ntz", Op.LE, datetime(2020, 1, 3)),)),
        ("day > TIMESTAMP '2020-01-01 10:00:00'", (Comparison("day", Op.GE, date(2019, 12, 30)),)),
        ("i < 1e3", (Comparison("i", Op.LT, Decimal(1000)),)),
        ("s like 'a_b%'", (StartsWith("s", "a"),)),
    ],
)
def test_a_predicate_that_follows_under_every_setting_is_added(text: str, weaker: tuple[Predicate, ...]) -> None:
    """Casts that Spark introduces and session zones shift a comparison by less than two days."""
    predicate = parse_predicate(text, SCHEMA)
    assert isinstance(predicate, And)
    assert predicate.parts[:-1] == weaker
    assert isinstance(predicate.parts[-1], Opaque)
    assert predicate.parts[-1].sql == text


def test_each_operand_is_understood_on_its_own() -> None:
    upper = Opaque("upper(s) = 'A'", frozenset({"s"}))
    one, two = Comparison("i", Op.EQ, 1), Comparison("i", Op.EQ, 2)
    assert parse_predicate("i = 1 and upper(s) /* how */ = 'A' -- why", SCHEMA) == And((one, upper))
    assert parse_predicate("i = 1 or upper(s) = 'A'", SCHEMA) == Or((one, upper))
    assert parse_predicate("(i = 1 and upper(s) = 'A') or i = 2", SCHEMA) == Or((And((one, upper)), two))
    assert parse_predicate("not (i = 1 and upper(s) = 'A')", SCHEMA) == Not(And((one, upper)))


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("text", ["not (ts = '2020-01-01')", "not (b or ts = '2020-01-01')", "not not not i = 1e3"])
def test_no_predicate_is_derived_from_an_operand_inside_of_a_not(text: str) -> None:
    """Where the operand is NULL, the derived predicate may be false."""
    predicate = parse_predicate(text, SCHEMA)
    assert isinstance(predicate, Not)
    assert isinstance(list(leaves(predicate))[-1], Opaque)
    assert all(leaf == Comparison("b", Op.EQ, True) for leaf in list(leaves(predicate))[:-1])


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("not b and i = 1", And((Not(Comparison("b", Op.EQ, True)), Comparison("i", Op.EQ, 1)))),
        ("b or b and b", Or((Comparison("b", Op.EQ, True), And((Comparison("b", Op.EQ, True),) * 2)))),
        ("(b or b) and b", And((Or((Comparison("b", Op.EQ, True),) * 2), Comparison("b", Op.EQ, True)))),
        ("! (! b)", Comparison("b", Op.EQ, True)),
        ("i between 1 and 2 and b", And((Comparison("i", Op.GE, 1), Comparison("i", Op.LE, 2), Comparison("b", Op.EQ, True)))),
        ("not i not between 1 and 2", And((Comparison("i", Op.GE, 1), Comparison("i", Op.LE, 2)))),
        ("((i)) = 1 or ((b))", Or((Comparison("i", Op.EQ, 1), Comparison("b", Op.EQ, True)))),
    ],
)  # fmt: skip
def test_not_binds_tighter_than_and_and_and_tighter_than_or(text: str, predicate: Predicate) -> None:
    assert parse_predicate(text, SCHEMA) == predicate


@pytest.mark.parametrize(
    "text",
    [
        "case when b and b then b else b or b end", "i = case when b and b then 1 end", "(i, i) in ((1, 2))",
        "exists(array(i), x -> x > 1 and x < 3)", "(b or b) = b", "(i + 1) * 2 = 4", "i between case when b and b then 1 end and 3",
    ],
)  # fmt: skip
def test_and_and_or_inside_of_a_value_do_not_split_it(text: str) -> None:
    predicate = parse_predicate(text, SCHEMA)
    assert isinstance(predicate, Opaque)
    assert predicate.sql == text


@pytest.mark.parametrize("text", ["nope = 1", "St.nope = 1", "upper(nope) = 'A'", "i.x = 1", "t.i = 1"])
def test_an_unknown_column_is_named_together_with_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"(?s)(nope|i\.x|t\.i).*my\.col"):
        parse_predicate(text, SCHEMA)


@pytest.mark.parametrize(
    "text", ["", " ", "i =", "(i = 1", "i = 'x", "select 1", "i = 1; i = 2", "drop table x", "i = 1)", "i as x", "-- c"]
)
def test_text_that_is_not_a_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_predicate(text, SCHEMA)


@pytest.mark.parametrize("text", ["'abc'", "5", "1.5", "i", "(i)", "not i", "i = 1 and d", "i = 1 or 'x'"])
def test_a_literal_or_column_that_is_not_boolean_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="neither true nor false"):
        parse_predicate(text, SCHEMA)


LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "c": st.decimals(-99, 99, places=2),
    "s": st.text(st.characters(exclude_characters="\\$\0", exclude_categories=("Cs", "Cc")), max_size=6),
    "b": st.booleans(),
    "bin": st.binary(min_size=1, max_size=4),
    "day": st.dates(),
    "ts": st.datetimes(timezones=st.just(UTC)),
    "ntz": st.datetimes(),
}
comparisons = st.sampled_from(sorted(LITERALS)).flatmap(
    lambda name: st.builds(Comparison, st.just(name), st.sampled_from(list(Op)), LITERALS[name])
)


@given(comparisons)
def test_written_sql_parses_to_the_same_predicate(predicate: Comparison) -> None:
    assert parse_predicate(to_sql(predicate), SCHEMA) == predicate


@given(st.text("'\"ax %", max_size=5))
def test_written_texts_with_quotes_parse_to_the_same_predicate(text: str) -> None:
    predicate = Comparison("s", Op.EQ, text)
    assert parse_predicate(to_sql(predicate), SCHEMA) == predicate


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("text", ["NOT s LIKE 'x%'", "s NOT LIKE 'x%'", "NOT (s LIKE 'x%')"])
def test_a_negated_like_is_negated(text: str) -> None:
    """In every form that the parser returns."""
    schema = StructType((StructField("s", PrimitiveType("string")),))
    assert parse_predicate(text, schema) == Not(StartsWith("s", "x"))
    assert parse_predicate("NOT (s NOT LIKE 'x%')", schema) == StartsWith("s", "x")
    assert parse_predicate("s NOT LIKE 'x'", schema) == Not(Comparison("s", ComparisonOperator.EQ, "x"))


def test_negated_forms_agree_with_their_written_out_negation() -> None:
    schema = StructType((StructField("i", PrimitiveType("long")),))
    for negated, positive in (("i NOT IN (1, 2)", "i IN (1, 2)"), ("i NOT BETWEEN 1 AND 2", "i BETWEEN 1 AND 2")):
        assert parse_predicate(negated, schema) == Not(parse_predicate(positive, schema))
    assert parse_predicate("i IS NOT NULL", schema) == IsNotNull("i")
