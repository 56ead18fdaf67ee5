"""Data skipping: excludes files without matching rows and never a file with a matching row."""

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask, partition_matches_exactly
from tests.support.random_rows import TYPES, files, partition_text, predicates, sql_truth, stats_of

Op = ComparisonOperator

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


@pytest.mark.requirements("SKIP-1")
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
def test_integer_bounds_exclude_files(operator: Op, value: Any, keep: bool) -> None:
    assert kept(Comparison("I", operator, value), bounds("i", 5, 9)) == [keep]


@pytest.mark.requirements("SKIP-1")
def test_negation_is_pushed_to_the_leaves() -> None:
    file = bounds("i", 5, 9)
    assert kept(Not(Comparison("i", Op.GE, 5)), file) == [False]
    assert kept(Not(Or((Comparison("i", Op.GT, 3), IsNull("i")))), file) == [False]
    assert kept(Not(And((Comparison("i", Op.GT, 3), Opaque("f(i)")))), file) == [True]
    assert kept(Not(In("i", (7,))), bounds("i", 7, 7)) == [False]
    assert kept(Not(Not(Comparison("i", Op.LT, 5))), file) == [False]
    assert kept(Not(AlwaysTrue()), file) == [False]
    assert kept(Not(Opaque("f(i)")), file) == [True]
    assert kept(Not(Comparison("i", Op.NULL_SAFE_EQ, 7)), bounds("i", 7, 7)) == [True]


@pytest.mark.requirements("SKIP-1")
def test_in_lists_exclude_by_each_value_or_by_their_range() -> None:
    file = bounds("i", 5, 9)
    assert kept(In("i", (1, 20, None)), file) == [False]
    assert kept(In("i", (1, 7)), file) == [True]
    assert kept(In("i", ()), file) == [False]
    assert kept(In("i", tuple(range(100, 200))), file) == [False]
    assert kept(In("i", tuple(range(-100, 200, 2))), file) == [True]
    assert kept(In("c", tuple(Decimal(n) / 4 for n in range(40, 200))), bounds("c", 1, 9.5)) == [False]


@pytest.mark.requirements("SKIP-5", "STATS-3", "STATS-4")
def test_null_counts_decide_is_null_and_is_not_null() -> None:
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


@pytest.mark.requirements("SKIP-2", "FILE-2")
@pytest.mark.parametrize(
    "stats",
    [
        None, "", "  ", "null", "[]", "{", "{}{}", '{"minValues":3}', '{"minValues":{"i":"x"},"maxValues":{"i":[1]}}',
        '{"minValues":{"i":true},"maxValues":{"i":false}}', '{"minValues":{"I":9}}', '{"maxValues":{"i":9e99}}',
        "\n{\n",
        '{"minValues":{"s":"\\ud800"}}', '{"minValues":{"i":1,"i":2}}', "9" * 5000,
    ],
)  # fmt: skip
def test_missing_or_invalid_statistics_do_not_exclude_files(stats: str | None) -> None:
    neighbours = bounds("i", 5, 9), bounds("i", 1, 1)
    assert kept(Comparison("i", Op.LT, 5), neighbours[0], ({}, stats), neighbours[1]) == [False, True, True]


@pytest.mark.requirements("SKIP-2")
def test_one_invalid_text_does_not_affect_the_others() -> None:
    files = [bounds("i", number, number) for number in range(2000)]
    files[700] = ({}, "oops")
    expected = [number in (700, 1999) for number in range(2000)]
    assert kept(Comparison("i", Op.EQ, 1999), *files) == expected


@pytest.mark.requirements("SKIP-2")
def test_integers_written_as_floats_are_valid_bounds() -> None:
    assert kept(Comparison("i", Op.LT, 5), data(minValues={"i": 5.0}, maxValues={"i": 9.0})) == [False]


@pytest.mark.requirements("SKIP-3")
def test_an_upper_timestamp_bound_is_one_millisecond_wider() -> None:
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


@pytest.mark.requirements("SKIP-4")
def test_strings_compare_as_utf8_bytes_with_truncated_upper_bounds() -> None:
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


