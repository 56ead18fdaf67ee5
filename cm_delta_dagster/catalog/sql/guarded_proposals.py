"""Proposals that wait for an approval instead of being ratified, and checks of proposals that another transaction ratifies.

Functions over an open connection.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql import approvals, commit_checks, commits
from cm_delta_dagster.catalog.sql.commit_context import ProposalKind
from cm_delta_dagster.catalog.sql.schema import identifier_of
from cm_delta_dagster.errors import ApprovalRequiredError


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
        return approvals.insert(connection, context, request, needed)
    return None


def check(connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int) -> None:
    """Run the checks without a lock. Raises CommitRefusedError, ApprovalRequiredError, TableNotFoundError."""
    commit_checks.run(connection, commits.context_without_lock(connection, table_id, proposal, now_ms=now_ms))


def check_approval(connection: sa.Connection, table_id: str, proposal: CommitProposal, *, now_ms: int) -> None:
    """Check that the request of an approved proposal was made for it, without a lock; errors as ``approvals.close_ratified``."""
    approvals.check_request(connection, commits.context_without_lock(connection, table_id, proposal, now_ms=now_ms))
