"""The clauses of a row change: to which rows of a join of table and source they apply, and what they do."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.spark.library import Column


class ClauseKind(StrEnum):
    """Which rows of the join a clause applies to."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    """Rows of the source without a partner."""
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"
    """Rows of the table without a partner; all rows of the table if there is no source."""


class ClauseAction(StrEnum):
    """What a clause does."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


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
