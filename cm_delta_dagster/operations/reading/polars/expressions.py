"""The parts of a polars expression, for reads that skip files by it.

polars gives the parts as JSON, whose form it may change in any release. A part of another form than those below becomes a call of
an unknown function, of which nothing follows; polars evaluates the expression itself in any case.
"""

import io
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cm_delta_dagster.arrow.expressions import ExpressionNode, FieldPath, FunctionCall, Literal

if TYPE_CHECKING:
    from polars import Expr

_UNKNOWN = FunctionCall("unknown", ())
_OPERATORS: Mapping[str, str] = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
    "And": "and_kleene",
    "LogicalAnd": "and_kleene",
    "Or": "or_kleene",
    "LogicalOr": "or_kleene",
}
_TESTS: Mapping[str, str] = {"IsNull": "is_null", "IsNotNull": "is_valid", "Not": "invert"}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "Both": ("greater_equal", "less_equal"),
    "Left": ("greater_equal", "less"),
    "Right": ("greater", "less_equal"),
    "None": ("greater", "less"),
}
_HINT = "dynamic_pred"


class PolarsPredicate:
    """A condition that polars asks a source to apply.

    Attributes:
        expression: what the source has to apply to each frame; None for nothing.
        parts: the same for skipping files.
    """

    def __init__(self, predicate: "Expr", *, polars: ModuleType) -> None:
        self._polars = polars
        self.expression: Expr | None = predicate
        self.parts: ExpressionNode = _UNKNOWN
        try:
            text = predicate.meta.serialize(format="json")
            tree = json.loads(text)
            if _HINT in text:
                # A limit above the scan adds a hint that only polars' own readers can evaluate. The rows do not depend on it.
                tree = _without_hints(tree)
                self.expression = None if tree is None else self._rebuilt(tree)
            self.parts = _UNKNOWN if tree is None else self._parsed(tree)
        except (LookupError, TypeError, ValueError, RecursionError, polars.exceptions.PolarsError):
            # The expression stays as it is, and nothing is known of it.
            self.parts = _UNKNOWN

    def _rebuilt(self, tree: Any) -> "Expr":
        expression: Expr = self._polars.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
        return expression

    def _parsed(self, tree: Any) -> ExpressionNode:
        match tree:
            case {"Column": str(name)}:
                return FieldPath((name,))
            case {"Literal": _}:
                return self._literal(tree)
            case {"BinaryExpr": {"left": left, "op": str(operator), "right": right}} if operator in _OPERATORS:
                return FunctionCall(_OPERATORS[operator], (self._parsed(left), self._parsed(right)))
            case {"Function": {"input": [*inputs], "function": function}}:
                return self._function(function, inputs)
        return _UNKNOWN

    def _function(self, function: Any, inputs: list[Any]) -> ExpressionNode:
        match function, inputs:
            case {"Boolean": str(test)}, [operand] if test in _TESTS:
                return FunctionCall(_TESTS[test], (self._parsed(operand),))
            case {"Boolean": {"IsIn": _}}, [operand, listed]:
                return self._with_literal(listed, lambda values: _membership(self._parsed(operand), values))
            case {"Boolean": {"IsBetween": {"closed": str(closed)}}}, [operand, low, high] if closed in _BOUNDS:
                value, bounds = self._parsed(operand), (self._parsed(low), self._parsed(high))
                names = _BOUNDS[closed]
                sides = [FunctionCall(name, (value, bound)) for name, bound in zip(names, bounds, strict=True)]
                return FunctionCall("and_kleene", tuple(sides))
            case {"StringExpr": "StartsWith"}, [operand, prefix]:
                tested = (self._parsed(operand),)
                return self._with_literal(prefix, lambda text: FunctionCall("starts_with", tested, {"pattern": text}))
            case {"StructExpr": {"FieldByName": str(name)}}, [operand]:
                parent = self._parsed(operand)
                return FieldPath((*parent.names, name)) if isinstance(parent, FieldPath) else _UNKNOWN
        return _UNKNOWN

    def _with_literal(self, tree: Any, use: Callable[[Any], ExpressionNode]) -> ExpressionNode:
        literal = self._literal(tree) if "Literal" in tree else _UNKNOWN
        return use(literal.value) if isinstance(literal, Literal) and literal.value is not None else _UNKNOWN

    def _literal(self, tree: Any) -> ExpressionNode:
        """The constant, evaluated by polars; unknown for types whose values Python rounds."""
        polars = self._polars
        values = polars.select(self._rebuilt(tree)).to_series()
        kind = values.dtype.inner if isinstance(values.dtype, polars.List) else values.dtype
        if isinstance(kind, polars.Datetime) and kind.time_unit == "ns":
            return _UNKNOWN
        if isinstance(kind, polars.Duration | polars.Time | polars.Categorical | polars.Enum) or len(values) != 1:
            return _UNKNOWN
        value = values[0]
        return Literal(value.to_list() if isinstance(value, polars.Series) else value)


def _membership(operand: ExpressionNode, values: Any) -> ExpressionNode:
    return FunctionCall("is_in", (operand,), {"value_set": values}) if isinstance(values, list) else _UNKNOWN


def _without_hints(tree: Any) -> Any:
    """The conjuncts of ``tree`` without those that are hints; None if no conjunct is left."""
    match tree:
        case {"Display": {"fmt_str": str(text)}} if text.startswith(_HINT):
            return None
        case {"BinaryExpr": {"op": "And", "left": left, "right": right} as parts}:
            first, second = _without_hints(left), _without_hints(right)
            if first is None or second is None:
                return second if first is None else first
            return {"BinaryExpr": {**parts, "left": first, "right": second}}
    return tree
