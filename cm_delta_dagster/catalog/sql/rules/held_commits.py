"""Commits that are held, in the database: one row for each table of a hold.

A hold is closed under the lock of its rows: by the transaction that ratifies its commits, or by one that only closes it.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.holds import (
    PROTECTED_AFTER_EXPIRY_MS,
    HeldProposal,
    HeldTable,
    Hold,
    HoldState,
    WaitsFor,
    closed_error,
)
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import CLONES, HELD_COMMITS, NAME_COLUMNS, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.rows.table_names import in_scope
from cm_delta_dagster.catalog.texts import checked_reason, checked_text
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import ListHolds

WITH_NAMES = (
    sa.select(HELD_COMMITS, *NAME_COLUMNS)
    .join(TABLES, TABLES.c.table_id == HELD_COMMITS.c.table_id)
    .order_by(HELD_COMMITS.c.requested_ms, HELD_COMMITS.c.hold_id, HELD_COMMITS.c.table_id)
)
"""All rows, oldest hold first, the rows of a hold one after the other."""

_SEEN = WITH_NAMES.add_columns(guard.permits(guard.Operation.MAINTAIN).label("may_maintain"))
"""As ``WITH_NAMES``, with what :func:`_is_visible` needs: the holds of a catalog are read by one statement."""

_OF_HOLD = HELD_COMMITS.c.hold_id == sa.bindparam("of_hold")
_BY_ID = _SEEN.where(_OF_HOLD)
_DEMANDS = sa.select(HELD_COMMITS.c.waits_for, HELD_COMMITS.c.rules).where(
    _OF_HOLD, HELD_COMMITS.c.table_id == sa.bindparam("of_table")
)
_LOCK = sa.select(HELD_COMMITS.c.table_id).where(_OF_HOLD).order_by(HELD_COMMITS.c.table_id).with_for_update()
_SOURCES = sa.select(CLONES.c.source_id).where(CLONES.c.clone_id == sa.bindparam("of_clone"))
IS_PENDING = HELD_COMMITS.c.state == HoldState.PENDING.value
_EARLIER = (
    sa.select(HELD_COMMITS)
    .where(
        HELD_COMMITS.c.table_id == sa.bindparam("of_table"),
        IS_PENDING,
        HELD_COMMITS.c.expires_ms > sa.bindparam("now_ms"),
        HELD_COMMITS.c.app_id == sa.bindparam("of_app_id"),
        HELD_COMMITS.c.app_version < sa.bindparam("of_app_version"),
        HELD_COMMITS.c.hold_id != sa.bindparam("of_hold"),
    )
    .order_by(HELD_COMMITS.c.app_version)
)
_END = (
    sa.update(HELD_COMMITS)
    .where(_OF_HOLD, HELD_COMMITS.c.table_id == sa.bindparam("of_table"))
    .values(
        state=sa.bindparam("new_state"),
        decided_by=sa.bindparam("new_decided_by"),
        decided_ms=sa.bindparam("new_decided_ms"),
        reason=sa.bindparam("new_reason"),
        version=sa.bindparam("new_version"),
        content=sa.null(),
    )
)
_NEEDS_REASON = frozenset({HoldState.REJECTED, HoldState.DISCARDED, HoldState.CONFLICTING})


def approved_rules(connection: sa.Connection, hold_id: str, table_id: str) -> frozenset[str] | None:
    """The rules that the ratification of the hold approves for the table, as ``CommitRule.demand``; None if it approves none.

    A hold for approval from before revision 0012 approves the empty set.
    """
    row = connection.execute(_DEMANDS, {"of_hold": hold_id, "of_table": table_id}).one_or_none()
    if row is None or row.waits_for != WaitsFor.APPROVAL.value:
        return None
    return frozenset(json.loads(row.rules))


def lock(connection: sa.Connection, hold_id: str) -> frozenset[str]:
    """Lock the rows of a hold until the transaction ends. Returns the ids of its tables."""
    return frozenset(connection.execute(_LOCK, {"of_hold": hold_id}).scalars())


def _close(connection: sa.Connection, hold_id: str, state: HoldState, *, reason: str) -> Hold:
    """Close a pending hold without a commit. A repeated call has no effect.

    Raises:
        HoldClosedError: it was closed in another way before.
        InvalidArgumentError: there is no such hold, or no reason.
    """
    hold_id, reason = checked_text(hold_id, what="the id of a hold"), checked_reason(reason)
    if not reason.strip():
        raise InvalidArgumentError(
            f"The request {hold_id} was not closed: give a reason, which its writer reads. Nothing was changed."
        )
    before = get(connection, hold_id)
    if before.state is state:
        return before
    lock(connection, hold_id)
    for row in pending(connection, hold_id, closes=state):
        end(connection, row, state, reason=reason, version=None)
    return get(connection, hold_id)


def get(connection: sa.Connection, hold_id: str) -> Hold:
    """The hold. Raises InvalidArgumentError for an unknown one, and for one that the caller may not see."""
    return hold_of(visible_rows(connection, hold_id), now_of(connection))


def visible_rows(connection: sa.Connection, hold_id: str) -> Sequence[Any]:
    """The rows of a hold. Raises as :func:`get`."""
    rows = connection.execute(_BY_ID, {"of_hold": hold_id, **guard.caller_parameters(connection)}).all()
    if not rows or not _is_visible(connection, rows):
        raise InvalidArgumentError(f"There is no hold {hold_id!r} in this catalog. Check the id.").with_remedy(
            ListHolds()
        )
    return rows


def groups(rows: Iterable[Any]) -> list[Sequence[Any]]:
    """The rows of ``WITH_NAMES``, those of each hold together."""
    return [tuple(group) for _, group in groupby(rows, key=lambda row: row.hold_id)]


def _listed(connection: sa.Connection, *, scope: str, table_id: str | None, with_closed: bool) -> tuple[Hold, ...]:
    """Holds with a table below the scope, or with one table, oldest first."""
    now_ms = now_of(connection)
    matching = sa.select(HELD_COMMITS.c.hold_id).join(TABLES, TABLES.c.table_id == HELD_COMMITS.c.table_id)
    matching = matching.where(in_scope(scope))
    if table_id is not None:
        matching = matching.where(HELD_COMMITS.c.table_id == table_id)
    if not with_closed:
        matching = matching.where(IS_PENDING, HELD_COMMITS.c.expires_ms > now_ms)
    seen = _SEEN.where(HELD_COMMITS.c.hold_id.in_(matching))
    rows = connection.execute(seen, guard.caller_parameters(connection)).all()
    return tuple(hold_of(group, now_ms) for group in groups(rows) if _is_visible(connection, group))


class SqlHeldCommits(Part):
    """Implements :class:`~cm_delta_dagster.catalog.held_commits.HeldCommits`."""

    @reads
    def holds(
        self, connection: sa.Connection, scope: str = "", *, table_id: str | None = None, with_closed: bool = False
    ) -> tuple[Hold, ...]:
        """Holds, oldest first. Raises InvalidArgumentError for a malformed scope."""
        return _listed(connection, scope=scope, table_id=table_id, with_closed=with_closed)

    @reads
    def held_proposals(self, connection: sa.Connection, hold_id: str) -> tuple[HeldProposal, ...]:
        """The commits of a hold. Raises InvalidArgumentError."""
        rows = visible_rows(connection, checked_text(hold_id, what="the id of a hold"))
        hold = hold_of(rows, now_of(connection))
        return tuple(_proposal(row, hold) for row in rows)

    @writes
    def reject_hold(self, connection: sa.Connection, hold_id: str, *, reason: str) -> Hold:
        """Reject a hold. Raises HoldClosedError, OperationRefusedError, InvalidArgumentError."""
        return _close(connection, hold_id, HoldState.REJECTED, reason=reason)

    @writes
    def discard_hold(self, connection: sa.Connection, hold_id: str, *, reason: str) -> Hold:
        """Discard a hold. Raises HoldClosedError, OperationRefusedError, InvalidArgumentError."""
        return _close(connection, hold_id, HoldState.DISCARDED, reason=reason)

    @writes
    def close_hold(self, connection: sa.Connection, hold_id: str, *, reason: str) -> Hold:
        """Close a hold whose commits conflict. Raises HoldClosedError, OperationRefusedError, InvalidArgumentError."""
        return _close(connection, hold_id, HoldState.CONFLICTING, reason=reason)

    @reads
    def find_hold(self, connection: sa.Connection, table_id: str, *, app_id: str, app_version: int) -> Hold | None:
        """The newest hold of a write that the caller may see."""
        same = sa.select(HELD_COMMITS.c.hold_id).where(
            HELD_COMMITS.c.table_id == table_id,
            HELD_COMMITS.c.app_id == app_id,
            HELD_COMMITS.c.app_version == app_version,
        )
        seen = _SEEN.where(HELD_COMMITS.c.hold_id.in_(same))
        rows = connection.execute(seen, guard.caller_parameters(connection)).all()
        now_ms = now_of(connection)
        newest_first = reversed(groups(rows))
        return next((hold_of(group, now_ms) for group in newest_first if _is_visible(connection, group)), None)

    @reads
    def protected_commits(self, connection: sa.Connection, table_id: str) -> tuple[HeldProposal, ...]:
        """The commits of a table whose files must be kept, for a caller that sees all of them. Raises OperationRefusedError."""
        # A list without those of others would let maintenance delete their files.
        _require_maintainer(connection, table_id)
        now_ms = now_of(connection)
        still = HELD_COMMITS.c.expires_ms > now_ms - PROTECTED_AFTER_EXPIRY_MS
        kept = sa.select(HELD_COMMITS.c.hold_id).where(HELD_COMMITS.c.table_id == table_id, IS_PENDING, still)
        rows = connection.execute(WITH_NAMES.where(HELD_COMMITS.c.hold_id.in_(kept))).all()
        of_hold = ((hold_of(group, now_ms), group) for group in groups(rows))
        return tuple(_proposal(row, hold) for hold, group in of_hold for row in group if row.table_id == table_id)


def has_order(row: Any) -> bool:
    """Whether the versions of the application have an order: then a version that was recorded stands for all before it."""
    return row.app_id not in json.loads(row.intent).get("noted", ())


def earlier(connection: sa.Connection, row: Any) -> Any | None:
    """The first row of another pending hold of the same application and table with a lower version; None if there is none."""
    same = {
        "of_hold": row.hold_id,
        "of_table": row.table_id,
        "of_app_id": row.app_id,
        "of_app_version": row.app_version,
    }
    rows = connection.execute(_EARLIER, {**same, "now_ms": now_of(connection)})
    return next((entry for entry in rows if has_order(entry)), None)


def refuse_put_if_absent(connection: sa.Connection, table_id: str) -> None:
    """Refuse put-if-absent for a table with holds, whose commits must be ratified. Raises InvalidArgumentError."""
    waiting = _listed(connection, scope="", table_id=table_id, with_closed=False)
    if waiting:
        table = next(table for table in waiting[0].tables if table.table_id == table_id)
        raise InvalidArgumentError(
            f"The commit mode of {table.identifier} was not set to put-if-absent: {len(waiting)} of its commits wait for a "
            f"ratification or an approval (first {waiting[0].hold_id}), and the catalog ratifies them. Ratify, approve, discard "
            "or reject them first."
        )


def _require_maintainer(connection: sa.Connection, table_id: str) -> None:
    """Refuse a caller that may maintain neither the table nor one whose files it reads as a clone, which VACUUM must keep."""
    sources = connection.execute(_SOURCES, {"of_clone": table_id}).scalars().all()
    if not any(guard.may_on_table(connection, guard.Operation.MAINTAIN, source) for source in sources):
        guard.require_on_table(connection, guard.Operation.MAINTAIN, table_id)


def _is_visible(connection: sa.Connection, rows: Sequence[Any]) -> bool:
    """Whether the caller made the hold or may maintain its tables, whose maintenance must keep its files."""
    return _is_own(connection, rows[0]) or all(row.may_maintain for row in rows)


def _is_own(connection: sa.Connection, row: Any) -> bool:
    return row.requested_by is not None and row.requested_by == caller_of(connection)


def pending(connection: sa.Connection, hold_id: str, *, closes: HoldState) -> Sequence[Any]:
    """The rows of a pending hold, for a caller that may close it in this state.

    Who made a hold may discard it, and ratify it unless it waits for an approval. Everything else is for owners of each table.

    Raises:
        InvalidArgumentError: there is no such hold.
        OperationRefusedError: the caller may not decide.
        HoldClosedError: it is closed, or has expired.
    """
    rows = visible_rows(connection, hold_id)
    hold = hold_of(rows, now_of(connection))
    waits_for_its_maker = hold.waits_for is WaitsFor.RATIFICATION and closes is not HoldState.REJECTED
    if not (_is_own(connection, rows[0]) and (waits_for_its_maker or closes is HoldState.DISCARDED)):
        for row in rows:
            guard.require(connection, guard.Operation.APPROVE, identifier_of(row), table_id=row.table_id)
    if hold.state is not HoldState.PENDING:
        raise closed_error(hold)
    return rows


def end(connection: sa.Connection, row: Any, state: HoldState, *, reason: str, version: int | None) -> None:
    """Close the pending hold of one table, whose row is locked, in this state."""
    ended = {
        "of_hold": row.hold_id,
        "of_table": row.table_id,
        "new_state": state.value,
        "new_decided_by": caller_of(connection),
        "new_decided_ms": now_of(connection),
        "new_reason": reason,
        "new_version": version,
    }
    connection.execute(_END, ended)
    change = audit.Change(
        action=_action(WaitsFor(row.waits_for), state),
        scope=str(identifier_of(row)),
        before=f"request {row.hold_id}: {HoldState.PENDING.value}",
        after=f"request {row.hold_id}: {state.value}" + ("" if version is None else f" as version {version}"),
        reason=reason,
        table_id=row.table_id,
    )
    audit.record(connection, change)


def _action(waits_for: WaitsFor, state: HoldState) -> str:
    """The name in the audit of what closes a hold."""
    if state is HoldState.COMMITTED:
        return "approve" if waits_for is WaitsFor.APPROVAL else "ratify hold"
    if state is HoldState.CONFLICTING:
        return "close approval" if waits_for is WaitsFor.APPROVAL else "close hold"
    return "reject" if state is HoldState.REJECTED else "discard hold"


def hold_of(rows: Sequence[Any], now_ms: int) -> Hold:
    """The value of the rows of one hold, which are rows of ``WITH_NAMES``."""
    first = rows[0]
    state = HoldState(first.state)
    if state is HoldState.PENDING and first.expires_ms <= now_ms:
        state = HoldState.EXPIRED
    return Hold(
        hold_id=first.hold_id,
        waits_for=WaitsFor(first.waits_for),
        state=state,
        tables=tuple(_table(row) for row in rows),
        requested_by=first.requested_by,
        requested_ms=first.requested_ms,
        expires_ms=first.expires_ms,
        decided_by=first.decided_by,
        decided_ms=first.decided_ms,
        reason=first.reason,
    )


def _table(row: Any) -> HeldTable:
    return HeldTable(
        table_id=row.table_id,
        identifier=identifier_of(row),
        operation=row.operation,
        txn_id=row.txn_id,
        read_version=row.read_version,
        what=tuple(json.loads(row.what)),
        contacts=tuple(json.loads(row.contacts)),
        app_id=row.app_id,
        app_version=row.app_version,
        version=row.version,
    )


def _proposal(row: Any, hold: Hold) -> HeldProposal:
    return HeldProposal(
        hold=hold,
        table_id=row.table_id,
        intent=row.intent,
        mode=CommitMode(row.mode),
        file_name=row.file_name,
        file_size=row.file_size,
        sha256=row.sha256,
        content=row.content,
    )
