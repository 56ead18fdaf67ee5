"""From a transaction to a ratified version: stage, propose, rebase over winners and retry, run the post-commit hooks.

Protocol heading "Commit Protocol". A rebase repeats none of the user's computation.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitPolicyChanged, Ratified, VersionTaken
from cm_delta_dagster.client.commits.backlog import limit_backlog
from cm_delta_dagster.client.commits.commit_lock import CommitLock
from cm_delta_dagster.client.commits.outcomes import CommitProposer
from cm_delta_dagster.client.commits.parked_commit import request_approval
from cm_delta_dagster.client.commits.proposal import PreparedCommit, ProposalRules, prepare_commit
from cm_delta_dagster.client.commits.put_if_absent import ratified_commits
from cm_delta_dagster.client.commits.rebase import Rebase, describe
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.post_commit.hook_services import RatifiedWrite
from cm_delta_dagster.client.post_commit.hooks import PostCommitHooks
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance
from cm_delta_dagster.errors import ApprovalRequiredError, CommitRetriesExceededError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.storage.store import Store


class TableCommitter:
    """Commits transactions of one table. Safe to share between threads.

    Args:
        lock: the commit lock of the table; it also waits between the attempts.
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
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._settings = settings
        self._now_ms = now_ms
        self._post_commit = post_commit
        self.lock = lock
        self._proposer = CommitProposer(store=store, coordinator=coordinator, settings=settings)

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`."""
        rebase = self.begin(transaction)
        for attempt in range(self._settings.max_commit_attempts):
            with self.lock.attempt(rebase.base, attempt) as has_waited:
                if has_waited:
                    rebase.catch_up()
                self._limit_backlog(rebase.base)
                prepared, outcome = self._attempt(transaction, rebase.base)
            if isinstance(outcome, Ratified) and prepared is not None:
                return self.finish(transaction, rebase, prepared, outcome, attempt=attempt)
            if isinstance(outcome, VersionTaken):
                rebase.apply(outcome.winners)
            elif isinstance(outcome, CommitPolicyChanged):
                rebase.base = replace(rebase.base, commit_policy=outcome.policy)
        raise self.exceeded(transaction, rebase)

    def begin(self, transaction: Transaction) -> Rebase:
        """Prepare to commit ``transaction`` on its snapshot."""
        self.lock.note_snapshot(transaction.snapshot.version)
        return Rebase(
            transaction,
            coordinator=self._coordinator,
            store=self._store,
            threads=self._settings.read_threads,
            on_winners=self._note_winners,
        )

    def prepare(self, transaction: Transaction, base: Snapshot) -> PreparedCommit:
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
        return self._proposer.create(base, self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT))

    def _attempt(self, transaction: Transaction, base: Snapshot) -> tuple[PreparedCommit | None, CommitOutcome]:
        """Prepare and propose the version after ``base`` under the commit policy of ``base``."""
        if base.commit_policy.through_catalog:
            prepared = self._prepare(transaction, base, None)
            try:
                return prepared, self._proposer.propose(base, prepared)
            except ApprovalRequiredError:
                request_approval(transaction, base, prepared, coordinator=self._coordinator)
                return None, CommitPolicyChanged(policy=base.commit_policy)  # It needs none any more: propose it again.
        # Only this call, before each attempt, prevents a writer from creating files after the policy has changed.
        known = self._coordinator.get_ratified_commits(base.table_id)
        if known.latest_version != base.version:
            known = ratified_commits(self._coordinator, self._store, table_id=base.table_id, location=base.location)
        if known.commit_policy.kind is not CommitPolicyKind.PUT_IF_ABSENT:
            return None, CommitPolicyChanged(policy=known.commit_policy)
        if known.latest_version > base.version:
            return None, VersionTaken(proposed_version=base.version + 1, winners=known)
        prepared = self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT)
        return prepared, self._proposer.create(base, prepared)

    def exceeded(self, transaction: Transaction, rebase: Rebase) -> CommitRetriesExceededError:
        """The error after the last attempt."""
        base, winners = rebase.base, rebase.winners
        count = self._settings.max_commit_attempts
        what = f"{transaction.operation} on {base.identifier} was tried {count} times and nothing was committed. "
        if base.commit_policy.kind is CommitPolicyKind.SWITCHING:
            return CommitRetriesExceededError(
                f"{what}The table's commit mode is being switched, and writers wait for that. If the client that began it has "
                "stopped, set the mode again: that completes the switch."
            )
        named = "; ".join(f"version {winner.version} ({describe(winner)})" for winner in winners)
        return CommitRetriesExceededError(
            f"{what}Each attempt was overtaken by compatible commits of other writers: {named or 'none known'}. "
            "Retry, write less often, or raise ClientSettings.max_commit_attempts.",
            winning_versions=tuple(winner.version for winner in winners),
        )

    def _prepare(self, transaction: Transaction, base: Snapshot, mode: CommitMode | None) -> PreparedCommit:
        """One attempt on ``base``; with mode None the table's policy chooses by size."""
        rules = ProposalRules(
            mode=mode,
            now_ms=self._now_ms(),
            published_version=self._post_commit.publication.unreported_published_version(base.version),
            copied_content_bytes=self._settings.copied_content_bytes,
        )
        return prepare_commit(transaction, base, store=self._store, rules=rules)

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
