"""Commits of other clients that need an approval: the catalog keeps them, and the refusal names the request."""

from cm_delta_dagster.catalog.holds import HeldWrite, HoldRequest
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.commits.held_commit import approval_required
from cm_delta_dagster.client.commits.transaction_intent import TransactionIntent
from cm_delta_dagster.errors import ApprovalRequiredError
from cm_delta_dagster.server.unity.staged_commits import ReadCommit


def kept_for_approval(client: DeltaClient, table_id: str, staged: ReadCommit) -> ApprovalRequiredError | None:
    """Keep a commit until an owner decides about it. Returns the refusal; None if the commit needs no approval any more.

    What the client has read is not known, unless it says that it has read nothing. So the commit counts as one that read the whole
    table: it can be approved as long as no other commit has changed rows.
    """
    info, summary = staged.actions.commit_info, staged.proposal.summary
    assert info is not None
    intent = TransactionIntent(
        txn_id=summary.txn_id,
        operation=summary.operation,
        parameters=info.operation_parameters,
        metrics=summary.metrics,
        context=CommitProperties(tags=summary.tags, user_metadata=summary.user_metadata),
        read_version=staged.proposal.version - 1,
        reads_whole_table=info.is_blind_append is not True,
        domains=tuple(sorted(action.domain for action in staged.actions.domains)),
    )
    work = next(iter(staged.actions.transactions), None)
    write = HeldWrite(
        intent=intent.to_json(),
        app_id=None if work is None else work.app_id,
        app_version=None if work is None else work.version,
    )
    hold = client.coordinator.hold({table_id: staged.proposal}, HoldRequest(writes={table_id: write}))
    return None if hold is None else approval_required(hold, is_repeated=hold.tables[0].txn_id != summary.txn_id)
