"""Commits that wait for an approval, in the database.

A request is closed under the lock of its row: by the
transaction that ratifies its commit, or by one that only closes it.
"""

import json
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.approvals import (
    PROTECTED_AFTER_EXPIRY_MS,
    Approval,
    ApprovalState,
    ParkedCommit,
    closed_error,
)
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import APPROVALS, NAME_COLUMNS, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.rows.table_names import in_scope
from cm_delta_dagster.catalog.texts import checked_reason, checked_text
from cm_delta_dagster.errors import (
    InvalidArgumentError,
)
from cm_delta_dagster.remedies import ListApprovals

WITH_NAMES = sa.select(APPROVALS, *NAME_COLUMNS).join(TABLES, TABLES.c.table_id == APPROVALS.c.table_id)
_BY_ID = WITH_NAMES.where(APPROVALS.c.approval_id == sa.bindparam("of_request"))
_RULES = sa.select(APPROVALS.c.rules).where(APPROVALS.c.approval_id == sa.bindparam("of_request"))
LOCK = sa.select(APPROVALS.c.approval_id).where(APPROVALS.c.approval_id == sa.bindparam("of_request")).with_for_update()
IS_PENDING = APPROVALS.c.state == ApprovalState.PENDING.value
_OLDEST_FIRST = (APPROVALS.c.requested_ms, APPROVALS.c.approval_id)


def covered_rules(connection: sa.Connection, approval_id: str) -> frozenset[str]:
    """The rules that the request was made for, as ``CommitRule.demand``; none for requests from before revision 0012."""
    rules = connection.execute(_RULES, {"of_request": approval_id}).scalar_one_or_none()
    return frozenset() if rules is None else frozenset(json.loads(rules))


def _close(connection: sa.Connection, approval_id: str, state: ApprovalState, *, reason: str) -> Approval:
    """Close a pending request without a commit. A repeated call has no effect.

    Raises:
        ApprovalClosedError: it was closed in another way before.
        InvalidArgumentError: there is no such request, or no reason.
    """
    approval_id, reason = checked_text(approval_id, what="the id of a request"), checked_reason(reason)
    if not reason.strip():
        raise InvalidArgumentError(
            f"The request {approval_id} was not closed: give a reason, which its writer reads. Nothing was changed."
        )
    known = get(connection, approval_id).approval
    if known.state is state:
        return known
    connection.execute(LOCK, {"of_request": approval_id})
    row = pending(connection, approval_id)
    end(connection, row, state, reason=reason, version=None)
    return get(connection, approval_id).approval


def get(connection: sa.Connection, approval_id: str) -> ParkedCommit:
    """The request with its commit. Raises InvalidArgumentError."""
    now_ms = now_of(connection)
    row = connection.execute(_BY_ID, {"of_request": approval_id}).one_or_none()
    if row is None or not _is_visible(connection, row):
        raise InvalidArgumentError(
            f"There is no request {approval_id!r} for approval in this catalog. Check the id."
        ).with_remedy(ListApprovals())
    return _parked(row, now_ms)


def _listed(connection: sa.Connection, *, scope: str, table_id: str | None, with_closed: bool) -> tuple[Approval, ...]:
    """Requests for tables below the scope, or of one table, oldest first."""
    now_ms = now_of(connection)
    requests = WITH_NAMES.where(in_scope(scope)).order_by(*_OLDEST_FIRST)
    if table_id is not None:
        requests = requests.where(APPROVALS.c.table_id == table_id)
    if not with_closed:
        requests = requests.where(IS_PENDING, APPROVALS.c.expires_ms > now_ms)
    return tuple(approval_of(row, now_ms) for row in connection.execute(requests).all() if _is_visible(connection, row))


