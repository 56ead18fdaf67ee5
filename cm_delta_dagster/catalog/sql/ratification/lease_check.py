"""The check that the maintenance run which proposes a commit still holds its lease."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import LeaseGranted
from cm_delta_dagster.catalog.sql.policies import leases
from cm_delta_dagster.catalog.sql.ratification.context import CommitContext, ProposalKind
from cm_delta_dagster.errors import CommitRefusedError

RULE = "lease"
"""Name of the rule in refusals of commits."""


def check(connection: sa.Connection, context: CommitContext) -> None:
    """Refuse a proposal whose lease is not held any more. The caller holds the lock of the table's row.

    Raises:
        CommitRefusedError: the lease expired, or another run has or had one since.
    """
    token = context.proposal.lease_token
    if token is None or context.kind is not ProposalKind.PROPOSED:
        return
    answer = leases.check(connection, context.table_id, token=token)
    if isinstance(answer, LeaseGranted):
        return
    holder = (
        "" if answer.holder is None else f"; {answer.holder.owner} holds the lease for {answer.holder.kind.value} now"
    )
    refusal = context.refusal(
        rule=RULE,
        scope=str(context.identifier),
        reason=f"it belongs to a maintenance run whose lease (token {token}) expired or was ended{holder}",
    )
    raise CommitRefusedError(
        f"{refusal.what} was refused: {refusal.reason}. Nothing was committed. Start the maintenance run again.",
        refusal=refusal,
    )
