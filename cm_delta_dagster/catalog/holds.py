"""Values of holds: commits that the catalog keeps until they are ratified, discarded, approved or rejected.

A held commit is not a version of its table. Its staged file, or its content in the catalog, and what it read are enough to rebase
and commit it later from another process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import HoldClosedError
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

HOLD_PREFIX = "hold-"
"""The id of each new hold begins with it; older ids have no prefix."""

HOLD_DURATION_MS = 7 * 24 * 60 * 60 * 1000
"""Default time until a hold expires, in milliseconds."""

MAX_HOLD_DURATION_MS = 366 * 24 * 60 * 60 * 1000
"""Longest time until a hold expires: maintenance keeps its files as long."""

PROTECTED_AFTER_EXPIRY_MS = 60 * 60 * 1000
"""Time after its expiry for which the files of a hold are kept: a ratification that began before may still succeed."""


class WaitsFor(StrEnum):
    """Who decides about a hold."""

    RATIFICATION = "ratification"
    """The principal that staged the commits ratifies or discards them, or an owner does."""

    APPROVAL = "approval"
    """An owner approves or rejects them, because a rule demands it."""


class HoldState(StrEnum):
    """State of a hold. Every state but PENDING is final."""

    PENDING = "pending"
    COMMITTED = "committed"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    CONFLICTING = "conflicting"
    """A commit could not be rebased on the commits that were made meanwhile."""

    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """The held commit of one table.

    Attributes:
        identifier: the present name of the table.
        operation, txn_id: of commitInfo.
        read_version: the version before the one that was proposed.
        what: what the commit does against which rules, one sentence for each; empty unless the hold waits for an approval.
        contacts: whom to ask for the approval.
        app_id, app_version: the ``txn`` that makes the write happen once; None without one.
        version: the version that the commit became.
    """

    table_id: str
    identifier: TableIdentifier
    operation: str
    txn_id: str
    read_version: int
    what: tuple[str, ...] = ()
    contacts: tuple[str, ...] = ()
    app_id: str | None = None
    app_version: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The commits of one table or of several that become versions together, or not at all.

    Attributes:
        tables: the commits, in the order of the ids of their tables.
        requested_by, requested_ms: who proposed the commits, and when (epoch milliseconds).
        expires_ms: until when they can be ratified, epoch milliseconds.
        decided_by, decided_ms, reason: who decided, when and why; None and empty while the hold is pending.
    """

    hold_id: str
    waits_for: WaitsFor
    state: HoldState
    tables: tuple[HeldTable, ...]
    requested_by: str | None
    requested_ms: int
    expires_ms: int
    decided_by: str | None = None
    decided_ms: int | None = None
    reason: str = ""

    @property
    def summary(self) -> str:
        """The operations and the tables, e.g. ``DELETE on main.sales.orders``."""
        return " and ".join(f"{table.operation} on {table.identifier}" for table in self.tables)

    @property
    def what(self) -> tuple[str, ...]:
        """What the commits do against which rules, one sentence for each."""
        return tuple(dict.fromkeys(sentence for table in self.tables for sentence in table.what))

    @property
    def contacts(self) -> tuple[str, ...]:
        """Whom to ask for an approval."""
        return tuple(dict.fromkeys(contact for table in self.tables for contact in table.contacts))

    @property
    def versions(self) -> Mapping[str, int]:
        """The versions that the commits became, by the ids of their tables."""
        return {table.table_id: table.version for table in self.tables if table.version is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWrite:
    """What a client adds to the proposal of one table that is to be held.

    Attributes:
        intent: what the transaction read and how it is rebased; see ``client.commits.transaction_intent``. The catalog stores it.
        app_id, app_version: as in :class:`HeldTable`. A second request with the same values finds the first.
    """

    intent: str
    app_id: str | None = None
    app_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequest:
    """How proposals are to be held.

    Attributes:
        writes: by table id, one for each proposal.
        waits_for: for APPROVAL the proposals are held only if a rule lets them pass with an approval alone.
        duration_ms: milliseconds until the hold expires, at most ``MAX_HOLD_DURATION_MS``.
    """

    writes: Mapping[str, HeldWrite]
    waits_for: WaitsFor = WaitsFor.APPROVAL
    duration_ms: int = HOLD_DURATION_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldProposal:
    """A held commit itself.

    Attributes:
        hold: with the other tables of the group.
        content: the whole commit if it has no staged file.
    """

    hold: Hold
    table_id: str
    intent: str
    mode: CommitMode
    file_name: str
    file_size: int
    sha256: str | None
    content: bytes | None

    @property
    def table(self) -> HeldTable:
        """The description of this commit."""
        return next(table for table in self.hold.tables if table.table_id == self.table_id)


def closed_error(hold: Hold) -> HoldClosedError:
    """The error for a hold that is not pending any more."""
    by = f" by {hold.decided_by}" if hold.decided_by else ""
    when = "" if hold.decided_ms is None else f" at {utc_text(hold.decided_ms)}"
    because = f" ({hold.reason})" if hold.reason else ""
    done = "approved" if hold.waits_for is WaitsFor.APPROVAL else "ratified"
    became = " and ".join(f"version {table.version} of {table.identifier}" for table in hold.tables)
    what = {
        HoldState.COMMITTED: f"was {done}{by}{when} and is {became}",
        HoldState.REJECTED: f"was rejected{by}{when}{because}",
        HoldState.DISCARDED: f"was discarded{by}{when}{because}",
        HoldState.CONFLICTING: f"was closed{when}, because its commit could no longer be made{because}",
        HoldState.EXPIRED: f"expired at {utc_text(hold.expires_ms)}",
    }[hold.state]
    follows = (
        "Do not run the write again: its rows are in the table."
        if hold.state is HoldState.COMMITTED
        else "Run the write again if its rows are still wanted."
    )
    kind = "request" if hold.waits_for is WaitsFor.APPROVAL else "hold"
    return HoldClosedError(f"The {kind} {hold.hold_id} for {hold.summary} {what}. Nothing was changed. {follows}")
