"""Predicates from SQL text: what a user writes as a condition, as far as it can be understood without an engine.

Room: protocol. Used under the heading "Per-file Statistics": the parts that are understood let files be left out. A
part whose meaning could differ from Spark's in any setting (functions, casts, session time zones, escapes) is not
guessed at: the whole text then stays beside the understood parts as
:class:`~cm_delta_dagster.protocol.predicates.Opaque`, for the engine to apply.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    conjunction,
    quote_column,
)
from cm_delta_dagster.protocol.schema import DataType, DecimalType, PrimitiveType, StructType, schema_text

_Op = ComparisonOperator

Node: TypeAlias = Any
"""A node of sqlglot's tree; the base class has another name in each of its major releases."""

_COMPARISONS: Mapping[type, _Op] = {
    exp.EQ: _Op.EQ,
    exp.NEQ: _Op.NE,
    exp.LT: _Op.LT,
    exp.LTE: _Op.LE,
    exp.GT: _Op.GT,
    exp.GTE: _Op.GE,
    exp.NullSafeEQ: _Op.NULL_SAFE_EQ,
}

_MIRRORED = {_Op.LT: _Op.GT, _Op.GT: _Op.LT, _Op.LE: _Op.GE, _Op.GE: _Op.LE}


def parse_predicate(text: str, schema: StructType) -> Predicate:
    """The predicate that Spark SQL ``text`` states over a table of this schema.

    Literals get the type of the column they are compared with. What is not understood becomes :class:`Opaque`, in
    conjunction with what is.

    Raises:
        InvalidArgumentError: the text is no SQL condition, or names a column that the table lacks.
    """
    root = _parse(text)
    reader = _Reader(schema=schema, has_plain_strings="\\" not in text and "${" not in text)
    columns = reader.checked_columns(root, text)
    understood: list[Predicate] = []
    complete = True
    for part in _and_parts(root):
        try:
            understood.append(reader.predicate(part))
        except _NotUnderstoodError:
            complete = False
    if not complete:
        # A trailing comment must not swallow the bracket that is put around the text later.
        understood.append(Opaque(text + "\n" if "--" in text else text, columns))
    return conjunction(understood)


_NODE_CLASS = re.compile(r" for <class '[^']*'>")
"""What the parser tells of its own insides."""


def _parse(text: str) -> Node:
    try:
        statements = sqlglot.parse(text, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        fault = _NODE_CLASS.sub("", str(error).splitlines()[0])
        raise InvalidArgumentError(
            f"The predicate {text!r} is not valid SQL: {fault} Write a condition such as `x > 1`."
        ) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Condition):
        raise InvalidArgumentError(
            f"The predicate {text!r} is not a single SQL condition. "
            "Write only what would follow WHERE, such as `x > 1`."
        )
    return statements[0]


def _and_parts(node: Node) -> list[Node]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return [part for side in (node.this, node.expression) for part in _and_parts(side)]
    return [node]


_UNDERSTOOD_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high"})


def _surplus_arguments(node: Node) -> bool:
    """Whether a node says something that the reader would overlook, e.g. by a later release of the parser."""
    return any(value for name, value in node.args.items() if name not in _UNDERSTOOD_ARGUMENTS)


