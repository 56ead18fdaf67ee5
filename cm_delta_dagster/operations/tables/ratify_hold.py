"""Make a held commit the next version of its table, or the held commits of several tables the next versions of all of them.

They are rebased and ratified as any other, from any process. The ratification and the end of the hold are one transaction of the
catalog: a process that stops at any point leaves a hold that is pending, or whose commits are versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.holds import HeldProposal, Hold, HoldState, WaitsFor, closed_error
from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.commits.held_commit import approval_required, read_held
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.commits.transaction_intent import HoldAudit, TransactionIntent
from cm_delta_dagster.client.snapshots.table_with_hold import TableWithHold
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CommitConflictError,
    CorruptLogError,
    HoldClosedError,
    HoldOutdatedError,
    InvalidArgumentError,
    ObjectNotFoundError,
    TableStorageMissingError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.tables.missing_files import missing_files
from cm_delta_dagster.protocol.actions.commit_json import CommitActions

HOLD_TAG = "cm_delta/hold_id"
"""Tag of ``commitInfo`` and of the feed: the hold that the commit was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedHold:
    """The answer to a ratification or an approval.

    Attributes:
        hold: closed as committed; ``versions`` of it has the versions by the ids of the tables.
        repeated: an earlier call had committed it.
        retries: compatible commits over which it was rebased, and attempts.
    """

    hold: Hold
    repeated: bool
    retries: int = 0

    @property
    def version(self) -> int:
        """The version of the first table, which is the only one of a write to one table."""
        return next(iter(self.hold.versions.values()))


def approve_hold(client: DeltaClient, hold_id: str) -> RatifiedHold:
    """Commit a hold, also one that waits for an approval, which the caller gives. A repeated call returns the same versions.

    An approval publishes what the checks of the hold have passed, and nothing else.

    Raises:
        CommitConflictError: another commit changed what it depends on; the hold is closed.
        TableStorageMissingError: a file of it, or the version that it read, cannot be read; the hold stays.
        HoldClosedError: the hold was discarded or rejected, has expired, or was closed by a conflict.
        HoldOutdatedError: its checks have not read it yet, or another commit has changed rows since; the hold stays.
        CommitRefusedError: a rule refuses a commit, or one that needs an approval was set or changed since the request, or is
            violated only now; the hold stays.
        ApprovalRequiredError: the hold waited for its ratification, and a rule demands an approval; it waits for that now.
        OperationRefusedError: the caller may not decide; the hold stays.
        InvalidArgumentError: there is no such hold.
        TableNotFoundError: a table was dropped.
        CommitStateUnknownError: the catalog did not answer; call it again.
    """
    proposals = client.holds.held_proposals(hold_id)
    return _decide(client, proposals, None if _waits_for_approval(proposals) else _audits(proposals))


def ratify_hold(
    client: DeltaClient,
    hold_id: str,
    *,
    tags: Mapping[str, str] | None = None,
    audited: Mapping[str, int] | None = None,
    has_passed: bool = False,
) -> RatifiedHold:
    """Commit a hold that waits for its ratification. If it waits for an approval, it keeps what was audited, and is not committed.

    Args:
        tags: added to those of the commits, e.g. who audited them.
        audited: by the id of the table, the version of the held state that was checked.
        has_passed: whether the checks that the hold needs have passed.

    Raises as :func:`approve_hold`, ApprovalRequiredError while it waits for an approval, HoldOutdatedError if another commit has
    changed rows since a version in ``audited``, and InvalidArgumentError if ``tags`` changes a tag of the write: the hold stays.
    """
    proposals = client.holds.held_proposals(hold_id)
    hold = proposals[0].hold
    if hold.state is HoldState.PENDING and _waits_for_approval(proposals) and audited is None:
        raise approval_required(hold, is_repeated=False)
    return _decide(client, proposals, _audits(proposals, tags=tags, versions=audited), has_passed=has_passed)


def _waits_for_approval(proposals: Sequence[HeldProposal]) -> bool:
    return proposals[0].hold.waits_for is WaitsFor.APPROVAL


def _audits(
    proposals: Sequence[HeldProposal],
    *,
    tags: Mapping[str, str] | None = None,
    versions: Mapping[str, int] | None = None,
) -> Mapping[str, HoldAudit]:
    """By the id of the table, what a ratification records."""
    checked = CommitProperties(tags=tags or {}).tags
    return {
        proposal.table_id: HoldAudit(
            has_passed=True,
            version=(versions or {}).get(proposal.table_id),
            tags={HOLD_TAG: proposal.hold.hold_id, **checked},
        )
        for proposal in proposals
    }


def _decide(
    client: DeltaClient,
    proposals: Sequence[HeldProposal],
    audits: Mapping[str, HoldAudit] | None = None,
    *,
    has_passed: bool = False,
) -> RatifiedHold:
    """Commit a hold. ``audits`` by the id of the table, of a ratification; None for an approval."""
    hold = proposals[0].hold
    if hold.state is HoldState.COMMITTED:
        return RatifiedHold(hold=hold, repeated=True)
    if hold.state is not HoldState.PENDING:
        raise closed_error(hold)
    entries = [client.registry.load_table_by_id(proposal.table_id) for proposal in proposals]
    try:
        commits = [_commit_of(client, entry, proposal) for entry, proposal in zip(entries, proposals, strict=True)]
        for commit in commits:
            _require_audit(commit.transaction, hold, has_passed=has_passed)
            if audits is not None:
                _set_audit(commit.transaction, audits[commit.transaction.snapshot.table_id], hold)
        together = MultiTableCommit(commits, coordinator=client.coordinator, settings=client.settings)
        if audits is not None and _waits_for_approval(proposals):
            together.request_approval()
        committed = together.finish(together.ratify())
    except (CommitConflictError, HoldClosedError) as error:
        # The commit of a concurrent ratification conflicts with this one, or has closed the hold.
        now = _hold(client, hold.hold_id)
        if now.state is HoldState.COMMITTED:
            return RatifiedHold(hold=now, repeated=True)
        if isinstance(error, CommitConflictError):
            client.holds.close_hold(hold.hold_id, reason=str(error))
            raise CommitConflictError(
                f"{error} The hold {hold.hold_id} is closed.", kind=error.kind, winning_version=error.winning_version
            ) from error
        raise
    return RatifiedHold(
        hold=_hold(client, hold.hold_id), repeated=False, retries=max(commit.retries for commit in committed)
    )


