"""Checks that a proposal must pass before it is ratified, in order.

To add a check, write a module with a function that is a ``Check`` of ``commit_context``, and add it to
``CHECKS``. It runs for the tables below the scopes for which :func:`activate` was called. A proposal for a table without an
active check runs none of them, and PostgreSQL ratifies it in a single statement.
"""

from collections.abc import Mapping
from types import MappingProxyType

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import grant_check, leases, rule_check
from cm_delta_dagster.catalog.sql.check_reads import IS_ACTIVE_FOR_TABLE
from cm_delta_dagster.catalog.sql.commit_context import Accepted, Check, CommitContext
from cm_delta_dagster.catalog.sql.schema import ACTIVE_CHECKS, TABLES

CHECKS: Mapping[str, Check] = MappingProxyType({grant_check.NAME: grant_check.check, rule_check.NAME: rule_check.check})

NONE_ACTIVE = ~sa.exists(sa.select(ACTIVE_CHECKS.c.scope).where(IS_ACTIVE_FOR_TABLE).correlate(TABLES))
"""Whether a proposal for the table of a row of ``TABLES`` needs no check."""


def run(connection: sa.Connection, context: CommitContext) -> Accepted:
    """Check the lease of the proposal, and run the active checks. Returns what the catalog stores of it.

    Raises CommitRefusedError, ApprovalRequiredError.

    The active checks are read by a statement of their own, after the row of the table is locked: PostgreSQL evaluates a statement
    that waits for a lock on the name that the table has then, and on the checks that were active when the statement began.
    """
    accepted = Accepted(proposal=context.proposal)
    leases.check_commit(connection, context)
    for name, check in CHECKS.items():
        if name in context.reads.active:
            accepted = check(connection, context) or accepted
    return accepted


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
