"""Whether two predicates exclude each other: whether no row can satisfy both."""

from decimal import Decimal
from typing import Any

from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    column_path,
    conjuncts,
)

_MAX_DEPTH = 12
"""Predicates that are nested deeper are taken to overlap."""
_BELOW = (ComparisonOperator.LT, ComparisonOperator.LE)
_INCLUSIVE = (ComparisonOperator.LE, ComparisonOperator.GE)
_ABOVE = (ComparisonOperator.GT, ComparisonOperator.GE)


def are_disjoint(first: Predicate, second: Predicate) -> bool:
    """Whether it is certain that no row satisfies both. False also for what cannot be decided without the rows.

    Two texts that differ only in case or in trailing blanks are taken to be equal, as some types of columns compare them.
    """
    return _disjoint(first, second, _MAX_DEPTH)


def _disjoint(first: Predicate, second: Predicate, depth: int) -> bool:
    if not depth:
        return False
    if isinstance(first, Or):
        return all(_disjoint(part, second, depth - 1) for part in first.parts)
    if isinstance(second, Or):
        return all(_disjoint(first, part, depth - 1) for part in second.parts)
    if isinstance(first, And) or isinstance(second, And):
        return any(_disjoint(own, other, depth - 1) for own in conjuncts(first) for other in conjuncts(second))
    return _leaves_disjoint(first, second) or _leaves_disjoint(second, first)


def _leaves_disjoint(first: Predicate, second: Predicate) -> bool:
    """One direction: what the kind of ``first`` excludes."""
    tests = (Comparison, In, IsNull, IsNotNull, StartsWith)
    if not isinstance(first, tests) or not isinstance(second, tests) or _column(first) != _column(second):
        return False
    match first, second:
        case IsNull(), _:
            return not isinstance(second, IsNull) and not _accepts_null(second)
        case (Comparison(operator=ComparisonOperator.EQ | ComparisonOperator.NULL_SAFE_EQ, value=value), _):
            return value is not None and _excludes(second, (value,))
        case In(values=values), _:
            return None not in values and _excludes(second, values)
        case Comparison(operator=below, value=high), Comparison(operator=above, value=low) if (
            below in _BELOW and above in _ABOVE
        ):
            if not _comparable(low, high):
                return False
            both = below is ComparisonOperator.LE and above is ComparisonOperator.GE
            return bool(high < low or (high == low and not both))
        case StartsWith(prefix=own), StartsWith(prefix=other):
            own, other = own.casefold(), other.casefold()
            return not own.startswith(other) and not other.startswith(own)
    return False


def _column(test: Comparison | In | IsNull | IsNotNull | StartsWith) -> tuple[str, ...]:
    return tuple(segment.casefold() for segment in column_path(test.column))


def _accepts_null(test: Predicate) -> bool:
    return isinstance(test, Comparison) and test.operator is ComparisonOperator.NULL_SAFE_EQ and test.value is None


def _excludes(test: Predicate, values: tuple[Any, ...]) -> bool:
    """Whether none of the values, which are not NULL, satisfies the test."""
    match test:
        case In(values=others):
            if len({_class_of(value) for value in (*values, *others)}) != 1 or None in others:
                return False
            return {_folded(value) for value in values}.isdisjoint(map(_folded, others))
        case Comparison(operator=ComparisonOperator.EQ | ComparisonOperator.NULL_SAFE_EQ, value=None):
            return True
        case Comparison(operator=operator, value=other):
            return all(_comparable(value, other) and not _may_hold(value, operator, other) for value in values)
        case StartsWith(prefix=prefix):
            return all(
                isinstance(value, str) and not value.casefold().startswith(prefix.casefold().rstrip(" "))
                for value in values
            )
    return False


def _may_hold(value: Any, operator: ComparisonOperator, other: Any) -> bool:
    equal = bool(_folded(value) == _folded(other))
    match operator:
        case ComparisonOperator.EQ | ComparisonOperator.NULL_SAFE_EQ:
            return equal
        case ComparisonOperator.NE:
            return bool(value != other)
        case ComparisonOperator.LT | ComparisonOperator.LE:
            return (equal and value != other) or bool(value < other) or (value == other and operator in _INCLUSIVE)
        case ComparisonOperator.GT | ComparisonOperator.GE:
            return (equal and value != other) or bool(value > other) or (value == other and operator in _INCLUSIVE)
    return True


def _comparable(value: Any, other: Any) -> bool:
    kind = _class_of(value)
    return kind is not None and kind == _class_of(other)


def _class_of(value: Any) -> object:
    """Values of one class are compared by Python as by SQL. None: not compared."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, (int, Decimal, float)) and not isinstance(value, bool):
        return "number"
    zone = getattr(value, "tzinfo", None) is not None
    return (type(value), zone) if value is not None else None


def _folded(value: Any) -> Any:
    return value.casefold().rstrip(" ") if isinstance(value, str) else value
