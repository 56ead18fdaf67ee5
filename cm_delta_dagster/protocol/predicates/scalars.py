"""Values that are computed from a row (protocol headings "Generated Columns" and "CHECK Constraints")."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DOUBLE, DataType


class ScalarOperation(StrEnum):
    """What a call computes from its arguments. NULL if an argument is NULL, unless another rule is stated."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    """Of numbers of 64 bits with a binary point. A division by zero is an error, unless the dividend is NULL."""
    NEGATE = "negative"
    REMAINDER = "%"
    """The second argument is a positive literal; the sign is that of the first."""
    WIDEN = "widen"
    """The same integer as the type of the call."""
    DOUBLE = "double"
    """The number of 64 bits with a binary point that is nearest to an integer."""
    TEXT = "text"
    """The decimal digits of an integer, or ``true`` and ``false``."""
    DATE = "date"
    YEAR = "year"
    QUARTER = "quarter"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"
    SUBSTRING = "substring"
    """The arguments after the first are literals: the first character, from 1, and perhaps the number of characters."""
    LENGTH = "length"
    LIKE = "like"
    """The second argument is a literal: the regular expression of the whole text."""
    CONCAT = "concat"
    COALESCE = "coalesce"
    """The first argument that is not NULL. Later ones are not computed for a row that has it."""
    CASE = "case"
    """Conditions and values in turn, then the value if no condition is true. Only the value of the first true one is computed."""
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    NULL_SAFE_EQ = "<=>"
    IS_NULL = "is null"
    AND = "and"
    OR = "or"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """The value of a column, or of a field of structs at a path, which is spelled as in the schema."""

    path: ColumnPath
    type: DataType


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """The same value for each row; not NULL."""

    value: bool | int | str | float | Decimal | date
    type: DataType


@dataclass(frozen=True, slots=True)
class ScalarCall:
    """An operation on other values. ``zone``: the time zone in which it takes parts of a timestamp."""

    operation: ScalarOperation
    arguments: tuple["Scalar", ...]
    type: DataType
    zone: tzinfo | None = None


Scalar: TypeAlias = ColumnValue | LiteralValue | ScalarCall

MAY_FAIL = frozenset(
    {
        *(ScalarOperation.ADD, ScalarOperation.SUBTRACT, ScalarOperation.MULTIPLY, ScalarOperation.NEGATE),
        ScalarOperation.DIVIDE,
    }
)
"""Operations whose result may be too large for its type, or not exist."""


def can_fail(scalar: Scalar) -> bool:
    """Whether the value of a row may be an error, because a number is too large or divided by zero."""
    if not isinstance(scalar, ScalarCall):
        return False
    if scalar.operation in MAY_FAIL and (scalar.type != DOUBLE or scalar.operation is ScalarOperation.DIVIDE):
        return True  # Other numbers that are too large are infinite.
    return any(map(can_fail, scalar.arguments))


def paths_of_scalar(scalar: Scalar) -> Iterator[ColumnPath]:
    """The columns and fields that the value is computed from."""
    if isinstance(scalar, ColumnValue):
        yield scalar.path
    elif isinstance(scalar, ScalarCall):
        for argument in scalar.arguments:
            yield from paths_of_scalar(argument)


def columns_of_scalar(scalar: Scalar) -> Iterator[str]:
    """The top-level columns that the value is computed from."""
    return (path[0] for path in paths_of_scalar(scalar))
