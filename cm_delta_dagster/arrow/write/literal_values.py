"""Values of SQL texts that are literals of the type of a column (protocol heading "Default Columns")."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator, quote_column
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
)

_CURRENT_TIME = re.compile(r"\s*(current_timestamp(\s*\(\s*\))?|now\s*\(\s*\))\s*", re.IGNORECASE)
_EXACT_DIGITS = 200
"""More than a literal or a decimal has."""
_BITS: Mapping[DataType, int] = {BYTE: 7, SHORT: 15, INTEGER: 31, LONG: 63}
_KINDS: Mapping[DataType, type] = {BOOLEAN: bool, STRING: str, DATE: date, TIMESTAMP: datetime, TIMESTAMP_NTZ: datetime}


class NotLiteralError(Exception):
    """A text is not a literal of the type of its column."""


def literal_value(text: str, item: StructField, *, now_ms: int) -> Any:
    """The value of a text for a column, None for NULL.

    Args:
        now_ms: value of ``current_timestamp()``, in epoch milliseconds.

    Raises:
        NotLiteralError: the text is another expression, or a literal that is converted to the type of the column.
    """
    if text.strip().upper() == "NULL":
        return None
    if item.type == TIMESTAMP and _CURRENT_TIME.fullmatch(text):
        return datetime.fromtimestamp(now_ms // 1000, UTC).replace(microsecond=now_ms % 1000 * 1000)
    plain = StructField(item.name, item.type)
    try:
        comparison = parse_predicate(f"{quote_column((item.name,))} = {text}", StructType((plain,)))
    except CmDeltaError as error:
        raise NotLiteralError(text) from error
    if not isinstance(comparison, Comparison) or comparison.operator is not ComparisonOperator.EQ:
        raise NotLiteralError(text)
    if not _has_type(comparison.value, item.type):
        raise NotLiteralError(text)
    value = comparison.value
    if item.type == DOUBLE and not value and "-" in text and not text.strip().lower().endswith("d"):
        raise NotLiteralError(text)  # A decimal zero has no sign, and that of a double, as in -0.0D, has one.
    if item.type != DOUBLE:
        return value
    return abs(float(value)) if isinstance(value, Decimal) and not value else float(value)  # A decimal 0 has no sign.


def _has_type(value: Any, data_type: DataType) -> bool:
    """Whether a literal has the type of its column, or one whose values that type stores exactly."""
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if data_type in _BITS:
        return type(value) is int and -(2 ** _BITS[data_type]) <= value < 2 ** _BITS[data_type]
    if isinstance(data_type, DecimalType):
        if not is_number:
            return False
        with localcontext(prec=_EXACT_DIGITS):
            scaled = Decimal(value).scaleb(data_type.scale)
            return scaled == scaled.to_integral_value() and abs(scaled) < 10**data_type.precision
    if data_type == DOUBLE:
        return isinstance(value, float) or is_number  # The nearest number, as Spark converts it.
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return isinstance(value, datetime) and (value.tzinfo is not None) == (data_type == TIMESTAMP)
    kind = _KINDS.get(data_type)
    return kind is not None and type(value) is kind
