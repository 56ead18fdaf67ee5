"""Proposals to tables with commit rules, outside of their ratification: those that wait, and those of protected catalogs.

Functions over an open connection.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql import approvals, commit_checks, commits, rule_check
from cm_delta_dagster.catalog.sql.commit_context import ProposalKind
from cm_delta_dagster.catalog.sql.prepared import Prepared
from cm_delta_dagster.catalog.sql.schema import identifier_of
from cm_delta_dagster.errors import ApprovalRequiredError

_HEAD = Prepared(commits.CHECKED_HEAD)


def request_approval(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, request: ApprovalRequest, *, now_ms: int
) -> Approval | None:
    """Keep a proposal that needs an approval, under the lock of the table's row; None if it needs none."""
    head = commits.required_head(connection, table_id)
    context = commits.context_of(
        connection, table_id, proposal, head, identifier=identifier_of(head), kind=ProposalKind.PROPOSED, now_ms=now_ms
    )
    try:
        commit_checks.run(connection, context)
    except ApprovalRequiredError as needed:
        return approvals.insert(connection, context, request, what=needed.what, contacts=needed.ask)
    return None


def check_rules(connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int) -> None:
    """Check the proposal for the next version against the commit rules of the table, without a lock.

    Raises CommitRefusedError, ApprovalRequiredError.
    """
    rows = _HEAD.rows(connection, {"of_table": table_id})
    if not rows or proposal.version <= rows[0].latest_version or rule_check.NAME not in (rows[0].active_checks or ""):
        return
    kind = ProposalKind.PROPOSED
    head = rows[0]
    context = commits.context_of(
        connection, table_id, proposal, head, identifier=identifier_of(head), kind=kind, now_ms=now_ms
    )
    rule_check.check(connection, context)