class SqlApprovals(Part):
    """Implements :class:`~cm_delta_dagster.catalog.approval_requests.ApprovalRequests`."""

    @reads
    def approvals(
        self, connection: sa.Connection, scope: str = "", *, table_id: str | None = None, with_closed: bool = False
    ) -> tuple[Approval, ...]:
        """Requests, oldest first. Raises InvalidArgumentError for a malformed scope."""
        return _listed(connection, scope=scope, table_id=table_id, with_closed=with_closed)

    @reads
    def parked_commit(self, connection: sa.Connection, approval_id: str) -> ParkedCommit:
        """A request with its commit. Raises InvalidArgumentError."""
        return get(connection, checked_text(approval_id, what="the id of a request"))

    @writes
    def reject_approval(self, connection: sa.Connection, approval_id: str, *, reason: str) -> Approval:
        """Reject a request. Raises ApprovalClosedError, OperationRefusedError, InvalidArgumentError."""
        return _close(connection, approval_id, ApprovalState.REJECTED, reason=reason)

    @writes
    def close_approval(self, connection: sa.Connection, approval_id: str, *, reason: str) -> Approval:
        """Close a request whose commit conflicts. Raises ApprovalClosedError, OperationRefusedError, InvalidArgumentError."""
        return _close(connection, approval_id, ApprovalState.CONFLICTING, reason=reason)

    @reads
    def find_approval(
        self, connection: sa.Connection, table_id: str, *, app_id: str, app_version: int
    ) -> Approval | None:
        """The newest request of a write."""
        now_ms = now_of(connection)
        same = (APPROVALS.c.table_id == table_id, APPROVALS.c.app_id == app_id, APPROVALS.c.app_version == app_version)
        requests = WITH_NAMES.where(*same).order_by(APPROVALS.c.requested_ms.desc()).limit(1)
        row = connection.execute(requests).one_or_none()
        return None if row is None else approval_of(row, now_ms)

    @reads
    def protected_commits(self, connection: sa.Connection, table_id: str) -> tuple[ParkedCommit, ...]:
        """The commits of a table whose files must be kept."""
        now_ms = now_of(connection)
        still = APPROVALS.c.expires_ms > now_ms - PROTECTED_AFTER_EXPIRY_MS
        requests = WITH_NAMES.where(APPROVALS.c.table_id == table_id, IS_PENDING, still).order_by(*_OLDEST_FIRST)
        return tuple(_parked(row, now_ms) for row in connection.execute(requests))


def refuse_put_if_absent(connection: sa.Connection, table_id: str) -> None:
    """Refuse put-if-absent for a table with requests, whose commits must be ratified. Raises InvalidArgumentError."""
    waiting = _listed(connection, scope="", table_id=table_id, with_closed=False)
    if waiting:
        raise InvalidArgumentError(
            f"The commit mode of {waiting[0].identifier} was not set to put-if-absent: {len(waiting)} of its commits wait for an "
            f"approval (first request {waiting[0].approval_id}), and the catalog ratifies them. Approve or reject them first."
        )


def _is_visible(connection: sa.Connection, row: Any) -> bool:
    """Whether the caller requested it or may maintain the table, whose maintenance must keep its files."""
    if not guard.is_enabled(connection):
        return True
    is_own = row.requested_by is not None and row.requested_by == caller_of(connection)
    return is_own or Privilege.MAINTAIN in guard.held_on_table(connection, row.table_id)


def pending(connection: sa.Connection, approval_id: str) -> Any:
    """The row of a pending request, for an owner of its table."""
    approval = get(connection, approval_id).approval
    guard.require(connection, guard.Operation.APPROVE, approval.identifier, table_id=approval.table_id)
    if approval.state is not ApprovalState.PENDING:
        raise closed_error(approval)
    return connection.execute(_BY_ID, {"of_request": approval_id}).one()


def end(connection: sa.Connection, row: Any, state: ApprovalState, *, reason: str, version: int | None) -> None:
    """Close a pending request, whose row is locked, in this state."""
    caller = caller_of(connection)
    connection.execute(
        sa.update(APPROVALS)
        .where(APPROVALS.c.approval_id == row.approval_id)
        .values(
            state=state.value,
            decided_by=caller,
            decided_ms=now_of(connection),
            reason=reason,
            version=version,
            content=None,
        )
    )
    change = audit.Change(
        action={ApprovalState.COMMITTED: "approve", ApprovalState.REJECTED: "reject"}.get(state, "close approval"),
        scope=str(identifier_of(row)),
        before=f"request {row.approval_id}: {ApprovalState.PENDING.value}",
        after=f"request {row.approval_id}: {state.value}" + ("" if version is None else f" as version {version}"),
        reason=reason,
        table_id=row.table_id,
    )
    audit.record(connection, change)


def approval_of(row: Any, now_ms: int) -> Approval:
    """The value of a row of ``WITH_NAMES``."""
    state = ApprovalState(row.state)
    if state is ApprovalState.PENDING and row.expires_ms <= now_ms:
        state = ApprovalState.EXPIRED
    return Approval(
        approval_id=row.approval_id,
        table_id=row.table_id,
        identifier=identifier_of(row),
        state=state,
        operation=row.operation,
        txn_id=row.txn_id,
        read_version=row.read_version,
        what=tuple(json.loads(row.what)),
        contacts=tuple(json.loads(row.contacts)),
        requested_by=row.requested_by,
        requested_ms=row.requested_ms,
        expires_ms=row.expires_ms,
        decided_by=row.decided_by,
        decided_ms=row.decided_ms,
        reason=row.reason,
        version=row.version,
        app_id=row.app_id,
        app_version=row.app_version,
    )


def _parked(row: Any, now_ms: int) -> ParkedCommit:
    return ParkedCommit(
        approval=approval_of(row, now_ms),
        intent=row.intent,
        mode=CommitMode(row.mode),
        file_name=row.file_name,
        file_size=row.file_size,
        sha256=row.sha256,
        content=row.content,
    )
