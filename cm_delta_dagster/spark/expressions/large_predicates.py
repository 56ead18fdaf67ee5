"""SQL text of large predicates that Spark can evaluate.

Spark plans a condition recursively and compiles it into Java methods: a few hundred comparisons take many seconds, a thousand
conjuncts stop the JVM, and a few thousand levels of nesting overflow its stack. This module passes the comparisons as an
array, which is not compiled, and combines them by an array function. The result is the same, including NULL.
"""

from collections.abc import Sequence

from cm_delta_dagster.protocol.predicates.normal_forms import size_and_depth, with_fewer_comparisons
from cm_delta_dagster.protocol.predicates.predicates import And, Not, Or, Predicate, fold, to_sql

_MANY = 100
"""Number of comparisons that Spark compiles in a reasonable time."""
_DEEP = 40
"""Levels of nesting that Spark's parser and planner handle well."""
_AND, _OR, _NOT = -1, -2, -3


def spark_sql(predicate: Predicate) -> str:
    """Text of the predicate for Spark's parser. Raises InvalidArgumentError for a value that has no literal form."""
    size, depth = size_and_depth(predicate)
    if size <= _MANY and depth <= _DEEP:
        return to_sql(predicate)
    compact = with_fewer_comparisons(predicate)
    size, depth = size_and_depth(compact)
    if depth > _DEEP:
        return _by_stack(compact)
    if size > _MANY:
        return fold(compact, to_sql, _by_array)
    return to_sql(compact)


def _by_array(node: And | Or | Not, parts: Sequence[str]) -> str:
    if isinstance(node, Not):
        return f"NOT ({parts[0]})"
    word, start = ("AND", "TRUE") if isinstance(node, And) else ("OR", "FALSE")
    return (
        f"aggregate(array({', '.join(parts)}), {start}, (cm_all, cm_one) -> cm_all {word} cm_one)" if parts else start
    )


def _by_stack(predicate: Predicate) -> str:
    """The leaves as one array, and a program that combines them on a stack; the deeper part of a node comes first."""
    values: list[str] = []
    program: list[int] = []
    depths = _depths(predicate)
    pending: list[Predicate | int] = [predicate]
    while pending:
        node = pending.pop()
        match node:
            case int():
                program.append(node)
            case Not(part):
                pending += (_NOT, part)
            case And(parts) | Or(parts) if parts:
                first = max(range(len(parts)), key=lambda position: depths[id(parts[position])])
                for position, part in enumerate(parts):
                    if position != first:
                        pending += (_AND if isinstance(node, And) else _OR, part)
                pending.append(parts[first])
            case _:
                program.append(len(values))
                values.append(to_sql(node))
    step = (
        f"CASE WHEN cm_op >= 0 THEN concat(array(cm_leaves[cm_op]), cm_stack)"
        f" WHEN cm_op = {_NOT} THEN concat(array(NOT cm_stack[0]), slice(cm_stack, 2, size(cm_stack)))"
        f" WHEN cm_op = {_AND} THEN concat(array(cm_stack[0] AND cm_stack[1]), slice(cm_stack, 3, size(cm_stack)))"
        " ELSE concat(array(cm_stack[0] OR cm_stack[1]), slice(cm_stack, 3, size(cm_stack))) END"
    )
    run = f"aggregate(array({', '.join(map(str, program))}), CAST(array() AS ARRAY<BOOLEAN>), (cm_stack, cm_op) -> {step})"
    # The array of the leaves is bound to a name, so that it is evaluated once per row and not once per step.
    return f"transform(array(array({', '.join(values)})), cm_leaves -> {run})[0][0]"


def _depths(predicate: Predicate) -> dict[int, int]:
    depth_by_id: dict[int, int] = {}

    def leaf(node: Predicate) -> int:
        depth_by_id[id(node)] = 0
        return 0

    def combine(node: And | Or | Not, depths: Sequence[int]) -> int:
        depth_by_id[id(node)] = 1 + max(depths, default=0)
        return depth_by_id[id(node)]

    fold(predicate, leaf, combine)
    return depth_by_id
