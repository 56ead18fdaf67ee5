"""Names of interval types, and their literals as partition values."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.errors import CorruptLogError, InvalidDataError, SchemaMismatchError
from cm_delta_dagster.protocol.actions.partition_values import (
    parse_partition_value,
    partition_value_array,
    physical_values,
    serialize_partition_value,
)
from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_type
from cm_delta_dagster.protocol.schema.interval_types import (
    DAY_TIME_NAMES,
    YEAR_MONTH_NAMES,
    interval_text,
    parse_interval,
)
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    PrimitiveType,
    StructField,
    StructType,
    check_writable_types,
    parse_schema,
    schema_to_json,
)

YEAR_MONTH, DAY_TIME = "interval year to month", "interval day to second"
DAY = 86_400_000_000


def schema_of(kind: object) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]})


@pytest.mark.requirements("UP-INT-1")
def test_interval_names_belong_to_two_families() -> None:
    assert {YEAR_MONTH, "interval year", "interval month"} == YEAR_MONTH_NAMES
    assert len(DAY_TIME_NAMES) == 10
    assert {DAY_TIME, "interval day", "interval second", "interval hour to minute"} < DAY_TIME_NAMES


@pytest.mark.requirements("UP-INT-1")
@pytest.mark.parametrize("name", sorted(YEAR_MONTH_NAMES | DAY_TIME_NAMES))
def test_every_spelling_is_read_and_kept(name: str) -> None:
    """At the top and inside of a list."""
    for kind in (name, {"type": "array", "elementType": name, "containsNull": True}):
        schema = parse_schema(schema_of(kind))
        assert json.loads(schema_to_json(schema)) == json.loads(schema_of(kind))
    wanted = pa.duration("us") if name in DAY_TIME_NAMES else pa.month_day_nano_interval()
    assert to_arrow_type(PrimitiveType(name)) == wanted


@pytest.mark.requirements("UP-INT-1")
@pytest.mark.parametrize(
    "name",
    ["interval", "interval month to year", "interval month to day", "interval second to day", "interval day to day",
     "INTERVAL Year To Month", "interval  day", "interval week", "interval year to day"],
)  # fmt: skip
def test_another_spelling_is_refused(name: str) -> None:
    """Names are those of the protocol, in lower case, and do not mix the families."""
    with pytest.raises(CorruptLogError, match=f"'a' has the type '{name}'"):
        parse_schema(schema_of(name))


@pytest.mark.requirements("UP-INT-1")
@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("INTERVAL '1-0' YEAR TO MONTH", YEAR_MONTH, 12),
        ("INTERVAL '-1-6' YEAR TO MONTH", YEAR_MONTH, -18),
        ("interval -'1-6' year  to month", YEAR_MONTH, -18),
        ("INTERVAL -'-0-1' YEAR TO MONTH", YEAR_MONTH, 1),
        ("INTERVAL '178956970-7' YEAR TO MONTH", YEAR_MONTH, 2**31 - 1),
        ("INTERVAL '-178956970-8' YEAR TO MONTH", YEAR_MONTH, -(2**31)),
        ("INTERVAL '178956970-8' YEAR TO MONTH", YEAR_MONTH, None),
        ("INTERVAL '3' YEAR", "interval year", 36),
        ("INTERVAL '3-0' YEAR TO MONTH", "interval year", 36),
        ("INTERVAL '3-1' YEAR TO MONTH", "interval year", None),
        ("INTERVAL '14' MONTH", "interval month", 14),
        ("INTERVAL '0-12' YEAR TO MONTH", YEAR_MONTH, None),
        ("INTERVAL '7 12:34:56.123456' DAY TO SECOND", DAY_TIME, 7 * DAY + 45_296_123_456),
        ("INTERVAL '-7 12:34:56.1' DAY TO SECOND", DAY_TIME, -(7 * DAY + 45_296_100_000)),
        ("INTERVAL '106751991 04:00:54.775807' DAY TO SECOND", DAY_TIME, 2**63 - 1),
        ("INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND", DAY_TIME, -(2**63)),
        ("INTERVAL '106751991 04:00:54.775808' DAY TO SECOND", DAY_TIME, None),
        ("INTERVAL '1' DAY", "interval day", DAY),
        ("INTERVAL '1 00:00:00' DAY TO SECOND", "interval day", DAY),
        ("INTERVAL '1 00:00:01' DAY TO SECOND", "interval day", None),
        ("INTERVAL '1 02' DAY TO HOUR", "interval day to hour", 26 * 3_600_000_000),
        ("INTERVAL '26:13' HOUR TO MINUTE", "interval hour to minute", (26 * 60 + 13) * 60_000_000),
        ("INTERVAL '86401.000001' SECOND", "interval second", 86_401_000_001),
        ("INTERVAL '1.123456789' SECOND", DAY_TIME, None),
        ("INTERVAL '1.123456000' SECOND", DAY_TIME, 1_123_456),
        ("INTERVAL '1 24:00:00' DAY TO SECOND", DAY_TIME, None),
        ("INTERVAL '1 00:60:00' DAY TO SECOND", DAY_TIME, None),
        ("INTERVAL '1' DAY", YEAR_MONTH, None),
        ("INTERVAL '1-0' YEAR TO MONTH", DAY_TIME, None),
        ("INTERVAL '1-0' MONTH TO YEAR", YEAR_MONTH, None),
        ("1-0", YEAR_MONTH, None),
        ("12", YEAR_MONTH, None),
        ("86400000000", DAY_TIME, None),
        ("INTERVAL '' DAY", DAY_TIME, None),
    ],
)
def test_literals_are_numbers_of_months_or_microseconds(text: str, name: str, expected: int | None) -> None:
    """Partition values are ANSI literals; ambiguous texts are refused."""
    assert parse_interval(text, name) == expected


@pytest.mark.requirements("UP-INT-1")
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_every_value_survives_as_text(months: int, micros: int) -> None:
    assert parse_interval(interval_text(months, YEAR_MONTH), YEAR_MONTH) == months
    assert parse_interval(interval_text(micros, DAY_TIME), DAY_TIME) == micros
    span = dt.timedelta(microseconds=micros)
    text = serialize_partition_value(span, PrimitiveType(DAY_TIME))
    assert parse_partition_value(text, PrimitiveType(DAY_TIME)) == span
    of_months = pa.MonthDayNano((months, 0, 0))
    text = serialize_partition_value(of_months, PrimitiveType(YEAR_MONTH))
    assert parse_partition_value(text, PrimitiveType(YEAR_MONTH)) == of_months


@pytest.mark.requirements("UP-INT-1")
def test_a_damaged_literal_and_a_value_of_another_type_are_refused() -> None:
    with pytest.raises(CorruptLogError, match="'12' in the log is not a value of type interval year to month"):
        parse_partition_value("12", PrimitiveType(YEAR_MONTH))
    for value, name in ((pa.MonthDayNano((1, 1, 0)), YEAR_MONTH), (12, YEAR_MONTH), (12, DAY_TIME)):
        with pytest.raises(InvalidDataError):
            serialize_partition_value(value, PrimitiveType(name))


@pytest.mark.requirements("UP-INT-1")
def test_partition_values_have_the_arrow_type_and_are_stored_as_numbers() -> None:
    """Checkpoints contain the same numbers as data files."""
    texts = pa.array(["INTERVAL '1-2' YEAR TO MONTH", None, ""])
    months = partition_value_array(texts, PrimitiveType(YEAR_MONTH))
    assert months.type == pa.month_day_nano_interval()
    assert physical_values(months).equals(pa.array([14, None, None], pa.int32()))
    spans = partition_value_array(pa.array(["INTERVAL '-1' DAY", None]), PrimitiveType("interval day"))
    assert spans.type == pa.duration("us")
    assert physical_values(spans).equals(pa.array([-DAY, None], pa.int64()))


@pytest.mark.requirements("UP-INT-1")
def test_an_interval_is_not_written_at_any_depth() -> None:
    inner = StructType((StructField("x", ArrayType(PrimitiveType("interval month"))),))
    with pytest.raises(SchemaMismatchError, match="Column 's' has the type 'interval month'"):
        check_writable_types(StructType((StructField("s", inner),)))
