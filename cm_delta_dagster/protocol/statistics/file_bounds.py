"""Files that the bounds and null counts of a column exclude (protocol heading "Per-file Statistics").

One step of ``data_skipping``, which resolves the columns of a predicate and combines the answers for its parts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.predicates.predicates import (
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Predicate,
    StartsWith,
)
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, DataType, DecimalType, PrimitiveType
from cm_delta_dagster.protocol.statistics.literals import aligned, comparable, literal_of
from cm_delta_dagster.protocol.statistics.stats_json import ParsedStatistics

_Op = ComparisonOperator

_MAX_LISTED_VALUES = 64
"""For longer IN lists only the least and the greatest value are compared with a file's bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataColumn:
    """A column that is not a partition column; ``was_float`` if its type was widened from float to double."""

    path: ColumnPath
    type: DataType
    was_float: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBounds:
    """Bounds and null counts of one column, one entry per file. The bounds need not be values in the files."""

    type: DataType
    lower: pa.Array | None
    upper: pa.Array | None
    has_no_null: pa.BooleanArray
    has_only_nulls: pa.BooleanArray

    @staticmethod
    def of(statistics: ParsedStatistics, column: DataColumn) -> "FileBounds":
        lower = statistics.minimums.get(column.path)
        upper = statistics.maximums.get(column.path)
        nulls = statistics.null_counts[column.path]
        return FileBounds(
            type=column.type,
            lower=None if lower is None else _loosened(comparable(lower, column.type), column, -1),
            upper=None if upper is None else _loosened(comparable(upper, column.type), column, 1),
            # Both are also valid with wide bounds (tightBounds false).
            has_no_null=pc.equal(nulls, 0),
            has_only_nulls=pc.equal(nulls, statistics.num_records),
        )

    def exclude(self, leaf: Predicate) -> pa.BooleanArray:
        """One boolean per file: true if no row satisfies the leaf, null where unknown."""
        match leaf:
            case IsNull() | Comparison(operator=_Op.NULL_SAFE_EQ, value=None):
                return self.has_no_null
            case IsNotNull() | Not(Comparison(operator=_Op.NULL_SAFE_EQ, value=None)):
                return self.has_only_nulls
            case Comparison(value=None):
                return self._all(True)
            case In(values=values):
                return self._exclude_listed(values)
            case Comparison(operator=_Op.NULL_SAFE_EQ, value=value):
                return pc.or_kleene(self.has_only_nulls, self._exclude_comparison(_Op.EQ, value))
            case Comparison(operator=operator, value=value):
                return pc.or_kleene(self.has_only_nulls, self._exclude_comparison(operator, value))
            case StartsWith(prefix=prefix):
                return pc.or_kleene(self.has_only_nulls, self._exclude_prefix(prefix))
            case Not(StartsWith()):
                return self.has_only_nulls
            case _:
                return self._all(None)

    def _all(self, answer: bool | None) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(answer, pa.bool_()), len(self.has_no_null))

    def _exclude_listed(self, values: Sequence[Any]) -> pa.BooleanArray:
        present = [value for value in values if value is not None]
        if len(present) <= _MAX_LISTED_VALUES:
            exclusions = (self._exclude_comparison(_Op.EQ, value) for value in present)
            return pc.or_kleene(self.has_only_nulls, reduce(pc.and_kleene, exclusions, self._all(True)))
        literals = [literal_of(value, self.type) for value in present]
        if any(literal is None or literal.as_py() != literal.as_py() for literal in literals):
            return self.has_only_nulls
        ordered = sorted(literal.as_py() for literal in literals if literal is not None)
        below = self._exclude_literal(_Op.GE, _same_kind(ordered[0], literals[0]))
        above = self._exclude_literal(_Op.LE, _same_kind(ordered[-1], literals[0]))
        return pc.or_kleene(self.has_only_nulls, pc.or_kleene(below, above))

    def _exclude_comparison(self, operator: _Op, value: Any) -> pa.BooleanArray:
        literal = literal_of(value, self.type)
        return self._all(None) if literal is None else self._exclude_literal(operator, literal)

    def _exclude_literal(self, operator: _Op, literal: pa.Scalar) -> pa.BooleanArray:
        if self.lower is None or self.upper is None:
            return self._all(None)
        if not pa.types.is_floating(self.lower.type):
            return self._exclude_ordered(operator, literal)
        # NaN is greater than every number, but the bounds of some writers ignore it. An upper bound therefore does not
        # exclude a comparison that NaN satisfies, nor do bounds exclude a comparison with NaN.
        if operator in (_Op.GT, _Op.GE, _Op.NE) or math.isnan(literal.as_py()):
            return self._all(None)
        return self._exclude_ordered(operator, literal)

    def _exclude_ordered(self, operator: _Op, literal: pa.Scalar) -> pa.BooleanArray:
        match operator:
            case _Op.EQ:
                return pc.or_kleene(pc.greater(*aligned(self.lower, literal)), pc.less(*aligned(self.upper, literal)))
            case _Op.NE:
                return pc.and_kleene(pc.equal(*aligned(self.lower, literal)), pc.equal(*aligned(self.upper, literal)))
            case _Op.LT:
                return pc.greater_equal(*aligned(self.lower, literal))
            case _Op.LE:
                return pc.greater(*aligned(self.lower, literal))
            case _Op.GT:
                return pc.less_equal(*aligned(self.upper, literal))
            case _:
                return pc.less(*aligned(self.upper, literal))

    def _exclude_prefix(self, prefix: str) -> pa.BooleanArray:
        literal = literal_of(prefix, self.type)
        if literal is None or self.lower is None or self.upper is None or not pa.types.is_string(self.lower.type):
            return self._all(None)
        # A lower bound that is greater than the prefix and does not start with it is greater than all texts that do.
        above = pc.and_(pc.greater(self.lower, literal), pc.invert(pc.starts_with(self.lower, prefix)))
        return pc.or_kleene(above, pc.less(self.upper, literal))


