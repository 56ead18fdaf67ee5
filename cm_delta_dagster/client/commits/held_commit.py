"""Held commits: how a writer hands them to the catalog, and how their bytes are read again.

The catalog keeps what each transaction read beside its commit. The data files and the staged file stay where they are.
"""

import hashlib
import logging
from collections.abc import Sequence

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, HeldProposal, HeldWrite, Hold, HoldRequest, WaitsFor
from cm_delta_dagster.client.backoff import attempts
from cm_delta_dagster.client.commits.outcomes import Attempt
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import ApprovalRequiredError, CatalogUnavailableError, CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import DecideApproval, ListHolds
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


def hold_commits(
    transactions: Sequence[Transaction],
    prepared: Sequence[Attempt],
    *,
    coordinator: CommitCoordinator,
    settings: ClientSettings,
    waits_for: WaitsFor = WaitsFor.RATIFICATION,
    duration_ms: int = HOLD_DURATION_MS,
) -> Hold | None:
    """Have the catalog hold the commits of the transactions as one group. None if they need no approval that was asked for.

    If the catalog does not answer, the request is repeated: the second one finds the hold of the first by the names of its files.

    Raises:
        CatalogUnavailableError: the commits may be held. Nothing was committed.
        CommitRefusedError, CommitRejectedError: nothing is held.
    """
    request = HoldRequest(
        writes={
            attempt.base.table_id: _write(transaction)
            for transaction, attempt in zip(transactions, prepared, strict=True)
        },
        waits_for=waits_for,
        duration_ms=duration_ms,
    )
    proposals = {attempt.base.table_id: attempt.prepared.proposal for attempt in prepared}
    last: CatalogUnavailableError | None = None
    for _ in attempts(settings, settings.max_resolve_attempts):
        try:
            return coordinator.hold(proposals, request)
        except CatalogUnavailableError as error:
            names = " and ".join(map(str, prepared))
            _log.warning("No answer to the request to hold %s: %s", names, error)
            last = error
    raise CatalogUnavailableError(
        f"The catalog did not answer whether it holds {' and '.join(map(str, prepared))}: {last} Nothing was committed, no file "
        "was deleted. Look at the holds once the catalog answers again; a repetition of the write with the same idempotency finds "
        "its hold."
    ).with_remedy(ListHolds()) from last


def _write(transaction: Transaction) -> HeldWrite:
    work = next(iter(transaction.transactions.values()), None)
    return HeldWrite(
        intent=transaction.intent.to_json(),
        app_id=None if work is None else work.app_id,
        app_version=None if work is None else work.version,
    )


def is_repeated(hold: Hold, transactions: Sequence[Transaction]) -> bool:
    """Whether the hold is that of an earlier attempt of the same write, so that the files of this one are not needed."""
    return {table.txn_id for table in hold.tables} != {transaction.txn_id for transaction in transactions}


def approval_required(hold: Hold, *, is_repeated: bool) -> ApprovalRequiredError:
    """The error of a write whose commits wait for an approval."""
    ask = " or ".join(hold.contacts)
    has_no_id = all(table.app_id is None for table in hold.tables)
    retry = "a retry without idempotency makes another request" if has_no_id else "a retry finds the same request"
    verb = "waits" if len(hold.tables) == 1 else "wait"
    return ApprovalRequiredError(
        f"{hold.summary} {verb} for an approval, and nothing was committed: {'; '.join(hold.what)}. It is kept as request "
        f"{hold.hold_id} until {utc_text(hold.expires_ms)}; {retry}. Ask {ask} to decide about it.",
        approval_id=hold.hold_id,
        what=hold.what,
        ask=hold.contacts,
        is_repeated=is_repeated,
    ).with_remedy(DecideApproval(approval_id=hold.hold_id))


def read_held(store: Store, location: str, proposal: HeldProposal) -> CommitActions:
    """The actions of a held commit. Raises as :func:`read_held_bytes`."""
    data = read_held_bytes(store, location, proposal)
    return commit_json.decode_commit(data, version=int(proposal.file_name.partition(".")[0]))


def read_held_bytes(store: Store, location: str, proposal: HeldProposal) -> bytes:
    """The bytes of a held commit.

    Raises:
        ObjectNotFoundError: its staged file does not exist.
        CorruptLogError: its bytes are not those that the catalog saw.
    """
    data = proposal.content
    if data is None:
        data = store.read(f"{log_files.staged_commits_directory(location)}/{proposal.file_name}")
    is_same = len(data) == proposal.file_size
    if proposal.sha256 is not None:
        is_same = is_same and hashlib.sha256(data).hexdigest() == proposal.sha256
    if not is_same:
        raise CorruptLogError(
            f"The staged file {proposal.file_name} of the hold {proposal.hold.hold_id} was changed since it was proposed. Nothing "
            "was committed. Discard or reject the hold, and run the write again."
        )
    return data
