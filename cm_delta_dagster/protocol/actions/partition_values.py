"""Partition values: conversion between the text of the log and values (protocol heading "Partition Value Serialization").

The empty string and null both mean NULL, for every type. Values come from the log; directory names are not read.
"""

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError, InvalidDataError, UnsupportedFeatureError
from cm_delta_dagster.protocol.predicates.cast_text import (
    boolean_of,
    date_text,
    days_of,
    decimal_of,
    float_of,
    integer_of,
    timestamp_of,
    timestamp_texts,
)
from cm_delta_dagster.protocol.predicates.zone_rules import DisputedTimeError, instant_micros
from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_type
from cm_delta_dagster.protocol.schema.interval_types import (
    DAY_TIME_NAMES,
    YEAR_MONTH_NAMES,
    interval_text,
    parse_interval,
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
    VOID,
    DataType,
    DecimalType,
    PrimitiveType,
    data_type_text,
)

_INTEGER_BITS: Mapping[DataType, int] = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
_UTC = dt.UTC
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)
_PHYSICAL: Mapping[DataType, pa.DataType] = {DATE: pa.int32(), TIMESTAMP: pa.int64(), TIMESTAMP_NTZ: pa.int64()}
"""The numbers that stand for times here: days or microseconds since 1970. Python's own types end with the year 9999."""
_YEAR_MONTH, _DAY_TIME = "interval year to month", "interval day to second"

_USUAL_WITH_ZONE = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$|^$"

Zone = dt.tzinfo


def is_partition_type(data_type: DataType) -> bool:
    """Whether columns of the type may be partition columns: decimals, and all primitives except ``void`` and ``variant``."""
    return isinstance(data_type, DecimalType) or data_type in _SERIALIZERS


_LEAST_PLAIN, _LEAST_SCIENTIFIC = -3, 7
"""Powers of ten between which Java writes numbers without an exponent."""

# --- value -> text ----------------------------------------------------------------------------------------------------


def serialize_partition_value(value: Any, type: DataType) -> str | None:
    """Text of ``value`` in the log; None for NULL and for the empty string, which a partition column cannot store.

    Args:
        value: None or a Python value of the column: str, int, bool, float, Decimal, date, bytes; an aware datetime for
            ``timestamp`` and a naive one for ``timestamp_ntz``; for intervals a timedelta, or a ``pa.MonthDayNano`` of months.
        type: type of the column.

    Raises:
        InvalidDataError: the value is not of the type or out of its range, or the type is not allowed for partition columns.
    """
    if value is None or value in ("", b""):
        return None
    if isinstance(type, DecimalType):
        return _serialize_decimal(value, type)
    serializer = _SERIALIZERS.get(type)
    if serializer is None:
        raise InvalidDataError(f"A table cannot be partitioned by a column of type {data_type_text(type)}.")
    text = serializer(value)
    if text is None or not _in_range(value, type):
        raise _not_of_type(value, type)
    return text


def _not_of_type(value: Any, data_type: DataType) -> InvalidDataError:
    return InvalidDataError(
        f"The partition value {value!r} is not a value of type {data_type_text(data_type)}; cast the column before "
        "writing."
    )


def _in_range(value: Any, data_type: DataType) -> bool:
    bits = _INTEGER_BITS.get(data_type)
    return bits is None or -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _serialize_decimal(value: Any, data_type: DecimalType) -> str:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _not_of_type(value, data_type)
    number = Decimal(value)
    if not number.is_finite():
        raise _not_of_type(value, data_type)
    # Exact integer arithmetic: Decimal.quantize would round and depends on the context's precision.
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # finite
    unscaled = int("".join(map(str, digits)) or "0")
    shift = exponent + data_type.scale
    if shift >= 0:
        unscaled *= 10 ** min(shift, 80)
    elif unscaled % 10 ** min(-shift, 80):
        raise _not_of_type(value, data_type)
    else:
        unscaled //= 10 ** min(-shift, 80)
    if unscaled >= 10**data_type.precision:
        raise _not_of_type(value, data_type)
    text = str(unscaled).rjust(data_type.scale + 1, "0")
    whole, fraction = (text[: -data_type.scale], text[-data_type.scale :]) if data_type.scale else (text, "")
    return ("-" if sign and unscaled else "") + whole + ("." + fraction if fraction else "")


def _serialize_string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _serialize_integer(value: Any) -> str | None:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _serialize_boolean(value: Any) -> str | None:
    return ("true" if value else "false") if isinstance(value, bool) else None