@pytest.mark.requirements("SKIP-1")
def test_an_upper_bound_does_not_exclude_nan() -> None:
    """NaN is greater than every number in Spark, and the bounds of some writers ignore it."""
    file = bounds("d", 1.0, 2.0)
    assert kept(Comparison("d", Op.GT, 5.0), file) == [True]
    assert kept(Comparison("d", Op.EQ, math.nan), file) == [True]
    assert kept(Comparison("d", Op.EQ, 5.0), file) == [False]
    assert kept(Comparison("d", Op.LT, 1.0), file) == [False]
    assert kept(Comparison("d", Op.LT, math.nan), file) == [True]
    assert kept(Comparison("d", Op.EQ, 5.0), bounds("d", 1.0, "NaN")) == [True]


@pytest.mark.requirements("SKIP-1")
def test_a_float_column_is_compared_as_spark_compares_it() -> None:
    """The float 0.1 is greater than the double 0.1."""
    assert kept(Comparison("f", Op.EQ, 0.10000000149011612), bounds("f", 0.1, 0.1)) == [True]
    assert kept(Comparison("f", Op.EQ, 0.1), bounds("f", 0.1, 0.1)) == [False]
    assert kept(Comparison("f", Op.EQ, 2**24 + 1), bounds("f", 2**24, 2**24)) == [True]


@pytest.mark.requirements("SKIP-1", "STATS-7")
def test_decimals_are_compared_with_the_precision_of_their_writer() -> None:
    file = {}, '{"minValues":{"c":123456789012345678.01},"maxValues":{"c":123456789012345678.02}}'
    assert kept(Comparison("c", Op.LT, Decimal("123456789012345000.01")), file) == [False]
    assert kept(Comparison("c", Op.LE, Decimal("123456789012345678.01")), file) == [True]
    assert kept(Comparison("c", Op.GT, Decimal("123456789012346000.02")), file) == [False]
    assert kept(Comparison("c", Op.GT, 10**18), file) == [False]
    assert kept(Comparison("c", Op.EQ, Decimal("1e60")), file) == [True]
    exact = {}, '{"minValues":{"d":0.01},"maxValues":{"d":0.03}}'
    schema = StructType((StructField("d", DecimalType(15, 2)),))
    for operator, value, keep in ((Op.LT, "0.01", False), (Op.LE, "0.01", True), (Op.GT, "0.03", False)):
        predicate = Comparison("d", operator, Decimal(value))
        assert keep_mask(adds(exact), predicate, schema=schema, partition_columns=()).to_pylist() == [keep]


@pytest.mark.requirements("STATS-1")
def test_nested_columns_are_resolved() -> None:
    stats = json.dumps({"minValues": {"st": {"In.ner": 5}}, "maxValues": {"st": {"In.ner": 9}}})
    assert kept(Comparison("ST.`in.NER`", Op.GT, 9), ({}, stats), ({}, "{}")) == [False, True]
    assert kept(IsNull("st"), ({}, stats)) == [True]


