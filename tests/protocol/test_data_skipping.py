"""Data skipping: nothing that matches is ever left out, and what can be left out is."""

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.data_skipping import keep_mask, partition_matches_exactly
from cm_delta_dagster.protocol.predicates import (
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
from cm_delta_dagster.protocol.schema import DataType, DecimalType, PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics import truncate_lower_bound, truncate_upper_bound

Op = ComparisonOperator

TYPES: dict[str, DataType] = {
    "i": PrimitiveType("long"),
    "f": PrimitiveType("float"),
    "d": PrimitiveType("double"),
    "c": DecimalType(20, 2),
    "s": PrimitiveType("string"),
    "t": PrimitiveType("timestamp"),
    "n": PrimitiveType("timestamp_ntz"),
    "y": PrimitiveType("date"),
    "b": PrimitiveType("boolean"),
}
SCHEMA = StructType(
    (
        *(StructField(name, kind) for name, kind in TYPES.items()),
        StructField("p", PrimitiveType("integer")),
        StructField("q", PrimitiveType("string")),
        StructField("r", PrimitiveType("double")),
        StructField("z", PrimitiveType("timestamp")),
        StructField("st", StructType((StructField("In.ner", PrimitiveType("integer")),))),
    )
)
PARTITIONS = ("p", "q", "r", "z")


def adds(*files: tuple[dict[str, str | None], str | None]) -> pa.Table:
    return pa.table(
        {
            "partitionValues": pa.array(
                [list(values.items()) for values, _ in files], pa.map_(pa.string(), pa.string())
            ),
            "stats": pa.array([stats for _, stats in files], pa.string()),
        }
    )


def kept(predicate: Predicate, *files: tuple[dict[str, str | None], str | None]) -> list[bool]:
    mask = keep_mask(adds(*files), predicate, schema=SCHEMA, partition_columns=PARTITIONS)
    assert mask.null_count == 0
    return mask.to_pylist()


def data(**parts: Any) -> tuple[dict[str, str | None], str | None]:
    return {}, json.dumps(parts)


def bounds(column: str, low: Any, high: Any, *, rows: int = 9, nulls: int | None = 0) -> tuple[dict[str, Any], str]:
    counts = {} if nulls is None else {column: nulls}
    stats = {"numRecords": rows, "minValues": {column: low}, "maxValues": {column: high}, "nullCount": counts}
    return {}, json.dumps(stats)


@pytest.mark.parametrize(
    ("operator", "value", "keep"),
    [
        (Op.EQ, 4, False), (Op.EQ, 5, True), (Op.EQ, 9, True), (Op.EQ, 10, False),
        (Op.LT, 5, False), (Op.LT, 6, True), (Op.LE, 4, False), (Op.LE, 5, True),
        (Op.GT, 9, False), (Op.GT, 8, True), (Op.GE, 10, False), (Op.GE, 9, True),
        (Op.NE, 5, True), (Op.NULL_SAFE_EQ, 4, False), (Op.NULL_SAFE_EQ, 5, True), (Op.EQ, None, False),
        (Op.EQ, 2**70, True), (Op.EQ, "4", True), (Op.EQ, Decimal("4.0"), False), (Op.EQ, Decimal("4.5"), True),
    ],
)  # fmt: skip
def test_integer_bounds_exclude_what_they_can(operator: Op, value: Any, keep: bool) -> None:
    """SKIP-1."""
    assert kept(Comparison("I", operator, value), bounds("i", 5, 9)) == [keep]


def test_negation_is_pushed_to_the_leaves() -> None:
    """SKIP-1."""
    file = bounds("i", 5, 9)
    assert kept(Not(Comparison("i", Op.GE, 5)), file) == [False]
    assert kept(Not(Or((Comparison("i", Op.GT, 3), IsNull("i")))), file) == [False]
    assert kept(Not(And((Comparison("i", Op.GT, 3), Opaque("f(i)")))), file) == [True]
    assert kept(Not(In("i", (7,))), bounds("i", 7, 7)) == [False]
    assert kept(Not(Not(Comparison("i", Op.LT, 5))), file) == [False]
    assert kept(Not(AlwaysTrue()), file) == [False]
    assert kept(Not(Opaque("f(i)")), file) == [True]
    assert kept(Not(Comparison("i", Op.NULL_SAFE_EQ, 7)), bounds("i", 7, 7)) == [True]


def test_lists_exclude_by_every_value_or_by_their_range() -> None:
    """SKIP-1."""
    file = bounds("i", 5, 9)
    assert kept(In("i", (1, 20, None)), file) == [False]
    assert kept(In("i", (1, 7)), file) == [True]
    assert kept(In("i", ()), file) == [False]
    assert kept(In("i", tuple(range(100, 200))), file) == [False]
    assert kept(In("i", tuple(range(-100, 200, 2))), file) == [True]
    assert kept(In("c", tuple(Decimal(n) / 4 for n in range(40, 200))), bounds("c", 1, 9.5)) == [False]


def test_null_counts_answer_null_tests() -> None:
    """SKIP-5, STATS-3, STATS-4."""
    no_null, some, only = (bounds("i", 1, 2, rows=3, nulls=n) for n in (0, 1, 3))
    unknown = bounds("i", 1, 2, nulls=None)
    assert kept(IsNull("i"), no_null, some, only, unknown) == [False, True, True, True]
    assert kept(IsNotNull("i"), no_null, some, only, unknown) == [True, True, False, True]
    assert kept(Comparison("i", Op.NULL_SAFE_EQ, None), no_null, some) == [False, True]
    assert kept(Comparison("b", Op.EQ, True), data(numRecords=2, nullCount={"b": 2}), data(numRecords=2)) == [
        False,
        True,
    ]
    assert kept(StartsWith("s", "x"), data(numRecords=2, nullCount={"s": 2})) == [False]


@pytest.mark.parametrize(
    "stats",
    [
        None, "", "  ", "null", "[]", "{", "{}{}", '{"minValues":3}', '{"minValues":{"i":"x"},"maxValues":{"i":[1]}}',
        '{"minValues":{"i":true},"maxValues":{"i":false}}', '{"minValues":{"I":9}}', '{"maxValues":{"i":9e99}}',
        "\n{\n",
        '{"minValues":{"s":"\\ud800"}}', '{"minValues":{"i":1,"i":2}}', "9" * 5000,
    ],
)  # fmt: skip
def test_missing_or_damaged_statistics_never_exclude_nor_disturb_their_neighbours(stats: str | None) -> None:
    """SKIP-2."""
    neighbours = bounds("i", 5, 9), bounds("i", 1, 1)
    assert kept(Comparison("i", Op.LT, 5), neighbours[0], ({}, stats), neighbours[1]) == [False, True, True]


def test_one_bad_text_among_many_is_the_only_one_without_effect() -> None:
    """SKIP-2."""
    files = [bounds("i", number, number) for number in range(2000)]
    files[700] = ({}, "oops")
    expected = [number in (700, 1999) for number in range(2000)]
    assert kept(Comparison("i", Op.EQ, 1999), *files) == expected


def test_integers_written_as_floats_are_still_bounds() -> None:
    """SKIP-2."""
    assert kept(Comparison("i", Op.LT, 5), data(minValues={"i": 5.0}, maxValues={"i": 9.0})) == [False]


def test_an_upper_timestamp_bound_is_one_millisecond_wider() -> None:
    """SKIP-3."""
    second = datetime(2020, 1, 1, tzinfo=UTC)
    file = bounds("t", "2020-01-01T00:00:00.000Z", "2020-01-01T01:00:00.000+01:00")
    assert kept(Comparison("t", Op.GT, second + timedelta(microseconds=999)), file) == [True]
    assert kept(Comparison("t", Op.GT, second + timedelta(microseconds=1000)), file) == [False]
    assert kept(Comparison("t", Op.LT, second), file) == [False]
    assert kept(Comparison("t", Op.LT, datetime(2020, 1, 1)), file) == [True]
    zoneless = bounds("n", "2020-01-01T00:00:00.000", "2020-01-01T00:00:00.000")
    assert kept(Comparison("n", Op.EQ, datetime(2020, 1, 1, 0, 0, 0, 1001)), zoneless) == [False]
    unzoned = bounds("t", "2020-01-01T00:00:00.000", "2020-01-01T00:00:00.000")
    assert kept(Comparison("t", Op.GT, second + timedelta(days=9)), unzoned) == [True]
    assert kept(Comparison("t", Op.EQ, datetime.max.replace(tzinfo=UTC)), file) == [False]


def test_strings_compare_as_utf8_bytes_and_an_upper_bound_need_not_occur() -> None:
    """SKIP-4."""
    file = bounds("s", "ab", "\uff5e")
    assert kept(Comparison("s", Op.GT, "\uff5e"), file) == [False]
    # U+10000 sorts before U+FF5E in UTF-16 and after it in UTF-8.
    assert kept(Comparison("s", Op.EQ, "\U00010000"), file) == [False]
    assert kept(Comparison("s", Op.EQ, "\uff5e"), file) == [True]
    assert kept(StartsWith("s", "a"), file) == [True]
    assert kept(StartsWith("s", "abc"), file) == [True]
    assert kept(StartsWith("s", "aa"), file) == [False]
    assert kept(StartsWith("s", "\U00010000"), file) == [False]
    assert kept(Not(StartsWith("s", "a")), file) == [True]


def test_nan_may_hide_above_an_upper_bound() -> None:
    """SKIP-1: NaN is greater than every number in Spark and missing from the bounds of some writers."""
    file = bounds("d", 1.0, 2.0)
    assert kept(Comparison("d", Op.GT, 5.0), file) == [True]
    assert kept(Comparison("d", Op.EQ, math.nan), file) == [True]
    assert kept(Comparison("d", Op.EQ, 5.0), file) == [False]
    assert kept(Comparison("d", Op.LT, 1.0), file) == [False]
    assert kept(Comparison("d", Op.LT, math.nan), file) == [True]
    assert kept(Comparison("d", Op.EQ, 5.0), bounds("d", 1.0, "NaN")) == [True]


def test_a_float_column_is_compared_as_spark_compares_it() -> None:
    """SKIP-1: the float 0.1 is greater than the double 0.1."""
    assert kept(Comparison("f", Op.EQ, 0.10000000149011612), bounds("f", 0.1, 0.1)) == [True]
    assert kept(Comparison("f", Op.EQ, 0.1), bounds("f", 0.1, 0.1)) == [False]
    assert kept(Comparison("f", Op.EQ, 2**24 + 1), bounds("f", 2**24, 2**24)) == [True]


def test_decimals_are_compared_exactly() -> None:
    """SKIP-1, STATS-7."""
    file = {}, '{"minValues":{"c":123456789012345678.01},"maxValues":{"c":123456789012345678.02}}'
    assert kept(Comparison("c", Op.LT, Decimal("123456789012345678.01")), file) == [False]
    assert kept(Comparison("c", Op.LT, Decimal("123456789012345678.011")), file) == [True]
    assert kept(Comparison("c", Op.EQ, Decimal("1e60")), file) == [True]


def test_nested_columns_are_found_below_their_structs() -> None:
    """STATS-1."""
    stats = json.dumps({"minValues": {"st": {"In.ner": 5}}, "maxValues": {"st": {"In.ner": 9}}})
    assert kept(Comparison("ST.`in.NER`", Op.GT, 9), ({}, stats), ({}, "{}")) == [False, True]
    assert kept(IsNull("st"), ({}, stats)) == [True]


def test_unknown_and_specially_ordered_columns_exclude_nothing() -> None:
    """SKIP-2."""
    assert kept(Comparison("missing", Op.EQ, 1), bounds("i", 5, 9)) == [True]
    for metadata, keep in (
        ({"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}, True),
        ({"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}, False),
        ({"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}, True),
    ):
        schema = StructType((StructField("s", PrimitiveType("string"), True, metadata),))
        mask = keep_mask(adds(bounds("s", "b", "c")), Comparison("s", Op.EQ, "a"), schema=schema, partition_columns=())
        assert mask.to_pylist() == [keep]


PARTITION_FILES = [({"p": "1", "q": "a"}, None), ({"p": "2", "q": ""}, None), ({"p": None, "q": "b"}, None)]


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (Comparison("P", Op.EQ, 1), [True, False, False]),
        (Not(Comparison("p", Op.EQ, 1)), [False, True, False]),
        (Comparison("p", Op.NE, None), [False, False, False]),
        (Comparison("p", Op.NULL_SAFE_EQ, None), [False, False, True]),
        (Not(Comparison("p", Op.NULL_SAFE_EQ, 1)), [False, True, True]),
        (IsNull("q"), [False, True, False]),
        (In("q", ("a", "b", None)), [True, False, True]),
        (Not(In("q", ("a", None))), [False, False, False]),
        (StartsWith("q", "a"), [True, False, False]),
        (Not(StartsWith("q", "a")), [False, False, True]),
        (And((Comparison("p", Op.GE, 1), IsNotNull("q"))), [True, False, False]),
        (Or((Comparison("p", Op.GT, 1), Comparison("q", Op.EQ, "b"))), [False, True, True]),
    ],
)
def test_partition_values_decide_exactly(predicate: Predicate, answer: list[bool]) -> None:
    """SKIP-1, PART-1."""
    assert kept(predicate, *PARTITION_FILES) == answer
    table = adds(*PARTITION_FILES)
    assert (
        partition_matches_exactly(table, predicate, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist() == answer
    )


def test_only_partition_values_prove_a_match() -> None:
    table = adds(*PARTITION_FILES)

    def proven(predicate: Predicate) -> list[bool]:
        return partition_matches_exactly(table, predicate, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist()

    assert proven(Or((Comparison("p", Op.EQ, 1), IsNull("i")))) == [True, False, False]
    assert proven(And((Comparison("p", Op.EQ, 1), Opaque("f(i)")))) == [False, False, False]
    assert proven(AlwaysTrue()) == [True, True, True]


def test_partition_timestamps_without_a_zone_prove_nothing() -> None:
    """PART-5."""
    files = [({"z": "2020-01-01T00:00:00.000000Z"}, None), ({"z": "2020-01-01 00:00:00"}, None), ({"z": None}, None)]
    later = Comparison("z", Op.EQ, datetime(2021, 1, 1, tzinfo=UTC))
    assert kept(later, *files) == [False, True, False]
    same = Comparison("z", Op.EQ, datetime(2020, 1, 1, tzinfo=UTC))
    mask = partition_matches_exactly(adds(*files), same, schema=SCHEMA, partition_columns=PARTITIONS)
    assert mask.to_pylist() == [True, False, False]


def test_partition_and_row_conditions_work_together() -> None:
    """SKIP-1."""
    files = [({"p": str(p)}, bounds("i", low, low + 1)[1]) for p in (1, 2) for low in (0, 10)]
    predicate = And((Comparison("p", Op.EQ, 2), Comparison("i", Op.GE, 10)))
    assert kept(predicate, *files) == [False, False, False, True]
    assert kept(Or((Comparison("p", Op.EQ, 2), Comparison("i", Op.GE, 10))), *files) == [False, True, True, True]
    assert kept(predicate) == []


# Rows, the statistics that writers would keep of them, and what SQL says about each row.

moments = st.sampled_from(
    [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]
) | st.integers(-3000, 3000).map(lambda micros: datetime(2020, 1, 1) + timedelta(microseconds=micros))
strings = st.text(max_size=2) | st.sampled_from(
    ["x" * 31, "x" * 32, "x" * 33, "x" * 32 + "\U0010ffff", "\U0010ffff" * 70, "x" * 40, "é" * 33, ""]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    "f": st.floats(width=32),
    "d": st.floats() | st.sampled_from([-0.0, 0.0, 1.0]),
    "c": st.decimals(Decimal("-9.99"), Decimal("9.99"), places=2),
    "s": strings,
    "t": moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    "n": moments,
    "y": st.dates(date(2019, 12, 30), date(2020, 1, 3)),
    "b": st.booleans(),
    "p": st.integers(-2, 2),
    "q": st.sampled_from(["a", "ab", "b", "é"]),
    "r": st.sampled_from([1.0, -0.0, 0.0, math.nan, math.inf]),
}


def rank(value: Any) -> Any:
    """Spark's order of numbers, NaN last."""
    return (True, 0.0) if value != value else (False, value)


def json_number(value: Any) -> str:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return json.dumps(text + ("Z" if value.tzinfo else ""))
    return json.dumps(value) if not isinstance(value, Decimal | date) else json.dumps(str(value)).strip('"')


def member(name: str, value: Any) -> str:
    text = f'"{value}"' if isinstance(value, date) and not isinstance(value, datetime) else json_number(value)
    return f'"{name}":{text}'


def stats_of(rows: Sequence[dict[str, Any]]) -> str:
    lows, highs, nulls = [], [], []
    for name in TYPES:
        values = [row[name] for row in rows if row[name] is not None]
        nulls.append(f'"{name}":{len(rows) - len(values)}')
        # Like the writers that leave NaN out of the bounds in silence.
        ordered = [value for value in values if value == value and value not in (math.inf, -math.inf)]
        if len(ordered) < len([value for value in values if value == value]) or not ordered or name == "b":
            continue
        low, high = min(ordered), max(ordered)
        if name == "s":
            low, high = truncate_lower_bound(low), truncate_upper_bound(high)
        lows.append(member(name, low))
        if high is not None:
            highs.append(member(name, high))
    return (
        f'{{"numRecords":{len(rows)},"minValues":{{{",".join(lows)}}},"maxValues":{{{",".join(highs)}}},'
        f'"nullCount":{{{",".join(nulls)}}}}}'
    )


COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}


def sql_truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    match predicate:
        case And(parts):
            answers = [sql_truth(part, row) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [sql_truth(part, row) for part in parts]
            return True if True in answers else None if None in answers else False
        case Not(part):
            answer = sql_truth(part, row)
            return None if answer is None else not answer
        case IsNull(column):
            return row[column] is None
        case IsNotNull(column):
            return row[column] is not None
        case In(column, values):
            return sql_truth(Or(tuple(Comparison(column, Op.EQ, value) for value in values)), row)
        case StartsWith(column, prefix):
            return None if row[column] is None else row[column].startswith(prefix)
        case Comparison(column, operator, value):
            held = row[column]
            if operator is Op.NULL_SAFE_EQ:
                return (held is None and value is None) or (
                    held is not None and value is not None and rank(held) == rank(value)
                )
            return None if held is None or value is None else COMPARE[operator](rank(held), rank(value))
    raise AssertionError(predicate)


def leaves(name: str) -> st.SearchStrategy[Predicate]:
    values = st.none() | VALUES[name]
    comparisons = st.builds(Comparison, st.just(name), st.sampled_from(list(Op)), values)
    lists = st.builds(In, st.just(name), st.lists(values, max_size=3).map(tuple))
    nulls = st.sampled_from([IsNull(name), IsNotNull(name)])
    prefixes = st.builds(StartsWith, st.just(name), strings.map(lambda text: text[:33]))
    return st.one_of(comparisons, lists, nulls, *([prefixes] if name in "sq" else []))


predicates: st.SearchStrategy[Predicate] = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(leaves),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
partition_names = ("p", "q", "r")
rows_of_a_file = st.lists(
    st.fixed_dictionaries({name: st.none() | VALUES[name] for name in TYPES}), min_size=0, max_size=4
)
files = st.tuples(
    st.fixed_dictionaries({name: st.none() | VALUES[name] for name in partition_names}), rows_of_a_file, st.booleans()
)


def partition_text(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity"
    return None if value is None else str(value)


@settings(max_examples=400, deadline=None)
@given(st.lists(files, min_size=1, max_size=4), predicates)
def test_skipping_never_drops_a_matching_row(
    table: list[tuple[dict[str, Any], list[dict[str, Any]], bool]], predicate: Predicate
) -> None:
    """SKIP-1, STATS-5, STATS-6: nulls, NaN, long strings, timestamps at the edge of a millisecond."""
    actions = adds(
        *(
            ({name: partition_text(value) for name, value in partition.items()}, stats_of(rows) if has_stats else None)
            for partition, rows, has_stats in table
        )
    )
    mask = keep_mask(actions, predicate, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist()
    proven = partition_matches_exactly(actions, predicate, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist()
    for (partition, rows, _), keep, certain in zip(table, mask, proven, strict=True):
        truths = [sql_truth(predicate, {**partition, **row}) is True for row in rows]
        assert keep or not any(truths)
        assert all(truths) or not certain
