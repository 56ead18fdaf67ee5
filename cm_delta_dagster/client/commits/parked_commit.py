"""Commits that wait for an approval: how a writer hands one to the catalog, and how it becomes a transaction again.

The catalog keeps what the transaction read beside its commit. The data files and the staged file stay where they are.
"""

import hashlib

from cm_delta_dagster.catalog.approvals import Approval, ApprovalRequest, ParkedCommit
from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.client.commits.proposal import PreparedCommit
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import ApprovalRequiredError, CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import DecideApproval
from cm_delta_dagster.storage.store import Store


def request_approval(
    transaction: Transaction, base: Snapshot, prepared: PreparedCommit, *, coordinator: CommitCoordinator
) -> None:
    """Have the catalog keep the commit until it is approved. Returns if it needs no approval any more.

    Raises:
        ApprovalRequiredError: always if the catalog keeps it, or keeps an earlier attempt of the same write.
        CommitRefusedError: a rule refuses it.
    """
    work = next(iter(transaction.transactions.values()), None)
    request = ApprovalRequest(
        intent=transaction.intent.to_json(),
        app_id=None if work is None else work.app_id,
        app_version=None if work is None else work.version,
    )
    approval = coordinator.request_approval(base.table_id, prepared.proposal, request)
    if approval is not None:
        raise approval_required(approval, is_repeated=approval.txn_id != transaction.txn_id)


def approval_required(approval: Approval, *, is_repeated: bool) -> ApprovalRequiredError:
    """The error of a write whose commit waits as ``approval``."""
    ask = " or ".join(approval.contacts)
    retry = (
        "a retry without idempotency makes another request"
        if approval.app_id is None
        else "a retry finds the same request"
    )
    return ApprovalRequiredError(
        f"{approval.operation} on {approval.identifier} waits for an approval, and nothing was committed: "
        f"{'; '.join(approval.what)}. It is kept as request {approval.approval_id} until {utc_text(approval.expires_ms)}; "
        f"{retry}. Ask {ask} to decide about it.",
        approval_id=approval.approval_id,
        what=approval.what,
        ask=approval.contacts,
        is_repeated=is_repeated,
    ).with_remedy(DecideApproval(approval_id=approval.approval_id))


def read_parked(store: Store, location: str, parked: ParkedCommit) -> CommitActions:
    """The actions of a commit that waits. Raises as :func:`read_parked_bytes`."""
    data = read_parked_bytes(store, location, parked)
    return commit_json.decode_commit(data, version=int(parked.file_name.partition(".")[0]))


def read_parked_bytes(store: Store, location: str, parked: ParkedCommit) -> bytes:
    """The bytes of a commit that waits.

    Raises:
        ObjectNotFoundError: its staged file does not exist.
        CorruptLogError: its bytes are not those that the catalog saw.
    """
    data = parked.content
    if data is None:
        data = store.read(f"{log_files.staged_commits_directory(location)}/{parked.file_name}")
    is_same = len(data) == parked.file_size
    if parked.sha256 is not None:
        is_same = is_same and hashlib.sha256(data).hexdigest() == parked.sha256
    if not is_same:
        raise CorruptLogError(
            f"The staged file {parked.file_name} of the request {parked.approval.approval_id} was changed since it was proposed. "
            "Nothing was committed. Reject the request, and run the write again."
        )
    return data
