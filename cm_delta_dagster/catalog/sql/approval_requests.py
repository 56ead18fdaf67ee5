"""Proposals that wait for an approval instead of being ratified. Functions over an open connection."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql import approvals, commit_checks, commits, locked_heads
from cm_delta_dagster.catalog.sql.commit_context import ProposalKind
from cm_delta_dagster.catalog.sql.schema import identifier_of
from cm_delta_dagster.errors import ApprovalRequiredError


def request(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, wanted: ApprovalRequest, *, now_ms: int
) -> Approval | None:
    """Keep a proposal that needs an approval, under the lock of the table's row; None if it needs none."""
    head = locked_heads.required_head(connection, table_id)
    context = commits.context_of(
        connection, table_id, proposal, head, identifier=identifier_of(head), kind=ProposalKind.PROPOSED, now_ms=now_ms
    )
    try:
        commit_checks.run(connection, context)
    except ApprovalRequiredError as needed:
        return approvals.insert(connection, context, wanted, needed)
    return None
