"""Values of columns that the rows of a write lack: defaults and identity values (protocol heading "Default Columns")."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.identity_columns import IdentityColumn, identity_columns
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


class _NotLiteralError(Exception):
    """The default is not a literal of the type of its column."""


def default_needs_spark(item: StructField) -> bool:
    """Whether only Spark can evaluate the default of a column, or say what is wrong with it."""
    try:
        _default(item, now_ms=0)
    except _NotLiteralError:
        return True
    return False


def _default(item: StructField, *, now_ms: int) -> Any:
    """The value of the default of a column, None for NULL and without one. Raises _NotLiteralError."""
    text = default_of(item)
    if text is None or text.strip().upper() == "NULL":
        return None
    if item.type == TIMESTAMP and _CURRENT_TIME.fullmatch(text):
        return datetime.fromtimestamp(now_ms // 1000, UTC).replace(microsecond=now_ms % 1000 * 1000)
    plain = StructField(item.name, item.type)
    try:
        comparison = parse_predicate(f"{quote_column((item.name,))} = {text}", StructType((plain,)))
    except CmDeltaError as error:
        raise _NotLiteralError(text) from error
    if not isinstance(comparison, Comparison) or comparison.operator is not ComparisonOperator.EQ:
        raise _NotLiteralError(text)
    if not _has_type(comparison.value, item.type):
        raise _NotLiteralError(text)
    value = comparison.value
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
        return isinstance(value, float) or (is_number and Decimal(float(value)) == value)
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return isinstance(value, datetime) and (value.tzinfo is not None) == (data_type == TIMESTAMP)
    kind = _KINDS.get(data_type)
    return kind is not None and type(value) is kind


@dataclass(slots=True, kw_only=True)
class MissingValues:
    """The values of the columns that the rows lack, batch by batch."""

    defaults: Mapping[str, pa.Scalar]
    identities: Mapping[str, IdentityColumn]
    _last: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: StructType, offered: Sequence[str], *, now_ms: int) -> "MissingValues":
        """For rows with the columns ``offered``, whose missing defaults are literals.

        Args:
            now_ms: value of ``current_timestamp()``, in epoch milliseconds.
        """
        names = {name.lower() for name in offered}
        missing = [item for item in schema.fields if item.name.lower() not in names]
        defaults = {
            item.name: pa.scalar(_default(item, now_ms=now_ms), arrow_type(item.type))
            for item in missing
            if default_of(item) is not None
        }
        identities = {
            name: column
            for name, column in identity_columns(schema).items()
            if any(name == item.name for item in missing)
        }
        return cls(defaults=defaults, identities=identities)

    def values(self, name: str, num_rows: int) -> pa.Array | None:
        """The values of the next rows; None for a column that has no other values than NULL, or that the rows have.

        Raises:
            InvalidDataError: an identity column has used all its values.
        """
        if name in self.defaults:
            return pa.repeat(self.defaults[name], num_rows)
        column = self.identities.get(name)
        if column is None:
            return None
        if not num_rows:
            return pa.array([], pa.int64())
        step = column.identity.step
        first = column.next_value if name not in self._last else self._last[name] + step
        last = first + step * (num_rows - 1)
        column.check_value(last)
        self._last[name] = last
        return pa.array(np.arange(num_rows, dtype=np.int64) * step + first)

    @property
    def high_water_marks(self) -> dict[str, int]:
        """The furthest values of the identity columns, if they moved."""
        marks = {name: self.identities[name].further(value) for name, value in self._last.items()}
        return {name: mark for name, mark in marks.items() if mark is not None}
