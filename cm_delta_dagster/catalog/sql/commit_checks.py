"""Checks that a proposal must pass before it is ratified, in order.

To add a check, write a module with a function that is a ``Check`` of ``commit_context``, and add it to
``CHECKS``. It runs for the tables below the scopes for which :func:`activate` was called. A proposal for a table without an
active check runs none of them, and PostgreSQL ratifies it in a single statement.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import commit_rule_rows, grant_check, guard, leases, rule_check
from cm_delta_dagster.catalog.sql.commit_context import Accepted, Check, CheckReads, CommitContext
from cm_delta_dagster.catalog.sql.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.schema import ACTIVE_CHECKS, TABLES, scope_keys

CHECKS: Mapping[str, Check] = MappingProxyType({grant_check.NAME: grant_check.check, rule_check.NAME: rule_check.check})

_OF_TABLE = ACTIVE_CHECKS.c.scope.in_(scope_keys())
_ACTIVE = Prepared(
    sa.select(ACTIVE_CHECKS.c.check_name).where(_OF_TABLE, TABLES.c.table_id == sa.bindparam("of_table"))
)
NONE_ACTIVE = ~sa.exists(sa.select(ACTIVE_CHECKS.c.scope).where(_OF_TABLE).correlate(TABLES))
"""Whether a proposal for the table of a row of ``TABLES`` needs no check."""


def run(connection: sa.Connection, context: CommitContext) -> Accepted:
    """Check the lease of the proposal, and run the active checks. Returns what the catalog stores of it.

    Raises CommitRefusedError, ApprovalRequiredError.

    The active checks are read by a statement of their own, after the row of the table is locked: PostgreSQL evaluates a statement
    that waits for a lock on the name that the table has then, and on the checks that were active when the statement began.
    """
    accepted = Accepted(proposal=context.proposal)
    leases.check_commit(connection, context)
    active = _active(connection, context)
    for name, check in CHECKS.items():
        if name in active:
            accepted = check(connection, context) or accepted
    return accepted


def _active(connection: sa.Connection, context: CommitContext) -> Collection[str]:
    if context.reads is not None:
        return context.reads.active
    return {row.check_name for row in _ACTIVE.rows(connection, {"of_table": context.table_id})}


def reads(connection: sa.Connection, table_id: str) -> tuple[Call, ...]:
    """The statements that read what the checks need, to be run after the lock of the row; :func:`reads_in` takes the rows."""
    return (
        (_ACTIVE, {"of_table": table_id}),
        guard.read_of_privileges(connection, table_id),
        commit_rule_rows.read_of_rules(table_id),
    )


def reads_in(answers: Sequence[Sequence[Any]]) -> CheckReads:
    """The value of the rows of each statement of :func:`reads`."""
    active, privileges, rules = answers
    return CheckReads(active=frozenset(row.check_name for row in active), privilege_rows=privileges, rule_rows=rules)


def activate(connection: sa.Connection, name: str, scope: str) -> None:
    """Have the check run for the tables of ``scope``: ``*``, a catalog, a schema, a table's name, or ``id:`` and a table's id."""
    if not is_active(connection, name, scope):
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(ACTIVE_CHECKS).values(check_name=name, scope=scope))
        except sa.exc.IntegrityError:  # Another client activated it concurrently.
            return


def deactivate(connection: sa.Connection, name: str, scope: str) -> None:
    """Undo :func:`activate`."""
    connection.execute(sa.delete(ACTIVE_CHECKS).where(*_same(name, scope)))


def is_active(connection: sa.Connection, name: str, scope: str) -> bool:
    """Whether the check was activated for exactly this scope."""
    return connection.execute(sa.select(ACTIVE_CHECKS.c.scope).where(*_same(name, scope))).first() is not None


def _same(name: str, scope: str) -> tuple[sa.ColumnElement[bool], ...]:
    return ACTIVE_CHECKS.c.check_name == name, ACTIVE_CHECKS.c.scope == scope
