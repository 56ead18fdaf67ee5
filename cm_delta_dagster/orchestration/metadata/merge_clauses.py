"""The clauses of mode ``merge`` in the metadata of an asset, and the row change that they make.

A clause is a dict: ``when`` (``matched``, ``not_matched``, ``not_matched_by_source``), ``then`` (``update``, ``insert``,
``delete``), and optionally ``condition`` (SQL) and ``set`` (SQL values by column; without it all columns are those of the output).
Expressions name columns as ``source.<column>`` and ``target.<column>``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.api.table.merge_keys import merge_condition
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause, check_clauses
from cm_delta_dagster.operations.writing.rows import WriteRows
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Or, Predicate, to_sql
from cm_delta_dagster.protocol.predicates.references import Side, own_text
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import StructType

_KINDS = {
    "matched": ClauseKind.MATCHED,
    "not_matched": ClauseKind.NOT_MATCHED,
    "not_matched_by_source": ClauseKind.NOT_MATCHED_BY_SOURCE,
}
_ACTIONS = {
    "matched": {"update": ClauseAction.UPDATE, "delete": ClauseAction.DELETE},
    "not_matched": {"insert": ClauseAction.INSERT},
    "not_matched_by_source": {"update": ClauseAction.UPDATE, "delete": ClauseAction.DELETE},
}
_FIELDS = frozenset({"when", "then", "condition", "set"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One clause. ``set`` is None if every column is taken from the output."""

    when: str
    then: str
    condition: str | None = None
    set: Mapping[str, str] | None = None

    def row_clause(self, where: Predicate | None) -> RowClause:
        """The clause, limited to the rows of the table that satisfy ``where``."""
        condition = self.condition
        if where is not None and self.when == "not_matched_by_source":
            inside = to_sql(where)
            condition = inside if condition is None else f"({condition}) AND ({inside})"
        action = _ACTIONS[self.when][self.then]
        assignments: Mapping[str, str] | None = {} if action is ClauseAction.DELETE else self.set
        return RowClause(kind=_KINDS[self.when], action=action, condition=condition, assignments=assignments)


def conditions_on_others(clauses: Sequence[MergeClause]) -> frozenset[str | None]:
    """The conditions of the clauses that change or delete rows that the output does not have; None for all these rows."""
    return frozenset(clause.condition for clause in clauses if clause.when == "not_matched_by_source")


def others_changed(clauses: Sequence[MergeClause], schema: StructType) -> Predicate:
    """The condition of the rows that the clauses may change or delete without a partner in the output.

    Args:
        schema: of the table. A condition that does not name its columns alone is taken as true.
    """
    parts = [_on_table(condition, schema) for condition in conditions_on_others(clauses)]
    return AlwaysTrue() if any(isinstance(part, AlwaysTrue) for part in parts) else Or(tuple(parts))


def _on_table(condition: str | None, schema: StructType) -> Predicate:
    target, source = Side(alias="target", schema=schema), Side(alias="source", schema=StructType(()))
    text = None if condition is None else own_text(condition, target, source)
    if text is None:
        return AlwaysTrue()
    try:
        return parse_predicate(text, schema)
    except InvalidArgumentError:
        return AlwaysTrue()  # The merge itself refuses it.


def parse_merge_clauses(value: Any) -> tuple[MergeClause, ...]:
    """The clauses, in order; empty for None.

    Raises:
        InvalidArgumentError: a clause has an unknown form, or can never apply.
    """
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise InvalidArgumentError(
            f"The metadata key 'merge_clauses' is {value!r}; it must be a list of clauses such as "
            "{'when': 'matched', 'then': 'update', 'set': {'amount': 'source.amount'}}."
        )
    clauses = tuple(_clause(item) for item in value)
    check_clauses(RowChange(clauses=tuple(clause.row_clause(None) for clause in clauses)))
    return clauses


def _clause(item: Any) -> MergeClause:
    def refuse(why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"The merge clause {item!r} is not valid: {why}. Nothing was written.")

    if not isinstance(item, Mapping) or not _FIELDS.issuperset(item):
        raise refuse(f"a clause is a dict with the keys {', '.join(sorted(_FIELDS))}")
    when, then = item.get("when"), item.get("then")
    if when not in _ACTIONS:
        raise refuse(f"'when' is one of {', '.join(_ACTIONS)}")
    if then not in _ACTIONS[when]:
        raise refuse(f"'then' of {when!r} is one of {', '.join(_ACTIONS[when])}")
    condition, assigned = item.get("condition"), item.get("set")
    if condition is not None and not (isinstance(condition, str) and condition.strip()):
        raise refuse("'condition' is an SQL text")
    if assigned is not None and then == "delete":
        raise refuse("a delete has no 'set'")
    if assigned is None and (when, then) == ("not_matched_by_source", "update"):
        raise refuse("there is no row of the output to take values from, so 'set' is needed")
    if assigned is not None and not (
        isinstance(assigned, Mapping)
        and assigned
        and all(isinstance(part, str) and part for pair in assigned.items() for part in pair)
    ):
        raise refuse("'set' is a dict of column name to SQL value")
    return MergeClause(when=when, then=then, condition=condition, set=None if assigned is None else dict(assigned))


def check_partition_values(clauses: Sequence[MergeClause], columns: Sequence[str]) -> None:
    """Refuse clauses that could write rows outside of the partitions of the run.

    Args:
        columns: the columns that determine the partition of a row.

    Raises:
        InvalidArgumentError: a clause sets such a column to another value than that of the output.
    """
    for clause in clauses:
        for column in columns if clause.set is not None else ():
            assignments = {name.lower().removeprefix("target."): text for name, text in (clause.set or {}).items()}
            text = assignments.get(column.lower())
            from_output = text is not None and text.strip().lower() == f"source.{column.lower()}"
            if (text is not None or clause.then == "insert") and not from_output:
                raise InvalidArgumentError(
                    f"The merge clause {clause.when} {clause.then} sets the partition column {column!r} to {text!r}. The rows of a "
                    f"partition keep it: set it to 'source.{column}'"
                    + ("." if clause.then == "insert" else ", or leave it out.")
                    + " Nothing was written."
                )


def merge_change(
    clauses: Sequence[MergeClause],
    *,
    source: WriteRows,
    on: str | Sequence[str],
    where: Predicate | None,
    evolves: bool,
) -> RowChange:
    """The row change of the clauses.

    Args:
        source: the output; its rows must satisfy ``where``.
        on: key columns, or a condition over ``target`` and ``source``.
        where: the rows of the table that may change; None for all rows.
        evolves: whether columns that the table lacks are added.
    """
    return RowChange(
        clauses=tuple(clause.row_clause(where) for clause in clauses),
        source=source,
        on=merge_condition(on, source_alias="source", target_alias="target"),
        where=where,
        evolves=evolves,
    )
