"""The audit: one row for each change of a rule, written in its transaction, and for each refusal. Each is an entry of the feed."""

from dataclasses import dataclass

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.audit import AuditEntry, AuditOutcome
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads
from cm_delta_dagster.catalog.sql.database.schema import AUDIT
from cm_delta_dagster.catalog.sql.feed.entries import NewEntry, append
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.refusals import Refusal

_MAX_LIMIT = 100_000
REFUSALS_WITHIN_MS = 60_000
MAX_REFUSALS, MAX_REFUSALS_OF_ALL = 60, 600
"""How many different refusals of one principal, and of all together, get entries within :data:`REFUSALS_WITHIN_MS`.

A caller without any right is refused as often as it asks. Its refusals must not fill the audit and the feed.
"""

_NEWEST = 1000
LEASE_ACTIONS = ("acquire lease", "release lease", "take over lease", "expire lease")
NAMESPACE_ACTIONS = ("create catalog", "create schema", "drop catalog", "drop schema")
_KINDS = {
    **dict.fromkeys(LEASE_ACTIONS, FeedKind.LEASE_CHANGED),
    **dict.fromkeys(NAMESPACE_ACTIONS, FeedKind.NAMESPACE_CHANGED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a caller changes.

    Attributes:
        action: what was asked for, e.g. ``grant``.
        scope: ``*``, a catalog, a schema or the name of a table.
        before, after: the changed object in words; None if there was or is none.
        reason: what the caller gave as the reason; empty without one.
        table_id: of the table, if it concerns one.
    """

    action: str
    scope: str
    before: str | None = None
    after: str | None = None
    reason: str = ""
    table_id: str | None = None


def record(connection: sa.Connection, change: Change) -> None:
    """Insert an entry for a change that the same transaction makes."""
    _insert(connection, change, outcome=AuditOutcome.DONE)


def record_refusal(connection: sa.Connection, action: str, refusal: Refusal) -> None:
    """Insert an entry for a refusal, as :func:`record_denial`. The transaction that was refused must have ended."""
    reason = f"{refusal.what}: {refusal.reason}"
    record_denial(connection, Change(action=action, scope=refusal.scope, reason=reason, table_id=refusal.table_id))


def record_denial(connection: sa.Connection, denied: Change) -> None:
    """Insert an entry for what is refused, unless it has just got one, or the caller, or all of them, as many as they get."""
    if not _is_recorded(connection, denied):
        _insert(connection, denied, outcome=AuditOutcome.REFUSED)


def _is_recorded(connection: sa.Connection, denied: Change) -> bool:
    """Whether the newest entries have this refusal, or as many refusals of the caller or of all as get entries."""
    newest = sa.select(AUDIT).order_by(AUDIT.c.entry_id.desc()).limit(_NEWEST).subquery()
    of_caller = newest.c.principal.is_not_distinct_from(caller_of(connection))
    is_same = sa.and_(
        of_caller,
        newest.c.action == denied.action,
        newest.c.scope == denied.scope,
        newest.c.table_id.is_not_distinct_from(denied.table_id),
        newest.c.state_after.is_not_distinct_from(denied.after),
        newest.c.reason == denied.reason,
    )
    counts = sa.select(
        sa.func.count().label("of_all"),
        sa.func.count(sa.case((of_caller, 1))).label("of_caller"),
        sa.func.count(sa.case((is_same, 1))).label("same"),
    ).where(newest.c.outcome == AuditOutcome.REFUSED.value, newest.c.at_ms > now_of(connection) - REFUSALS_WITHIN_MS)
    known = connection.execute(counts).one()
    return bool(known.same) or known.of_caller >= MAX_REFUSALS or known.of_all >= MAX_REFUSALS_OF_ALL


def _insert(connection: sa.Connection, change: Change, *, outcome: AuditOutcome) -> None:
    append(connection, _feed_entry(connection, change, outcome=outcome))
    connection.execute(
        sa.insert(AUDIT).values(
            at_ms=now_of(connection),
            principal=caller_of(connection),
            action=change.action,
            scope=change.scope,
            table_id=change.table_id,
            state_before=change.before,
            state_after=change.after,
            reason=change.reason,
            outcome=outcome.value,
        )
    )


def _feed_entry(connection: sa.Connection, change: Change, *, outcome: AuditOutcome) -> NewEntry:
    kind = (
        FeedKind.PROPOSAL_REFUSED
        if outcome is AuditOutcome.REFUSED
        else _KINDS.get(change.action, FeedKind.POLICY_CHANGED)
    )
    facts = {"action": change.action, "before": change.before, "after": change.after, "reason": change.reason or None}
    return NewEntry(
        kind=kind,
        at_ms=now_of(connection),
        table_id=change.table_id,
        scope=change.scope,
        actor=caller_of(connection),
        details={name: text for name, text in facts.items() if text is not None},
    )


class SqlAuditLog(Part):
    """Implements :class:`~cm_delta_dagster.catalog.audit.AuditLog`."""

    @reads
    def audit(
        self,
        connection: sa.Connection,
        *,
        scope: str = "",
        after: int | None = None,
        before: int | None = None,
        outcome: AuditOutcome | None = None,
        limit: int = 1000,
    ) -> tuple[AuditEntry, ...]:
        """Entries of the audit. Raises InvalidArgumentError, OperationRefusedError."""
        if scope == WHOLE_CATALOG:
            scope = ""
        if scope != "":
            names.scope_parts(scope)
        start, end = 0 if after is None else after, names.LARGEST if before is None else before
        whole = all(isinstance(number, int) for number in (limit, start, end))
        if not whole or not 0 < limit <= _MAX_LIMIT or not all(0 <= key <= names.LARGEST for key in (start, end)):
            raise InvalidArgumentError(
                f"The audit was asked for {limit} entries after {start}; give a limit from 1 to {_MAX_LIMIT} and an id of at least "
                "0."
            )
        guard.require(connection, guard.Operation.READ_AUDIT, scope or WHOLE_CATALOG)
        order = AUDIT.c.entry_id.desc() if after is None else AUDIT.c.entry_id
        selected = sa.select(AUDIT).where(AUDIT.c.entry_id > start).order_by(order).limit(limit)
        if before is not None:
            selected = selected.where(AUDIT.c.entry_id < before)
        if outcome is not None:
            selected = selected.where(AUDIT.c.outcome == outcome.value)
        if scope:
            below = sa.func.substr(AUDIT.c.scope, 1, len(scope) + 1) == f"{scope}."
            selected = selected.where(sa.or_(AUDIT.c.scope == scope, below))
        return tuple(
            AuditEntry(
                entry_id=row.entry_id,
                at_ms=row.at_ms,
                principal=row.principal,
                action=row.action,
                scope=row.scope,
                table_id=row.table_id,
                before=row.state_before,
                after=row.state_after,
                reason=row.reason,
                outcome=AuditOutcome(row.outcome),
            )
            for row in sorted(connection.execute(selected), key=lambda row: row.entry_id)
        )
