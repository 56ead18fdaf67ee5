"""Predicates over rows, as values: the conditions of reads, writes and conflict checks.

The semantics are those of Spark SQL: three-valued logic, ``NaN`` equals ``NaN`` and is greater than every other number, ``-0.0``
equals ``0.0``.

A column is written as in SQL: ``name``, ``outer.inner`` for a nested field, and back-quotes around a segment that
contains a dot or a back-quote. Names are compared ignoring case. Values are Python values: int, float, Decimal,
str, bool, bytes, date, datetime (aware = ``timestamp``, naive = ``timestamp_ntz``) or None for SQL NULL.

Text is parsed by ``sql_parser``. Files are compared with predicates by ``data_skipping``, rows by ``spark`` and ``arrow``.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from cm_delta_dagster.errors import InvalidArgumentError


class ComparisonOperator(StrEnum):
    """Comparison operators; the value is the SQL spelling."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    NULL_SAFE_EQ = "<=>"


MAX_SHOWN_CHARACTERS = 500
"""Characters of a condition that an error message shows."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator value``; with the value None it is never true, except with ``<=>``."""

    column: str
    operator: ComparisonOperator
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """``column IN (values)``."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """``column IS NOT NULL``."""

    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The string ``column`` begins with the bytes of ``prefix``."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts are true; true without parts."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part is true; false without parts."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """SQL negation: NULL stays NULL."""

    part: "Predicate"


@dataclass(frozen=True, slots=True)
class AlwaysTrue:
    """True for every row."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A condition that only the engine can evaluate.

    ``columns`` are the columns that it mentions, or None if they are unknown. If ``expression`` is given, the engine evaluates
    that object, which belongs to the engine, and ``sql`` describes it. ``needs_zone``: it would be understood with a time zone for
    times that name none. ``disputed_zone``: it would be understood if the rules of this zone were the same everywhere.
    ``invalid_time``: a text in it that has the form of a date or time and is none.
    """

    sql: str
    columns: frozenset[str] | None = None
    expression: Any = field(default=None, compare=False, repr=False)
    needs_zone: bool = field(default=False, compare=False, repr=False)
    disputed_zone: str | None = field(default=None, compare=False, repr=False)
    invalid_time: str | None = field(default=None, compare=False, repr=False)


def raw_sql(text: str) -> Opaque:
    """A condition that Spark evaluates as it is written, without the checks that other conditions pass through.

    It may call user-defined functions, Java methods and queries, so its author can run code with the rights of the Spark
    session: never pass text that a user entered. Its columns are unknown, so a read opens every file, and every concurrent change
    of rows is a conflict. A write refuses functions whose value varies, such as ``rand()``.

    Raises:
        InvalidArgumentError: ``text`` is not a str.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"A condition for Spark is of type {type(text).__name__}; give its SQL text.")
    # The line break ends a trailing comment before the closing bracket that is added later.
    return Opaque(text + "\n" if "--" in text else text)


ColumnTest: TypeAlias = Comparison | In | IsNull | IsNotNull | StartsWith
"""A leaf that tests the value of one column."""
Leaf: TypeAlias = ColumnTest | AlwaysTrue | Opaque
"""A predicate without parts."""
Combination: TypeAlias = And | Or | Not
"""A predicate with parts."""
Predicate: TypeAlias = Leaf | Combination


def column_path(column: str) -> tuple[str, ...]:
    """Split a column as written (``a.b``, ``a.`b.c```) into its segments.

    Raises:
        InvalidArgumentError: an empty segment or an unclosed back-quote.
    """
    if "." not in column and "`" not in column:
        if not column:
            raise InvalidArgumentError("A predicate has an empty column name. Give the name of the column.")
        return (column,)
    segments: list[str] = []
    position = 0
    while True:
        segment, position = _next_segment(column, position)
        segments.append(segment)
        if position == len(column):
            return tuple(segments)
        position += 1


def _next_segment(column: str, start: int) -> tuple[str, int]:
    """The segment that begins at ``start``, and the position after it (the end, or a dot)."""
    if start < len(column) and column[start] == "`":
        end = start + 1
        while True:
            end = column.find("`", end)
            if end < 0:
                break
            if column.startswith("``", end):
                end += 2
                continue
            if end + 1 == len(column) or column[end + 1] == ".":
                segment = column[start + 1 : end].replace("``", "`")
                if segment:
                    return segment, end + 1
            break
    else:
        end = column.find(".", start)
        end = len(column) if end < 0 else end
        if end > start and "`" not in column[start:end]:
            return column[start:end], end
    raise InvalidArgumentError(
        f"The column {column!r} of a predicate cannot be read as dot-separated names. "
        "Put a name that contains a dot or a back-quote between back-quotes, and double the back-quotes inside."
    )


def quote_column(path: Sequence[str]) -> str:
    """SQL text of a column path, every segment between back-quotes; :func:`column_path` reads it back."""
    return ".".join("`" + segment.replace("`", "``") + "`" for segment in path)


_T = TypeVar("_T")


def parts_of(predicate: Predicate) -> tuple[Predicate, ...]:
    """The parts of a predicate; empty for a leaf."""
    match predicate:
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
        case _:
            return ()


def leaves(predicate: Predicate) -> Iterator[Predicate]:
    """Every leaf from left to right. Like all functions here it does not recurse: predicates may be nested ten thousand deep."""
    pending = [predicate]
    while pending:
        node = pending.pop()
        if isinstance(node, Combination):
            pending.extend(reversed(parts_of(node)))
        else:
            yield node


