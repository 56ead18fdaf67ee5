"""Proposals that are held instead of being ratified, and their ratification. Functions over an open connection."""

import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.durations import is_duration
from cm_delta_dagster.catalog.holds import (
    HOLD_PREFIX,
    MAX_HOLD_DURATION_MS,
    HeldTable,
    HeldWrite,
    Hold,
    HoldRequest,
    HoldState,
    WaitsFor,
)
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.schema import HELD_COMMITS, identifier_of
from cm_delta_dagster.catalog.sql.ratification import checks, order_check, validation
from cm_delta_dagster.catalog.sql.ratification.context import CommitContext, ProposalKind, context_of
from cm_delta_dagster.catalog.sql.rows import locked_heads, marks
from cm_delta_dagster.catalog.sql.rules import held_commits
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CommitRejectedError,
    HoldClosedError,
    InvalidArgumentError,
)
from cm_delta_dagster.remedies import DecideApproval


def hold(connection: sa.Connection, proposals: Mapping[str, CommitProposal], request: HoldRequest) -> Hold | None:
    """Hold the proposals as one group, under the locks of the rows of their tables; see ``CommitCoordinator.hold``."""
    check_request(proposals, request)
    contexts: dict[str, CommitContext] = {}
    demands: dict[str, ApprovalRequiredError] = {}
    for table_id in sorted(proposals):
        contexts[table_id] = context = _context(connection, table_id, proposals[table_id])
        try:
            _check(connection, context)
        except ApprovalRequiredError as error:
            demands[table_id] = error
    if any(proposal.hold_id is not None for proposal in proposals.values()):
        return _turned_into_request(connection, contexts, demands, request)
    if request.waits_for is WaitsFor.APPROVAL and not demands:
        return None
    existing = _existing(connection, contexts, request)
    if existing is not None:
        return existing
    hold_id = f"{HOLD_PREFIX}{uuid.uuid4().hex[:12]}"
    needed = demands if request.waits_for is WaitsFor.APPROVAL else {}
    tables = tuple(
        _insert(connection, context, request, hold_id=hold_id, needed=needed.get(table_id))
        for table_id, context in contexts.items()
    )
    now_ms = now_of(connection)
    return Hold(
        hold_id=hold_id,
        waits_for=request.waits_for,
        state=HoldState.PENDING,
        tables=tables,
        requested_by=caller_of(connection),
        requested_ms=now_ms,
        expires_ms=now_ms + request.duration_ms,
    )


def check_request(proposals: Mapping[str, CommitProposal], request: HoldRequest) -> None:
    """Raises InvalidArgumentError for a duration that is not permitted, and unless each proposal has its write."""
    check_duration(request.duration_ms)
    if not proposals or set(proposals) != set(request.writes):
        raise InvalidArgumentError(
            "Nothing was held: a hold needs at least one proposal, and for each table what its transaction has read."
        )


def check_duration(duration_ms: int) -> None:
    """Raises InvalidArgumentError if a hold would have expired already, or after more than 366 days."""
    if not is_duration(duration_ms, at_least=1) or duration_ms > MAX_HOLD_DURATION_MS:
        raise InvalidArgumentError(
            f"A hold cannot expire after {duration_ms!r} ms: give a whole number of milliseconds, at most "
            f"{MAX_HOLD_DURATION_MS} (366 days), because the files of the commit are kept until then."
        )


