"""Partition values as text and back."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError, InvalidDataError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.partition_values import (
    canonical_partition_text,
    is_partition_type,
    parse_partition_value,
    partition_value_array,
    serialize_partition_value,
    states_zone,
)
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    StructType,
)
from tests.support.cast_cases import CAST_CASES, ZONE

UTC = dt.UTC
MICROS = dt.datetime(1970, 1, 1, 0, 0, 0, 123456)
ALL_TYPES: list[DataType] = [
    STRING, BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, BOOLEAN, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, DecimalType(10,
    2),
]  # fmt: skip


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    STRING: st.text(min_size=1),
    BYTE: integers(8),
    SHORT: integers(16),
    INTEGER: integers(32),
    LONG: integers(64),
    FLOAT: st.floats(width=32, allow_nan=False),
    DOUBLE: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    BINARY: st.binary(min_size=1),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    TIMESTAMP_NTZ: st.datetimes(),
    DecimalType(38, 10): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-10")),
}
typed_values = st.sampled_from(list(VALUES)).flatmap(lambda t: st.tuples(st.just(t), VALUES[t]))


@pytest.mark.requirements("PART-3", "PART-4", "PART-5", "PART-6", "PART-7")
@settings(deadline=None)
@given(typed_values)
def test_every_value_survives_the_conversion_to_text_and_back(typed_value: tuple[DataType, Any]) -> None:
    data_type, value = typed_value

    text = serialize_partition_value(value, data_type)

    assert parse_partition_value(text, data_type) == value


@pytest.mark.requirements("PART-1", "PART-8")
@settings(deadline=None)
@given(st.sampled_from(list(VALUES)).flatmap(lambda t: st.tuples(st.just(t), st.lists(st.none() | VALUES[t]))))
def test_many_texts_give_the_same_values_as_one_by_one(typed_values: tuple[DataType, list[Any]]) -> None:
    data_type, values = typed_values
    texts = [serialize_partition_value(value, data_type) for value in values]

    array = partition_value_array(pa.array(texts, type=pa.string()), data_type)

    assert array.to_pylist() == [parse_partition_value(text, data_type) for text in texts]


@pytest.mark.requirements("PART-1")
@pytest.mark.parametrize("data_type", [*ALL_TYPES, VOID])
def test_null_and_the_empty_string_are_null_for_every_type(data_type: DataType) -> None:
    assert parse_partition_value(None, data_type) is None
    assert parse_partition_value("", data_type) is None
    array = partition_value_array(pa.chunked_array([["", None], [None]], type=pa.string()), data_type)
    assert array.to_pylist() == [None, None, None]
    assert len(partition_value_array(pa.chunked_array([], type=pa.string()), data_type)) == 0


@pytest.mark.requirements("PART-2")
@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_null_is_written_as_null(data_type: DataType) -> None:
    assert serialize_partition_value(None, data_type) is None


@pytest.mark.requirements("PART-2")
def test_the_empty_string_is_written_as_null() -> None:
    assert serialize_partition_value("", STRING) is None
    assert serialize_partition_value(b"", BINARY) is None
    assert serialize_partition_value(" ", STRING) == " "


@pytest.mark.requirements("PART-3", "PART-4", "PART-5", "PART-6", "PART-7")
@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        ("a/b %20 é", STRING, "a/b %20 é"),
        (dt.date(1970, 1, 1), DATE, "1970-01-01"),
        (dt.date(1, 1, 1), DATE, "0001-01-01"),
        (True, BOOLEAN, "true"),
        (False, BOOLEAN, "false"),
        (-5, LONG, "-5"),
        (Decimal("12.3"), DecimalType(10, 2), "12.30"),
        (Decimal("-0.05"), DecimalType(10, 2), "-0.05"),
        (Decimal("1E+3"), DecimalType(10, 0), "1000"),
        (Decimal("-0"), DecimalType(4, 1), "0.0"),
        (7, DecimalType(4, 1), "7.0"),
        (math.nan, DOUBLE, "NaN"),
        (math.inf, FLOAT, "Infinity"),
        (-math.inf, DOUBLE, "-Infinity"),
        (0.1, DOUBLE, "0.1"),
        (1.100000023841858, FLOAT, "1.1"),
        (MICROS.replace(tzinfo=UTC), TIMESTAMP, "1970-01-01T00:00:00.123456Z"),
        (
            dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            TIMESTAMP,
            "1970-01-01T00:00:00.000000Z",
        ),
        (MICROS, TIMESTAMP_NTZ, "1970-01-01 00:00:00.123456"),
        (dt.datetime(2024, 2, 29, 23, 59, 59), TIMESTAMP_NTZ, "2024-02-29 23:59:59"),
        (b"\x01\x02\x03", BINARY, "\x01\x02\x03"),
        (b"\xff", BINARY, "\u00ff"),
    ],
)
def test_values_are_written_in_the_form_of_the_protocol(value: Any, data_type: DataType, text: str) -> None:
    assert serialize_partition_value(value, data_type) == text


@pytest.mark.requirements("PART-4", "PART-5", "PART-6", "PART-7")
@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        ("1970-01-01 00:00:00.123456", TIMESTAMP, MICROS.replace(tzinfo=UTC)),
        ("1970-01-01T00:00:00.123456Z", TIMESTAMP, MICROS.replace(tzinfo=UTC)),
        ("1970-01-01 00:00:00", TIMESTAMP, dt.datetime(1970, 1, 1, tzinfo=UTC)),
        ("1970-01-01 00:00:00.1", TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 0, 100_000, tzinfo=UTC)),
        ("1970-01-01T02:00:00+02:00", TIMESTAMP, dt.datetime(1970, 1, 1, tzinfo=UTC)),
        ("1970-01-01", TIMESTAMP, dt.datetime(1970, 1, 1, tzinfo=UTC)),
        ("1970-01-01 00:00:00.123456000", TIMESTAMP_NTZ, MICROS),
        ("12.3", DecimalType(10, 2), Decimal("12.30")),
        ("TRUE", BOOLEAN, True),
        ("1e5", DOUBLE, 100_000.0),
        ("Infinity", DOUBLE, math.inf),
        ("\u4e2d", BINARY, "\u4e2d".encode()),
        ("+7", LONG, 7),
    ],
)
def test_the_forms_of_other_writers_are_read(text: str, data_type: DataType, value: Any) -> None:
    parsed = parse_partition_value(text, data_type)

    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.requirements("PART-5", "PART-6")
def test_a_timestamp_without_zone_is_read_in_the_zone_of_its_writer() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    text = "2024-07-01 02:00:00"

    assert parse_partition_value(text, TIMESTAMP, zone=berlin) == dt.datetime(2024, 7, 1, tzinfo=UTC)
    assert parse_partition_value(text, TIMESTAMP_NTZ, zone=berlin) == dt.datetime(2024, 7, 1, 2)
    array = partition_value_array(pa.array([text, text + "Z"]), TIMESTAMP, zone=berlin)
    assert array.type == pa.timestamp("us", "UTC")
    assert array.to_pylist() == [dt.datetime(2024, 7, 1, tzinfo=UTC), dt.datetime(2024, 7, 1, 2, tzinfo=UTC)]


@pytest.mark.requirements("PART-4")
def test_not_a_number_is_read() -> None:
    assert math.isnan(parse_partition_value("NaN", FLOAT))


_SQL_TYPES: dict[str, DataType] = {
    "tinyint": BYTE,
    "int": INTEGER,
    "bigint": LONG,
    "boolean": BOOLEAN,
    "double": DOUBLE,
    "float": FLOAT,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "decimal(5,2)": DecimalType(5, 2),
    "decimal(38,0)": DecimalType(38, 0),
}


@pytest.mark.requirements("PART-3", "PART-4", "PART-5", "PART-6")
@pytest.mark.parametrize("sql_type", CAST_CASES)
def test_every_text_is_read_as_spark_casts_it_and_refused_where_spark_reads_null(sql_type: str) -> None:
    """Delta-spark reads the partition values of other writers by this cast."""
    data_type, zone = _SQL_TYPES[sql_type], ZoneInfo(ZONE)
    texts = {text: value for text, value in CAST_CASES[sql_type].items() if value is not None}
    values = partition_value_array(pa.array(list(texts)), data_type, zone=zone)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if data_type == DATE else pa.int64())
    for (text, expected), number in zip(texts.items(), values.to_pylist(), strict=True):
        assert _is_same(number, expected), text
        canonical = canonical_partition_text(text, data_type, zone=zone)
        assert (
            partition_value_array(pa.array([canonical]), data_type).equals(
                partition_value_array(pa.array([text]), data_type, zone=zone)
            )
            or expected == "NaN"
        ), text
    for text, value in CAST_CASES[sql_type].items():
        if value is None:
            with pytest.raises(CorruptLogError):
                partition_value_array(pa.array([text]), data_type, zone=zone)


def _is_same(value: Any, expected: str) -> bool:
    if isinstance(value, bool):
        return value is {"true": True, "false": False}[expected]
    if not isinstance(value, float):
        return bool(value == Decimal(expected))
    number = float(expected.replace("Infinity", "inf"))
    return (math.isnan(value) and math.isnan(number)) or math.isclose(value, number, rel_tol=1e-7)


@pytest.mark.requirements("PART-6")
def test_a_time_beyond_the_years_of_python_is_refused_as_one_value_only() -> None:
    text = "+12345-01-01T00:00:00Z"
    with pytest.raises(UnsupportedFeatureError, match="after the year 9999"):
        parse_partition_value(text, TIMESTAMP)
    assert partition_value_array(pa.array([text]), TIMESTAMP).view(pa.int64()).to_pylist() == [327403382400000000]
    assert canonical_partition_text("12345-01-01", DATE) == "+12345-01-01"
    assert canonical_partition_text("-1-01-01", STRING) == "-1-01-01"


@pytest.mark.requirements("PART-6")
def test_a_local_time_before_1970_is_refused_in_zones_whose_rules_are_not_certain() -> None:
    amsterdam = ZoneInfo("Europe/Amsterdam")
    with pytest.raises(UnsupportedFeatureError, match="Europe/Amsterdam"):
        partition_value_array(pa.array(["1930-06-01 00:00:00"]), TIMESTAMP, zone=amsterdam)
    for text in ("1930-06-01 00:00:00Z", "1970-01-02 00:00:00"):
        assert partition_value_array(pa.array([text]), TIMESTAMP, zone=amsterdam).null_count == 0
    assert parse_partition_value("1930-06-01 00:00:00", TIMESTAMP_NTZ, zone=amsterdam) == dt.datetime(1930, 6, 1)


@pytest.mark.requirements("PART-6")
def test_texts_that_name_their_zone_are_known() -> None:
    zoned = ["2024-01-01 05:06:07 UTC", "2024-01-01T05:06:07Z", "2024-01-01 05:06:07 +05:30", None, ""]
    others = ["2024-01-01", "2024-01-01 05:06:07", "2024-01-01 05:06"]
    assert states_zone(pa.array([*zoned, *others])).to_pylist() == [True] * 5 + [False] * 3


@pytest.mark.requirements("PART-3", "PART-4", "PART-5", "PART-6")
@pytest.mark.parametrize(
    ("text", "data_type"), [("x", LONG), ("abc", DecimalType(10, 2)), ("{}", StructType()), ("x", VARIANT)]
)
def test_a_text_that_is_not_a_value_of_the_type_is_damage(text: str, data_type: DataType) -> None:
    with pytest.raises(CorruptLogError):
        parse_partition_value(text, data_type)


@pytest.mark.requirements("PART-3", "PART-4", "META-4")
@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (1, STRING), ("1", LONG), (True, LONG), (1.0, LONG), (128, BYTE), (1 << 63, LONG), (1, BOOLEAN), (True, DOUBLE),
        (1e39, FLOAT), (dt.datetime(2024, 1, 1), DATE), (dt.date(2024, 1, 1), TIMESTAMP), (MICROS, TIMESTAMP),
        (MICROS.replace(tzinfo=UTC), TIMESTAMP_NTZ), (Decimal("0.001"), DecimalType(10, 2)), ("x", BINARY),
        (Decimal("100"), DecimalType(2, 0)), (Decimal("NaN"), DecimalType(2, 0)), (1.5, DecimalType(10, 2)),
        (Decimal("1E-999999"), DecimalType(10, 2)), (Decimal("1E+999999"), DecimalType(10, 2)),
        ([1], ArrayType(LONG)), ("x", VARIANT), (1, VOID),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_before_it_is_written(value: Any, data_type: DataType) -> None:
    with pytest.raises(InvalidDataError):
        serialize_partition_value(value, data_type)


@pytest.mark.requirements("META-4", "UP-VAR-3")
def test_only_plain_types_can_be_partitioned_by() -> None:
    assert all(is_partition_type(data_type) for data_type in ALL_TYPES)
    assert not any(is_partition_type(data_type) for data_type in (VOID, VARIANT, ArrayType(LONG), StructType()))