def _same_kind(value: Any, like: pa.Scalar | None) -> pa.Scalar:
    return pa.scalar(value) if like is None or pa.types.is_decimal(like.type) else pa.scalar(value, like.type)


def _loosened(bounds: pa.Array, column: DataColumn, direction: int) -> pa.Array:
    """The bounds moved down (-1) or up (1) by the error that known writers make for this type."""
    if isinstance(column.type, DecimalType):
        return _loosened_decimals(bounds, direction) if column.type.precision > _EXACT_DIGITS else bounds
    if column.was_float:
        with np.errstate(over="ignore"):
            # A bound that no single can hold becomes an infinity, and then, if it moves inwards, the largest single.
            # The largest single moves outwards to an infinity.
            singles = bounds.to_numpy(zero_copy_only=False).astype(np.float32)
            moved = np.nextafter(singles, np.float32(direction * math.inf)).astype(np.float64)
        return pa.array(moved, mask=bounds.is_null().to_numpy(zero_copy_only=False))
    if column.type == TIMESTAMP:
        bounds = _with_seconds_of_offset(bounds, direction)
    if direction > 0 and isinstance(column.type, PrimitiveType):
        if column.type.name.startswith("timestamp"):
            return _widened(bounds)
        # Older writers end a truncated bound with U+FFFD (after a "?" if they split a character), which is less than the
        # characters beyond U+FFFF in UTF-8.
        if column.type.name == "string" and pc.any(pc.ends_with(bounds, "\ufffd")).as_py():
            return pc.replace_substring_regex(bounds, "\\??\ufffd$", "\U0010ffff")
    return bounds


_EXACT_DIGITS = 15
"""Some writers write decimals as doubles, which preserve this many digits."""


def _loosened_decimals(bounds: pa.Array, direction: int) -> pa.Array:
    magnitude = pc.abs(bounds.cast(pa.float64()))
    margin = pc.add(pc.multiply(magnitude, 2.0**-50), 10.0**-bounds.type.scale)
    wide = pa.decimal256(70, bounds.type.scale)
    move = pc.add if direction > 0 else pc.subtract
    return move(bounds.cast(wide), margin.cast(wide, safe=False))


_WHOLE_MINUTES_FROM = 63_936_000_000_000
"""8 January 1972 in microseconds: since then the offsets of all time zones from UTC are whole minutes."""

_MINUTE = 60_000_000


def _with_seconds_of_offset(micros: pa.Array, direction: int) -> pa.Array:
    """Older bounds moved by a minute: some writers write local times with hours and minutes of the offset, -07:52 for -07:52:58."""
    return pc.if_else(pc.less(micros, _WHOLE_MINUTES_FROM), pc.add(micros, direction * _MINUTE), micros)


def _widened(micros: pa.Array) -> pa.Array:
    """Upper bounds plus 1 ms, because writers truncate timestamps in statistics to milliseconds."""
    greatest = 2**63 - 1
    return pc.add(pc.min_element_wise(micros, pa.scalar(greatest - 1000), skip_nulls=False), 1000)
