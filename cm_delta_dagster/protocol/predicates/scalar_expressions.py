"""Values that an SQL expression computes from a row (protocol headings "Generated Columns" and "CHECK Constraints").

Only expressions are translated whose values follow from their text under all settings of an engine: no arithmetic of decimals, no
conversion of texts to numbers or times, no function whose result depends on a locale. Integer arithmetic fails where it overflows,
and a division by zero fails, as in Spark's ANSI mode, which is its default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from functools import partial, reduce
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.comparison_chains import has_chain
from cm_delta_dagster.protocol.predicates.scalar_literals import like_call, number_literal, time_literal
from cm_delta_dagster.protocol.predicates.scalars import (
    ColumnValue,
    LiteralValue,
    Scalar,
    ScalarCall,
    ScalarOperation,
    can_fail,
)
from cm_delta_dagster.protocol.predicates.sql_checks import why_not_closed
from cm_delta_dagster.protocol.predicates.sql_lexer import tokens_of
from cm_delta_dagster.protocol.predicates.sql_literals import NotUnderstoodError
from cm_delta_dagster.protocol.predicates.sql_strings import with_joined_strings
from cm_delta_dagster.protocol.schema.char_types import COLLATIONS_METADATA, char_width
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
    DataType,
    DecimalType,
    StructType,
)

_Node: TypeAlias = Any


class _NotCertainError(Exception):
    """The value of the expression is left to the engine."""


_WIDTHS: Mapping[DataType, int] = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_COMPARED = frozenset({BOOLEAN, STRING, BINARY, DOUBLE, *_TIMES, *_WIDTHS})
_ARITHMETIC = {exp.Add: ScalarOperation.ADD, exp.Sub: ScalarOperation.SUBTRACT, exp.Mul: ScalarOperation.MULTIPLY}
_PARTS_OF_DATES = {
    exp.Year: ScalarOperation.YEAR,
    exp.Quarter: ScalarOperation.QUARTER,
    exp.Month: ScalarOperation.MONTH,
    exp.Day: ScalarOperation.DAY,
    exp.DayOfMonth: ScalarOperation.DAY,
}
_PARTS_OF_TIMES = {
    exp.Hour: ScalarOperation.HOUR,
    exp.Minute: ScalarOperation.MINUTE,
    exp.Second: ScalarOperation.SECOND,
}
_COMPARISONS = {
    exp.EQ: ScalarOperation.EQ,
    exp.NEQ: ScalarOperation.NE,
    exp.LT: ScalarOperation.LT,
    exp.LTE: ScalarOperation.LE,
    exp.GT: ScalarOperation.GT,
    exp.GTE: ScalarOperation.GE,
    exp.NullSafeEQ: ScalarOperation.NULL_SAFE_EQ,
}
_CAST_TYPES = {
    exp.DataType.Type.TINYINT: BYTE,
    exp.DataType.Type.SMALLINT: SHORT,
    exp.DataType.Type.INT: INTEGER,
    exp.DataType.Type.BIGINT: LONG,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.DATE: DATE,
    exp.DataType.Type.TEXT: STRING,
}


FindPath: TypeAlias = Callable[[Sequence[str]], Sequence[str] | None]
"""The path in the schema of the column that an expression names by these parts; None if it is not known."""


def scalar_expression(
    text: str, schema: StructType, *, zone: tzinfo | None = None, find_path: FindPath = lambda names: names
) -> Scalar | None:
    """The expression, if its value is certain without an engine; None otherwise, also if it is wrong.

    Args:
        schema: of the rows.
        zone: in which dates and times of day are taken of timestamps; None if it is not known, and they are left to the engine.
    """
    try:
        tokens = tokens_of(text)
        joined = with_joined_strings(tokens, text)
        if joined is None or why_not_closed(tokens, text) is not None or has_chain(joined):
            return None
        nodes = Dialect.get_or_raise("spark").parser().parse_into(exp.Condition, joined, text)
        return _ScalarReader(schema, zone, find_path).scalar(nodes[0]) if len(nodes) == 1 else None
    except (_NotCertainError, NotUnderstoodError, SqlglotError, InvalidArgumentError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class _ScalarReader:
    schema: StructType
    zone: tzinfo | None
    find_path: FindPath

    def scalar(self, node: _Node) -> Scalar:
        kind = type(node)
        read = _READERS.get(kind)
        if read is not None:
            return read(self, node)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], *self._operands(node))
        if kind in _COMPARISONS:
            return self._comparison(_COMPARISONS[kind], *self._operands(node))
        if kind in (exp.And, exp.Or):
            return self._logical(ScalarOperation.AND if kind is exp.And else ScalarOperation.OR, *self._operands(node))
        if kind in _PARTS_OF_DATES:
            return self._part(_PARTS_OF_DATES[kind], self.scalar(_without_date(_only(node, "this"))), _TIMES)
        if kind in _PARTS_OF_TIMES:
            return self._part(_PARTS_OF_TIMES[kind], self.scalar(_only(node, "this")), (TIMESTAMP, TIMESTAMP_NTZ))
        raise _NotCertainError

    def column(self, node: _Node) -> Scalar:
        return self._field([part.name for part in node.parts])

    def dot(self, node: _Node) -> Scalar:
        names: list[str] = []
        while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            names.insert(0, node.expression.name)
            node = node.this
        if not isinstance(node, exp.Column):
            raise _NotCertainError
        return self._field([*(part.name for part in node.parts), *names])

    def _field(self, names: Sequence[str]) -> ColumnValue:
        data_type: DataType = self.schema
        path: list[str] = []
        named = self.find_path(names)
        if named is None:
            raise _NotCertainError
        for name in named:
            item = data_type.field(name) if isinstance(data_type, StructType) else None
            if item is None or char_width(item) or COLLATIONS_METADATA in item.metadata:
                raise _NotCertainError
            path.append(item.name)
            data_type = item.type
        return ColumnValue(tuple(path), data_type)

    def literal(self, node: _Node) -> Scalar:
        if node.is_string:
            return LiteralValue(node.this, STRING)
        return number_literal(node.this, 1)

    def boolean(self, node: _Node) -> Scalar:
        return LiteralValue(bool(node.this), BOOLEAN)

    def parenthesis(self, node: _Node) -> Scalar:
        return self.scalar(_only(node, "this"))

    def negative(self, node: _Node) -> Scalar:
        inner = _only(node, "this")
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number_literal(inner.this, -1)
        argument = self.scalar(inner)
        if argument.type not in _WIDTHS and argument.type != DOUBLE:
            raise _NotCertainError
        return ScalarCall(ScalarOperation.NEGATE, (argument,), argument.type)

    def quotient(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "expression", "typed", "safe")
        operands = [self.scalar(node.this), self.scalar(node.expression)]
        if any(isinstance(operand.type, DecimalType) for operand in operands) and all(
            operand.type != DOUBLE for operand in operands
        ):
            raise _NotCertainError
        return ScalarCall(ScalarOperation.DIVIDE, tuple(map(_as_double, operands)), DOUBLE)

    def remainder(self, node: _Node) -> Scalar:
        left, right = self._operands(node)
        if not isinstance(right, LiteralValue) or type(right.value) is not int or right.value <= 0:
            raise _NotCertainError
        left, right = _same_type((left, right))
        return ScalarCall(ScalarOperation.REMAINDER, (left, right), left.type)

    def cast(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "to", "safe", "_type")
        if isinstance(node.this, exp.Literal) and node.this.is_string and not node.args["to"].expressions:
            return time_literal(node.this.this, node.args["to"].this)
        target = _CAST_TYPES.get(node.args["to"].this)
        if target is None or node.args["to"].expressions:
            raise _NotCertainError
        argument = self.scalar(node.this)
        if argument.type == target:
            return argument
        if target == DOUBLE:
            return _as_double(argument)
        if target == DATE:
            return self._part(ScalarOperation.DATE, argument, (TIMESTAMP, TIMESTAMP_NTZ), DATE)
        if target == STRING and (argument.type == BOOLEAN or argument.type in _WIDTHS):
            return ScalarCall(ScalarOperation.TEXT, (argument,), STRING)
        return _widened(argument, target)

    def date(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "safe")
        argument = self.scalar(node.this)
        return argument if argument.type == DATE else self._part(ScalarOperation.DATE, argument, _TIMES, DATE)

    def substring(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "start", "length")
        text = self.scalar(node.this)
        places = [self.scalar(node.args[name]) for name in ("start", "length") if node.args.get(name) is not None]
        start = places[0] if places else None
        if text.type != STRING or not isinstance(start, LiteralValue) or not _is_at_least(start, 1):
            raise _NotCertainError
        if not all(isinstance(place, LiteralValue) and _is_at_least(place, 0) for place in places):
            raise _NotCertainError
        return ScalarCall(ScalarOperation.SUBSTRING, (text, *places), STRING)

    def length(self, node: _Node) -> Scalar:
        text = self.scalar(_only(node, "this"))
        if text.type != STRING:
            raise _NotCertainError
        return ScalarCall(ScalarOperation.LENGTH, (text,), INTEGER)

    def like(self, node: _Node, escape: str = "\\") -> Scalar:
        _check_arguments(node, "this", "expression", "negate")
        matches = like_call(_of_type(self.scalar(node.this), STRING), self.scalar(node.expression), escape)
        return ScalarCall(ScalarOperation.NOT, (matches,), BOOLEAN) if node.args.get("negate") else matches

    def like_with_escape(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "expression")
        escape = self.scalar(node.expression)
        if not isinstance(node.this, exp.Like) or not isinstance(escape, LiteralValue) or escape.type != STRING:
            raise _NotCertainError
        return self.like(node.this, str(escape.value))

    def concat(self, node: _Node) -> Scalar:
        _check_arguments(node, "expressions", "safe")
        return _concat(tuple(map(self.scalar, node.expressions)))

    def pipes(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "expression", "safe")
        return _concat((self.scalar(node.this), self.scalar(node.expression)))

    def coalesce(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "expressions")
        arguments = _same_type(tuple(map(self.scalar, (node.this, *node.expressions))))
        return ScalarCall(ScalarOperation.COALESCE, arguments, arguments[0].type)

    def case(self, node: _Node) -> Scalar:
        _check_arguments(node, "ifs", "default")
        if not node.args.get("default"):
            raise _NotCertainError
        return self._branches([(part.this, part.args["true"]) for part in node.args["ifs"]], node.args["default"])

    def conditional(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "true", "false")
        if not node.args.get("false"):
            raise _NotCertainError
        return self._branches([(node.this, node.args["true"])], node.args["false"])

    def _branches(self, parts: Sequence[tuple[_Node, _Node]], default: _Node) -> Scalar:
        conditions = [_of_type(self.scalar(condition), BOOLEAN) for condition, _ in parts]
        values = _same_type((*(self.scalar(value) for _, value in parts), self.scalar(default)))
        if any(map(can_fail, conditions)) and len(set(values)) < len(values):
            raise _NotCertainError  # Spark does not compute a condition that decides nothing.
        arguments = [part for pair in zip(conditions, values, strict=False) for part in pair]
        return ScalarCall(ScalarOperation.CASE, (*arguments, values[-1]), values[-1].type)

    def is_null(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "expression")
        if not isinstance(node.expression, exp.Null):
            raise _NotCertainError
        argument = self.scalar(node.this)
        if can_fail(argument):
            raise _NotCertainError  # Spark does not compute a value that is never NULL.
        return ScalarCall(ScalarOperation.IS_NULL, (argument,), BOOLEAN)

    def negation(self, node: _Node) -> Scalar:
        return ScalarCall(ScalarOperation.NOT, (_of_type(self.scalar(_only(node, "this")), BOOLEAN),), BOOLEAN)

    def between(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "low", "high")
        value, low, high = (self.scalar(node.args[name]) for name in ("this", "low", "high"))
        return self._logical(
            ScalarOperation.AND,
            self._comparison(ScalarOperation.GE, value, low),
            self._comparison(ScalarOperation.LE, value, high),
        )

    def in_list(self, node: _Node) -> Scalar:
        _check_arguments(node, "this", "expressions")
        if not node.expressions:
            raise _NotCertainError
        value, *items = map(self.scalar, (node.this, *node.expressions))
        return reduce(
            partial(self._logical, ScalarOperation.OR),
            [self._comparison(ScalarOperation.EQ, value, item) for item in items],
        )

    def _operands(self, node: _Node) -> tuple[Scalar, Scalar]:
        _check_arguments(node, "this", "expression")
        return self.scalar(node.this), self.scalar(node.expression)

    def _arithmetic(self, operation: ScalarOperation, left: Scalar, right: Scalar) -> Scalar:
        left, right = _same_type((left, right))
        if left.type not in _WIDTHS and left.type != DOUBLE:
            raise _NotCertainError
        return ScalarCall(operation, (left, right), left.type)

    def _comparison(self, operation: ScalarOperation, left: Scalar, right: Scalar) -> Scalar:
        left, right = _same_type((left, right))
        if left.type not in _COMPARED and not isinstance(left.type, DecimalType):
            raise _NotCertainError
        if left == right and can_fail(left):
            raise _NotCertainError  # Spark does not compute what equals itself.
        return ScalarCall(operation, (left, right), BOOLEAN)

    def _logical(self, operation: ScalarOperation, left: Scalar, right: Scalar) -> Scalar:
        # Spark does not compute the second operand if the first one decides.
        if can_fail(left) or can_fail(right):
            raise _NotCertainError
        return ScalarCall(operation, (_of_type(left, BOOLEAN), _of_type(right, BOOLEAN)), BOOLEAN)

    def _part(
        self, operation: ScalarOperation, argument: Scalar, types: Sequence[DataType], result: DataType = INTEGER
    ) -> Scalar:
        if argument.type not in types or (argument.type == TIMESTAMP and self.zone is None):
            raise _NotCertainError
        return ScalarCall(operation, (argument,), result, self.zone if argument.type == TIMESTAMP else None)


def _without_date(node: _Node) -> _Node:
    """The argument of a function of dates, which the parser converts to a date."""
    return _only(node, "this") if isinstance(node, exp.TsOrDsToDate) else node


def _check_arguments(node: _Node, *names: str) -> None:
    """Leave a node to the engine that has other arguments, e.g. of a later release of the parser."""
    if any(value for name, value in node.args.items() if name not in names):
        raise _NotCertainError


def _only(node: _Node, name: str) -> _Node:
    _check_arguments(node, name)
    return node.args[name]


def _is_at_least(literal: Scalar, least: int) -> bool:
    return isinstance(literal, LiteralValue) and type(literal.value) is int and least <= literal.value < 2**31


def _of_type(scalar: Scalar, data_type: DataType) -> Scalar:
    if scalar.type != data_type:
        raise _NotCertainError
    return scalar


def _widened(scalar: Scalar, data_type: DataType) -> Scalar:
    if scalar.type == data_type:
        return scalar
    if scalar.type not in _WIDTHS or data_type not in _WIDTHS or _WIDTHS[scalar.type] > _WIDTHS[data_type]:
        raise _NotCertainError
    return (
        LiteralValue(scalar.value, data_type)
        if isinstance(scalar, LiteralValue)
        else ScalarCall(ScalarOperation.WIDEN, (scalar,), data_type)
    )


def _as_double(scalar: Scalar) -> Scalar:
    """An integer or a decimal literal as the nearest number of 64 bits with a binary point."""
    if scalar.type == DOUBLE:
        return scalar
    if isinstance(scalar, LiteralValue) and isinstance(scalar.value, int | Decimal) and scalar.type != BOOLEAN:
        return LiteralValue(float(scalar.value), DOUBLE)
    if scalar.type not in _WIDTHS:
        raise _NotCertainError
    return ScalarCall(ScalarOperation.DOUBLE, (scalar,), DOUBLE)


def _same_type(scalars: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The values with the widest type of numbers among them; other types must be equal."""
    types = {scalar.type for scalar in scalars}
    if FLOAT in types:
        raise _NotCertainError
    if DOUBLE in types:
        return tuple(map(_as_double, scalars))
    widest = max(types, key=lambda data_type: _WIDTHS.get(data_type, 0))
    return tuple(_widened(scalar, widest) for scalar in scalars)


