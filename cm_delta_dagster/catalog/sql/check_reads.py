"""What the checks of a proposal read of the database, after the row of the table is locked."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule
from cm_delta_dagster.catalog.sql import commit_rule_rows, guard
from cm_delta_dagster.catalog.sql.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.schema import ACTIVE_CHECKS, TABLES, scope_keys

IS_ACTIVE_FOR_TABLE = ACTIVE_CHECKS.c.scope.in_(scope_keys())
"""Whether a row of ``ACTIVE_CHECKS`` applies to the table of a row of ``TABLES``."""

_ACTIVE = Prepared(
    sa.select(ACTIVE_CHECKS.c.check_name).where(IS_ACTIVE_FOR_TABLE, TABLES.c.table_id == sa.bindparam("of_table"))
)


class CheckReads:
    """The active checks of a table, the privileges of the caller on it, and its commit rules.

    Each is read by a statement of its own when it is first asked for, unless :func:`statements` have run already.

    Args:
        answers: the rows of each of :func:`statements`, which began after the row of the table was locked.
    """

    def __init__(
        self, connection: sa.Connection, table_id: str, answers: Sequence[Sequence[Any]] | None = None
    ) -> None:
        self._connection = connection
        self._table_id = table_id
        self._answers = answers

    @cached_property
    def active(self) -> frozenset[str]:
        """Names of the active checks."""
        return frozenset(row.check_name for row in self._rows(0))

    @cached_property
    def privileges(self) -> frozenset[Privilege]:
        """The privileges of the caller, with those that they include."""
        return guard.privileges_in(self._rows(1))

    @cached_property
    def rules(self) -> tuple[CommitRule, ...]:
        """The commit rules that apply to the table."""
        return commit_rule_rows.rules_in(self._rows(2))

    def _rows(self, place: int) -> Sequence[Any]:
        if self._answers is not None:
            return self._answers[place]
        statement, parameters = statements(self._connection, self._table_id)[place]
        return statement.rows(self._connection, parameters)


def statements(connection: sa.Connection, table_id: str) -> tuple[Call, Call, Call]:
    """The statements whose rows :class:`CheckReads` takes."""
    return (
        (_ACTIVE, {"of_table": table_id}),
        guard.read_of_privileges(connection, table_id),
        commit_rule_rows.read_of_rules(table_id),
    )
