"""Proposals that wait for an approval instead of being ratified, and their ratification. Functions over an open connection."""

import json
import uuid

import sqlalchemy as sa

from cm_delta_dagster.catalog.approvals import MAX_APPROVAL_DURATION_MS, Approval, ApprovalRequest, ApprovalState
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.durations import is_duration
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.database.schema import APPROVALS, identifier_of
from cm_delta_dagster.catalog.sql.ratification import checks, order_check
from cm_delta_dagster.catalog.sql.ratification.context import CommitContext, ProposalKind, context_of
from cm_delta_dagster.catalog.sql.rows import locked_heads
from cm_delta_dagster.catalog.sql.rules import approvals
from cm_delta_dagster.errors import (
    ApprovalClosedError,
    ApprovalRequiredError,
    CommitRejectedError,
    InvalidArgumentError,
)
from cm_delta_dagster.remedies import DecideApproval


def keep(
    connection: sa.Connection, table_id: str, proposal: CommitProposal, request: ApprovalRequest
) -> Approval | None:
    """Keep a proposal that needs an approval, under the lock of the table's row; None if it needs none."""
    head = locked_heads.required_head(connection, table_id)
    context = context_of(
        connection, table_id, proposal, head, identifier=identifier_of(head), kind=ProposalKind.PROPOSED
    )
    previous = head.latest_in_commit_timestamp
    order_check.check_clock(connection, table_id, proposal.version, proposal.summary, previous=previous)
    if proposal.version > head.latest_version:  # An older one is rebased when it is approved.
        order_check.check_next(table_id, proposal, head)
    try:
        checks.run(connection, context)
    except ApprovalRequiredError as needed:
        return _insert(connection, context, request, needed)
    return None


def _insert(
    connection: sa.Connection, context: CommitContext, request: ApprovalRequest, needed: ApprovalRequiredError
) -> Approval:
    """Keep the proposal, under the lock of its table's row. A pending request of the same work, or file, is the answer."""
    check_duration(request)
    existing = _existing(connection, context, request)
    if existing is not None:
        return existing
    proposal, known = context.proposal, _fingerprint_to_keep(context)
    approval_id = uuid.uuid4().hex[:12]
    connection.execute(
        sa.insert(APPROVALS).values(
            approval_id=approval_id,
            table_id=context.table_id,
            state=ApprovalState.PENDING.value,
            operation=proposal.summary.operation,
            txn_id=proposal.summary.txn_id,
            read_version=proposal.version - 1,
            what=json.dumps(list(needed.what)),
            rules=json.dumps(list(needed.rules)),
            contacts=json.dumps(list(needed.ask)),
            requested_by=context.caller,
            requested_ms=context.now_ms,
            expires_ms=context.now_ms + request.duration_ms,
            app_id=request.app_id,
            app_version=request.app_version,
            intent=request.intent,
            mode=proposal.mode.value,
            file_name=proposal.file_name,
            file_size=proposal.file_size,
            sha256=proposal.sha256,
            content=proposal.content if proposal.mode is CommitMode.INLINE else None,
            fingerprint=known,
            reason="",
        )
    )
    _record(connection, "request approval", context, f"request {approval_id}", reason="; ".join(needed.what))
    return approvals.get(connection, approval_id).approval


def check_duration(request: ApprovalRequest) -> None:
    """Raises InvalidArgumentError if the request would have expired already, or after more than 366 days."""
    duration_ms = request.duration_ms
    if not is_duration(duration_ms, at_least=1) or duration_ms > MAX_APPROVAL_DURATION_MS:
        raise InvalidArgumentError(
            f"A request for approval cannot expire after {duration_ms!r} ms: give a whole number of milliseconds, at most "
            f"{MAX_APPROVAL_DURATION_MS} (366 days), because the files of the commit are kept until then."
        )


def _fingerprint_to_keep(context: CommitContext) -> str:
    """The fingerprint of a commit that is to wait. Raises CommitRejectedError if the catalog cannot read the commit."""
    known = context.fingerprint
    if known is None:
        raise CommitRejectedError(
            f"The commit of version {context.proposal.version} to {context.identifier} needs an approval, and the catalog cannot "
            "read its content, so that it cannot be kept. Nothing was committed. Propose it with its content."
        )
    return known


def close_ratified(connection: sa.Connection, context: CommitContext) -> None:
    """Close the request of a proposal that is being ratified as committed.

    Raises:
        ApprovalClosedError: the request is not pending, or belongs to another commit.
        OperationRefusedError: the caller is not an owner of the table.
    """
    proposal = context.proposal
    if proposal.approval_id is None:
        return
    connection.execute(approvals.LOCK, {"of_request": proposal.approval_id})
    row = approvals.pending(connection, proposal.approval_id)
    same_table = row.table_id == context.table_id and row.txn_id == proposal.summary.txn_id
    if not same_table or context.fingerprint != row.fingerprint:
        raise ApprovalClosedError(
            f"The request {row.approval_id} was made for another commit than the proposed one. Nothing was committed. An "
            "approval proposes its own commit."
        ).with_remedy(DecideApproval(approval_id=row.approval_id))
    approvals.end(connection, row, ApprovalState.COMMITTED, reason="", version=proposal.version)


def _existing(connection: sa.Connection, context: CommitContext, request: ApprovalRequest) -> Approval | None:
    same = [APPROVALS.c.file_name == context.proposal.file_name]
    if request.app_id is not None:
        same.append(sa.and_(APPROVALS.c.app_id == request.app_id, APPROVALS.c.app_version == request.app_version))
    same_work = approvals.WITH_NAMES.where(
        APPROVALS.c.table_id == context.table_id,
        approvals.IS_PENDING,
        APPROVALS.c.expires_ms > context.now_ms,
        sa.or_(*same),
    )
    if guard.is_enabled(connection):
        same_work = same_work.where(APPROVALS.c.requested_by == context.caller)
    row = connection.execute(same_work.limit(1)).one_or_none()
    return None if row is None else approvals.approval_of(row, context.now_ms)


def _record(connection: sa.Connection, action: str, context: CommitContext, after: str, *, reason: str) -> None:
    change = audit.Change(
        action=action, scope=str(context.identifier), after=after, reason=reason, table_id=context.table_id
    )
    audit.record(connection, change)