def _serialize_float(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return _number_text(repr(float(value)))


def _number_text(shortest: str) -> str:
    """The number of a text in the form of Java, which Spark and delta-spark write: 1.5, 1.0E10, 1.0E-5."""
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)  # finite
    text = "".join(map(str, digits)).rstrip("0") or "0"
    magnitude = len(digits) + exponent - 1 if text != "0" else 0
    if _LEAST_PLAIN <= magnitude < _LEAST_SCIENTIFIC:
        padded = text.ljust(magnitude + 1, "0") if magnitude >= 0 else "0" * -magnitude + text
        whole = max(magnitude, 0) + 1
        number = f"{padded[:whole]}.{padded[whole:] or '0'}"
    else:
        number = f"{text[0]}.{text[1:] or '0'}E{magnitude}"
    return f"-{number}" if sign else number


def _serialize_single(value: Any) -> str | None:
    """Text of a ``float`` (single precision) value; None if it is not a number or too large for the type."""
    text = _serialize_float(value)
    if text is None or not math.isfinite(value):
        return text
    with np.errstate(over="ignore"):
        single = np.float32(value)
    # The shortest text of the single precision value (1.1, not 1.100000023841858), as other writers use.
    return _number_text(np.format_float_scientific(single, unique=True)) if np.isfinite(single) else None