def fold(
    predicate: Predicate, leaf: Callable[[Predicate], _T], combine: Callable[[Combination, Sequence[_T]], _T]
) -> _T:
    """The value of a predicate, computed from the values of its leaves.

    Args:
        leaf: gives the value of a leaf.
        combine: gives the value of a node from the values of its parts, in their order.
    """
    pending: list[tuple[Predicate, bool]] = [(predicate, False)]
    values: list[_T] = []
    while pending:
        node, has_values = pending.pop()
        if not isinstance(node, Combination):
            values.append(leaf(node))
        elif has_values:
            start = len(values) - len(parts_of(node))
            values[start:] = [combine(node, values[start:])]
        else:
            pending.append((node, True))
            pending.extend((part, False) for part in reversed(parts_of(node)))
    return values[0]


def with_parts(node: Combination, parts: Sequence[Predicate]) -> Predicate:
    """A node of the same class as ``node`` with ``parts``."""
    return Not(parts[0]) if isinstance(node, Not) else type(node)(tuple(parts))


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Columns that the predicate mentions, as written; of an :class:`Opaque` those that it declares."""
    columns: set[str] = set()
    for leaf in leaves(predicate):
        if isinstance(leaf, ColumnTest):
            columns.add(leaf.column)
        elif isinstance(leaf, Opaque):
            columns |= leaf.columns or frozenset()
    return frozenset(columns)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The operands of the predicate's ANDs, nested ones flattened; empty for :class:`AlwaysTrue`."""
    operands: list[Predicate] = []
    pending = [predicate]
    while pending:
        node = pending.pop()
        match node:
            case AlwaysTrue():
                continue
            case And(parts):
                pending.extend(reversed(parts))
            case _:
                operands.append(node)
    return tuple(operands)


def conjunction(predicates: Iterable[Predicate]) -> Predicate:
    """A predicate that is true where all of ``predicates`` are true; the inverse of :func:`conjuncts`."""
    parts = tuple(part for predicate in predicates for part in conjuncts(predicate))
    if not parts:
        return AlwaysTrue()
    return parts[0] if len(parts) == 1 else And(parts)


def partition_only(predicate: Predicate, partition_columns: Iterable[str]) -> bool:
    """Whether the predicate depends on partition values only; False if it contains :class:`Opaque`."""
    names = frozenset(name.casefold() for name in partition_columns)
    return all(_reads_only(leaf, names) for leaf in leaves(predicate))


def _reads_only(leaf: Predicate, names: frozenset[str]) -> bool:
    if isinstance(leaf, ColumnTest):
        path = column_path(leaf.column)
        return len(path) == 1 and path[0].casefold() in names
    return isinstance(leaf, AlwaysTrue)


def to_sql(predicate: Predicate) -> str:
    """Spark SQL text of the predicate: quoted columns, typed literals, explicit brackets.

    Raises:
        InvalidArgumentError: the type of a value has no literal form.
    """
    written: list[str] = []
    pending: list[Predicate | str] = [predicate]
    while pending:
        item = pending.pop()
        match item:
            case str():
                written.append(item)
            case And(parts) | Or(parts) if parts:
                word = ") AND (" if isinstance(item, And) else ") OR ("
                pending.append(")")
                for position, part in enumerate(reversed(parts)):
                    pending += (word, part) if position else (part,)
                pending.append("(")
            case Not(part):
                pending += (")", part, "NOT (")
            case _:
                written.append(_leaf_sql(item))
    return "".join(written)


def short_sql(predicate: Predicate) -> str:
    """The SQL text for an error message, truncated to ``MAX_SHOWN_CHARACTERS``."""
    text = to_sql(predicate)
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:MAX_SHOWN_CHARACTERS]} ... ({len(text)} characters)"


def _leaf_sql(leaf: Predicate) -> str:
    match leaf:
        case Comparison(column, operator, value):
            return f"{_column_sql(column)} {operator.value} {literal_sql(value)}"
        case In(column, values):
            # SQL has no empty list. An empty IN is false for every row.
            return f"{_column_sql(column)} IN ({', '.join(map(literal_sql, values))})" if values else "FALSE"
        case IsNull(column):
            return f"{_column_sql(column)} IS NULL"
        case IsNotNull(column):
            return f"{_column_sql(column)} IS NOT NULL"
        case StartsWith(column, prefix):
            return f"startswith({_column_sql(column)}, {literal_sql(prefix)})"
        case Opaque(sql=sql):
            return sql
        case Or():
            return "FALSE"
        case _:
            return "TRUE"


def _column_sql(column: str) -> str:
    return quote_column(column_path(column))


def literal_sql(value: Any) -> str:
    """Spark SQL literal of a Python value, with the SQL type of the value.

    Raises:
        InvalidArgumentError: the type has no literal form.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            # An integer beyond 64 bits is a decimal in Spark, which the suffix states.
            return str(value) if -(2**63) <= value < 2**63 else f"{value}BD"
        case float():
            return _float_sql(value)
        case Decimal() if value.is_finite():
            return f"{value:f}BD"
        case str():
            return _string_sql(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            return _datetime_sql(value)
        case date():
            return f"DATE '{value.isoformat()}'"
    raise InvalidArgumentError(
        f"A predicate compares with {value!r} of type {type(value).__name__}, which has no SQL literal. "
        "Use int, float, Decimal, str, bool, bytes, date, datetime or None."
    )


def _float_sql(value: float) -> str:
    if math.isnan(value):
        return "CAST('NaN' AS DOUBLE)"
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    return f"{value!r}D"


def _string_sql(value: str) -> str:
    # Spark substitutes ${...} in SQL text before parsing it, inside literals too; the escape prevents that.
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024").replace("\0", "\\u0000")
    return f"'{escaped}'"


def _datetime_sql(value: datetime) -> str:
    if value.tzinfo is None:
        return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
    return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}+00:00'"
