"""Predicates over rows: what a read, a delete or a conflict check asks, as values.

Used under the headings "Per-file Statistics" (data skipping) and "Partition Value Serialization". The
meaning is Spark SQL's: three-valued logic, ``NaN`` equals ``NaN`` and is greater than every other number, ``-0.0``
equals ``0.0``.

A column is written as in SQL: ``name``, ``outer.inner`` for a nested field, and back-quotes around a segment that
itself holds a dot or a back-quote. Names are compared ignoring case. Values are Python values: int, float, Decimal,
str, bool, bytes, date, datetime (aware = ``timestamp``, naive = ``timestamp_ntz``) or None for SQL NULL.

Not here: parsing text (``predicate_text``), evaluating against files (``data_skipping``) or rows (``spark``).
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


_SHOWN_TEXT = 500
"""Characters of a condition that a message shows."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator value``; never true for a None value, except with ``<=>``."""

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
    """The string ``column`` begins with ``prefix``, byte for byte."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts; true when there is none."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any part; false when there is none."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """SQL negation: NULL stays NULL."""

    part: "Predicate"


@dataclass(frozen=True, slots=True)
class AlwaysTrue:
    """Every row."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """SQL that only the engine understands; nothing can be concluded from it without reading rows.

    ``columns`` are those it mentions, or None when even that is unknown. Where ``expression`` is given, the engine evaluates
    that object of its own, and ``sql`` describes it.
    """

    sql: str
    columns: frozenset[str] | None = None
    expression: Any = field(default=None, compare=False, repr=False)


def raw_sql(text: str) -> Opaque:
    """A condition that Spark evaluates as it is written, without the checks that the text of a condition goes through.

    It may call user-defined functions, Java methods and queries. Whoever can change the text can run code with the rights of
    the Spark session: never pass text of a user. Nothing is known about its columns, so every file is read, and every
    concurrent change of rows is a conflict. A write refuses functions whose value varies, such as ``rand()``.

    Raises:
        InvalidArgumentError: ``text`` is not a str.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"raw_sql takes the text of a condition; a {type(text).__name__} was given.")
    # A trailing comment must not swallow the bracket that is put around the text later.
    return Opaque(text + "\n" if "--" in text else text)


Predicate: TypeAlias = Comparison | In | IsNull | IsNotNull | StartsWith | And | Or | Not | AlwaysTrue | Opaque


def column_path(column: str) -> tuple[str, ...]:
    """Split a column as written (``a.b``, ``a.`b.c```) into its segments.

    Raises:
        InvalidArgumentError: an empty segment or an unclosed back-quote.
    """
    if "." not in column and "`" not in column:
        if not column:
            raise InvalidArgumentError("A predicate names a column by an empty text. Give the column's name.")
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
    """The segment that begins at ``start`` and the position after it (the end, or a dot)."""
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
        "Put a name that holds a dot or a back-quote between back-quotes, doubling back-quotes inside."
    )


def quote_column(path: Sequence[str]) -> str:
    """SQL text of a column path, every segment between back-quotes; :func:`column_path` reads it back."""
    return ".".join("`" + segment.replace("`", "``") + "`" for segment in path)


_T = TypeVar("_T")


def parts_of(predicate: Predicate) -> tuple[Predicate, ...]:
    """What the predicate combines; nothing for a leaf."""
    match predicate:
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
        case _:
            return ()


def leaves(predicate: Predicate) -> Iterator[Predicate]:
    """Every leaf from left to right. Without recursion, as all walks here: predicates may be nested ten thousand deep."""
    pending = [predicate]
    while pending:
        node = pending.pop()
        if isinstance(node, And | Or | Not):
            pending.extend(reversed(parts_of(node)))
        else:
            yield node


def fold(
    predicate: Predicate, leaf: Callable[[Predicate], _T], combine: Callable[[And | Or | Not, Sequence[_T]], _T]
) -> _T:
    """The value of a predicate, computed from its leaves upwards.

    Args:
        leaf: gives the value of a leaf.
        combine: gives the value of a node from those of its parts, in their order.
    """
    pending: list[tuple[Predicate, bool]] = [(predicate, False)]
    values: list[_T] = []
    while pending:
        node, has_values = pending.pop()
        if not isinstance(node, And | Or | Not):
            values.append(leaf(node))
        elif has_values:
            start = len(values) - len(parts_of(node))
            values[start:] = [combine(node, values[start:])]
        else:
            pending.append((node, True))
            pending.extend((part, False) for part in reversed(parts_of(node)))
    return values[0]


def with_parts(node: And | Or | Not, parts: Sequence[Predicate]) -> Predicate:
    """The same combination of other parts."""
    return Not(parts[0]) if isinstance(node, Not) else type(node)(tuple(parts))


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Columns that the predicate mentions, as written. Opaque SQL contributes those that it declares."""
    found: set[str] = set()
    for leaf in leaves(predicate):
        match leaf:
            case Opaque(columns=columns):
                found |= columns or frozenset()
            case Comparison() | In() | IsNull() | IsNotNull() | StartsWith():
                found.add(leaf.column)
    return frozenset(found)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Parts that must all hold, nested ANDs flattened; none for :class:`AlwaysTrue`."""
    found: list[Predicate] = []
    pending = [predicate]
    while pending:
        node = pending.pop()
        match node:
            case AlwaysTrue():
                continue
            case And(parts):
                pending.extend(reversed(parts))
            case _:
                found.append(node)
    return tuple(found)


def conjunction(predicates: Iterable[Predicate]) -> Predicate:
    """One predicate that holds where all of them hold; the inverse of :func:`conjuncts`."""
    parts = tuple(part for predicate in predicates for part in conjuncts(predicate))
    if not parts:
        return AlwaysTrue()
    return parts[0] if len(parts) == 1 else And(parts)


def partition_only(predicate: Predicate, partition_columns: Iterable[str]) -> bool:
    """Whether the predicate is decided by partition values alone. False for anything that holds :class:`Opaque`."""
    names = frozenset(name.casefold() for name in partition_columns)
    return all(_reads_only(leaf, names) for leaf in leaves(predicate))


def _reads_only(leaf: Predicate, names: frozenset[str]) -> bool:
    if isinstance(leaf, Comparison | In | IsNull | IsNotNull | StartsWith):
        path = column_path(leaf.column)
        return len(path) == 1 and path[0].casefold() in names
    return isinstance(leaf, AlwaysTrue)


def to_sql(predicate: Predicate) -> str:
    """Spark SQL text of the predicate: quoted columns, typed literals, explicit brackets.

    Raises:
        InvalidArgumentError: a value of a type that has no literal form.
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
    """The SQL text for a message, cut off where it is long."""
    text = to_sql(predicate)
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]} ... ({len(text)} characters)"


def _leaf_sql(leaf: Predicate) -> str:
    match leaf:
        case Comparison(column, operator, value):
            return f"{_column_sql(column)} {operator.value} {literal_sql(value)}"
        case In(column, values):
            # SQL has no empty list; an empty IN is never true, and its negation always is.
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
    """Spark SQL literal of a Python value, of exactly the type that the value means.

    Raises:
        InvalidArgumentError: the type has no literal form.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            # An integer beyond 64 bits is a decimal in Spark, which the suffix says aloud.
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
    # Spark substitutes ${...} in SQL text before parsing it, inside literals too; the escape keeps the dollar sign out
    # of sight.
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024").replace("\0", "\\u0000")
    return f"'{escaped}'"


def _datetime_sql(value: datetime) -> str:
    if value.tzinfo is None:
        return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
    return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}+00:00'"
