"""Predicates from SQL text: what a user writes as a condition, as far as it can be understood without an engine.

Layer: protocol. Used under the heading "Per-file Statistics": the parts that are understood let files be left out. A
part whose meaning could differ from Spark's in any setting (functions, casts, session time zones, escapes) is not
guessed at: its text stays as :class:`~cm_delta_dagster.protocol.predicates.predicates.Opaque`, for the engine to apply.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.boolean_structure import Operand, boolean_structure
from cm_delta_dagster.protocol.predicates.normal_forms import flattened
from cm_delta_dagster.protocol.predicates.predicates import (
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
from cm_delta_dagster.protocol.predicates.sql_literals import (
    CONVERSIONS,
    NotUnderstoodError,
    cast_number,
    checked,
    date_of,
    hex_bytes,
    moment_of,
    number_of,
    refuse,
)
from cm_delta_dagster.protocol.predicates.sql_tokens import (
    Clock,
    Token,
    at_moment,
    calls_clock,
    check_closed_text,
    invalid_sql,
    shown,
    source_of,
    tokens_of,
)
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    schema_text,
)

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


def parse_predicate(text: str, schema: StructType, *, clock: Callable[[], Clock] | None = None) -> Predicate:
    """The predicate that Spark SQL ``text`` states over a table of this schema.

    Literals get the type of the column they are compared with. A comparison that is not understood becomes
    :class:`Opaque`, in conjunction with what follows from it whatever the engine's settings are.

    Args:
        clock: gives the moment that ``current_timestamp()`` and its kin mean; without it they are left to the engine.

    Raises:
        InvalidArgumentError: the text is not an SQL condition, names a column that the table lacks, contains a query, calls
            a function that is not built into Spark, or has too many comparisons.
    """
    tokens = tokens_of(text)
    check_closed_text(tokens, text)
    names = frozenset(name.lower() for name in schema.names)
    if clock is not None and calls_clock(tokens, text, names):
        text = at_moment(text, clock(), names)
        tokens = tokens_of(text)
    reader = _Reader(schema=schema, has_plain_strings="\\" not in text)
    parser = Dialect.get_or_raise("spark").parser()

    def leaf(part: Operand, negated: bool) -> Predicate:
        node = _parsed(parser, part.tokens, text)
        return reader.leaf(node, source_of(part.tokens, text), negated=negated)

    try:
        return flattened(boolean_structure(tokens, text, leaf))
    except RecursionError as error:
        raise invalid_sql(text, "an expression in it is nested too deeply.") from error


_NODE_CLASS = re.compile(r" (for|into) <class '[^']*'>")
"""What the parser tells of its own insides."""


def _parsed(parser: Any, tokens: Sequence[Token], text: str) -> Node:
    written = source_of(tokens, text)
    try:
        statements = parser.parse_into(exp.Condition, list(tokens), text)
    except SqlglotError as error:
        faults = [str(item.get("description") or "") for item in getattr(error, "errors", [])]
        fault = _NODE_CLASS.sub("", next(filter(None, faults), str(error).splitlines()[0])).rstrip(".")
        raise invalid_sql(text, f"{fault} at {shown(written)}.") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Condition):
        raise InvalidArgumentError(
            f"The predicate {shown(text)} is not a single SQL condition. "
            "Write only what would follow WHERE, such as `x > 1`."
        )
    return statements[0]


_UNDERSTOOD_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high"})


def _surplus_arguments(node: Node) -> bool:
    """Whether a node says something that the reader would overlook, e.g. by a later release of the parser."""
    return any(value for name, value in node.args.items() if name not in _UNDERSTOOD_ARGUMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Translates the nodes of one text. ``has_plain_strings``: no escape or substitution can hide in its string
    literals.
    """

    schema: StructType
    has_plain_strings: bool

    def leaf(self, node: Node, text: str, *, negated: bool) -> Predicate:
        """One operand of AND, OR and NOT; ``negated`` if a NOT stands anywhere before it."""
        columns = self.checked_columns(node, text)
        try:
            return self.predicate(node)
        except NotUnderstoodError:
            opaque = Opaque(text, columns)
        # Where the text is NULL, what follows from it may be false, which a NOT would turn into true.
        weaker = None if negated else self.implied(node)
        return opaque if weaker is None else And((weaker, opaque))

    def checked_columns(self, root: Node, text: str) -> frozenset[str] | None:
        """The columns that the text mentions; None if it has names of its own (sub-queries, lambdas)."""
        if root.find(exp.Query) is not None:
            raise InvalidArgumentError(
                f"The condition {shown(text)} contains a query. Compute its result before the call, or use raw_sql(...) for "
                "text that your own program wrote."
            )
        if root.find(exp.Lambda) is not None:
            return None
        found: set[str] = set()
        for node in root.find_all(exp.Column):
            names = [part.name for part in node.parts]
            field = self.schema.field(names[0])
            if field is None or self._lacks_nested(field.type, names[1:]):
                written = ".".join(names)
                raise InvalidArgumentError(
                    f"The predicate {shown(text)} names the column {written!r}, which the table does not have. "
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
            raise NotUnderstoodError
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
                return _negation(self._comparison(node.this, _Op.NULL_SAFE_EQ, node.expression))
            case exp.StartsWith():
                return self._starts_with(node.this, self._string(node.expression))
            case exp.Like():
                return self._like(node)
        operator = _COMPARISONS.get(type(node))
        if operator is None:
            raise NotUnderstoodError
        return self._comparison(node.this, operator, node.expression)

    def implied(self, node: Node) -> Predicate | None:
        """A predicate that holds wherever the part of the text does, though maybe elsewhere as well; None for none."""
        try:
            return self.predicate(node)
        except NotUnderstoodError:
            pass
        node = node.unnest()
        if node.args.get("negate") or _surplus_arguments(node):
            return None
        if isinstance(node, exp.And | exp.Or):
            sides = [self.implied(side) for side in (node.this, node.expression)]
            found = tuple(side for side in sides if side is not None)
            if isinstance(node, exp.And):
                return conjunction(found) if found else None
            return Or(found) if len(found) == len(sides) else None
        try:
            return self._implied_leaf(node)
        except (NotUnderstoodError, OverflowError):
            return None

    def _implied_leaf(self, node: Node) -> Predicate:
        match node:
            case exp.Like():
                prefix = re.split("[%_]", self._string(node.expression))[0]
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
        """A comparison whose exact meaning depends on casts, loosened by more than any cast or zone can shift it."""
        as_date = _converted_to_date(column.unnest())
        name, data_type = self._column(as_date or column)
        value = self._near_literal(literal.unnest())
        if as_date is None and data_type in _INTEGERS and isinstance(value, float):
            # Integers up to 2**53 are doubles without rounding, and larger ones stay on their side of such a number.
            return Comparison(name, operator, Decimal(value)) if abs(value) <= 2**53 else refuse()
        moment = _any_moment(value)
        if data_type == PrimitiveType("date"):
            low: date = moment.date() - _ZONES_AND_A_DAY
            high: date = moment.date() + _ZONES_AND_A_DAY
        elif data_type in (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")):
            zone = UTC if data_type == PrimitiveType("timestamp") else None
            low = moment.replace(tzinfo=zone) - _ZONES_AND_A_DAY
            high = moment.replace(tzinfo=zone) + _ZONES_AND_A_DAY
        else:
            raise NotUnderstoodError
        above, below = Comparison(name, _Op.GE, low), Comparison(name, _Op.LE, high)
        if operator is _Op.EQ:
            return And((above, below))
        return above if operator in (_Op.GT, _Op.GE) else below

    def _near_literal(self, node: Node) -> Any:
        """A literal; a text for one that the session's zone gives its meaning, such as ``TIMESTAMP '2020-01-01'``."""
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

    def _like(self, node: exp.Like) -> Predicate:
        pattern = self._string(node.expression)
        body = pattern.removesuffix("%")
        if "%" in body or "_" in body:
            raise NotUnderstoodError
        if body != pattern:
            return self._starts_with(node.this, body)
        return self._comparison(node.this, _Op.EQ, node.expression)

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
        if isinstance(node, exp.Literal) and node.is_string and self.has_plain_strings:
            return str(node.this)
        raise NotUnderstoodError

    def _value(self, node: Node, data_type: DataType) -> Any:
        """The literal as a value of the column's type, if Spark would compare it as that in every setting."""
        literal = self._literal(node.unnest())
        if literal is None:
            return None
        if isinstance(data_type, DecimalType):
            return checked(literal, int, Decimal)
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
                # Arithmetic on a Decimal rounds to 28 digits; this does not.
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
        """A typed literal (``DATE '..'``, ``1L``, ``1.5D``) or a cast that means the same."""
        inner = node.this.unnest()
        if not isinstance(inner, exp.Literal) or node.args.get("format") or node.args.get("default"):
            raise NotUnderstoodError
        kind = node.to.this
        text = self._string(inner) if inner.is_string else str(inner.this)
        if inner.is_string and kind == exp.DataType.Type.DATE:
            return date_of(text)
        if inner.is_string and kind in (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ):
            return moment_of(text, zoned=True)
        if inner.is_string and kind == exp.DataType.Type.TIMESTAMPNTZ:
            return moment_of(text, zoned=False)
        return cast_number(text, node.to)


_INTEGERS = frozenset(PrimitiveType(name) for name in ("byte", "short", "integer", "long"))

_ZONES_AND_A_DAY = timedelta(days=2)
"""More than a time of day is cut off by a cast to a date and two time zones can differ."""


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


def _converted_to_date(node: Node) -> Node | None:
    """What ``CAST(x AS DATE)``, ``date(x)`` and ``to_date(x)`` convert; None for anything else."""
    is_cast = isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE
    is_function = isinstance(node, exp.TsOrDsToDate) and not node.args.get("format")
    plain = is_cast and all(name in _CAST_ARGUMENTS or not value for name, value in node.args.items())
    return node.this.unnest() if plain or is_function else None


def _any_moment(value: Any) -> datetime:
    """A literal as the moment it means in UTC, or in a zone that it does not tell."""
    if isinstance(value, str):
        text = value.strip()
        value = (
            date_of(text) if len(text) == _DATE_LENGTH else moment_of(text, zoned=_MOMENT_ZONE.search(text) is not None)
        )
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
    return datetime.combine(checked(value, date), time())


_DATE_LENGTH = len("2020-01-01")
_MOMENT_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$", re.ASCII)


def _negation(predicate: Predicate) -> Predicate:
    return IsNotNull(predicate.column) if isinstance(predicate, IsNull) else Not(predicate)


def _column_text(path: tuple[str, ...]) -> str:
    plain = all("." not in name and "`" not in name for name in path)
    return ".".join(path) if plain else quote_column(path)
