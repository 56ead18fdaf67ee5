"""The audit of a catalog: who changed grants, roles, rules, policies, leases and approvals, and what was refused."""

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class AuditOutcome(StrEnum):
    """Whether the catalog did what it was asked for."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, or one refusal.

    Attributes:
        entry_id: increases with each entry; ids may be left out.
        at_ms: epoch milliseconds, the catalog's clock.
        principal: who asked for it; None if the client stated no name.
        action: what was asked for, e.g. ``grant``, ``commit``.
        scope: ``*``, a catalog, a schema or the name that the table had then.
        table_id: id of the table, if it concerns one table.
        before, after: the changed object in words; None if there was or is none.
        reason: what the caller gave as the reason, or why it was refused.
    """

    entry_id: int
    at_ms: int
    principal: str | None
    action: str
    scope: str
    table_id: str | None
    before: str | None
    after: str | None
    reason: str
    outcome: AuditOutcome


class AuditLog(typing.Protocol):
    """Reads the audit, which the catalog writes in the transaction of each change."""

    def audit(
        self,
        *,
        scope: str = "",
        after: int | None = None,
        before: int | None = None,
        outcome: AuditOutcome | None = None,
        limit: int = 1000,
    ) -> Sequence[AuditEntry]:
        """The newest ``limit`` entries, ascending; with ``scope`` only those at or below it.

        Args:
            after: return the oldest entries with ids above it, so that a caller can read the whole audit from 0 on.
            before: only entries with ids below it.
            outcome: only entries with this outcome.

        Raises InvalidArgumentError for a malformed scope.
        """
        ...
