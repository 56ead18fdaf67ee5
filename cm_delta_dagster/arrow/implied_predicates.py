"""Conditions of this package that follow from an expression of another engine, to skip files and rows by it.

Engines differ in how they compare NaN, -0.0 and padded text. The condition is true for every row for which the expression is true,
and may be true for more, so the engine's own filter still has to run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.arrow.expressions import ExpressionNode, FieldPath, FunctionCall, Literal
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    conjunction,
    quote_column,
)
from cm_delta_dagster.protocol.schema.char_types import char_widths
from cm_delta_dagster.protocol.schema.types import DOUBLE, FLOAT, DataType, StructType

_Op = ComparisonOperator
_NEVER = Or(())
_NAN = math.nan

_COMPARISONS: Mapping[str, _Op] = {
    "equal": _Op.EQ,
    "not_equal": _Op.NE,
    "less": _Op.LT,
    "less_equal": _Op.LE,
    "greater": _Op.GT,
    "greater_equal": _Op.GE,
}
_MIRRORED: Mapping[_Op, _Op] = {_Op.LT: _Op.GT, _Op.LE: _Op.GE, _Op.GT: _Op.LT, _Op.GE: _Op.LE}
_OPPOSITE: Mapping[_Op, _Op] = {
    _Op.EQ: _Op.NE,
    _Op.NE: _Op.EQ,
    _Op.LT: _Op.GE,
    _Op.GE: _Op.LT,
    _Op.GT: _Op.LE,
    _Op.LE: _Op.GT,
}


def implied_predicate(expression: ExpressionNode, schema: StructType) -> Predicate | None:
    """A condition that is true for each row for which ``expression`` is true; None if none is known.

    Args:
        expression: evaluated by pyarrow, or by an engine for which NaN is equal to NaN and greater than other numbers.
        schema: of the table.
    """
    try:
        return _Translation(schema).implied(expression, truth=True)
    except RecursionError:
        return None


def _all(parts: Sequence[Predicate | None]) -> Predicate | None:
    known = [part for part in parts if part is not None]
    return conjunction(known) if known else None


def _any(parts: Sequence[Predicate | None]) -> Predicate | None:
    known = [part for part in parts if part is not None]
    return Or(tuple(known)) if len(known) == len(parts) else None


@dataclass(frozen=True, slots=True)
class _Translation:
    """``implied(node, truth)`` is a condition that is true for each row for which ``node`` is ``truth``."""

    schema: StructType

    def implied(self, node: ExpressionNode, *, truth: bool) -> Predicate | None:
        match node:
            case Literal(value):
                return AlwaysTrue() if value is truth else _NEVER
            case FieldPath():
                return self._checked(node, lambda column: Comparison(column, _Op.EQ, truth))
            case FunctionCall("invert", (part,)):
                return self.implied(part, truth=not truth)
            case FunctionCall("if_else", (condition, then, otherwise)):
                return self._branches(condition, then, otherwise, truth=truth)
            case FunctionCall("and_kleene" | "and" | "or_kleene" | "or" as function, parts):
                is_all = function.startswith("and") == truth
                implied = [self.implied(part, truth=truth) for part in parts]
                return _all(implied) if is_all else _any(implied)
            case FunctionCall(function, (FieldPath() as path, Literal(value))) if function in _COMPARISONS:
                return self._comparison(path, _COMPARISONS[function], value, truth=truth)
            case FunctionCall(function, (Literal(value), FieldPath() as path)) if function in _COMPARISONS:
                operator = _COMPARISONS[function]
                return self._comparison(path, _MIRRORED.get(operator, operator), value, truth=truth)
            case FunctionCall(function, (FieldPath() as path,), options):
                return self._test(function, path, options, truth=truth)
        return None

    def _branches(
        self, condition: ExpressionNode, then: ExpressionNode, otherwise: ExpressionNode, *, truth: bool
    ) -> Predicate | None:
        """An engine wraps a test of a list in ``if_else(is_valid(x), test, null)``."""
        branches = []
        for branch, holds in ((then, True), (otherwise, False)):
            if isinstance(branch, Literal) and branch.value is not truth:
                continue
            branches.append(_all([self.implied(condition, truth=holds), self.implied(branch, truth=truth)]))
        return _any(branches)

    def _comparison(self, path: FieldPath, operator: _Op, value: Any, *, truth: bool) -> Predicate | None:
        if value is None:
            return _NEVER
        if _is_nan(value):
            return None
        operator = operator if truth else _OPPOSITE[operator]
        comparison = self._checked(path, lambda column: Comparison(column, operator, value))
        if truth or comparison is None or operator not in (_Op.LT, _Op.LE) or self._type(path) not in (FLOAT, DOUBLE):
            return comparison
        # To pyarrow `x > 3` is false for NaN, so that its negation is true, but NaN is not `x <= 3`.
        return Or((comparison, Comparison(quote_column(path.names), _Op.EQ, _NAN)))

    def _test(self, function: str, path: FieldPath, options: Mapping[str, Any], *, truth: bool) -> Predicate | None:
        match function:
            case "is_valid":
                return self._checked(path, IsNotNull if truth else IsNull)
            case "is_null" if not options.get("nan_is_null"):
                return self._checked(path, IsNull if truth else IsNotNull)
            case "is_in" if truth:
                return self._membership(path, options["value_set"])
            case "starts_with" if truth and not options.get("ignore_case"):
                return self._checked(path, lambda column: StartsWith(column, options["pattern"]))
        return None

    def _membership(self, path: FieldPath, values: Sequence[Any]) -> Predicate | None:
        if any(_is_nan(value) for value in values):
            return None
        present = tuple(value for value in values if value is not None)
        listed = self._checked(path, lambda column: In(column, present))
        return listed if len(present) == len(values) else _any([listed, self._checked(path, IsNull)])

    def _checked(self, path: FieldPath, test: Callable[[str], Predicate]) -> Predicate | None:
        """The test of the column, if this package can evaluate it and compares its values as other engines do."""
        item = self.schema.field(path.names[0])
        if item is None or char_widths(item) is not None:
            return None
        predicate = test(quote_column(path.names))
        try:
            row_filter(predicate, self.schema)
        except InvalidArgumentError:
            return None
        return predicate

    def _type(self, path: FieldPath) -> DataType | None:
        data_type: DataType | None = self.schema
        for name in path.names:
            item = data_type.field(name) if isinstance(data_type, StructType) else None
            data_type = None if item is None else item.type
        return data_type


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """The conjunction of two conditions, either of which may be absent."""
    if first is None or second is None:
        return second if first is None else first
    return And((first, second))
