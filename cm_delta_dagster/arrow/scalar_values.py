"""Values of scalar expressions over Arrow batches, as Spark computes them in ANSI mode, its default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timezone, tzinfo
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.protocol.predicates.scalars import (
    MAY_FAIL,
    ColumnValue,
    LiteralValue,
    Scalar,
    ScalarCall,
    ScalarOperation,
    can_fail,
)
from cm_delta_dagster.protocol.predicates.zone_rules import DISPUTED_ZONES, region_name

_Value: TypeAlias = pa.Array | pa.Scalar
_Op = ScalarOperation


def is_certain_zone(zone: tzinfo) -> bool:
    """Whether Arrow converts all times to ``zone`` as Spark does."""
    region = region_name(zone)
    return isinstance(zone, timezone) or (region is not None and region not in DISPUTED_ZONES)


def scalar_values(scalar: Scalar, columns: Callable[[str], pa.Array], num_rows: int) -> pa.Array:
    """The value of each row.

    Args:
        columns: the values of a top-level column, by its name in the schema of the expression.

    Raises:
        pa.ArrowInvalid: a number is too large, or divided by zero.
    """
    value = _MaskedRows(columns).value(scalar)
    return pa.repeat(value, num_rows) if isinstance(value, pa.Scalar) else value


@dataclass(frozen=True, slots=True)
class _MaskedRows:
    """The rows of a batch; ``mask``: those for which values are computed, None for all."""

    columns: Callable[[str], pa.Array]
    mask: pa.BooleanArray | None = None

    def value(self, scalar: Scalar) -> _Value:
        match scalar:
            case ColumnValue():
                return self._column(scalar)
            case LiteralValue():
                return pa.scalar(scalar.value, arrow_type(scalar.type))
            case ScalarCall(_Op.CASE, arguments):
                return self._case(arguments)
            case ScalarCall(_Op.COALESCE, arguments):
                return self._coalesce(arguments)
        values = [self.value(argument) for argument in scalar.arguments]
        if (
            self.mask is not None and scalar.operation in MAY_FAIL
        ):  # Literals are the same in rows that are not computed.
            values[0] = pc.if_else(self.mask, values[0], pa.scalar(None, values[0].type))
        simple = _SIMPLE.get(scalar.operation)
        if simple is not None:
            return simple(*values)
        return _converted(scalar, values[0] if scalar.zone is None else _local(values[0], scalar.zone))

    def _column(self, column: ColumnValue) -> pa.Array:
        array = self.columns(column.path[0])
        for name in column.path[1:]:
            array = pc.struct_field(array, [array.type.get_field_index(name)])
        return array if self.mask is None else pc.if_else(self.mask, array, pa.scalar(None, array.type))

    def _where(self, condition: _Value, scalar: Scalar) -> _Value:
        """The value where the condition is true; other rows have any value, and are not computed if that may fail."""
        if not can_fail(scalar):
            return self.value(scalar)
        mask = condition if self.mask is None else pc.and_(self.mask, condition)
        return replace(self, mask=mask).value(scalar)

    def _case(self, arguments: tuple[Scalar, ...]) -> _Value:
        *parts, default = arguments
        is_open: _Value = pa.scalar(True)
        chosen: list[tuple[_Value, _Value]] = []
        for condition, value in zip(parts[::2], parts[1::2], strict=True):
            is_true = pc.and_(is_open, pc.fill_null(self._where(is_open, condition), False))
            chosen.append((is_true, self._where(is_true, value)))
            is_open = pc.and_not(is_open, is_true)
        last = self._where(is_open, default)
        return reduce(lambda others, part: pc.if_else(part[0], part[1], others), reversed(chosen), last)

    def _coalesce(self, arguments: tuple[Scalar, ...]) -> _Value:
        value = self.value(arguments[0])
        for argument in arguments[1:]:
            value = pc.coalesce(value, self._where(pc.is_null(value), argument))
        return value


def _local(value: _Value, zone: tzinfo) -> _Value:
    """Instants as times of the clock of a zone."""
    region = region_name(zone)
    if region is not None:
        return pc.local_timestamp(value.cast(pa.timestamp("us", region)))
    offset = zone.utcoffset(None)
    return pc.add(value.cast(pa.timestamp("us")), pa.scalar(offset, pa.duration("us")))


def _nearest_double(value: _Value) -> _Value:
    return pc.cast(value, pa.float64(), safe=False)


def _remainder(value: _Value, divisor: pa.Scalar) -> _Value:
    return pc.subtract(value, pc.multiply(pc.divide(value, divisor), divisor))


def _equal(left: _Value, right: _Value) -> _Value:
    """As Spark compares: NaN equals NaN."""
    equal = pc.equal(left, right)
    return pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right))) if _is_double(left) else equal


def _less(left: _Value, right: _Value) -> _Value:
    """As Spark compares: NaN is above every other number."""
    less = pc.less(left, right)
    return pc.or_(less, pc.and_not(pc.is_nan(right), pc.is_nan(left))) if _is_double(left) else less


def _not_less(left: _Value, right: _Value) -> _Value:
    return pc.invert(_less(left, right))


def _is_double(value: _Value) -> bool:
    is_double: bool = pa.types.is_float64(value.type)
    return is_double


def _null_safe_equal(left: _Value, right: _Value) -> _Value:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(_equal(left, right), False), both_null)


def _substring(text: _Value, start: pa.Scalar, length: pa.Scalar | None = None) -> _Value:
    first = start.as_py() - 1
    return pc.utf8_slice_codeunits(text, first, None if length is None else first + length.as_py())


def _like(text: _Value, pattern: pa.Scalar) -> _Value:
    return pc.match_substring_regex(text, pattern.as_py())


def _concat(*texts: _Value) -> _Value:
    return pc.binary_join_element_wise(*texts, "")


def _converted(call: ScalarCall, value: _Value) -> _Value:
    """A part of a date or time, or the value as another type."""
    if call.operation is _Op.DATE and not pa.types.is_date(value.type):
        value = pc.floor_temporal(value, unit="day")
    part = _PARTS.get(call.operation)
    return (value if part is None else part(value)).cast(arrow_type(call.type))


_PARTS: Mapping[ScalarOperation, Callable[[Any], Any]] = {
    _Op.YEAR: pc.year,
    _Op.QUARTER: pc.quarter,
    _Op.MONTH: pc.month,
    _Op.DAY: pc.day,
    _Op.HOUR: pc.hour,
    _Op.MINUTE: pc.minute,
    _Op.SECOND: pc.second,
    _Op.LENGTH: pc.utf8_length,
}
_SIMPLE: Mapping[ScalarOperation, Callable[..., Any]] = {
    _Op.ADD: pc.add_checked,
    _Op.SUBTRACT: pc.subtract_checked,
    _Op.MULTIPLY: pc.multiply_checked,
    _Op.DIVIDE: pc.divide_checked,
    _Op.DOUBLE: _nearest_double,
    _Op.NEGATE: pc.negate_checked,
    _Op.REMAINDER: _remainder,
    _Op.SUBSTRING: _substring,
    _Op.LIKE: _like,
    _Op.CONCAT: _concat,
    _Op.EQ: _equal,
    _Op.NE: lambda left, right: pc.invert(_equal(left, right)),
    _Op.LT: _less,
    _Op.LE: lambda left, right: _not_less(right, left),
    _Op.GT: lambda left, right: _less(right, left),
    _Op.GE: _not_less,
    _Op.NULL_SAFE_EQ: _null_safe_equal,
    _Op.IS_NULL: pc.is_null,
    _Op.AND: pc.and_kleene,
    _Op.OR: pc.or_kleene,
    _Op.NOT: pc.invert,
}
