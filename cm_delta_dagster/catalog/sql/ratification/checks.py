"""Checks that a proposal must pass before it is ratified, in order.

To add a check, write a module with a function that is a ``Check`` of ``context``, and add it to ``CHECKS``. It runs for the tables
below the scopes for which ``active_checks.activate`` was called.
"""

from collections.abc import Mapping
from types import MappingProxyType

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.ratification import grant_check, lease_check, rule_check
from cm_delta_dagster.catalog.sql.ratification.context import Accepted, Check, CommitContext

CHECKS: Mapping[str, Check] = MappingProxyType({grant_check.NAME: grant_check.check, rule_check.NAME: rule_check.check})


def run(connection: sa.Connection, context: CommitContext) -> Accepted:
    """Check the lease of the proposal, and run the active checks. Returns what the catalog stores of it.

    Raises CommitRefusedError, ApprovalRequiredError.

    The active checks are read by a statement of their own, after the row of the table is locked: PostgreSQL evaluates a statement
    that waits for a lock on the name that the table has then, and on the checks that were active when the statement began.
    """
    accepted = Accepted(proposal=context.proposal)
    lease_check.check(connection, context)
    for name, check in CHECKS.items():
        if name in context.reads.active:
            accepted = check(connection, context) or accepted
    return accepted
