"""Equivalent forms of predicates: flat, with negations inwards, with fewer comparisons (heading "Per-file Statistics").

Layer: protocol. Nothing here recurses, so that a predicate may be nested as deep as it has comparisons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.errors import InvalidArgumentError
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
    fold,
    leaves,
    parts_of,
    with_parts,
)

_Op = ComparisonOperator
_LEAVES = (Comparison, In, IsNull, IsNotNull, StartsWith, AlwaysTrue, Opaque)
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
"""Comparisons that a condition may have; a list of values counts as one."""


def check_predicate(value: object) -> None:
    """Refuse what is not a predicate, at any depth, and one that is too large.

    Raises:
        InvalidArgumentError: saying what was given and what a condition may be.
    """
    pending: list[object] = [value]
    count = 0
    while pending:
        node = pending.pop()
        if isinstance(node, And | Or | Not):
            pending.extend((node.part,) if isinstance(node, Not) else node.parts)
            continue
        if not isinstance(node, _LEAVES):
            raise InvalidArgumentError(
                f'A condition is {node!r} of type {type(node).__name__}. Give SQL text such as "x > 1", a predicate value '
                "such as Comparison(...), or, for to_df and for writes, a Column of pyspark."
            )
        count += 1
    if count > MAX_COMPARISONS:
        raise too_large(count)


def too_large(count: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The condition has {count} comparisons, and at most {MAX_COMPARISONS} are possible. Put values of one column into a "
        "list (x IN (...)), or split the work into several calls."
    )


def flattened(predicate: Predicate) -> Predicate:
    """The same predicate without ANDs directly inside ANDs, ORs directly inside ORs, and double negations; NULL
    for the same rows."""
    return _closed(fold(predicate, lambda leaf: leaf, _flat))


@dataclass(slots=True)
class _Open:
    """An AND or OR that is still growing; its list is extended in place, so that long chains take linear time."""

    kind: type[And] | type[Or]
    parts: list[Predicate]


def _flat(node: And | Or | Not, parts: Sequence[Predicate | _Open]) -> Predicate | _Open:
    if isinstance(node, Not):
        return _opposite(_closed(parts[0]))
    if len(parts) == 1:
        return parts[0]
    kind = type(node)
    merged: list[Predicate] | None = None
    for part in parts:
        own = isinstance(part, _Open) and part.kind is kind
        inner = part.parts if isinstance(part, _Open) and own else [_closed(part)]
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
    """The SQL negation in its shortest form; a test for NULL is never NULL itself."""
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
    """A flat predicate that is true, false and NULL for the same rows: ``x = 1 OR x = 2`` becomes ``x IN (1, 2)`` and
    ``x <> 1 AND x <> 2`` its negation."""
    return fold(flattened(predicate), lambda leaf: leaf, _listed)


def _listed(node: And | Or | Not, parts: Sequence[Predicate]) -> Predicate:
    if isinstance(node, Not):
        return Not(parts[0])
    wanted = _Op.EQ if isinstance(node, Or) else _Op.NE
    values: dict[tuple[str, type], list[object]] = {}
    for part in parts:
        if isinstance(part, Comparison) and part.operator is wanted:
            values.setdefault((part.column, type(part.value)), []).append(part.value)
    found: list[Predicate] = []
    for part in parts:
        if not isinstance(part, Comparison) or part.operator is not wanted:
            found.append(part)
            continue
        key = (part.column, type(part.value))
        together = values.pop(key, [])
        if len(together) > 1:
            listed = In(part.column, tuple(together))
            found.append(listed if wanted is _Op.EQ else Not(listed))
        elif together:
            found.append(part)
    return found[0] if len(found) == 1 else with_parts(node, found)


def negations_inwards(predicate: Predicate) -> Predicate:
    """A predicate that is true for the same rows, in which NOT stands only before leaves that have no opposite."""
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
        case IsNull(column):
            return IsNotNull(column)
        case IsNotNull(column):
            return IsNull(column)
        case Comparison(column, operator, value) if operator in _NEGATED:
            return Comparison(column, _NEGATED[operator], value)
        case In(column, values):
            return And(tuple(Comparison(column, _Op.NE, value) for value in values))
        case _:
            return Not(leaf)


def size_and_depth(predicate: Predicate) -> tuple[int, int]:
    """Number of leaves, and of combinations inside of one another."""
    deepest = 0
    pending = [(predicate, 0)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((part, depth + 1) for part in parts_of(node))
    return sum(1 for _ in leaves(predicate)), deepest
