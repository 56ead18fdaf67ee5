"""Values of SQL literals, with the types that Spark gives them.

A literal whose value depends on a setting of Spark is refused with :class:`NotUnderstoodError`, and the engine evaluates it.
"""

import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, NoReturn

from sqlglot import exp

from cm_delta_dagster.protocol.predicates.timestamps import parse_timestamp
from cm_delta_dagster.protocol.predicates.zone_rules import DisputedTimeError, instant_micros

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class NotUnderstoodError(Exception):
    """The value of this part of the SQL text is not certain; the engine evaluates it."""


class NeedsZoneError(NotUnderstoodError):
    """A time without a time zone is compared with a ``timestamp`` column, and no zone is given for such times."""


class DisputedZoneError(NotUnderstoodError):
    """A time before 1970 without a time zone, and sources differ in the rules of the zone that is given for such times."""

    def __init__(self, zone: str) -> None:
        super().__init__(zone)
        self.zone = zone


class InvalidTimeError(NotUnderstoodError):
    """A text has the form of a date or time, and the calendar does not have it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def checked(value: Any, *types: type) -> Any:
    """``value``, if it is of one of ``types``; bool does not count as int. Raises NotUnderstoodError otherwise."""
    if isinstance(value, types) and (not isinstance(value, bool) or bool in types):
        return value
    raise NotUnderstoodError


def number_of(text: str) -> int | float | Decimal:
    """A number of the type that Spark gives it: with an exponent a double, with a point a decimal, else an integer."""
    if re.fullmatch(r"\d+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"\d*\.\d*", text, re.ASCII) and text != ".":
        return Decimal(text)
    if re.fullmatch(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text, re.ASCII):
        return float(text)
    raise NotUnderstoodError


_INTEGER_BITS = {
    exp.DataType.Type.TINYINT: 8,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.BIGINT: 64,
}


def cast_number(text: str, target: exp.DataType) -> int | float | Decimal:
    """The value of ``CAST(text AS target)`` for a numeric type. Raises NotUnderstoodError if the number does not fit the type."""
    try:
        exact = Decimal(text)
    except ArithmeticError:
        raise NotUnderstoodError from None
    kind = target.this
    if not exact.is_finite() or not text.isascii() or "_" in text or text != text.strip():
        raise NotUnderstoodError
    if kind == exp.DataType.Type.DOUBLE:
        return float(text)
    if kind == exp.DataType.Type.FLOAT:
        return _single(float(text))
    if kind in _INTEGER_BITS:
        # The lowest number of the type is excluded too: the minus sign may be outside of the literal.
        fits = exact.copy_abs() < 2 ** (_INTEGER_BITS[kind] - 1)
        return int(exact) if fits and exact == int(exact) else refuse()
    parameters = [str(item.this.this) for item in target.expressions]
    if kind == exp.DataType.Type.DECIMAL and len(parameters) == 2 and all(item.isdecimal() for item in parameters):
        precision, scale = map(int, parameters)
        fits = exact.copy_abs() < 10 ** max(precision - scale, 0) and -int(exact.as_tuple().exponent) <= scale
        return exact if fits else refuse()
    return refuse()


def refuse() -> NoReturn:
    """Raise NotUnderstoodError, in an expression."""
    raise NotUnderstoodError


def _single(value: float) -> float:
    """The value, if a 32-bit float holds it exactly."""
    try:
        return value if struct.unpack("<f", struct.pack("<f", value))[0] == value else refuse()
    except OverflowError:
        raise NotUnderstoodError from None


def hex_bytes(text: str) -> bytes:
    """The bytes of a hexadecimal literal. Raises NotUnderstoodError for other text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise NotUnderstoodError from None


def date_of(text: str) -> date:
    """The date of ``YYYY-MM-DD``. Raises NotUnderstoodError for other text."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) is None:
        raise NotUnderstoodError
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _invalid_time(text) from None


def _invalid_time(text: str) -> NotUnderstoodError:
    """The error for a text that Python refuses. Engines have the year 0, and Python does not."""
    return NotUnderstoodError() if text.startswith("0000") else InvalidTimeError(text)


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def moment_of(text: str, *, zoned: bool) -> datetime:
    """The timestamp in a text, with a time zone if and only if ``zoned``. Raises NotUnderstoodError for other text."""
    match = _MOMENT.fullmatch(text)
    if match is None or (match[2] is not None) != zoned:
        raise NotUnderstoodError
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _invalid_time(text) from None


def moment_in(text: str, zone: tzinfo | None) -> datetime:
    """The timestamp in a text, in ``zone`` if the text names none.

    Raises:
        NeedsZoneError: the text names no time zone, and ``zone`` is None.
        DisputedZoneError: the rules of ``zone`` at that time are not the same in Spark and Python.
        NotUnderstoodError: other text.
    """
    try:
        return moment_of(text, zoned=True)
    except InvalidTimeError:
        raise
    except NotUnderstoodError:
        parsed = parse_timestamp(text)
    if parsed is None and _MOMENT.fullmatch(text) is not None:
        raise _invalid_time(text)
    if parsed is None or parsed.tzinfo is not None:
        raise NotUnderstoodError
    if zone is None:
        raise NeedsZoneError
    local = (parsed - _EPOCH) // _MICROSECOND
    try:
        return (_EPOCH + instant_micros(local, zone) * _MICROSECOND).replace(tzinfo=UTC)
    except DisputedTimeError as error:
        raise DisputedZoneError(error.zone) from error
    except OverflowError:
        raise NotUnderstoodError from None


def _to_integer(literal: Any) -> Any:
    if isinstance(literal, str) and re.fullmatch(r"-?\d{1,9}", literal, re.ASCII):
        return int(literal)
    return checked(literal, int, Decimal)


def _to_double(literal: Any) -> Any:
    number = checked(literal, int, Decimal, float)
    return float(number) if isinstance(number, Decimal) else number


def _to_date(literal: Any) -> Any:
    return date_of(literal) if isinstance(literal, str) else _checked_date(literal)


def _checked_date(literal: Any) -> Any:
    return refuse() if isinstance(literal, datetime) else checked(literal, date)


def _to_timestamp(literal: Any) -> Any:
    moment = checked(literal, datetime)
    return moment if moment.tzinfo is not None else refuse()


def _to_timestamp_ntz(literal: Any) -> Any:
    moment = moment_of(literal, zoned=False) if isinstance(literal, str) else checked(literal, datetime)
    return moment if moment.tzinfo is None else refuse()


CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "byte": _to_integer,
    "short": _to_integer,
    "integer": _to_integer,
    "long": _to_integer,
    "float": _to_double,
    "double": _to_double,
    "string": lambda literal: checked(literal, str),
    "boolean": lambda literal: checked(literal, bool),
    "binary": lambda literal: checked(literal, bytes),
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp_ntz,
}