def _serialize_date(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None


def _serialize_timestamp(value: Any) -> str | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return value.astimezone(_UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _serialize_timestamp_ntz(value: Any) -> str | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is not None:
        return None
    return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond else "seconds")


def _serialize_day_time(value: Any) -> str | None:
    return interval_text(value // _MICROSECOND, _DAY_TIME) if isinstance(value, dt.timedelta) else None


def _serialize_year_month(value: Any) -> str | None:
    only_months = isinstance(value, pa.MonthDayNano) and not value.days and not value.nanoseconds
    return interval_text(value.months, _YEAR_MONTH) if only_months else None


def _serialize_binary(value: Any) -> str | None:
    return bytes(value).decode("latin-1") if isinstance(value, bytes | bytearray | memoryview) else None


_SERIALIZERS: Mapping[DataType, Callable[[Any], str | None]] = {
    STRING: _serialize_string,
    BYTE: _serialize_integer,
    SHORT: _serialize_integer,
    INTEGER: _serialize_integer,
    LONG: _serialize_integer,
    BOOLEAN: _serialize_boolean,
    FLOAT: _serialize_single,
    DOUBLE: _serialize_float,
    DATE: _serialize_date,
    TIMESTAMP: _serialize_timestamp,
    TIMESTAMP_NTZ: _serialize_timestamp_ntz,
    BINARY: _serialize_binary,
    **{PrimitiveType(name): _serialize_day_time for name in DAY_TIME_NAMES},
    **{PrimitiveType(name): _serialize_year_month for name in YEAR_MONTH_NAMES},
}


# --- text -> value ----------------------------------------------------------------------------------------------------


def parse_partition_value(text: str | None, type: DataType, *, zone: Zone = _UTC) -> Any:
    """Value of a text of the log; None for NULL and the empty string.

    Texts are read as Spark casts them, and delta-spark with it: other writers have other forms than the protocol's.

    Args:
        text: as in ``partitionValues``.
        type: type of the column.
        zone: time zone of the writer, for texts of type ``timestamp`` without a time zone.

    Raises:
        CorruptLogError: the text is not a value of the type; Spark reads NULL.
        UnsupportedFeatureError: a time outside of the years 1 to 9999, or before 1970 in a zone whose rules are not certain.
        InvalidArgumentError: ``zone`` is needed and cannot be found.
    """
    value = _parsed(text, type, zone)
    if value is None or type not in _PHYSICAL:
        return value
    try:
        if type == DATE:
            return _EPOCH.date() + dt.timedelta(days=value)
        moment = _EPOCH + dt.timedelta(microseconds=value)
    except OverflowError as error:
        raise UnsupportedFeatureError(
            f"The partition value {text!r} in the log is a time before the year 1 or after the year 9999, which this operation "
            "cannot hold. Read the table as a whole, or delete the partition with Spark."
        ) from error
    return moment.replace(tzinfo=_UTC) if type == TIMESTAMP else moment


def partition_value_array(texts: pa.Array | pa.ChunkedArray, type: DataType, *, zone: Zone = _UTC) -> pa.Array:
    """:func:`parse_partition_value` of many texts, as an Arrow array of the column's type. Each distinct text is parsed once.

    Raises:
        CorruptLogError: a text is not a value of the type.
        UnsupportedFeatureError: a time before 1970 is in a zone whose rules are not certain.
    """
    array = pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) and texts.num_chunks else texts
    if isinstance(array, pa.ChunkedArray):
        array = pa.array([], type=pa.string())
    if type == STRING:
        return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    encoded = pc.dictionary_encode(array)
    values = [_parsed(text, type, zone) for text in encoded.dictionary.to_pylist()]
    target = to_arrow_type(type)
    physical = _PHYSICAL.get(type)
    parsed = pa.array(values, type=target) if physical is None else pa.array(values, type=physical).view(target)
    return parsed.take(encoded.indices)


def canonical_partition_text(text: str | None, type: DataType, *, zone: Zone = _UTC) -> str | None:
    """The text of the same value in the form that :func:`serialize_partition_value` writes; None for NULL.

    Years before 0000 and after 9999 have a sign. Raises as :func:`partition_value_array`.
    """
    value = _parsed(text, type, zone)
    if value is None or type not in _PHYSICAL:
        return serialize_partition_value(value, type)
    if type == DATE:
        return date_text(value)
    date, time = timestamp_texts(value)
    return f"{date}T{time}Z" if type == TIMESTAMP else f"{date} {time.removesuffix('.000000')}"


def states_zone(texts: pa.Array | pa.ChunkedArray) -> pa.BooleanArray | pa.ChunkedArray:
    """Whether each text of a ``timestamp`` column names its time zone; true for NULL, which needs none."""
    usual = pc.match_substring_regex(texts, _USUAL_WITH_ZONE).fill_null(True)
    others = pc.unique(texts.filter(pc.invert(usual))).to_pylist()
    zoned = pa.array([text for text in others if names_zone(text)], pa.string())
    return pc.or_(usual, pc.is_in(texts, value_set=zoned)) if len(zoned) else usual


def names_zone(text: str) -> bool:
    """Whether a text is a timestamp with a time zone."""
    timestamp = timestamp_of(text)
    return timestamp is not None and timestamp.zone is not None


def physical_values(values: pa.Array) -> pa.Array:
    """Partition values as Parquet stores them: intervals as plain numbers of months or microseconds."""
    if pa.types.is_duration(values.type):
        return values.view(pa.int64())
    if pa.types.is_interval(values.type):
        return pa.array([None if value is None else value.months for value in values.to_pylist()], pa.int32())
    return values


def _no_value(text: str, data_type: DataType) -> CorruptLogError:
    return CorruptLogError(
        f"The partition value {text!r} in the log is not a value of type {data_type_text(data_type)}; the entry is "
        "damaged, or the type of the column changed."
    )


def _parsed(text: str | None, data_type: DataType, zone: Zone) -> Any:
    """The value of a text; a time as the number of :data:`_PHYSICAL`."""
    if text is None or text == "" or data_type == VOID:
        return None
    try:
        value = _parse(text, data_type, zone)
    except DisputedTimeError as error:
        raise UnsupportedFeatureError(
            f"The partition value {text!r} in the log is a time before 1970 without a time zone, and the rules of the zone "
            f"{error.zone} at that time are not the same in Spark, Python and the operating system. Read the table in a time zone "
            "that is the offset of its writer, e.g. '+01:00'."
        ) from error
    if value is None:
        raise _no_value(text, data_type)
    return value


def _parse(text: str, data_type: DataType, zone: Zone) -> Any:
    if isinstance(data_type, DecimalType):
        return decimal_of(text, data_type.precision, data_type.scale)
    if data_type in _INTEGER_BITS:
        return integer_of(text, _INTEGER_BITS[data_type])
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return _micros(text, None if data_type == TIMESTAMP_NTZ else zone)
    if isinstance(data_type, PrimitiveType) and data_type.name in DAY_TIME_NAMES | YEAR_MONTH_NAMES:
        return _parse_interval(text, data_type.name)
    parser = _PARSERS.get(data_type)
    return None if parser is None else parser(text)


def _micros(text: str, zone: Zone | None) -> int | None:
    """Microseconds of a timestamp, without ``zone`` of its local time, to which a zone in the text does not matter."""
    timestamp = timestamp_of(text)
    if timestamp is None:
        return None
    micros = timestamp.local_micros if zone is None else instant_micros(timestamp.local_micros, timestamp.zone or zone)
    return micros if -(1 << 63) <= micros < 1 << 63 else None


def _parse_interval(text: str, name: str) -> Any:
    value = parse_interval(text, name)
    if value is None:
        return None
    return pa.MonthDayNano((value, 0, 0)) if name in YEAR_MONTH_NAMES else value * _MICROSECOND


def _parse_string(text: str) -> str:
    return text


def _parse_single(text: str) -> float | None:
    value = float_of(text)
    if value is None or not math.isfinite(value):
        return value
    # Rounded to single precision, so the value equals the one that was written.
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _parse_binary(text: str) -> bytes:
    # The protocol uses one character per byte. Some writers decode the bytes as UTF-8, which gives characters above U+00FF.
    return text.encode("utf-8" if any(character > "\xff" for character in text) else "latin-1")


_PARSERS: Mapping[DataType, Callable[[str], Any]] = {
    STRING: _parse_string,
    BOOLEAN: boolean_of,
    FLOAT: _parse_single,
    DOUBLE: float_of,
    DATE: days_of,
    BINARY: _parse_binary,
}
