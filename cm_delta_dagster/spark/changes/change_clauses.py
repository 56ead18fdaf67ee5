"""The clauses of a row change: to which rows of a join of table and source they apply, and what they do."""

from collections.abc import Mapping
from dataclasses import dataclass

from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.spark.library import Column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeClause:
    """A clause whose expressions have been resolved.

    Attributes:
        condition: None for a clause without a condition.
        values: new values of columns of the table, of the column's type. Other columns keep their value in an update, and are NULL
            in an insert, unless the table computes them.
        defaults: columns that get their default, among ``values`` as NULL.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: Column | None = None
    values: Mapping[str, Column]
    defaults: frozenset[str] = frozenset()
