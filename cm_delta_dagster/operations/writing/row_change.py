"""Row changes as values: what DELETE, UPDATE and MERGE have in common, as a caller states it.

A change has clauses in order, over the rows of a join of the table with a source, or over the rows of the table. The expressions
are SQL text, Columns, or predicates. ``resolve_change`` resolves them, ``change_rows`` carries the change out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.spark.library import Column, is_column

Expression: TypeAlias = str | Column
"""A value: SQL text or a pyspark Column."""

DEFAULT = "DEFAULT"
"""The text that stands for the default of a column."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowClause:
    """One clause.

    Attributes:
        condition: None for all rows of the clause's kind.
        assignments: values by column or nested field; None to take every column from the source.
        lenient: with ``assignments`` None, columns that the source lacks stay as they are, and are NULL in new rows.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: Condition | None = None
    assignments: Mapping[str, Expression] | None = field(default_factory=dict)
    lenient: bool = False

    @property
    def name(self) -> str:
        """As in SQL, for messages."""
        kinds = {
            ClauseKind.MATCHED: "WHEN MATCHED",
            ClauseKind.NOT_MATCHED: "WHEN NOT MATCHED",
            ClauseKind.NOT_MATCHED_BY_SOURCE: "WHEN NOT MATCHED BY SOURCE",
        }
        return f"{kinds[self.kind]} THEN {self.action.value.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowChange:
    """Clauses over the table and, unless ``source`` is None, a source that is joined by ``on``.

    Attributes:
        where: the rows of the table that can have a partner; None for all.
        evolves: columns and nested fields of the source that the table lacks are added to the table.
    """

    clauses: tuple[RowClause, ...] = ()
    source: AnyRows | WriteRows | None = None
    on: Expression | None = None
    where: Predicate | None = None
    target_alias: str = "target"
    source_alias: str = "source"
    evolves: bool = False

    @property
    def expressions(self) -> Iterator[Condition | Expression]:
        """All conditions and values."""
        if self.on is not None:
            yield self.on
        for clause in self.clauses:
            if clause.condition is not None:
                yield clause.condition
            yield from (clause.assignments or {}).values()

    @property
    def is_insert_only(self) -> bool:
        return all(clause.kind is ClauseKind.NOT_MATCHED for clause in self.clauses)

    @property
    def removes_rows(self) -> bool:
        """Whether rows of the table are deleted or replaced."""
        return not self.is_insert_only

    @property
    def may_match_twice(self) -> bool:
        """Whether a row of the table may have several partners: nothing depends on which of them is taken."""
        matched = [clause for clause in self.clauses if clause.kind is ClauseKind.MATCHED]
        sole_delete = len(matched) == 1 and matched[0].action is ClauseAction.DELETE and matched[0].condition is None
        return self.is_insert_only or sole_delete


def check_clauses(change: RowChange) -> None:
    """Check what does not depend on the table.

    Raises:
        InvalidArgumentError: there is no clause, a clause can never apply because one before it has no condition, or the aliases
            are equal.
    """
    if not change.clauses:
        raise InvalidArgumentError(
            "The merge has no clause, so it would change nothing. Add one, e.g. WHEN MATCHED THEN UPDATE."
        )
    if change.source is not None and change.target_alias.lower() == change.source_alias.lower():
        raise InvalidArgumentError(
            f"Source and target have the same alias {change.source_alias!r}. Give them different ones."
        )
    unconditional: dict[ClauseKind, RowClause] = {}
    for clause in change.clauses:
        earlier = unconditional.get(clause.kind)
        if earlier is not None:
            raise InvalidArgumentError(
                f"The clause {clause.name} can never apply, because {earlier.name} before it has no condition. Nothing was "
                "written. Give the earlier clause a condition, or leave the later one out."
            )
        if clause.condition is None:
            unconditional[clause.kind] = clause


def check_value(name: str, expression: object) -> None:
    """Raises InvalidArgumentError unless the value that is assigned to ``name`` is an :data:`Expression`."""
    if not (isinstance(expression, str) or is_column(expression)):
        raise InvalidArgumentError(
            f"The value of {name!r} is {expression!r} of type {type(expression).__name__}. Nothing was written. Give SQL text, "
            'such as "NULL", "5" or "\'text\'", or a Column, such as pyspark.sql.functions.lit(...).'
        )


def is_default(expression: Expression) -> bool:
    """Whether an expression stands for the default of its column."""
    return isinstance(expression, str) and expression.strip().upper() == DEFAULT
