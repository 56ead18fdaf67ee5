"""Converts values and literals to common types, so that Arrow compares them as Spark does (protocol heading "Per-file Statistics").

Used by data skipping and the Arrow reader. There is no literal for comparisons in which Spark would cast the column.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.predicates.predicates import ComparisonOperator
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType

ARROW_COMPARISONS: Mapping[ComparisonOperator, Callable[..., pa.BooleanArray]] = {
    ComparisonOperator.EQ: pc.equal,
    ComparisonOperator.NE: pc.not_equal,
    ComparisonOperator.LT: pc.less,
    ComparisonOperator.LE: pc.less_equal,
    ComparisonOperator.GT: pc.greater,
    ComparisonOperator.GE: pc.greater_equal,
}
"""Arrow's function for each operator; null if an operand is null. In Arrow, unlike in Spark, NaN equals nothing."""


def comparable(values: pa.Array, data_type: DataType) -> pa.Array:
    """Convert values to the types of literals: int64, float64, int64 microseconds for timestamps; others are unchanged."""
    if not isinstance(data_type, PrimitiveType):
        return values
    match data_type.name:
        case "byte" | "short" | "integer" | "long" | "timestamp" | "timestamp_ntz":
            return values.cast(pa.int64())
        case "float" | "double":
            return values.cast(pa.float64())
        case _:
            return values


def aligned(values: pa.Array, literal: pa.Scalar) -> tuple[pa.Array, pa.Scalar]:
    """Convert decimals to a common scale that is wide enough for every pair; other types are unchanged."""
    if not pa.types.is_decimal(values.type):
        return values, literal
    kind = pa.decimal256(76, max(values.type.scale, literal.type.scale))
    return values.cast(kind), literal.cast(kind)


_EPOCH = datetime(1970, 1, 1)


def literal_of(value: Any, data_type: DataType) -> pa.Scalar | None:
    """Convert a literal to a scalar of the column's comparable type; None if Spark would compare with another type."""
    if isinstance(data_type, DecimalType):
        return _decimal_literal(value)
    if not isinstance(data_type, PrimitiveType):
        return None
    match data_type.name:
        case "byte" | "short" | "integer" | "long":
            return _integer_literal(value)
        case "float" | "double":
            return _float_literal(value, exact_up_to=2**24 if data_type.name == "float" else 2**53)
        case "string":
            return _string_literal(value)
        case "date":
            is_date = isinstance(value, date) and not isinstance(value, datetime)
            return pa.scalar(value, pa.date32()) if is_date else None
        case "timestamp":
            return moment_literal(value) if isinstance(value, datetime) and value.tzinfo is not None else None
        case "timestamp_ntz":
            return moment_literal(value) if isinstance(value, datetime) and value.tzinfo is None else None
        case "boolean":
            return pa.scalar(value) if isinstance(value, bool) else None
        case "binary":
            return pa.scalar(value, pa.binary()) if isinstance(value, bytes) else None
        case _:
            return None


def _integer_literal(value: Any) -> pa.Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    if not -(2**63) <= value < 2**63 or value != int(value):
        return None
    return pa.scalar(int(value), pa.int64())


def _float_literal(value: Any, *, exact_up_to: int) -> pa.Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, int) and abs(value) > exact_up_to:
        return None
    return pa.scalar(float(value), pa.float64())


def _decimal_literal(value: Any) -> pa.Scalar | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    exact = Decimal(value)
    if not exact.is_finite():
        return None
    _, digits, exponent = exact.as_tuple()
    scale = max(0, -int(exponent))
    if scale > 38 or len(digits) + max(0, int(exponent)) > 38:
        return None
    return pa.scalar(exact, pa.decimal128(38, scale))


def _string_literal(value: Any) -> pa.Scalar | None:
    if not isinstance(value, str):
        return None
    try:
        return pa.scalar(value, pa.string())
    except UnicodeEncodeError:
        return None


def moment_literal(value: datetime) -> pa.Scalar:
    """Microseconds since the epoch, in UTC; a value without a zone is taken as it is."""
    moment = value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
    return pa.scalar((moment - _EPOCH) // timedelta(microseconds=1), pa.int64())
