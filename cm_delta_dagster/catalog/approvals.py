"""Values of approvals: commits that the catalog keeps until an owner approves or rejects them.

A kept commit is not a version of its table. Its staged file, or its content in the catalog, and what it read are enough to rebase
and commit it later from another process.
"""

from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import ApprovalClosedError
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

APPROVAL_DURATION_MS = 7 * 24 * 60 * 60 * 1000
"""Default time until a request expires, in milliseconds."""

MAX_APPROVAL_DURATION_MS = 366 * 24 * 60 * 60 * 1000
"""Longest time until a request expires: maintenance keeps its files as long."""

PROTECTED_AFTER_EXPIRY_MS = 60 * 60 * 1000
"""Time after its expiry for which the files of a request are kept: an approval that began before may still be committed."""


class ApprovalState(StrEnum):
    """State of a request. Every state but PENDING is final."""

    PENDING = "pending"
    COMMITTED = "committed"
    REJECTED = "rejected"
    CONFLICTING = "conflicting"
    """The commit could not be rebased on the commits that were made meanwhile."""

    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A request for approval.

    Attributes:
        identifier: the present name of the table.
        operation, txn_id: of commitInfo.
        read_version: the version before the one that was proposed.
        what: what the commit does against which rules, one sentence for each.
        contacts: whom to ask.
        requested_by, requested_ms: who proposed the commit, and when (epoch milliseconds).
        expires_ms: until when it can be approved, epoch milliseconds.
        decided_by, decided_ms, reason: who decided, when and why; None and empty while it is pending.
        version: the version that the commit became.
        app_id, app_version: the ``txn`` that makes the write happen once; None without one.
    """

    approval_id: str
    table_id: str
    identifier: TableIdentifier
    state: ApprovalState
    operation: str
    txn_id: str
    read_version: int
    what: tuple[str, ...]
    contacts: tuple[str, ...]
    requested_by: str | None
    requested_ms: int
    expires_ms: int
    decided_by: str | None = None
    decided_ms: int | None = None
    reason: str = ""
    version: int | None = None
    app_id: str | None = None
    app_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What a client adds to a proposal that needs an approval.

    Attributes:
        intent: what the transaction read and how it is rebased; see ``client.commits.parked_commit``. The catalog stores it.
        app_id, app_version: as in :class:`Approval`. A second request with the same values finds the first.
        duration_ms: milliseconds until the request expires, at most ``MAX_APPROVAL_DURATION_MS``.
    """

    intent: str
    app_id: str | None = None
    app_version: int | None = None
    duration_ms: int = APPROVAL_DURATION_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedCommit:
    """A request with the commit itself.

    Attributes:
        content: the whole commit if it has no staged file.
    """

    approval: Approval
    intent: str
    mode: CommitMode
    file_name: str
    file_size: int
    sha256: str | None
    content: bytes | None


def closed_error(approval: Approval) -> ApprovalClosedError:
    """The error for a request that is not pending any more."""
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    when = "" if approval.decided_ms is None else f" at {utc_text(approval.decided_ms)}"
    because = f" ({approval.reason})" if approval.reason else ""
    what = {
        ApprovalState.COMMITTED: f"was approved{by}{when} and is version {approval.version}",
        ApprovalState.REJECTED: f"was rejected{by}{when}{because}",
        ApprovalState.CONFLICTING: f"was closed{when}, because its commit could no longer be made{because}",
        ApprovalState.EXPIRED: f"expired at {utc_text(approval.expires_ms)}",
    }[approval.state]
    follows = (
        "Do not run the write again: its rows are in the table."
        if approval.state is ApprovalState.COMMITTED
        else "Run the write again if its rows are still wanted."
    )
    return ApprovalClosedError(
        f"The request {approval.approval_id} for {approval.operation} on {approval.identifier} {what}. Nothing was changed. "
        f"{follows}"
    )