def _context(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> CommitContext:
    head = locked_heads.required_head(connection, table_id)
    identifier = identifier_of(head)
    if proposal.mode is CommitMode.PUT_IF_ABSENT or not CommitPolicy.parse(head.commit_policy).through_catalog:
        raise CommitRejectedError(
            f"The commit to {identifier} cannot be held: commits of that table are made by creating files (put-if-absent), or "
            "its commit mode is being switched. Nothing was committed. Set its commit mode to staged, inline or auto first."
        )
    return context_of(connection, table_id, proposal, head, identifier=identifier, kind=ProposalKind.PROPOSED)


def _check(connection: sa.Connection, context: CommitContext) -> None:
    """Check a proposal as its ratification would. Raises as that."""
    table_id, proposal, head = context.table_id, context.proposal, context.head
    previous = head.latest_in_commit_timestamp
    order_check.check_clock(connection, table_id, proposal.version, proposal.summary, previous=previous)
    if proposal.version > head.latest_version:  # An older one is rebased when it is ratified.
        order_check.check_next(table_id, proposal, head)
        validation.check_definition(connection, table_id, proposal, head)
        marks.check(connection, table_id, proposal, head)
    checks.run(connection, context)


def _insert(
    connection: sa.Connection,
    context: CommitContext,
    request: HoldRequest,
    *,
    hold_id: str,
    needed: ApprovalRequiredError | None,
) -> HeldTable:
    proposal, write = context.proposal, request.writes[context.table_id]
    connection.execute(
        sa.insert(HELD_COMMITS).values(
            hold_id=hold_id,
            table_id=context.table_id,
            waits_for=request.waits_for.value,
            state=HoldState.PENDING.value,
            operation=proposal.summary.operation,
            txn_id=proposal.summary.txn_id,
            read_version=proposal.version - 1,
            requested_by=context.caller,
            requested_ms=context.now_ms,
            expires_ms=context.now_ms + request.duration_ms,
            app_id=write.app_id,
            app_version=write.app_version,
            intent=write.intent,
            mode=proposal.mode.value,
            file_name=proposal.file_name,
            file_size=proposal.file_size,
            sha256=proposal.sha256,
            content=proposal.content if proposal.mode is CommitMode.INLINE else None,
            fingerprint=_fingerprint_to_keep(context),
            reason="",
            **_demanded(needed),
        )
    )
    action = "request approval" if request.waits_for is WaitsFor.APPROVAL else "hold"
    _record(connection, action, context, f"request {hold_id}", reason="" if needed is None else "; ".join(needed.what))
    return HeldTable(
        table_id=context.table_id,
        identifier=context.identifier,
        operation=proposal.summary.operation,
        txn_id=proposal.summary.txn_id,
        read_version=proposal.version - 1,
        what=() if needed is None else tuple(needed.what),
        contacts=() if needed is None else tuple(needed.ask),
        app_id=write.app_id,
        app_version=write.app_version,
    )


def _demanded(needed: ApprovalRequiredError | None) -> dict[str, str]:
    """What the rules demand of a commit, as columns."""
    what, rules, ask = ((), (), ()) if needed is None else (needed.what, needed.rules, needed.ask)
    return {"what": json.dumps(list(what)), "rules": json.dumps(list(rules)), "contacts": json.dumps(list(ask))}


def _fingerprint_to_keep(context: CommitContext) -> str:
    """The fingerprint of a commit that is to wait. Raises CommitRejectedError if the catalog cannot read the commit."""
    known = context.fingerprint
    if known is None:
        raise CommitRejectedError(
            f"The commit of version {context.proposal.version} to {context.identifier} is to be held, and the catalog cannot read "
            "its content. Nothing was committed. Propose it with its content."
        )
    return known


def _turned_into_request(
    connection: sa.Connection,
    contexts: Mapping[str, CommitContext],
    demands: Mapping[str, ApprovalRequiredError],
    request: HoldRequest,
) -> Hold | None:
    """Let a hold wait for an approval from now on, because a rule demands it of its commits; None if no rule does.

    The hold keeps the intents of the request, which have what its checks have said. So does one that waits for an approval already.
    """
    hold_id = next(context.proposal.hold_id for context in contexts.values() if context.proposal.hold_id is not None)
    before = held_commits.get(connection, hold_id)
    waits_already = before.waits_for is WaitsFor.APPROVAL
    if not (waits_already or demands):
        return None
    proposals = {table_id: context.proposal for table_id, context in contexts.items()}
    # Who made a request may not commit it, and may say what its checks have said, as it may discard it.
    locked = lock_holds(connection, proposals, closes=HoldState.DISCARDED if waits_already else HoldState.COMMITTED)
    for table_id, context in contexts.items():
        _own_row(context, locked)
        needed = demands.get(table_id)
        demanded = {} if waits_already else _demanded(needed)
        connection.execute(
            sa.update(HELD_COMMITS)
            .where(HELD_COMMITS.c.hold_id == hold_id, HELD_COMMITS.c.table_id == table_id)
            .values(waits_for=WaitsFor.APPROVAL.value, intent=request.writes[table_id].intent, **demanded)
        )
        if not waits_already:
            because = "" if needed is None else "; ".join(needed.what)
            _record(connection, "request approval", context, f"request {hold_id}", reason=because)
    return held_commits.get(connection, hold_id)


def lock_holds(
    connection: sa.Connection, proposals: Mapping[str, CommitProposal], *, closes: HoldState = HoldState.COMMITTED
) -> Mapping[tuple[str, str], Any]:
    """Lock the holds that the proposals name, for a caller that may close them in this state.

    Returns the rows by the ids of hold and table.

    Raises:
        CommitRejectedError: an earlier write of the same application is held too, which could not be ratified afterwards.
        HoldClosedError: a hold is not pending, or other tables name it than those that it has.
        OperationRefusedError: the caller may not decide.
        InvalidArgumentError: there is no such hold.
    """
    locked: dict[tuple[str, str], Any] = {}
    for hold_id in sorted({proposal.hold_id for proposal in proposals.values() if proposal.hold_id is not None}):
        tables = held_commits.lock(connection, hold_id)
        naming = {table_id for table_id, proposal in proposals.items() if proposal.hold_id == hold_id}
        rows = held_commits.pending(connection, hold_id, closes=closes)
        if closes is HoldState.COMMITTED:
            for row in rows:
                _refuse_before_earlier(connection, row)
        if tables != naming:
            raise HoldClosedError(
                f"The hold {hold_id} has commits to {len(tables)} tables, ratified as one, and {len(naming)} commits "
                "were proposed. Nothing was committed. Ratify the hold as a whole."
            )
        locked |= {(hold_id, row.table_id): row for row in rows}
    return locked


def _refuse_before_earlier(connection: sa.Connection, row: Any) -> None:
    """Refuse to ratify a write while an earlier one of its application waits: that would count as committed afterwards.

    Raises CommitRejectedError.
    """
    if row.app_id is None or not held_commits.has_order(row):
        return
    earlier = held_commits.earlier(connection, row)
    if earlier is None:
        return
    raise CommitRejectedError(
        f"The hold {row.hold_id} has version {row.app_version} of the application {row.app_id!r} for {identifier_of(row)}, and "
        f"the hold {earlier.hold_id} has its version {earlier.app_version}, which could not be ratified afterwards. Nothing was "
        f"committed; both holds stay. Ratify or discard {earlier.hold_id} first."
    )


def close_ratified(
    connection: sa.Connection, context: CommitContext, locked: Mapping[tuple[str, str], Any] = MappingProxyType({})
) -> None:
    """Close the hold of a proposal that is being ratified, for its table, as committed.

    Args:
        locked: what :func:`lock_holds` has returned.

    Raises:
        HoldClosedError: the hold belongs to another commit, or is not locked.
    """
    if context.proposal.hold_id is not None:
        row = _own_row(context, locked)
        held_commits.end(connection, row, HoldState.COMMITTED, reason="", version=context.proposal.version)


def _own_row(context: CommitContext, locked: Mapping[tuple[str, str], Any]) -> Any:
    """The row of the proposal in its hold. Raises HoldClosedError if the hold was made for another commit."""
    proposal = context.proposal
    assert proposal.hold_id is not None
    row = locked.get((proposal.hold_id, context.table_id))
    is_same = (
        row is not None
        and row.state == HoldState.PENDING.value
        and (row.txn_id, row.fingerprint) == (proposal.summary.txn_id, context.fingerprint)
    )
    if row is None or not is_same:
        raise HoldClosedError(
            f"The hold {proposal.hold_id} was made for another commit than the proposed one. Nothing was committed. Its "
            "ratification proposes its own commit."
        ).with_remedy(DecideApproval(approval_id=proposal.hold_id))
    return row


def _existing(connection: sa.Connection, contexts: Mapping[str, CommitContext], request: HoldRequest) -> Hold | None:
    """The pending hold of the same work, or of the same files. Raises InvalidArgumentError if it has other tables."""
    same = sa.or_(*(_is_same(context, request.writes[table_id]) for table_id, context in contexts.items()))
    now_ms = now_of(connection)
    of_work = sa.select(HELD_COMMITS.c.hold_id).where(same, held_commits.IS_PENDING, HELD_COMMITS.c.expires_ms > now_ms)
    if guard.is_enabled(connection):
        of_work = of_work.where(HELD_COMMITS.c.requested_by == caller_of(connection))
    rows = connection.execute(held_commits.WITH_NAMES.where(HELD_COMMITS.c.hold_id.in_(of_work))).all()
    if not rows:
        return None
    existing = held_commits.hold_of(held_commits.groups(rows)[0], now_ms)
    if {table.table_id for table in existing.tables} != set(contexts):
        raise InvalidArgumentError(
            f"Nothing was held: the hold {existing.hold_id} already has a commit of this work, together with other tables "
            f"({existing.summary}). Ratify or discard it first."
        )
    return existing


def _is_same(context: CommitContext, write: HeldWrite) -> sa.ColumnElement[bool]:
    same = [HELD_COMMITS.c.file_name == context.proposal.file_name]
    if write.app_id is not None:
        same.append(sa.and_(HELD_COMMITS.c.app_id == write.app_id, HELD_COMMITS.c.app_version == write.app_version))
    return sa.and_(HELD_COMMITS.c.table_id == context.table_id, sa.or_(*same))


def _record(connection: sa.Connection, action: str, context: CommitContext, after: str, *, reason: str) -> None:
    change = audit.Change(
        action=action, scope=str(context.identifier), after=after, reason=reason, table_id=context.table_id
    )
    audit.record(connection, change)
