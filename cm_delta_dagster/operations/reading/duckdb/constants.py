"""Constants in a statement for DuckDB as Python values: literals, and arithmetic whose result is the same everywhere."""

import datetime as dt
import re
from calendar import monthrange
from decimal import Decimal
from typing import Any

from sqlglot import exp

from cm_delta_dagster.protocol.predicates.sql_expressions import Node

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)(Z|[+-]\d{2}(?::\d{2})?)?")
_MOST_DIGITS = 15
"""With as many digits, DuckDB's decimals are exact, and so is their conversion to a double."""
_MONTHS = {"MONTH": 1, "YEAR": 12}
_DAYS = {"DAY": 1, "WEEK": 7}


class UnknownConstantError(Exception):
    """The expression is not a constant that this module knows."""


def constant_of(node: Node) -> Any:
    """The value of an expression: None, bool, int, Decimal, str, date or datetime.

    Raises:
        UnknownConstantError: the expression has a column, or another value or operation.
    """
    match node:
        case exp.Paren():
            return constant_of(node.this)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return str(node.this) if node.is_string else _number(node.this)
        case exp.Cast() if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
            return _typed(node.this.this, node.to)
        case exp.Neg():
            return _checked(-_as_number(constant_of(node.this)))
        case exp.Add() | exp.Sub():
            return _sum(node)
        case exp.Mul():
            return _checked(_as_number(constant_of(node.this)) * _as_number(constant_of(node.expression)))
    raise UnknownConstantError


def _number(text: str) -> int | Decimal:
    # A number with an exponent is a double, which DuckDB compares in its own way.
    if not re.fullmatch(r"\d+|\d*\.\d*", text) or text == ".":
        raise UnknownConstantError
    return _checked(Decimal(text) if "." in text else int(text))


def _checked(value: int | Decimal) -> int | Decimal:
    digits = str(value) if isinstance(value, int) else "".join(map(str, value.as_tuple().digits))
    if len(digits.lstrip("-")) > _MOST_DIGITS:
        raise UnknownConstantError
    return value


def _as_number(value: Any) -> int | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise UnknownConstantError
    return value


def _typed(text: str, kind: exp.DataType) -> dt.date | dt.datetime:
    """A date, or a time with or without an offset, in the form that has one meaning in all settings."""
    try:
        if kind.this == exp.DataType.Type.DATE and _DATE.fullmatch(text):
            return dt.date.fromisoformat(text)
        moment = _MOMENT.fullmatch(text)
        if moment is not None:
            has_zone = moment[3] is not None
            if has_zone == (kind.this == exp.DataType.Type.TIMESTAMPTZ) and kind.this in _MOMENT_TYPES:
                return dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UnknownConstantError from error
    raise UnknownConstantError


_Type = exp.DataType.Type
_MOMENT_TYPES = (_Type.TIMESTAMP, _Type.TIMESTAMPNTZ, _Type.TIMESTAMPTZ)


def _sum(node: exp.Add | exp.Sub) -> Any:
    sign = 1 if isinstance(node, exp.Add) else -1
    left = constant_of(node.this)
    if isinstance(node.expression, exp.Interval):
        return _moved(left, node.expression, sign)
    return _checked(_as_number(left) + sign * _as_number(constant_of(node.expression)))


def _moved(day: Any, interval: exp.Interval, sign: int) -> dt.date:
    """A date plus a number of days or months: midnight of that day to DuckDB, which it compares with dates as the day."""
    unit = interval.unit
    amount = interval.this
    if not isinstance(day, dt.date) or isinstance(day, dt.datetime) or not isinstance(amount, exp.Literal):
        raise UnknownConstantError
    if not re.fullmatch(r"\d{1,6}", amount.this) or not isinstance(unit, exp.Var):
        raise UnknownConstantError
    number, name = sign * int(amount.this), unit.name.upper().removesuffix("S")
    try:
        if name in _DAYS:
            return day + dt.timedelta(days=number * _DAYS[name])
        if name in _MONTHS:
            year, month = divmod(day.year * 12 + day.month - 1 + number * _MONTHS[name], 12)
            return dt.date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
    except (ValueError, OverflowError) as error:
        raise UnknownConstantError from error
    raise UnknownConstantError
