"""Which columns of which relations each column of a DataFrame is computed from, by Spark's analyzed plan.

Spark gives each column of a plan an id and refers to it by this id. Where a node computes new columns from others, their sources
are those of the columns that the expression refers to. Conditions of filters and joins are not sources. A column whose sources are
not certain has None: nodes that are not known here, user-defined functions over whole rows, and subqueries. No Spark job runs.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cm_delta_dagster.spark.library import DataFrame, SparkSession, py4j_errors
from cm_delta_dagster.spark.session.session import is_connect

Source: TypeAlias = tuple[int, str]
"""Number of a relation, and the name of its column."""
Sources: TypeAlias = frozenset[Source] | None
"""What a column is computed from; empty for a constant, None if that is not certain."""
_PlanNode: TypeAlias = Mapping[str, Any]
_ColumnSources: TypeAlias = Sequence[tuple[int, Sources]]
"""The columns of a node in order: id and sources."""

_RELATION = "LogicalRelation"
_ATTRIBUTE = "AttributeReference"
_NAMED_IN = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
_SAME_COLUMNS = frozenset(
    (
        *(
            "Filter",
            "Sort",
            "Distinct",
            "Deduplicate",
            "Sample",
            "SubqueryAlias",
            "View",
            "ResolvedHint",
            "CollectMetrics",
        ),
        *("GlobalLimit", "LocalLimit", "Offset", "Tail", "CTERelationDef"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
    )
)
"""Nodes with the columns of their only child."""
_LEFT_COLUMNS = frozenset(("Except", "Intersect"))
_LEFT_JOINS = ("LeftSemi", "LeftAnti")

_MAX_LEAVES = 100
"""Each leaf is asked for in the JVM."""


@dataclass(slots=True)
class RelationNumbers:
    """The numbers of the relations of a session that have been registered.

    A relation is one object in the JVM, also if a plan contains it several times.
    """

    _session: SparkSession
    _numbers: Any = None

    def registered(self, frame: DataFrame) -> list[Sources] | None:
        """The sources of the columns of ``frame``, whose relations get a number; None if they cannot be found out."""
        return self._sources(frame, self._register)

    def sources(self, frame: DataFrame) -> list[Sources] | None:
        """The sources of the columns of ``frame``, as far as its relations are registered."""
        return self._sources(frame, self._number)

    def _sources(self, frame: DataFrame, number: Callable[[Any], int | None]) -> list[Sources] | None:
        if is_connect(self._session) or is_connect(frame.sparkSession):
            return None
        try:
            jvm: Any = self._session._jvm
            if self._numbers is None:
                self._numbers = jvm.java.util.IdentityHashMap()
            plan = frame._jdf.queryExecution().analyzed()
            numbers = _leaf_numbers(plan, number)
            sources = [] if numbers is None else column_sources(json.loads(plan.toJSON()), numbers)
            return sources if len(sources) == len(frame.columns) else None
        # A platform that hides the JVM; a plan that Spark cannot print, or that is deeper than Python's stack.
        except (py4j_errors.Py4JError, AttributeError, TypeError, LookupError, ValueError, RuntimeError):
            return None

    def _register(self, relation: Any) -> int:
        known = self._number(relation)
        if known is None:
            known = self._numbers.size()
            self._numbers.put(relation, known)
        return known

    def _number(self, relation: Any) -> int | None:
        number = int(self._numbers.getOrDefault(relation, -1))
        return None if number < 0 else number


def _leaf_numbers(plan: Any, number: Callable[[Any], int | None]) -> list[int | None] | None:
    """The number of each leaf, None for another leaf than a relation; None if no leaf has one, or the plan is too large."""
    leaves = plan.collectLeaves()
    if leaves.size() > _MAX_LEAVES:
        return None
    numbers: list[int | None] = []
    for position in range(leaves.size()):
        leaf = leaves.apply(position)
        kind = str(leaf.getClass().getSimpleName())
        numbers.append(number(leaf.relation()) if kind == _RELATION else None)
    return numbers if any(number_of_leaf is not None for number_of_leaf in numbers) else None


def column_sources(nodes: Sequence[_PlanNode], numbers: Sequence[int | None]) -> list[Sources]:
    """The sources of the columns of a plan.

    Args:
        nodes: the plan as Spark prints it (``toJSON``): its nodes, each before its children.
        numbers: the number of the relation of each leaf; None for a leaf without.
    """
    return [sources for _, sources in _PlanReader(iter(nodes), iter(numbers)).node()]


@dataclass(slots=True)
class _PlanReader:
    """Reads nodes from the top down and combines their columns from the bottom up."""

    nodes: Iterator[_PlanNode]
    numbers: Iterator[int | None]
    ctes: dict[int, list[Sources]] = field(default_factory=dict)

    def node(self) -> _ColumnSources:
        node = next(self.nodes)
        if not node["num-children"]:
            return self._leaf(node, next(self.numbers))
        children = [self.node() for _ in range(node["num-children"])]
        columns = self._combined(node, children)
        if _kind(node) == "CTERelationDef":
            self.ctes[node["id"]] = [sources for _, sources in columns]
        return columns

    def _leaf(self, node: _PlanNode, number: int | None) -> _ColumnSources:
        attributes = [items[0] for items in node.get("output") or () if items]
        if _kind(node) == _RELATION and number is not None:
            return [(_id(item), frozenset([(number, item["name"])])) for item in attributes]
        if _kind(node) == "CTERelationRef" and len(known := self.ctes.get(node["cteId"], [])) == len(attributes):
            return [(_id(item), sources) for item, sources in zip(attributes, known, strict=True)]
        return [(_id(item), None) for item in attributes]

    def _combined(self, node: _PlanNode, children: Sequence[_ColumnSources]) -> _ColumnSources:
        kind, first = _kind(node), children[0]
        below = _merged(children)
        match kind:
            case _ if kind in _NAMED_IN:
                return [_named(items, below) for items in node[_NAMED_IN[kind]]]
            case "Window":
                return [*first, *(_named(items, below) for items in node["windowExpressions"])]
            case "Generate":
                dropped, made = set(node["unrequiredChildIndex"]), _referred(node["generator"], below)
                kept = [column for position, column in enumerate(first) if position not in dropped]
                return [*kept, *((_id(items[0]), made) for items in node["generatorOutput"])]
            case "Expand" if node["projections"] is not None:
                return [
                    (_id(items[0]), _union(_referred(row[position], below) for row in node["projections"]))
                    for position, items in enumerate(node["output"])
                ]
            case "Union":
                rows = zip(*children, strict=True)
                return [(row[0][0], _union(sources for _, sources in row)) for row in rows]
            case "Join":
                is_left = any(name in json.dumps(node["joinType"]) for name in _LEFT_JOINS)
                return first if is_left else [*first, *children[1]]
            case "WithCTE":
                return children[-1]
            case _ if kind in _SAME_COLUMNS and len(children) == 1:
                return first
            case _ if kind in _LEFT_COLUMNS:
                return first
        return []


def _merged(children: Sequence[_ColumnSources]) -> dict[int, Sources]:
    """The sources by id; None for an id that has different sources in two children."""
    merged: dict[int, Sources] = {}
    for child in children:
        for name, sources in child:
            merged[name] = sources if merged.get(name, sources) == sources else None
    return merged


def _named(items: Sequence[_PlanNode], below: Mapping[int, Sources]) -> tuple[int, Sources]:
    """Id and sources of an expression with a name."""
    return _id(items[0]), _referred(items, below)


def _referred(value: Any, below: Mapping[int, Sources]) -> Sources:
    """The sources of all columns that an expression refers to."""
    if isinstance(value, list):
        return _union(_referred(item, below) for item in value)
    if not isinstance(value, dict):
        return frozenset()
    if _kind(value) == _ATTRIBUTE:
        return below.get(_id(value))
    if "plan" in value or "Subquery" in _kind(value):
        return None
    return _union(_referred(item, below) for item in value.values())


def _union(parts: Iterator[Sources]) -> Sources:
    union: frozenset[Source] = frozenset()
    for part in parts:
        if part is None:
            return None
        union |= part
    return union


def _id(node: _PlanNode) -> int:
    return int(node["exprId"]["id"])


def _kind(node: _PlanNode) -> str:
    """The name of the class, without its package."""
    return str(node.get("class", "")).rpartition(".")[2]
