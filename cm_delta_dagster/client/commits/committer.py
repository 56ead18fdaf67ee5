"""What the commit of a transaction does for its table: stages the attempts, and runs the post-commit hooks.

Protocol heading "Commit Protocol". ``multi_table_commit`` has the order of the steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitPolicyChanged, Ratified, VersionTaken
from cm_delta_dagster.client.commits.backlog import limit_backlog
from cm_delta_dagster.client.commits.commit_lock import CommitLock
from cm_delta_dagster.client.commits.outcomes import Attempt, create
from cm_delta_dagster.client.commits.proposal import PreparedCommit, ProposalRules, prepare_commit
from cm_delta_dagster.client.commits.put_if_absent import ratified_commits
from cm_delta_dagster.client.commits.rebase import Rebase, describe
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.post_commit.hook_services import RatifiedWrite
from cm_delta_dagster.client.post_commit.hooks import PostCommitHooks
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance
from cm_delta_dagster.errors import CommitRetriesExceededError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.commits.commit_validation import encode_checked
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.storage.store import Store


class TableCommitter:
    """The steps of commits to one table. Safe to share between threads.

    Attributes:
        lock: the commit lock of the table; it also waits between the attempts.
        catalog_id: returns the id of the catalog that ratifies the commits.
    """

    def __init__(
        self,
        *,
        store: Store,
        coordinator: CommitCoordinator,
        settings: ClientSettings,
        now_ms: Callable[[], int],
        post_commit: PostCommitHooks,
        lock: CommitLock,
        catalog_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._settings = settings
        self._now_ms = now_ms
        self._post_commit = post_commit
        self.lock = lock
        self.catalog_id = catalog_id

    def begin(self, transaction: Transaction) -> Rebase:
        """Prepare to commit ``transaction`` on its snapshot."""
        self.lock.note_snapshot(transaction.snapshot.version)
        return Rebase(
            transaction,
            coordinator=self._coordinator,
            store=self._store,
            threads=self._settings.read_threads,
            on_winners=self._note_winners,
            audited_version=None if transaction.audit is None else transaction.audit.version,
        )

    def preview(self, transaction: Transaction) -> tuple[Snapshot, CommitActions]:
        """The table as the commit of ``transaction`` would leave it now, on top of all commits so far, and that commit.

        Nothing is written.

        Raises:
            CommitConflictError: another commit changed what the transaction depends on, or the transaction was committed.
            CatalogUnavailableError, StorageError: there was no answer.
        """
        rebase = Rebase(
            transaction,
            coordinator=self._coordinator,
            store=self._store,
            threads=self._settings.read_threads,
            on_winners=lambda winners, published_version: None,
        )
        rebase.follow_latest()
        base = rebase.base
        timestamp = next_in_commit_timestamp(self._now_ms(), base.timestamp_ms)
        data = encode_checked(transaction.actions(base, in_commit_timestamp=timestamp))
        own = commit_json.decode_commit(data, version=base.version + 1)
        return advance(base, (own,), published_version=base.published_version), own

    def prepare(self, transaction: Transaction, base: Snapshot) -> Attempt:
        """Prepare the version after ``base`` for the catalog, after what must be published first. Raises CommitRejectedError."""
        self._limit_backlog(base)
        return self._prepare(transaction, base, None)

    def _limit_backlog(self, base: Snapshot) -> None:
        limit_backlog(base, store=self._store, coordinator=self._coordinator, settings=self._settings)

    def _note_winners(self, winners: Sequence[CommitActions], published_version: int) -> None:
        self.lock.note_winners()
        self._post_commit.note_winners(winners, published_version=published_version)

    def create(self, transaction: Transaction, base: Snapshot) -> CommitOutcome:
        """Try once to commit the version after ``base`` by creating its published file.

        Raises:
            CommitStateUnknownError: storage did not answer whether the file exists.
            StoreNotSupportedError: the store cannot create exclusively.
        """
        return self._create(self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT))

    def create_if_permitted(self, transaction: Transaction, base: Snapshot) -> tuple[Attempt, CommitOutcome]:
        """As :meth:`create`, after what must be published first, unless the policy has changed or the version is taken.

        Only the question before each attempt prevents a writer from creating files after the policy has changed.
        """
        self._limit_backlog(base)
        attempt = self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT)
        known = self._coordinator.get_ratified_commits(base.table_id)
        if known.latest_version != base.version:
            known = ratified_commits(self._coordinator, self._store, table_id=base.table_id, location=base.location)
        if known.commit_policy.kind is not CommitPolicyKind.PUT_IF_ABSENT:
            return attempt, CommitPolicyChanged(policy=known.commit_policy)
        if known.latest_version > base.version:
            return attempt, VersionTaken(proposed_version=base.version + 1, winners=known)
        return attempt, self._create(attempt)

    def _create(self, attempt: Attempt) -> CommitOutcome:
        return create(attempt, coordinator=self._coordinator, settings=self._settings)

    def exceeded(self, transaction: Transaction, rebase: Rebase, attempts: int) -> CommitRetriesExceededError:
        """The error after the last one of ``attempts``."""
        base, winners = rebase.base, rebase.winners
        what = f"{transaction.operation} on {base.identifier} was tried {attempts} times and nothing was committed. "
        if base.commit_policy.kind is CommitPolicyKind.SWITCHING:
            return CommitRetriesExceededError(
                f"{what}The table's commit mode is being switched, and writers wait for that. If the client that began it has "
                "stopped, set the mode again: that completes the switch."
            )
        is_setting = attempts == self._settings.max_commit_attempts
        limit = "ClientSettings.max_commit_attempts" if is_setting else "max_commit_retries of the commit properties"
        named = "; ".join(f"version {winner.version} ({describe(winner)})" for winner in winners)
        return CommitRetriesExceededError(
            f"{what}Each attempt was overtaken by compatible commits of other writers: {named or 'none known'}. "
            f"Retry, write less often, or raise {limit}.",
            winning_versions=tuple(winner.version for winner in winners),
        )

    def _prepare(self, transaction: Transaction, base: Snapshot, mode: CommitMode | None) -> Attempt:
        """One attempt on ``base``; with mode None the table's policy chooses by size."""
        rules = ProposalRules(
            mode=mode,
            now_ms=self._now_ms(),
            published_version=self._post_commit.publication.unreported_published_version(base.version),
            copied_content_bytes=self._settings.copied_content_bytes,
        )
        prepared = prepare_commit(transaction, base, store=self._store, rules=rules)
        return Attempt(base=base, prepared=prepared, store=self._store)

    def finish(
        self, transaction: Transaction, rebase: Rebase, prepared: PreparedCommit, outcome: Ratified, *, attempt: int
    ) -> Committed:
        """Run the post-commit hooks of a ratified commit.

        Args:
            attempt: number of attempts before the one that was ratified.
        """
        self.lock.note_success(outcome.version)
        own = commit_json.decode_commit(prepared.data, version=prepared.version)
        published_version = min(outcome.published_version, prepared.version)
        snapshot = advance(rebase.base, (own,), published_version=published_version)
        commit = RatifiedWrite(
            snapshot=replace(snapshot, reported_counts=prepared.proposal.summary.counts),
            actions=own,
            data=prepared.data,
            mode=prepared.proposal.mode,
            outcome=outcome,
            winners=rebase.winner_records,
            contended=self.lock.is_contended,
        )
        return Committed(
            version=prepared.version,
            txn_id=transaction.txn_id,
            in_commit_timestamp=prepared.proposal.summary.in_commit_timestamp,
            retries=max(attempt, min(1, len(rebase.winners))),
            snapshot=self._post_commit.run(commit),
        )