@pytest.mark.requirements("SKIP-2")
def test_unknown_and_specially_ordered_columns_exclude_nothing() -> None:
    assert kept(Comparison("missing", Op.EQ, 1), bounds("i", 5, 9)) == [True]
    for metadata, keep in (
        ({"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}, True),
        ({"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}, False),
        ({"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}, True),
    ):
        schema = StructType((StructField("s", PrimitiveType("string"), True, metadata),))
        mask = keep_mask(adds(bounds("s", "b", "c")), Comparison("s", Op.EQ, "a"), schema=schema, partition_columns=())
        assert mask.to_pylist() == [keep]


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (Comparison("c", Op.EQ, "ab"), [True, True, False, False]),
        (Comparison("c", Op.EQ, "ab     "), [True, True, False, False]),
        (Not(Comparison("c", Op.EQ, "ab")), [False, False, True, False]),
        (Comparison("c", Op.LE, "ab"), [True, True, False, False]),
        (Comparison("c", Op.NULL_SAFE_EQ, "ab"), [True, True, False, False]),
        (In("c", ("x", "ab", None)), [True, True, False, False]),
        (Not(In("c", ("x", "ab   "))), [False, False, True, False]),
        (IsNull("c"), [False, False, False, True]),
    ],
)
def test_partitions_of_a_char_are_compared_with_their_blanks(predicate: Predicate, answer: list[bool]) -> None:
    """Whether the log has the blanks or not."""
    schema = StructType((StructField("c", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),))
    files = adds(*[({"c": text}, None) for text in ("ab", "ab   ", "ac   ", None)])
    for decide in (keep_mask, partition_matches_exactly):
        assert decide(files, predicate, schema=schema, partition_columns=("C",)).to_pylist() == answer


PARTITION_FILES = [({"p": "1", "q": "a"}, None), ({"p": "2", "q": ""}, None), ({"p": None, "q": "b"}, None)]


@pytest.mark.requirements("SKIP-1", "PART-1")
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
    assert kept(predicate, *PARTITION_FILES) == answer
    table = adds(*PARTITION_FILES)
    assert (
        partition_matches_exactly(table, predicate, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist() == answer
    )


def test_only_partition_values_prove_an_exact_match() -> None:
    table = adds(*PARTITION_FILES)

    def proven(predicate: Predicate) -> list[bool]:
        return partition_matches_exactly(table, predicate, schema=SCHEMA, partition_columns=PARTITIONS).to_pylist()

    assert proven(Or((Comparison("p", Op.EQ, 1), IsNull("i")))) == [True, False, False]
    assert proven(And((Comparison("p", Op.EQ, 1), Opaque("f(i)")))) == [False, False, False]
    assert proven(AlwaysTrue()) == [True, True, True]


@pytest.mark.requirements("PART-5")
def test_partition_timestamps_without_a_zone_are_unknown() -> None:
    files = [({"z": "2020-01-01T00:00:00.000000Z"}, None), ({"z": "2020-01-01 00:00:00"}, None), ({"z": None}, None)]
    later = Comparison("z", Op.EQ, datetime(2021, 1, 1, tzinfo=UTC))
    assert kept(later, *files) == [False, True, False]
    same = Comparison("z", Op.EQ, datetime(2020, 1, 1, tzinfo=UTC))
    mask = partition_matches_exactly(adds(*files), same, schema=SCHEMA, partition_columns=PARTITIONS)
    assert mask.to_pylist() == [True, False, False]


@pytest.mark.requirements("SKIP-1")
def test_partition_and_row_conditions_work_together() -> None:
    files = [({"p": str(p)}, bounds("i", low, low + 1)[1]) for p in (1, 2) for low in (0, 10)]
    predicate = And((Comparison("p", Op.EQ, 2), Comparison("i", Op.GE, 10)))
    assert kept(predicate, *files) == [False, False, False, True]
    assert kept(Or((Comparison("p", Op.EQ, 2), Comparison("i", Op.GE, 10))), *files) == [False, True, True, True]
    assert kept(predicate) == []


@pytest.mark.requirements("SKIP-1", "STATS-5", "STATS-6")
@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(files, min_size=1, max_size=4), predicates)
def test_skipping_never_drops_a_matching_row(
    table: list[tuple[dict[str, Any], list[dict[str, Any]], bool]], predicate: Predicate
) -> None:
    """Nulls, NaN, long strings, timestamps next to a millisecond boundary."""
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


@pytest.mark.requirements("SKIP-1")
def test_decimal_bounds_that_a_writer_rounded_to_doubles_exclude_no_row() -> None:
    """Deltalake writes decimals of any precision as JSON doubles; the true values may lie outside the bounds."""
    schema = StructType((StructField("d", DecimalType(38, 10)),))
    low, high = Decimal("12345678901234567890.1234567890"), Decimal("22345678901234567891.1234567899")
    stats = '{"numRecords":2,"minValues":{"d":1.2345678901234567e+19},"maxValues":{"d":2.234567890123456e+19},"nullCount":{"d":0}}'
    files = adds(({}, stats))

    def keeps(operator: Op, value: Decimal) -> bool:
        mask = keep_mask(files, Comparison("d", operator, value), schema=schema, partition_columns=())
        return bool(mask[0].as_py())

    assert keeps(Op.EQ, low)
    assert keeps(Op.EQ, high)
    assert keeps(Op.GE, high)
    assert not keeps(Op.LT, Decimal(12345678901234500000))
    assert not keeps(Op.GT, Decimal(22345678901234600000))


@pytest.mark.requirements("SKIP-1")
def test_bounds_of_a_column_widened_from_float_are_floats() -> None:
    """0.7 as a float is 0.699999988, 0.1 is 0.10000000149."""
    changes = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = StructType((StructField("d", PrimitiveType("double"), metadata=changes),))
    files = adds(({}, '{"numRecords":9,"minValues":{"d":0.7},"maxValues":{"d":1.1},"nullCount":{"d":0}}'), ({}, None))

    def kept_by(predicate: Predicate) -> list[bool]:
        return list(keep_mask(files, predicate, schema=schema, partition_columns=()).to_pylist())

    assert kept_by(Comparison("d", Op.EQ, 0.699999988079071)) == [True, True]
    assert kept_by(Comparison("d", Op.EQ, 1.10000002384185791015625)) == [True, True]
    assert kept_by(Comparison("d", Op.LT, 0.69)) == [False, True]


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("value", [3.4028234663852886e38, 1e300])
def test_bounds_beyond_the_floats_of_a_widened_column_are_kept(value: float) -> None:
    """The greatest float, and a double that no float can hold; neither makes NumPy warn of an overflow."""
    changes = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = StructType((StructField("d", PrimitiveType("double"), metadata=changes),))
    for sign in (1, -1):
        stats = json.dumps({"numRecords": 1, "minValues": {"d": sign * value}, "maxValues": {"d": sign * value}})
        for operator in (Op.EQ, Op.GE, Op.LE):
            predicate = Comparison("d", operator, sign * value)
            assert keep_mask(adds(({}, stats)), predicate, schema=schema, partition_columns=()).to_pylist() == [True]


@pytest.mark.requirements("SKIP-4")
def test_truncated_bounds_of_older_writers_cover_supplementary_characters() -> None:
    """The suffix U+FFFD is less than such characters in UTF-8, and a split character was written as "?"."""
    for tail in ("\ufffd", "?\ufffd"):
        stats = json.dumps({"numRecords": 1, "minValues": {"s": "x"}, "maxValues": {"s": "x" * 31 + tail}})
        value = "x" * 31 + "\U0001f600" * 40
        mask = keep_mask(adds(({}, stats)), Comparison("s", Op.EQ, value), schema=SCHEMA, partition_columns=PARTITIONS)
        assert mask.to_pylist() == [True]


@pytest.mark.requirements("UP-VAR-4")
def test_a_variant_is_skipped_by_null_count_but_not_by_bounds() -> None:
    """The bounds are an encoded object of paths, which cannot be compared with values of the column."""
    schema = StructType((StructField("v", PrimitiveType("variant")),))
    stats = {"numRecords": 9, "minValues": {"v": "0rr91"}, "maxValues": {"v": "0rr91"}}
    files = adds(({}, json.dumps(stats | {"nullCount": {"v": 0}})), ({}, json.dumps(stats | {"nullCount": {"v": 9}})))
    for predicate, expected in {
        Comparison("v", Op.EQ, "zzz"): [True, False],
        Comparison("v", Op.GT, 5): [True, False],
        IsNull("v"): [False, True],
        IsNotNull("v"): [True, False],
    }.items():
        assert keep_mask(files, predicate, schema=schema, partition_columns=()).to_pylist() == expected


@pytest.mark.requirements("SKIP-2")
def test_null_counts_of_nested_types_do_not_exclude_files() -> None:
    """Some writers count the nulls inside nested values."""
    kinds = (ArrayType(LONG), MapType(STRING, LONG), StructType((StructField("x", LONG),)))
    schema = StructType(tuple(StructField(name, kind) for name, kind in zip("lms", kinds, strict=True)))
    counts = [dict.fromkeys("lms", number) for number in (0, 9)]
    files = adds(*(({}, json.dumps({"numRecords": 9, "nullCount": count})) for count in counts))
    for name in "lms":
        for predicate in (IsNull(name), IsNotNull(name)):
            assert keep_mask(files, predicate, schema=schema, partition_columns=()).to_pylist() == [True, True]
