"""Approve a commit that waits: rebase it on the latest version and have the catalog ratify it.

The catalog ratifies the commit and closes its request in one transaction. A call that was interrupted can therefore be repeated:
either the request is still pending, or its commit is a version.
"""

from dataclasses import dataclass

from cm_delta_dagster.catalog.approvals import Approval, ApprovalState, ParkedCommit, closed_error
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.parked_commit import read_parked
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.commits.transaction_intent import TransactionIntent
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalClosedError,
    CommitConflictError,
    CorruptLogError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.tables.missing_files import missing_files
from cm_delta_dagster.protocol.actions.commit_json import CommitActions


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedCommit:
    """The answer to an approval.

    Attributes:
        version: the version that the commit is.
        repeated: an earlier call had committed it.
        retries: compatible commits over which it was rebased, and attempts.
    """

    approval: Approval
    version: int
    repeated: bool
    retries: int = 0


def approve_commit(client: DeltaClient, approval_id: str) -> ApprovedCommit:
    """Commit what waits as ``approval_id``. A repeated call returns the same version.

    Raises:
        CommitConflictError: another commit changed what it depends on, or its files are gone; the request is closed.
        ApprovalClosedError: the request was rejected, has expired, or was closed by a conflict.
        CommitRefusedError: a rule refuses the commit, or one that needs an approval was set or changed since the request, or is
            violated only now; the request stays.
        OperationRefusedError: the caller is not an owner of the table; the request stays.
        InvalidArgumentError: there is no such request.
        TableNotFoundError: the table was dropped.
        CommitStateUnknownError: the catalog did not answer; call it again.
    """
    parked = client.approvals.parked_commit(approval_id)
    approval = parked.approval
    earlier = _earlier(approval)
    if earlier is not None:
        return earlier
    if approval.state is not ApprovalState.PENDING:
        raise closed_error(approval)
    table = client.open(client.registry.load_table_by_id(approval.table_id))
    try:
        committed = _transaction(table, parked).commit()
    except (CommitConflictError, ApprovalClosedError) as error:
        # The commit of a concurrent approval conflicts with this one, or has closed the request.
        earlier = _earlier(client.approvals.parked_commit(approval_id).approval)
        if earlier is not None:
            return earlier
        if isinstance(error, CommitConflictError):
            client.approvals.close_approval(approval_id, reason=str(error))
        raise
    return ApprovedCommit(
        approval=client.approvals.parked_commit(approval_id).approval,
        version=committed.version,
        repeated=False,
        retries=committed.retries,
    )


def _earlier(approval: Approval) -> ApprovedCommit | None:
    """The answer to a request whose commit is a version already."""
    if approval.state is not ApprovalState.COMMITTED or approval.version is None:
        return None
    return ApprovedCommit(approval=approval, version=approval.version, repeated=True)


def _transaction(table: Table, parked: ParkedCommit) -> Transaction:
    """The transaction of the commit, on the version that it read. Raises CommitConflictError if it cannot be made any more."""
    intent, approval = TransactionIntent.parse(parked.intent), parked.approval
    try:
        commit = read_parked(table.store, table.location, parked)
    except ObjectNotFoundError as error:
        raise _lost(approval, f"its staged file does not exist any more ({error})") from error
    _require_files(table, commit, approval)
    try:
        snapshot = table.snapshot(version=intent.read_version)
    except (VersionNotFoundError, CorruptLogError) as error:
        raise _lost(
            approval, f"the version {intent.read_version} that it read cannot be loaded any more ({error})"
        ) from error
    transaction = table.start_transaction(
        snapshot, operation=intent.operation, parameters=intent.parameters, context=intent.context
    )
    transaction.resume(intent, commit)
    transaction.approval_id = approval.approval_id
    return transaction


def _require_files(table: Table, commit: CommitActions, approval: Approval) -> None:
    """Refuse a commit whose files were deleted: it would make the table unreadable. Change files are not looked for."""
    missing = missing_files(table.services.stores, commit.adds, location=table.location)
    if missing:
        raise _lost(approval, f"{len(missing)} of its files do not exist any more, first {min(missing)}")


def _lost(approval: Approval, why: str) -> CommitConflictError:
    return CommitConflictError(
        f"The request {approval.approval_id} for {approval.operation} on {approval.identifier} cannot be committed: {why}. Nothing "
        "was committed, and the request is closed. Run the write again."
    )
