"""From a transaction to a ratified version: stage, propose, rebase over winners and retry, run the post-commit hooks.

Protocol heading "Commit Protocol". A rebase repeats none of the user's computation. After an
unknown commit outcome the catalog is asked for the version and its ``txnId``; nothing is assumed.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitPolicyChanged, Ratified, VersionTaken
from cm_delta_dagster.client.commits.backoff import attempts
from cm_delta_dagster.client.commits.commit_lock import CommitLock
from cm_delta_dagster.client.commits.proposal import PreparedCommit, ProposalRules, prepare_commit
from cm_delta_dagster.client.commits.put_if_absent import create_commit, ratified_commits, record_commit
from cm_delta_dagster.client.commits.rebase import Rebase, describe
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.post_commit.hook_services import RatifiedWrite
from cm_delta_dagster.client.post_commit.hooks import PostCommitHooks
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    CorruptLogError,
    DirectoryNotFoundError,
    StorageError,
    StoreNotSupportedError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


class TableCommitter:
    """Commits transactions of one table. Safe to share between threads."""

    def __init__(
        self,
        *,
        store: Store,
        coordinator: CommitCoordinator,
        settings: ClientSettings,
        now_ms: Callable[[], int],
        post_commit: PostCommitHooks,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._settings = settings
        self._now_ms = now_ms
        self._post_commit = post_commit
        self._lock = CommitLock(coordinator, settings)

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`."""
        self._lock.note_snapshot(transaction.snapshot.version)
        rebase = Rebase(
            transaction,
            coordinator=self._coordinator,
            store=self._store,
            threads=self._settings.read_threads,
            on_winners=self._note_winners,
        )
        for attempt in range(self._settings.max_commit_attempts):
            with self._lock.attempt(rebase.base, attempt) as has_waited:
                if has_waited:
                    rebase.catch_up()
                self._limit_backlog(rebase.base)
                prepared, outcome = self._attempt(transaction, rebase.base)
            if isinstance(outcome, Ratified) and prepared is not None:
                self._lock.note_success(outcome.version)
                retries = max(attempt, min(1, len(rebase.winners)))
                return self._finish(transaction, rebase, prepared, outcome, retries=retries)
            if isinstance(outcome, VersionTaken):
                rebase.apply(outcome.winners)
            elif isinstance(outcome, CommitPolicyChanged):
                rebase.base = replace(rebase.base, commit_policy=outcome.policy)
        raise self._exceeded(transaction, rebase.base, rebase.winners)

    def _note_winners(self, winners: Sequence[CommitActions], published_version: int) -> None:
        self._lock.note_winners()
        self._post_commit.note_winners(winners, published_version=published_version)

    def create(self, transaction: Transaction, base: Snapshot) -> CommitOutcome:
        """Try once to commit the version after ``base`` by creating its published file.

        Raises:
            CommitStateUnknownError: storage did not answer whether the file exists.
            StoreNotSupportedError: the store cannot create exclusively.
        """
        return self._create(base, self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT))

    def _attempt(self, transaction: Transaction, base: Snapshot) -> tuple[PreparedCommit | None, CommitOutcome]:
        """Prepare and propose the version after ``base`` under the commit policy of ``base``."""
        if base.commit_policy.through_catalog:
            prepared = self._prepare(transaction, base, None)
            return prepared, self._propose(base, prepared)
        # Only this call, before each attempt, prevents a writer from creating files after the policy has changed.
        known = ratified_commits(self._coordinator, self._store, table_id=base.table_id, location=base.location)
        if known.commit_policy.kind is not CommitPolicyKind.PUT_IF_ABSENT:
            return None, CommitPolicyChanged(policy=known.commit_policy)
        if known.latest_version > base.version:
            return None, VersionTaken(proposed_version=base.version + 1, winners=known)
        prepared = self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT)
        return prepared, self._create(base, prepared)

    def _create(self, base: Snapshot, prepared: PreparedCommit) -> CommitOutcome:
        last: StorageError | None = None
        for _ in attempts(self._settings, self._settings.max_resolve_attempts):
            try:
                created = create_commit(
                    self._store, location=base.location, proposal=prepared.proposal, data=prepared.data
                )
            except (StoreNotSupportedError, DirectoryNotFoundError):
                raise
            except StorageError as error:
                _log.warning(
                    "No answer to the creation of version %d of %s: %s", prepared.version, base.identifier, error
                )
                last = error
                continue
            if created is not None:
                return record_commit(
                    self._coordinator,
                    self._store,
                    table_id=base.table_id,
                    location=base.location,
                    proposal=replace(prepared.proposal, file_modification_time=created.modification_time),
                    follows_ms=base.timestamp_ms,
                )
            known = ratified_commits(self._coordinator, self._store, table_id=base.table_id, location=base.location)
            return VersionTaken(proposed_version=prepared.version, winners=known)
        raise CommitStateUnknownError(
            f"Storage did not answer whether version {prepared.version} of {base.identifier} was created ({last}). The commit "
            f"with txnId {prepared.proposal.summary.txn_id} may or may not be there; nothing was deleted. Once storage answers "
            "again, look for that txnId in the table's history before you retry.",
            txn_id=prepared.proposal.summary.txn_id,
            version=prepared.version,
        ) from last

    def _limit_backlog(self, base: Snapshot) -> None:
        """Publish first if too many commits are unpublished; the write fails only if they cannot be published.

        Raises CommitRejectedError.
        """
        limit = self._settings.max_unpublished_commits
        if base.version - base.published_version < limit:
            return
        last: Exception | None = None
        for _ in attempts(self._settings, 1 + self._settings.max_resolve_attempts):
            pending = self._coordinator.get_ratified_commits(base.table_id)
            unpublished = pending.latest_version - pending.published_version
            if unpublished < limit:
                return
            try:
                publish_commits(
                    CommitReader(self._store, base.location, records=CatalogRecords(self._coordinator, base.table_id)),
                    commits=pending.unpublished,
                    reached=lambda version: self._coordinator.set_published_version(base.table_id, version),
                )
            except (StorageError, CatalogUnavailableError, CorruptLogError) as error:
                last = error
            else:
                return
        raise CommitRejectedError(
            f"Nothing was committed to {base.identifier}: {unpublished} of its commits are not published, as many as "
            f"ClientSettings.max_unpublished_commits allows, and they cannot be published: {last} Fix the cause and retry."
        ) from last

    def _exceeded(
        self, transaction: Transaction, base: Snapshot, winners: Sequence[CommitActions]
    ) -> CommitRetriesExceededError:
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

    def _propose(self, base: Snapshot, prepared: PreparedCommit) -> CommitOutcome:
        last: CatalogUnavailableError | StorageError | None = None
        for _ in attempts(self._settings, self._settings.max_resolve_attempts):
            try:
                # Proposing the same file name for the same version again cannot ratify it twice.
                outcome = (
                    self._coordinator.commit(base.table_id, prepared.proposal)
                    if last is None
                    else self._resolve(base, prepared)
                )
            except TableNotFoundError as error:
                if last is None:
                    raise
                raise CommitStateUnknownError(
                    f"{base.identifier} was dropped while the catalog did not answer whether version {prepared.version} was "
                    f"ratified ({last}). If the table is brought back, look for the txnId {prepared.proposal.summary.txn_id} in "
                    "its history; nothing was deleted.",
                    txn_id=prepared.proposal.summary.txn_id,
                    version=prepared.version,
                ) from error
            except (CatalogUnavailableError, StorageError) as error:
                _log.warning(
                    "No answer to the proposal of version %d of %s: %s", prepared.version, base.identifier, error
                )
                last = error
                continue
            return outcome
        raise CommitStateUnknownError(
            f"The catalog did not answer whether version {prepared.version} of {base.identifier} was ratified ({last}). The commit "
            f"with txnId {prepared.proposal.summary.txn_id} may or may not become visible; nothing was retried and nothing "
            "deleted. Once the catalog answers again, look for that txnId in the table's history before you retry.",
            txn_id=prepared.proposal.summary.txn_id,
            version=prepared.version,
        ) from last

    def _resolve(self, base: Snapshot, prepared: PreparedCommit) -> CommitOutcome:
        """Find the outcome of a proposal that the catalog did not answer; propose again only if it had no effect."""
        version = prepared.version
        ratified = self._coordinator.get_ratified_commits(base.table_id, start=version)
        if ratified.latest_version < version:
            return self._coordinator.commit(base.table_id, prepared.proposal)
        named = next((commit for commit in ratified.commits if commit.version == version), None)
        txn_id = named.txn_id if named is not None else self._published_txn_id(base, version)
        if txn_id == prepared.proposal.summary.txn_id:
            return Ratified(
                version=version,
                latest_version=ratified.latest_version,
                published_version=ratified.published_version,
                repeated=True,
            )
        return VersionTaken(proposed_version=version, winners=ratified)

    def _published_txn_id(self, base: Snapshot, version: int) -> str | None:
        info = commit_json.decode_commit_info(self._store.read(published_source(base.location, version).location))
        return None if info is None else info.txn_id

    def _finish(
        self, transaction: Transaction, rebase: Rebase, prepared: PreparedCommit, outcome: Ratified, *, retries: int
    ) -> Committed:
        own = commit_json.decode_commit(prepared.data, version=prepared.version)
        published_version = min(outcome.published_version, prepared.version)
        commit = RatifiedWrite(
            snapshot=advance(rebase.base, (own,), published_version=published_version),
            actions=own,
            data=prepared.data,
            mode=prepared.proposal.mode,
            outcome=outcome,
            winners=rebase.winner_records,
            contended=self._lock.is_contended,
        )
        return Committed(
            version=prepared.version,
            txn_id=transaction.txn_id,
            in_commit_timestamp=prepared.proposal.summary.in_commit_timestamp,
            retries=retries,
            snapshot=self._post_commit.run(commit),
        )