def _commit_of(client: DeltaClient, entry: TableEntry, proposal: HeldProposal) -> TableCommit:
    """What commits a held commit. Raises TableStorageMissingError."""
    table = client.open(entry)
    transaction = held_transaction(table, proposal, known=entry.ratified, committing=True)
    is_behind = entry.ratified.latest_version > transaction.snapshot.version
    return TableCommit(committer=table.committer, transaction=transaction, is_behind=is_behind)


def held_tables(client: DeltaClient, hold_id: str) -> Mapping[str, TableWithHold]:
    """Each table of a hold with the state that its ratification would give now, by ``catalog.schema.table``. Writes nothing.

    Raises:
        HoldClosedError: the hold is not pending.
        CommitConflictError: another commit changed what it depends on, so that it cannot be ratified any more.
        InvalidArgumentError: there is no such hold.
        TableNotFoundError: a table was dropped.
    """
    tables: dict[str, TableWithHold] = {}
    for proposal in client.holds.held_proposals(hold_id):
        if proposal.hold.state is not HoldState.PENDING:
            raise closed_error(proposal.hold)
        entry = client.registry.load_table_by_id(proposal.table_id)
        table = client.open(entry)
        transaction = held_transaction(table, proposal, known=entry.ratified, committing=False)
        try:
            latest, own = table.committer.preview(transaction)
        except CommitConflictError:
            # The commit of a concurrent ratification conflicts with this one.
            now = _hold(client, hold_id)
            if now.state is not HoldState.PENDING:
                raise closed_error(now) from None
            raise
        tables[str(table.identifier)] = TableWithHold(table=table, latest=latest, own=own)
    return tables


def _hold(client: DeltaClient, hold_id: str) -> Hold:
    return client.holds.held_proposals(hold_id)[0].hold


def held_transaction(table: Table, proposal: HeldProposal, *, known: RatifiedCommits, committing: bool) -> Transaction:
    """The transaction of a held commit, on the version that it read.

    Args:
        known: a recent answer of the catalog, which is not asked again if the version is the latest one of it.
        committing: whether the files of the commit must exist.

    Raises:
        TableStorageMissingError: a file of it, or the version that it read, cannot be read.
    """
    intent, hold = TransactionIntent.parse(proposal.intent), proposal.hold
    try:
        commit = read_held(table.store, table.location, proposal)
    except ObjectNotFoundError as error:
        raise _lost(hold, f"its staged file does not exist ({error})") from error
    if committing:
        _require_files(table, commit, hold)
    try:
        is_latest = known.latest_version == intent.read_version and known.commit_policy.through_catalog
        snapshot = table.snapshot_of(known) if is_latest else table.snapshot(version=intent.read_version)
    except (VersionNotFoundError, CorruptLogError) as error:
        raise _lost(hold, f"the version {intent.read_version} that it read cannot be loaded ({error})") from error
    transaction = table.start_transaction(
        snapshot, operation=intent.operation, parameters=intent.parameters, context=intent.context
    )
    transaction.resume(intent, commit)
    transaction.hold_id = hold.hold_id
    return transaction


def _require_audit(transaction: Transaction, hold: Hold, *, has_passed: bool) -> None:
    """Raises HoldOutdatedError for a commit that its checks have not read, or not passed."""
    if has_passed or transaction.audit is None or transaction.audit.has_passed:
        return
    raise HoldOutdatedError(
        f"The hold {hold.hold_id} for {hold.summary} waits for the checks of an audit, which have not passed. Nothing was "
        "committed; the hold stays. Wait for the step that made it; or execute that again, which continues the hold; or discard it."
    )


def _set_audit(transaction: Transaction, audit: HoldAudit, hold: Hold) -> None:
    """Record what was audited in the commit.

    Raises:
        InvalidArgumentError: a tag has another value in the write, or is that of the hold.
    """
    own = {**transaction.context.tags, HOLD_TAG: hold.hold_id}
    taken = sorted(name for name, value in audit.tags.items() if own.get(name, value) != value)
    if taken:
        raise InvalidArgumentError(
            f"tags sets {taken[0]!r}, which the held write has as {own[taken[0]]!r}. Nothing was committed, and the hold stays. "
            "Choose another name."
        )
    transaction.audit = audit


def _require_files(table: Table, commit: CommitActions, hold: Hold) -> None:
    """Refuse a commit whose files were deleted: it would make the table unreadable. Change files are not looked for."""
    missing = missing_files(table.services.stores, commit.adds, location=table.location)
    if missing:
        raise _lost(hold, f"{len(missing)} of its files do not exist, first {min(missing)}")


def _lost(hold: Hold, why: str) -> TableStorageMissingError:
    """Storage that is out of reach for a moment looks the same as lost files, so that the hold stays."""
    return TableStorageMissingError(
        f"The hold {hold.hold_id} for {hold.summary} cannot be committed: {why}. Nothing was committed, and the hold stays. If the "
        "storage was out of reach, repeat the call; if the files are lost, discard the hold and run the write again."
    )
