"""Approvals of roles that do not own the tables of a catalog whose grants PostgreSQL enforces: calls of its functions.

As :mod:`~cm_delta_dagster.catalog.sql.approvals`, with the server's clock. The functions decide who may commit, request, approve
and reject, and store which rules the commit violates. An approved commit is ratified by ``protected_catalog``.
"""

import json

import sqlalchemy as sa

from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest, ApprovalState, closed_error
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql import approvals, commit_checks, commits, protected_catalog
from cm_delta_dagster.catalog.sql.commit_context import CommitContext
from cm_delta_dagster.errors import ApprovalRequiredError, CommitRejectedError
from cm_delta_dagster.protocol.commits.commit_fingerprint import fingerprint

_REQUEST = sa.text(
    "SELECT cm_delta_request_approval(:of_table, CAST(:proposal AS jsonb), CAST(:content AS bytea), CAST(:request AS jsonb))"
)
_CLOSE = sa.text("SELECT cm_delta_close_approval(:of_request, :of_state, :reason)")


def request(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, request: ApprovalRequest, *, now_ms: int
) -> Approval | None:
    """Keep a proposal that needs an approval; None if it needs none, or must be proposed again on a later version."""
    approvals.check_duration(request)
    context = commits.context_without_lock(connection, table_id, proposal, now_ms=now_ms)
    try:
        commit_checks.run(connection, context)
    except ApprovalRequiredError as needed:
        return _keep(connection, context, request, needed)
    return None


def _keep(
    connection: sa.Connection, context: CommitContext, request: ApprovalRequest, needed: ApprovalRequiredError
) -> Approval | None:
    proposal, table_id = context.proposal, context.table_id
    actions, content = approvals.content_to_keep(context), protected_catalog.sent_content(proposal)
    if content is None:
        raise CommitRejectedError(
            f"The commit of version {proposal.version} to {context.identifier} needs an approval. It has {proposal.file_size} "
            f"bytes, and one that waits has at most {protected_catalog.MAX_SENT_BYTES}. Nothing was committed. Split the write, or "
            "ask an owner of the catalog's database to make it."
        )
    values = {
        "what": list(needed.what),
        "rules": list(needed.rules),
        "contacts": list(needed.ask),
        "fingerprint": fingerprint(actions),
        "intent": request.intent,
        "app_id": request.app_id,
        "app_version": request.app_version,
        "duration_ms": request.duration_ms,
    }
    parameters = {
        "of_table": table_id,
        "proposal": json.dumps(protected_catalog.described(table_id, proposal)),
        "content": content,
        "request": json.dumps(values),
    }
    answer = protected_catalog.value_of(connection.execute(_REQUEST, parameters).scalar_one())
    if answer["answer"] == "kept":
        return approvals.get(connection, answer["approval_id"], now_ms=context.now_ms).approval
    protected_catalog.outcome_of(connection, table_id, proposal, answer, now_ms=context.now_ms)
    return None


def close(connection: sa.Connection, approval_id: str, state: ApprovalState, *, reason: str, now_ms: int) -> Approval:
    """Close a pending request without a commit; results and errors as ``approvals.close``, and OperationRefusedError."""
    known = approvals.to_close(connection, approval_id, reason=reason, now_ms=now_ms)
    if known.state is state:
        return known
    approvals.require_owner(connection, known)
    values = {"of_request": approval_id, "of_state": state.value, "reason": reason}
    is_closed = connection.execute(_CLOSE, values).scalar_one()
    found = approvals.get(connection, approval_id, now_ms=now_ms).approval
    if not is_closed and found.state is not state:
        raise closed_error(found)
    return found