class _NotUnderstoodError(Exception):
    """Internal signal: this part of the text is left to the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Translates the nodes of one text. ``has_plain_strings``: no escape or substitution can hide in its string
    literals.
    """

    schema: StructType
    has_plain_strings: bool

    def checked_columns(self, root: Node, text: str) -> frozenset[str] | None:
        """The columns that the text mentions; None if it has names of its own (sub-queries, lambdas)."""
        if root.find(exp.Query, exp.Lambda) is not None:
            return None
        found: set[str] = set()
        for node in root.find_all(exp.Column):
            names = [part.name for part in node.parts]
            field = self.schema.field(names[0])
            if field is None or self._lacks_nested(field.type, names[1:]):
                written = ".".join(names)
                raise InvalidArgumentError(
                    f"The predicate {text!r} names the column {written!r}, which the table does not have. "
                    f"Use one of its columns:\n{schema_text(self.schema)}"
                )
            found.add(_column_text((field.name,)))
        return frozenset(found)

    def _lacks_nested(self, data_type: DataType, names: list[str]) -> bool:
        for name in names:
            if not isinstance(data_type, StructType):
                return isinstance(data_type, PrimitiveType | DecimalType)
            field = data_type.field(name)
            if field is None:
                return True
            data_type = field.type
        return False

    def predicate(self, node: Node) -> Predicate:
        node = node.unnest()
        if node.args.get("negate"):
            # `NOT LIKE` and its kin: the parser marks the node instead of wrapping it.
            positive = node.copy()
            positive.set("negate", None)
            return _negation(self.predicate(positive))
        if not isinstance(node, exp.Column) and _surplus_arguments(node):
            raise _NotUnderstoodError
        match node:
            case exp.And():
                return And((self.predicate(node.this), self.predicate(node.expression)))
            case exp.Or():
                return Or((self.predicate(node.this), self.predicate(node.expression)))
            case exp.Not():
                return _negation(self.predicate(node.this))
            case exp.Boolean():
                return AlwaysTrue() if node.this else Not(AlwaysTrue())
            case exp.Column():
                return self._comparison(node, _Op.EQ, exp.true())
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between() if not node.args.get("symmetric"):
                low = self._comparison(node.this, _Op.GE, node.args["low"])
                return And((low, self._comparison(node.this, _Op.LE, node.args["high"])))
            case exp.NullSafeNEQ():
                return Not(self._comparison(node.this, _Op.NULL_SAFE_EQ, node.expression))
            case exp.StartsWith():
                return self._starts_with(node.this, self._string(node.expression))
            case exp.Like():
                return self._like(node)
        operator = _COMPARISONS.get(type(node))
        if operator is None:
            raise _NotUnderstoodError
        return self._comparison(node.this, operator, node.expression)

    def _comparison(self, left: Node, operator: _Op, right: Node) -> Predicate:
        left, right = left.unnest(), right.unnest()
        if not isinstance(left, exp.Column):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        column, data_type = self._column(left)
        return Comparison(column, operator, self._value(right, data_type))

    def _is(self, node: exp.Is) -> Predicate:
        if isinstance(node.expression, exp.Null):
            return IsNull(self._column(node.this, allow=(DecimalType, PrimitiveType))[0])
        if isinstance(node.expression, exp.Boolean):
            return self._comparison(node.this, _Op.NULL_SAFE_EQ, node.expression)
        raise _NotUnderstoodError

    def _in(self, node: exp.In) -> Predicate:
        if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
            raise _NotUnderstoodError
        column, data_type = self._column(node.this)
        return In(column, tuple(self._value(item.unnest(), data_type) for item in node.expressions))

    def _like(self, node: exp.Like) -> Predicate:
        pattern = self._string(node.expression)
        body = pattern.removesuffix("%")
        if "%" in body or "_" in body:
            raise _NotUnderstoodError
        if body != pattern:
            return self._starts_with(node.this, body)
        return self._comparison(node.this, _Op.EQ, node.expression)

    def _starts_with(self, node: Node, prefix: str) -> Predicate:
        column, data_type = self._column(node)
        if data_type != PrimitiveType("string"):
            raise _NotUnderstoodError
        return StartsWith(column, prefix)

    def _column(self, node: Node, allow: tuple[type, ...] = (DecimalType, PrimitiveType)) -> tuple[str, DataType]:
        node = node.unnest()
        if not isinstance(node, exp.Column):
            raise _NotUnderstoodError
        names: list[str] = []
        data_type: DataType = self.schema
        for part in node.parts:
            field = data_type.field(part.name) if isinstance(data_type, StructType) else None
            if field is None:
                raise _NotUnderstoodError
            names.append(field.name)
            data_type = field.type
        if not isinstance(data_type, allow):
            raise _NotUnderstoodError
        return _column_text(tuple(names)), data_type

    def _string(self, node: Node) -> str:
        node = node.unnest()
        if isinstance(node, exp.Literal) and node.is_string and self.has_plain_strings:
            return str(node.this)
        raise _NotUnderstoodError

    def _value(self, node: Node, data_type: DataType) -> Any:
        """The literal as a value of the column's type, if Spark would compare it as that in every setting."""
        literal = self._literal(node.unnest())
        if literal is None:
            return None
        if isinstance(data_type, DecimalType):
            return _checked(literal, int, Decimal)
        convert = _CONVERSIONS.get(data_type.name) if isinstance(data_type, PrimitiveType) else None
        if convert is None:
            raise _NotUnderstoodError
        return convert(literal)

    def _literal(self, node: Node) -> Any:
        match node:
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(node.this)
            case exp.Neg():
                number = self._literal(node.this.unnest())
                # Arithmetic on a Decimal rounds to 28 digits; this does not.
                return number.copy_negate() if isinstance(number, Decimal) else -_checked(number, int, float)
            case exp.Literal() if not node.is_string:
                return _number(str(node.this))
            case exp.Literal():
                return self._string(node)
            case exp.HexString():
                return _hex_bytes(str(node.this))
            case exp.Cast():
                return self._cast(node)
        raise _NotUnderstoodError

    def _cast(self, node: exp.Cast) -> Any:
        """A typed literal (``DATE '..'``, ``1L``, ``1.5D``) or a cast that means the same."""
        inner = node.this.unnest()
        if not isinstance(inner, exp.Literal) or node.args.get("format") or node.args.get("default"):
            raise _NotUnderstoodError
        kind = node.to.this
        text = self._string(inner) if inner.is_string else str(inner.this)
        if inner.is_string and kind == exp.DataType.Type.DATE:
            return _date(text)
        if inner.is_string and kind in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
            return _moment(text, zoned=True)
        if inner.is_string and kind == exp.DataType.Type.TIMESTAMPNTZ:
            return _moment(text, zoned=False)
        return _cast_number(text, node.to)


