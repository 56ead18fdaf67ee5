"""Predicates from the syntax tree of a condition, as far as their meaning is certain without an engine.

A part whose meaning could differ from Spark's in any setting (functions, casts, session time zones, escapes) is not guessed at: its
text becomes :class:`~cm_delta_dagster.protocol.predicates.predicates.Opaque`, which the engine evaluates.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    column_path,
    conjunction,
    quote_column,
)
from cm_delta_dagster.protocol.predicates.sql_lexer import shown
from cm_delta_dagster.protocol.predicates.sql_literals import (
    CONVERSIONS,
    DisputedZoneError,
    InvalidTimeError,
    NeedsZoneError,
    NotUnderstoodError,
    cast_number,
    checked,
    date_of,
    hex_bytes,
    moment_in,
    moment_of,
    number_of,
    refuse,
)
from cm_delta_dagster.protocol.predicates.sql_strings import LikePattern, like_pattern
from cm_delta_dagster.protocol.schema.char_types import char_width, char_widths
from cm_delta_dagster.protocol.schema.types import (
    BOOLEAN,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    data_type_text,
    schema_text,
)
from cm_delta_dagster.remedies import PassUncheckedCondition

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

_ANY_TYPE = (ArrayType, DecimalType, MapType, PrimitiveType, StructType)
_MIRRORED = {_Op.LT: _Op.GT, _Op.GT: _Op.LT, _Op.LE: _Op.GE, _Op.GE: _Op.LE}
_INTEGERS = frozenset(PrimitiveType(name) for name in ("byte", "short", "integer", "long"))

_MAX_SHIFT = timedelta(days=2)
"""Longer than the time of day that a cast to a date drops plus the difference of two time zones."""
_CAST_ARGUMENTS = frozenset({"this", "to", "safe", "_type"})
_MOMENT_TYPES = frozenset(
    {
        exp.DataType.Type.DATE,
        exp.DataType.Type.TIMESTAMP,
        exp.DataType.Type.TIMESTAMPTZ,
        exp.DataType.Type.TIMESTAMPLTZ,
        exp.DataType.Type.TIMESTAMPNTZ,
    }
)
_DATE_LENGTH = len("2020-01-01")
_MOMENT_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$", re.ASCII)
_LIKE_ARGUMENTS = frozenset({"this", "expression", "negate"})
_UNDERSTOOD_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high"})


def _surplus_arguments(node: Node) -> bool:
    """Whether a node has arguments that the reader does not interpret, e.g. of a later release of the parser."""
    return any(value for name, value in node.args.items() if name not in _UNDERSTOOD_ARGUMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionReader:
    """Translates the syntax tree of one text over a table of ``schema``.

    ``knows_strings``: the string literals of the tree are their values. ``zone``: time zone of literals that name none; None if
    only the engine knows it.
    """

    schema: StructType
    knows_strings: bool
    zone: tzinfo | None = None

    def leaf(self, node: Node, text: str, *, negated: bool) -> Predicate:
        """The predicate of one operand of AND, OR and NOT.

        Args:
            text: the SQL text of ``node``.
            negated: whether the operand is inside of a NOT.

        Raises:
            InvalidArgumentError: the operand contains a query, names a column that the table does not have, or is a literal or a
                column that is not a boolean.
        """
        columns = self._checked_columns(node, text)
        self._check_boolean(node, text)
        try:
            return self._predicate(node)
        except NotUnderstoodError as error:
            opaque = Opaque(
                text,
                columns,
                needs_zone=isinstance(error, NeedsZoneError),
                disputed_zone=error.zone if isinstance(error, DisputedZoneError) else None,
                invalid_time=error.text if isinstance(error, InvalidTimeError) else None,
            )
        # Where the text is NULL, the implied predicate may be false, and NOT would turn that into true.
        weaker = None if negated else self._implied(node)
        return opaque if weaker is None else And((weaker, opaque))

    def _check_boolean(self, node: Node, text: str) -> None:
        node = node.unnest()
        kind: str | None = None
        if isinstance(node, exp.Literal):
            kind = "a text" if node.is_string else "a number"
        elif isinstance(node, exp.Column) and len(node.parts) == 1:
            field = self.schema.field(node.name)
            if field is not None and field.type not in (BOOLEAN, VOID):
                kind = f"a column of type {data_type_text(field.type)}"
        if kind is not None:
            raise InvalidArgumentError(
                f"The condition {shown(text)} is {kind}, which is neither true nor false. Compare it with a value, such as `x > 1`."
            )

    def _checked_columns(self, root: Node, text: str) -> frozenset[str] | None:
        """The columns that the text mentions; None if it defines names itself (lambdas)."""
        if root.find(exp.Query) is not None:
            raise InvalidArgumentError(
                f"The condition {shown(text)} contains a query. Compute its result before the call."
            ).with_remedy(PassUncheckedCondition())
        if root.find(exp.Lambda) is not None:
            return None
        columns: set[str] = set()
        for node in root.find_all(exp.Column):
            names = [part.name for part in node.parts]
            field = self.schema.field(names[0])
            if field is None or self._lacks_nested(field.type, names[1:]):
                written = ".".join(names)
                raise InvalidArgumentError(
                    f"The predicate {shown(text)} names the column {written!r}, which the table does not have. "
                    f"Use one of its columns:\n{schema_text(self.schema)}"
                )
            columns.add(_column_text((field.name,)))
        return frozenset(columns)

    def _lacks_nested(self, data_type: DataType, names: list[str]) -> bool:
        for name in names:
            if not isinstance(data_type, StructType):
                return isinstance(data_type, PrimitiveType | DecimalType)
            field = data_type.field(name)
            if field is None:
                return True
            data_type = field.type
        return False

    def _predicate(self, node: Node) -> Predicate:  # noqa: C901 - one case for each kind of node
        node = node.unnest()
        if node.args.get("negate"):
            # `NOT LIKE`, `NOT IN` and so on: the parser sets an argument of the node instead of wrapping it.
            positive = node.copy()
            positive.set("negate", None)
            return Not(self._predicate(positive))
        if not isinstance(node, exp.Column) and _surplus_arguments(node):
            raise NotUnderstoodError
        match node:
            case exp.And():
                return And((self._predicate(node.this), self._predicate(node.expression)))
            case exp.Or():
                return Or((self._predicate(node.this), self._predicate(node.expression)))
            case exp.Not():
                return Not(self._predicate(node.this))
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
                return self._matches(node.this, self._pattern(node))
            case exp.Escape():
                return self._like_with_escape(node)
        operator = _COMPARISONS.get(type(node))
        if operator is None:
            raise NotUnderstoodError
        return self._comparison(node.this, operator, node.expression)

    def _implied(self, node: Node) -> Predicate | None:
        """A predicate that is true for every row for which the node is true, and possibly for others; None if none is known."""
        try:
            return self._predicate(node)
        except NotUnderstoodError:
            pass
        node = node.unnest()
        if node.args.get("negate") or _surplus_arguments(node):
            return None
        if isinstance(node, exp.And | exp.Or):
            sides = [self._implied(side) for side in (node.this, node.expression)]
            implied = tuple(side for side in sides if side is not None)
            if isinstance(node, exp.And):
                return conjunction(implied) if implied else None
            return Or(implied) if len(implied) == len(sides) else None
        try:
            return self._implied_leaf(node)
        except (NotUnderstoodError, OverflowError):
            return None

    def _implied_leaf(self, node: Node) -> Predicate:
        match node:
            case exp.Like():
                prefix = self._pattern(node).prefix
                return self._starts_with(node.this, prefix) if prefix else refuse()
            case exp.Between():
                low = self._near(node.this, _Op.GE, node.args["low"])
                return And((low, self._near(node.this, _Op.LE, node.args["high"])))
            case exp.In() if node.expressions and set(node.args) <= {"this", "expressions"}:
                return Or(tuple(self._near(node.this, _Op.EQ, item) for item in node.expressions))
        operator = _COMPARISONS.get(type(node))
        if operator is None or operator is _Op.NE:
            raise NotUnderstoodError
        left, right = node.this.unnest(), node.expression.unnest()
        if left.find(exp.Column) is None:
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        return self._near(left, _Op.EQ if operator is _Op.NULL_SAFE_EQ else operator, right)

    def _near(self, column: Node, operator: _Op, literal: Node) -> Predicate:
        """A comparison whose exact meaning depends on casts, widened by more than any cast or time zone can shift it."""
        as_date = _converted_to_date(column.unnest())
        name, data_type = self._column(as_date or column)
        value = self._near_literal(literal.unnest())
        if as_date is None and data_type in _INTEGERS and isinstance(value, float):
            # Integers up to 2**53 are exact doubles, and rounding keeps larger ones on the same side of such a number.
            return Comparison(name, operator, Decimal(value)) if abs(value) <= 2**53 else refuse()
        moment = _any_moment(value)
        if data_type == PrimitiveType("date"):
            low: date = moment.date() - _MAX_SHIFT
            high: date = moment.date() + _MAX_SHIFT
        elif data_type in (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")):
            zone = UTC if data_type == PrimitiveType("timestamp") else None
            low = moment.replace(tzinfo=zone) - _MAX_SHIFT
            high = moment.replace(tzinfo=zone) + _MAX_SHIFT
        else:
            raise NotUnderstoodError
        above, below = Comparison(name, _Op.GE, low), Comparison(name, _Op.LE, high)
        if operator is _Op.EQ:
            return And((above, below))
        return above if operator in (_Op.GT, _Op.GE) else below

    def _near_literal(self, node: Node) -> Any:
        """The value of a literal; its text where it depends on the session's time zone, as ``TIMESTAMP '2020-01-01'`` does."""
        if (
            isinstance(node, exp.Cast)
            and node.to.this in _MOMENT_TYPES
            and all(name in _CAST_ARGUMENTS or not value for name, value in node.args.items())
        ):
            return self._string(node.this)
        return self._literal(node)

    def _comparison(self, left: Node, operator: _Op, right: Node) -> Predicate:
        left, right = left.unnest(), right.unnest()
        if not isinstance(left, exp.Column):
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        if operator is _Op.NULL_SAFE_EQ and isinstance(right, exp.Null):
            return IsNull(self._column(left, allow=_ANY_TYPE)[0])
        column, data_type = self._column(left)
        return Comparison(column, operator, self._value(right, data_type))

    def _is(self, node: exp.Is) -> Predicate:
        if isinstance(node.expression, exp.Null):
            return IsNull(self._column(node.this, allow=_ANY_TYPE)[0])
        if isinstance(node.expression, exp.Boolean):
            return self._comparison(node.this, _Op.NULL_SAFE_EQ, node.expression)
        raise NotUnderstoodError

    def _in(self, node: exp.In) -> Predicate:
        if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
            raise NotUnderstoodError
        column, data_type = self._column(node.this)
        return In(column, tuple(self._value(item.unnest(), data_type) for item in node.expressions))

    def _like_with_escape(self, node: exp.Escape) -> Predicate:
        like, escape = node.this, self._string(node.expression)
        if not isinstance(like, exp.Like) or len(escape) != 1:
            raise NotUnderstoodError
        if any(value for name, value in like.args.items() if name not in _LIKE_ARGUMENTS):
            raise NotUnderstoodError
        matches = self._matches(like.this, self._pattern(like, escape))
        return Not(matches) if like.args.get("negate") else matches

    def _matches(self, node: Node, pattern: LikePattern) -> Predicate:
        if pattern.rest == "%":
            return self._starts_with(node, pattern.prefix)
        path = column_path(self._column(node)[0])
        item = self.schema.field(path[0])
        # LIKE sees the blanks of a char(n), which a comparison ignores.
        if pattern.rest or (
            item is not None and char_widths(item) and (path[1:] or len(pattern.prefix) < char_width(item))
        ):
            raise NotUnderstoodError
        return self._comparison(node, _Op.EQ, exp.Literal.string(pattern.prefix))

    def _pattern(self, node: exp.Like, escape: str = "\\") -> LikePattern:
        return like_pattern(self._string(node.expression), escape) or refuse()

    def _starts_with(self, node: Node, prefix: str) -> Predicate:
        column, data_type = self._column(node)
        if data_type != PrimitiveType("string"):
            raise NotUnderstoodError
        return StartsWith(column, prefix)

    def _column(self, node: Node, allow: tuple[type, ...] = (DecimalType, PrimitiveType)) -> tuple[str, DataType]:
        node = node.unnest()
        if not isinstance(node, exp.Column):
            raise NotUnderstoodError
        names: list[str] = []
        data_type: DataType = self.schema
        for part in node.parts:
            field = data_type.field(part.name) if isinstance(data_type, StructType) else None
            if field is None:
                raise NotUnderstoodError
            names.append(field.name)
            data_type = field.type
        if not isinstance(data_type, allow):
            raise NotUnderstoodError
        return _column_text(tuple(names)), data_type

    def _string(self, node: Node) -> str:
        node = node.unnest()
        if isinstance(node, exp.Literal) and node.is_string and self.knows_strings:
            return str(node.this)
        raise NotUnderstoodError

    def _value(self, node: Node, data_type: DataType) -> Any:
        """The literal as a value of the column's type, if Spark compares it as that type under every setting."""
        literal = self._literal(node.unnest())
        if literal is None:
            return None
        if isinstance(data_type, DecimalType):
            return checked(literal, int, Decimal)
        if data_type == TIMESTAMP and isinstance(literal, str):
            return moment_in(literal, self.zone)
        convert = CONVERSIONS.get(data_type.name) if isinstance(data_type, PrimitiveType) else None
        if convert is None:
            raise NotUnderstoodError
        return convert(literal)

    def _literal(self, node: Node) -> Any:
        match node:
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(node.this)
            case exp.Neg():
                number = self._literal(node.this.unnest())
                # Unary minus rounds a Decimal to the context's precision; copy_negate() does not.
                return number.copy_negate() if isinstance(number, Decimal) else -checked(number, int, float)
            case exp.Literal() if not node.is_string:
                return number_of(str(node.this))
            case exp.Literal():
                return self._string(node)
            case exp.HexString():
                return hex_bytes(str(node.this))
            case exp.Cast():
                return self._cast(node)
        raise NotUnderstoodError

    def _cast(self, node: exp.Cast) -> Any:
        """A typed literal (``DATE '..'``, ``1L``, ``1.5D``) or an equivalent cast."""
        inner = node.this.unnest()
        if not isinstance(inner, exp.Literal) or node.args.get("format") or node.args.get("default"):
            raise NotUnderstoodError
        kind = node.to.this
        text = self._string(inner) if inner.is_string else str(inner.this)
        if inner.is_string and kind == exp.DataType.Type.DATE:
            return date_of(text)
        if inner.is_string and kind in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
            return moment_in(text, self.zone)
        if inner.is_string and kind == exp.DataType.Type.TIMESTAMPNTZ:
            return moment_of(text, zoned=False)
        return cast_number(text, node.to)


def _converted_to_date(node: Node) -> Node | None:
    """The ``x`` of ``CAST(x AS DATE)``, ``date(x)`` and ``to_date(x)``; None for other expressions."""
    is_cast = isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE
    is_function = isinstance(node, exp.TsOrDsToDate) and not node.args.get("format")
    plain = is_cast and all(name in _CAST_ARGUMENTS or not value for name, value in node.args.items())
    return node.this.unnest() if plain or is_function else None


def _any_moment(value: Any) -> datetime:
    """A literal as a time without zone: in UTC if it has a time zone, else as written."""
    if isinstance(value, str):
        text = value.strip()
        value = (
            date_of(text) if len(text) == _DATE_LENGTH else moment_of(text, zoned=_MOMENT_ZONE.search(text) is not None)
        )
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
    return datetime.combine(checked(value, date), time())


def _column_text(path: tuple[str, ...]) -> str:
    plain = all("." not in name and "`" not in name for name in path)
    return ".".join(path) if plain else quote_column(path)
