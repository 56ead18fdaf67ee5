"""The conditions of a statement for DuckDB on the rows of a table, by which files are selected before DuckDB opens one.

A file is left out if none of its rows satisfies the condition of any place in which the statement reads the table. A condition
counts where a row that does not satisfy it cannot change the result: in WHERE, in ON of inner joins, and in ON of the joins that
keep all rows of the other side. What is not understood selects all files; DuckDB applies every condition itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from cm_delta_dagster.arrow.expressions import ExpressionNode, FieldPath, FunctionCall, Literal
from cm_delta_dagster.arrow.implied_predicates import implied_predicate
from cm_delta_dagster.operations.reading.duckdb.constants import UnknownConstantError, constant_of
from cm_delta_dagster.protocol.predicates.predicates import Or, Predicate
from cm_delta_dagster.protocol.predicates.sql_expressions import Node
from cm_delta_dagster.protocol.schema.types import FLOAT, StructType

_COMPARISONS: Mapping[type[Any], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_UNKNOWN = FunctionCall("unknown", ())
_QUERY = re.compile(r"[\s(]*(select|with|from)\b", re.IGNORECASE)
_UNUSUAL_JOIN = re.compile(r"\b(positional|asof|natural)\b", re.IGNORECASE)
"""Words that a parser may take for an alias."""
_OTHER_SIDE_KINDS = frozenset(("SEMI", "ANTI"))


@dataclass(frozen=True, slots=True)
class StatementConditions:
    """What a statement says about the rows that it reads.

    Attributes:
        by_table: the condition on each table, by its name in the text; tables without one are left out.
        has_parameters: whether a condition may depend on values that the text does not have.
    """

    by_table: Mapping[str, Predicate]
    has_parameters: bool


NO_CONDITIONS = StatementConditions({}, has_parameters=True)


def statement_conditions(text: str, tables: Mapping[str, tuple[StructType, int]]) -> StatementConditions:
    """The conditions in a text in DuckDB's dialect.

    Args:
        tables: by a name that the text has for nothing else, the schema of a table and the number of places with this name in which
            the text reads the table.
    """
    if not _QUERY.match(text) or _UNUSUAL_JOIN.search(text):
        return NO_CONDITIONS
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="duckdb") if tree is not None]
        if not all(isinstance(tree, exp.Query) for tree in trees):
            return NO_CONDITIONS
        by_table = {}
        for name, (schema, places) in tables.items():
            condition = _condition_of(trees, name, schema, places)
            if condition is not None:
                by_table[name] = condition
        has_parameters = any(tree.find(exp.Placeholder, exp.Parameter) for tree in trees)
    except (SqlglotError, RecursionError):
        return NO_CONDITIONS
    return StatementConditions(by_table, has_parameters)


def _condition_of(trees: Sequence[Node], name: str, schema: StructType, places: int) -> Predicate | None:
    """True for each row of the table that the statement needs; None if that is not known of a place."""
    nodes = [node for tree in trees for node in tree.find_all(exp.Table) if node.name == name]
    if len(nodes) != places:
        return None
    conditions = []
    for node in nodes:
        scope = _scope_of(node, schema)
        condition = None if scope is None else implied_predicate(scope, schema)
        if condition is None:
            return None
        conditions.append(condition)
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))


def _scope_of(node: exp.Table, schema: StructType) -> ExpressionNode | None:
    """The conjunction of the conditions on a place in which a query reads the table; None for a place of another kind."""
    holder = node.parent
    query = None if holder is None else holder.parent
    if not isinstance(query, exp.Select) or not _is_plain(node, ("this", "alias")):
        return None
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    joins = query.args.get("joins") or []
    if any(query.args.get(key) for key in ("sample", "pivots", "laterals", "match", "connect")) or any(
        join.side in ("RIGHT", "FULL") or join.method or not _is_plain(join, _JOIN_ARGUMENTS) for join in joins
    ):
        return None
    columns = _ColumnsInQuery(
        schema, node.alias_or_name.lower(), are_ambiguous=any(join.args.get("using") for join in joins)
    )
    conditions = list(_applied_to(holder, query, joins))
    return FunctionCall("and_kleene", tuple(map(columns.expression, conditions))) if conditions else None


_JOIN_ARGUMENTS = ("this", "side", "kind", "on", "using", "method")


def _is_plain(node: Node, known: Sequence[str]) -> bool:
    return all(key in known for key, value in node.args.items() if value)


def _applied_to(holder: Node | None, query: exp.Select, joins: Sequence[exp.Join]) -> Iterator[Node]:
    """The conditions that remove rows of the table in ``holder``, which is FROM or a join of the query."""
    if isinstance(holder, exp.Join) and not _is_inner(holder):
        # Other rows have no partner; that a row without one is kept concerns the other side.
        on = holder.args.get("on")
        if on is not None:
            yield on
        return
    if not isinstance(holder, exp.From | exp.Join):
        return
    where = query.args.get("where")
    if where is not None:
        yield where.this
    yield from (on for join in joins if _is_inner(join) and (on := join.args.get("on")) is not None)


def _is_inner(join: exp.Join) -> bool:
    return not join.side and join.kind not in _OTHER_SIDE_KINDS


@dataclass(frozen=True, slots=True)
class _ColumnsInQuery:
    """The columns of a table in a query, in which ``qualifier`` names the table.

    ``are_ambiguous``: a column without a qualifier may be that of several tables.
    """

    schema: StructType
    qualifier: str
    are_ambiguous: bool

    def expression(self, node: Node) -> ExpressionNode:
        """What is understood of a condition; a call of ``unknown`` for the rest."""
        if not isinstance(node, exp.In | exp.Between | exp.Column) and not _is_plain(node, ("this", "expression")):
            return _UNKNOWN  # For example NOT LIKE, which is a LIKE with another argument.
        match node:
            case exp.Paren():
                return self.expression(node.this)
            case exp.And():
                return FunctionCall("and_kleene", (self.expression(node.left), self.expression(node.right)))
            case exp.Or():
                return FunctionCall("or_kleene", (self.expression(node.left), self.expression(node.right)))
            case exp.Not():
                return FunctionCall("invert", (self.expression(node.this),))
            case exp.Between() if _is_plain(node, ("this", "low", "high")):
                column = self._operand(node.this)
                bounds = (("greater_equal", node.args["low"]), ("less_equal", node.args["high"]))
                return FunctionCall(
                    "and_kleene", tuple(FunctionCall(name, (column, self._operand(bound))) for name, bound in bounds)
                )
            case exp.In() if _is_plain(node, ("this", "expressions")):
                return self._membership(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                return FunctionCall("is_null", (self._operand(node.this),))
            case exp.Like():
                return self._prefix(node)
            case exp.Column() | exp.Boolean():
                return self._operand(node)
        function = _COMPARISONS.get(type(node))
        if function is None:
            return _UNKNOWN
        return FunctionCall(function, (self._operand(node.this), self._operand(node.expression)))

    def _operand(self, node: Node) -> ExpressionNode:
        if isinstance(node, exp.Column):
            return self._column(node)
        try:
            return Literal(constant_of(node))
        except UnknownConstantError:
            return _UNKNOWN

    def _column(self, node: exp.Column) -> ExpressionNode:
        qualifier = node.table.lower()
        if not _is_plain(node, ("this", "table")) or not isinstance(node.this, exp.Identifier):
            return _UNKNOWN
        if (qualifier and qualifier != self.qualifier) or (not qualifier and self.are_ambiguous):
            return _UNKNOWN
        item = self.schema.field(node.name)
        # DuckDB compares a float with a number as floats, which are rounded.
        return _UNKNOWN if item is None or item.type == FLOAT else FieldPath((item.name,))

    def _membership(self, node: exp.In) -> ExpressionNode:
        column, values = self._operand(node.this), [self._operand(value) for value in node.expressions]
        if not values or not all(isinstance(value, Literal) for value in values):
            return _UNKNOWN
        listed = [value.value for value in values if isinstance(value, Literal)]
        return FunctionCall("is_in", (column,), {"value_set": listed})

    def _prefix(self, node: exp.Like) -> ExpressionNode:
        column, pattern = self._operand(node.this), self._operand(node.expression)
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return _UNKNOWN
        prefix = pattern.value.partition("%")[0].partition("_")[0]
        return FunctionCall("starts_with", (column,), {"pattern": prefix}) if prefix else _UNKNOWN