def _concat(arguments: tuple[Scalar, ...]) -> Scalar:
    return ScalarCall(ScalarOperation.CONCAT, tuple(_of_type(argument, STRING) for argument in arguments), STRING)


_READERS: Mapping[type, Callable[[_ScalarReader, _Node], Scalar]] = {
    exp.Between: _ScalarReader.between,
    exp.Boolean: _ScalarReader.boolean,
    exp.Case: _ScalarReader.case,
    exp.Cast: _ScalarReader.cast,
    exp.Coalesce: _ScalarReader.coalesce,
    exp.Column: _ScalarReader.column,
    exp.Concat: _ScalarReader.concat,
    exp.DPipe: _ScalarReader.pipes,
    exp.Div: _ScalarReader.quotient,
    exp.Dot: _ScalarReader.dot,
    exp.Escape: _ScalarReader.like_with_escape,
    exp.If: _ScalarReader.conditional,
    exp.In: _ScalarReader.in_list,
    exp.Is: _ScalarReader.is_null,
    exp.Length: _ScalarReader.length,
    exp.Like: _ScalarReader.like,
    exp.Literal: _ScalarReader.literal,
    exp.Mod: _ScalarReader.remainder,
    exp.Neg: _ScalarReader.negative,
    exp.Not: _ScalarReader.negation,
    exp.Paren: _ScalarReader.parenthesis,
    exp.Substring: _ScalarReader.substring,
    exp.TryCast: _ScalarReader.cast,
    exp.TsOrDsToDate: _ScalarReader.date,
}
