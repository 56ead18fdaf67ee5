"""Equivalent forms of predicates: flat, with NOT only on leaves, with fewer comparisons.

Nothing here recurses, so a predicate may be nested as deeply as it has comparisons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Combination,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Leaf,
    Not,
    Or,
    Predicate,
    fold,
    leaves,
    parts_of,
    with_parts,
)

_Op = ComparisonOperator

_NEGATED: Mapping[_Op, _Op] = {
    _Op.EQ: _Op.NE,
    _Op.NE: _Op.EQ,
    _Op.LT: _Op.GE,
    _Op.GE: _Op.LT,
    _Op.GT: _Op.LE,
    _Op.LE: _Op.GT,
}
_NEVER = Or(())

MAX_COMPARISONS = 10_000
"""Most comparisons of a condition; a list of values counts as one comparison."""


def check_predicate(value: object) -> None:
    """Refuse a value that is not a predicate, at any depth, and a predicate that is too large.

    Raises:
        InvalidArgumentError: names the value and what a condition may be.
    """
    pending: list[object] = [value]
    count = 0
    while pending:
        node = pending.pop()
        if isinstance(node, Combination):
            pending.extend(parts_of(node))
            continue
        if not isinstance(node, Leaf):
            raise InvalidArgumentError(
                f'A condition is {node!r} of type {type(node).__name__}. Give SQL text such as "x > 1", a predicate value '
                "such as a Comparison, or, where Spark reads or writes, a Column of pyspark."
            )
        count += 1
    if count > MAX_COMPARISONS:
        raise too_large(count)


def too_large(count: int) -> InvalidArgumentError:
    """The error for a condition with ``count`` comparisons."""
    return InvalidArgumentError(
        f"The condition has {count} comparisons, and at most {MAX_COMPARISONS} are possible. Put values of one column into a "
        "list (x IN (...)), or split the work into several calls."
    )


def flattened(predicate: Predicate) -> Predicate:
    """The same predicate without ANDs directly inside ANDs, ORs directly inside ORs, and double negations.

    It is true, false and NULL for the same rows.
    """
    return _closed(fold(predicate, lambda leaf: leaf, _flat))


@dataclass(slots=True)
class _Open:
    """An unfinished AND or OR; its list is extended in place, so long chains take linear time."""

    kind: type[And] | type[Or]
    parts: list[Predicate]


def _flat(node: Combination, parts: Sequence[Predicate | _Open]) -> Predicate | _Open:
    if isinstance(node, Not):
        return _opposite(_closed(parts[0]))
    if len(parts) == 1:
        return parts[0]
    kind = type(node)
    merged: list[Predicate] | None = None
    for part in parts:
        inner = part.parts if isinstance(part, _Open) and part.kind is kind else [_closed(part)]
        if merged is None:
            merged = inner
        else:
            merged += inner
    return _Open(kind, merged or [])


def _closed(part: Predicate | _Open) -> Predicate:
    if not isinstance(part, _Open):
        return part
    return part.parts[0] if len(part.parts) == 1 else part.kind(tuple(part.parts))


def _opposite(predicate: Predicate) -> Predicate:
    """The SQL negation in its shortest form. IS NULL may be inverted, because its result is never NULL."""
    match predicate:
        case Not(part):
            return part
        case IsNull(column):
            return IsNotNull(column)
        case IsNotNull(column):
            return IsNull(column)
        case _:
            return Not(predicate)


def with_fewer_comparisons(predicate: Predicate) -> Predicate:
    """The same predicate, flat, with lists of values instead of equalities.

    ``x = 1 OR x = 2`` becomes ``x IN (1, 2)``, and ``x <> 1 AND x <> 2`` becomes ``NOT x IN (1, 2)``. The result is true, false
    and NULL for the same rows.
    """
    return fold(flattened(predicate), lambda leaf: leaf, _listed)


def _listed(node: Combination, parts: Sequence[Predicate]) -> Predicate:
    if isinstance(node, Not):
        return Not(parts[0])
    operator = _Op.EQ if isinstance(node, Or) else _Op.NE
    values: dict[tuple[str, type], list[object]] = {}
    for part in parts:
        if isinstance(part, Comparison) and part.operator is operator:
            values.setdefault((part.column, type(part.value)), []).append(part.value)
    merged: list[Predicate] = []
    for part in parts:
        if not isinstance(part, Comparison) or part.operator is not operator:
            merged.append(part)
            continue
        key = (part.column, type(part.value))
        of_column = values.pop(key, [])
        if len(of_column) > 1:
            listed = In(part.column, tuple(of_column))
            merged.append(listed if operator is _Op.EQ else Not(listed))
        elif of_column:
            merged.append(part)
    return merged[0] if len(merged) == 1 else with_parts(node, merged)


def negations_inwards(predicate: Predicate) -> Predicate:
    """A predicate that is true for the same rows, in which NOT is applied only to leaves that have no opposite."""
    pending: list[tuple[Predicate, bool, bool]] = [(predicate, False, False)]
    values: list[Predicate] = []
    while pending:
        node, negated, has_values = pending.pop()
        match node:
            case Not(part):
                pending.append((part, not negated, False))
            case And() | Or() if has_values:
                start = len(values) - len(node.parts)
                kind = type(node) if not negated else Or if isinstance(node, And) else And
                values[start:] = [kind(tuple(values[start:]))]
            case And(parts) | Or(parts):
                pending.append((node, negated, True))
                pending.extend((part, negated, False) for part in reversed(parts))
            case _:
                values.append(_negated_leaf(node) if negated else node)
    return values[0]


def _negated_leaf(leaf: Predicate) -> Predicate:
    match leaf:
        case AlwaysTrue():
            return _NEVER
        case Comparison(column, operator, value) if operator in _NEGATED:
            return Comparison(column, _NEGATED[operator], value)
        case In(column, values):
            return And(tuple(Comparison(column, _Op.NE, value) for value in values))
        case _:
            return _opposite(leaf)


def size_and_depth(predicate: Predicate) -> tuple[int, int]:
    """Number of leaves, and depth of the nesting of AND, OR and NOT."""
    deepest = 0
    pending = [(predicate, 0)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((part, depth + 1) for part in parts_of(node))
    return sum(1 for _ in leaves(predicate)), deepest