def _negation(predicate: Predicate) -> Predicate:
    return IsNotNull(predicate.column) if isinstance(predicate, IsNull) else Not(predicate)


def _column_text(path: tuple[str, ...]) -> str:
    plain = all("." not in name and "`" not in name for name in path)
    return ".".join(path) if plain else quote_column(path)


def _checked(value: Any, *types: type) -> Any:
    if isinstance(value, types) and (not isinstance(value, bool) or bool in types):
        return value
    raise _NotUnderstoodError


def _number(text: str) -> int | float | Decimal:
    """A number as Spark types it: with an exponent a double, with a point a decimal, else an integer."""
    if re.fullmatch(r"\d+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"\d*\.\d*", text, re.ASCII) and text != ".":
        return Decimal(text)
    if re.fullmatch(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text, re.ASCII):
        return float(text)
    raise _NotUnderstoodError


_INTEGER_BITS = {
    exp.DataType.Type.TINYINT: 8,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.BIGINT: 64,
}


def _cast_number(text: str, target: exp.DataType) -> int | float | Decimal:
    try:
        exact = Decimal(text)
    except ArithmeticError:
        raise _NotUnderstoodError from None
    kind = target.this
    if not exact.is_finite() or not text.isascii() or "_" in text or text != text.strip():
        raise _NotUnderstoodError
    if kind == exp.DataType.Type.DOUBLE:
        return float(text)
    if kind == exp.DataType.Type.FLOAT:
        return _single(float(text))
    if kind in _INTEGER_BITS:
        # One short of the positive end as well, because a minus sign may stand before it.
        fits = exact.copy_abs() < 2 ** (_INTEGER_BITS[kind] - 1)
        return int(exact) if fits and exact == int(exact) else _refuse()
    parameters = [str(item.this.this) for item in target.expressions]
    if kind == exp.DataType.Type.DECIMAL and len(parameters) == 2 and all(item.isdecimal() for item in parameters):
        precision, scale = map(int, parameters)
        fits = exact.copy_abs() < 10 ** max(precision - scale, 0) and -int(exact.as_tuple().exponent) <= scale
        return exact if fits else _refuse()
    return _refuse()


def _refuse() -> NoReturn:
    raise _NotUnderstoodError


def _single(value: float) -> float:
    """The value, if it is exactly a 32-bit float."""
    try:
        return value if struct.unpack("<f", struct.pack("<f", value))[0] == value else _refuse()
    except OverflowError:
        raise _NotUnderstoodError from None


def _hex_bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _NotUnderstoodError from None


def _date(text: str) -> date:
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) is None:
        raise _NotUnderstoodError
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _NotUnderstoodError from None


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def _moment(text: str, *, zoned: bool) -> datetime:
    """A timestamp whose text says all: with a zone exactly where one is needed, never the session's."""
    found = _MOMENT.fullmatch(text)
    if found is None or (found[2] is not None) != zoned:
        raise _NotUnderstoodError
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _NotUnderstoodError from None


def _to_integer(literal: Any) -> Any:
    if isinstance(literal, str) and re.fullmatch(r"-?\d{1,9}", literal, re.ASCII):
        return int(literal)
    return _checked(literal, int, Decimal)


def _to_double(literal: Any) -> Any:
    number = _checked(literal, int, Decimal, float)
    return float(number) if isinstance(number, Decimal) else number


def _to_date(literal: Any) -> Any:
    return _date(literal) if isinstance(literal, str) else _checked_date(literal)


def _checked_date(literal: Any) -> Any:
    return _refuse() if isinstance(literal, datetime) else _checked(literal, date)


def _to_timestamp(literal: Any) -> Any:
    moment = _moment(literal, zoned=True) if isinstance(literal, str) else _checked(literal, datetime)
    return moment if moment.tzinfo is not None else _refuse()


def _to_timestamp_ntz(literal: Any) -> Any:
    moment = _moment(literal, zoned=False) if isinstance(literal, str) else _checked(literal, datetime)
    return moment if moment.tzinfo is None else _refuse()


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "byte": _to_integer,
    "short": _to_integer,
    "integer": _to_integer,
    "long": _to_integer,
    "float": _to_double,
    "double": _to_double,
    "string": lambda literal: _checked(literal, str),
    "boolean": lambda literal: _checked(literal, bool),
    "binary": lambda literal: _checked(literal, bytes),
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp_ntz,
}
