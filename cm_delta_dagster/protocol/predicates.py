"""Predicates over rows: what a read, a delete or a conflict check asks, as values.

Room: protocol. Used under the headings "Per-file Statistics" (data skipping) and "Partition Value Serialization". The
meaning is Spark SQL's: three-valued logic, ``NaN`` equals ``NaN`` and is greater than every other number, ``-0.0``
equals ``0.0``.

A column is written as in SQL: ``name``, ``outer.inner`` for a nested field, and back-quotes around a segment that
itself holds a dot or a back-quote. Names are compared ignoring case. Values are Python values: int, float, Decimal,
str, bool, bytes, date, datetime (aware = ``timestamp``, naive = ``timestamp_ntz``) or None for SQL NULL.

Not here: parsing text (``predicate_text``), evaluating against files (``data_skipping``) or rows (``spark``).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias

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

    ``columns`` are those it mentions, or None when even that is unknown.
    """

    sql: str
    columns: frozenset[str] | None = None


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


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Columns that the predicate mentions, as written. Opaque SQL contributes those that it declares."""
    match predicate:
        case And(parts) | Or(parts):
            return frozenset().union(*(columns_of(part) for part in parts))
        case Not(part):
            return columns_of(part)
        case AlwaysTrue():
            return frozenset()
        case Opaque(columns=columns):
            return columns or frozenset()
        case _:
            return frozenset((predicate.column,))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Parts that must all hold, nested ANDs flattened; none for :class:`AlwaysTrue`."""
    match predicate:
        case AlwaysTrue():
            return ()
        case And(parts):
            return tuple(inner for part in parts for inner in conjuncts(part))
        case _:
            return (predicate,)


def conjunction(predicates: Iterable[Predicate]) -> Predicate:
    """One predicate that holds where all of them hold; the inverse of :func:`conjuncts`."""
    parts = tuple(inner for predicate in predicates for inner in conjuncts(predicate))
    if not parts:
        return AlwaysTrue()
    return parts[0] if len(parts) == 1 else And(parts)


def partition_only(predicate: Predicate, partition_columns: Iterable[str]) -> bool:
    """Whether the predicate is decided by partition values alone. False for anything that holds :class:`Opaque`."""
    return _reads_only(predicate, frozenset(name.casefold() for name in partition_columns))


def _reads_only(predicate: Predicate, names: frozenset[str]) -> bool:
    match predicate:
        case And(parts) | Or(parts):
            return all(_reads_only(part, names) for part in parts)
        case Not(part):
            return _reads_only(part, names)
        case AlwaysTrue():
            return True
        case Opaque():
            return False
        case _:
            path = column_path(predicate.column)
            return len(path) == 1 and path[0].casefold() in names


def to_sql(predicate: Predicate) -> str:
    """Spark SQL text of the predicate: quoted columns, typed literals, explicit brackets.

    Raises:
        InvalidArgumentError: a value of a type that has no literal form.
    """
    match predicate:
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
        case And(parts):
            return " AND ".join(f"({to_sql(part)})" for part in parts) if parts else "TRUE"
        case Or(parts):
            return " OR ".join(f"({to_sql(part)})" for part in parts) if parts else "FALSE"
        case Not(part):
            return f"NOT ({to_sql(part)})"
        case AlwaysTrue():
            return "TRUE"
        case Opaque(sql=sql):
            return sql


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
