"""From a transaction to a ratified version (protocol "Commit protocol for catalog-managed tables").

stage -> propose -> (lost the race: read the winners, check, rebase, stage anew) -> ratified -> after-commit work. Nothing of the
user's compute runs again on a rebase. A lost answer is never guessed: the catalog is asked for the version and its ``txnId``.
"""

import json
import logging
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitPolicyChanged,
    CommitProposal,
    CommitSummary,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.client.commits.put_if_absent import create_commit, ratified_commits, record_commit
from cm_delta_dagster.client.commits.rebase import Race, describe
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.post_commit.hooks import PostCommitHooks
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import digest_of, published_source
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
from cm_delta_dagster.protocol.actions.actions import Action, Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)

_TURNS_FOR_SECONDS = 1.0
"""So long after it has met other writers, a writer waits for its turn before it proposes."""

_HALVINGS = 10

CHANGED_PARTITIONS_TAG = "cm_delta/changed_partitions"
"""Tag of the feed: JSON array with one object for each partition that the commit changed, partition column to text or null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """One attempt: the bytes of the commit, staged or not, and what is proposed to the catalog."""

    data: bytes
    proposal: CommitProposal

    @property
    def version(self) -> int:
        return self.proposal.version


class TableCommitter:
    """Commits transactions of one table. Safe to share between threads.

    Between commits it remembers nothing but when it last met other writers, since for a moment after that it waits for its turn,
    and how often it did so in vain.
    """

    def __init__(
        self,
        *,
        store: Store,
        catalog: CommitCoordinator,
        settings: ClientSettings,
        post_commit: PostCommitHooks,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._settings = settings
        self._after_commit = post_commit
        self._takes_turns_until = 0.0
        self._own_version = -1
        self._waits_in_vain = 0

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`."""
        base = transaction.snapshot
        if 0 <= self._own_version < base.version:
            self._met_others()
        race = Race(
            transaction,
            catalog=self._catalog,
            store=self._store,
            threads=self._settings.read_threads,
            learned=self._learned,
        )
        for attempt in range(self._settings.max_commit_attempts):
            with self._turn(race.base) as ones_turn:
                if ones_turn or (attempt and self._pause(attempt)):
                    race.catch_up()
                self._bound_backlog(race.base)
                staged, outcome = self._attempt(transaction, race.base)
            if isinstance(outcome, Ratified) and staged is not None:
                self._own_version = outcome.version
                return self._finish(transaction, race, staged, outcome, retries=max(attempt, min(1, len(race.winners))))
            if isinstance(outcome, VersionTaken):
                race.rebase(outcome.winners)
            elif isinstance(outcome, CommitPolicyChanged):
                race.base = replace(race.base, commit_policy=outcome.policy)
        raise self._exceeded(transaction, race.base, race.winners)

    def _learned(self, winners: Sequence[CommitActions], published_version: int) -> None:
        """What others have committed meanwhile."""
        self._met_others()
        self._after_commit.note(winners, published_version=published_version)

    @property
    def _is_in_a_crowd(self) -> bool:
        """Whether other writers were met a moment ago."""
        return time.monotonic() < self._takes_turns_until

    def _met_others(self) -> None:
        self._own_version = -1
        self._takes_turns_until = time.monotonic() + _TURNS_FOR_SECONDS

    @contextmanager
    def _turn(self, base: Snapshot) -> Iterator[bool]:
        """Of writers who race each other, all but one work in vain, and the one who has just won is the fastest again.

        Whoever has waited in vain waits half as long the next time: the one at the head of the row may stand still.
        """
        seconds = self._settings.commit_lock_seconds * 0.5 ** min(self._waits_in_vain, _HALVINGS)
        # All writers wait for a switch, and not in a row.
        switching = base.commit_policy.kind is CommitPolicyKind.SWITCHING
        if seconds <= 0 or switching or not self._is_in_a_crowd:
            yield False
            return
        with self._catalog.commit_lock(base.table_id, seconds=seconds) as ones_turn:
            self._waits_in_vain = 0 if ones_turn else self._waits_in_vain + 1
            yield ones_turn

    def create(self, transaction: Transaction, base: Snapshot) -> CommitOutcome:
        """One attempt at making the version after ``base`` by creating its published file.

        Raises:
            CommitStateUnknownError: storage did not answer whether the file is there.
            StoreNotSupportedError: the store cannot create exclusively.
        """
        return self._create(base, self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT))

    def _attempt(self, transaction: Transaction, base: Snapshot) -> tuple[_Staged | None, CommitOutcome]:
        """Prepare and propose the version after ``base``, as the policy known there wants it."""
        if base.commit_policy.through_catalog:
            staged = self._prepare(transaction, base, None)
            return staged, self._propose(base, staged)
        # Nothing but this question, before each attempt, keeps a writer from creating files after the policy has changed.
        known = ratified_commits(self._catalog, self._store, table_id=base.table_id, location=base.location)
        if known.commit_policy.kind is not CommitPolicyKind.PUT_IF_ABSENT:
            return None, CommitPolicyChanged(policy=known.commit_policy)
        if known.latest_version > base.version:
            return None, VersionTaken(proposed_version=base.version + 1, winners=known)
        staged = self._prepare(transaction, base, CommitMode.PUT_IF_ABSENT)
        return staged, self._create(base, staged)

    def _create(self, base: Snapshot, staged: _Staged) -> CommitOutcome:
        last: StorageError | None = None
        for attempt in range(self._settings.max_resolve_attempts):
            if attempt:
                self._pause(attempt + 2)
            try:
                created = create_commit(self._store, location=base.location, proposal=staged.proposal, data=staged.data)
            except (StoreNotSupportedError, DirectoryNotFoundError):
                raise
            except StorageError as error:
                _log.warning(
                    "No answer to the creation of version %d of %s: %s", staged.version, base.identifier, error
                )
                last = error
                continue
            if created is not None:
                return record_commit(
                    self._catalog,
                    self._store,
                    table_id=base.table_id,
                    location=base.location,
                    proposal=replace(staged.proposal, file_modification_time=created.modification_time),
                    follows_ms=base.timestamp_ms,
                )
            known = ratified_commits(self._catalog, self._store, table_id=base.table_id, location=base.location)
            return VersionTaken(proposed_version=staged.version, winners=known)
        raise CommitStateUnknownError(
            f"Storage did not answer whether version {staged.version} of {base.identifier} was created ({last}). The commit "
            f"with txnId {staged.proposal.summary.txn_id} may or may not be there; nothing was deleted. Once storage answers "
            "again, look for that txnId in the table's history before writing again.",
            txn_id=staged.proposal.summary.txn_id,
            version=staged.version,
        ) from last

    def _bound_backlog(self, base: Snapshot) -> None:
        """Publish first where too much is unpublished; only a backlog that cannot be published stops the write."""
        limit = self._settings.max_unpublished_commits
        if base.version - base.published_version < limit:
            return
        last: Exception | None = None
        for attempt in range(1 + self._settings.max_resolve_attempts):
            if attempt:
                self._pause(attempt + 2)
            pending = self._catalog.get_ratified_commits(base.table_id)
            unpublished = pending.latest_version - pending.published_version
            if unpublished < limit:
                return
            try:
                publish_commits(
                    CommitReader(self._store, base.location, records=CatalogRecords(self._catalog, base.table_id)),
                    commits=pending.unpublished,
                    reached=lambda version: self._catalog.set_published_version(base.table_id, version),
                )
            except (StorageError, CatalogUnavailableError, CorruptLogError) as error:
                last = error
            else:
                return
        raise CommitRejectedError(
            f"Nothing was committed to {base.identifier}: {unpublished} of its commits are not published, as many as "
            f"ClientSettings.max_unpublished_commits allows, and they cannot be published: {last} Mend that, then write again."
        ) from last

    def _exceeded(
        self, transaction: Transaction, base: Snapshot, winners: Sequence[CommitActions]
    ) -> CommitRetriesExceededError:
        attempts = self._settings.max_commit_attempts
        what = f"{transaction.operation} on {base.identifier} was tried {attempts} times and nothing was committed. "
        if base.commit_policy.kind is CommitPolicyKind.SWITCHING:
            return CommitRetriesExceededError(
                f"{what}The table's commit mode is being switched, and writers wait for that. If whoever began it has gone, "
                "set the mode again: that completes the switch."
            )
        named = "; ".join(f"version {winner.version} ({describe(winner)})" for winner in winners)
        return CommitRetriesExceededError(
            f"{what}Others were faster each time, with commits that are compatible with it: {named or 'none that is known'}. "
            "Run it again, write less often, or raise ClientSettings.max_commit_attempts.",
            winning_versions=tuple(winner.version for winner in winners),
        )

    def _pause(self, retry: int) -> float:
        seconds = random.uniform(0, self._settings.longest_pause_seconds(retry))
        time.sleep(seconds)
        return seconds

    def _prepare(self, transaction: Transaction, base: Snapshot, mode: CommitMode | None) -> _Staged:
        """The commit after ``base``; staged, if that is its mode. With None the policy chooses, by size."""
        version = base.version + 1
        timestamp = next_in_commit_timestamp(self._after_commit.now_ms(), base.timestamp_ms)
        actions = transaction.actions(base, in_commit_timestamp=timestamp)
        data = commit_json.encode_commit(actions)
        metadata, protocol = _definition(actions, base)
        mode = base.commit_policy.mode_for(len(data)) if mode is None else mode
        file_name = log_files.commit_file_name(version)
        if mode is not CommitMode.PUT_IF_ABSENT:
            file_name = log_files.staged_commit_file_name(version, str(uuid.uuid4()))
        modified = timestamp
        if mode is CommitMode.STAGED:
            location = f"{log_files.staged_commits_directory(base.location)}/{file_name}"
            written = self._store.write_if_absent(
                location, data, may_show_unfinished=True, within=log_files.log_directory(base.location)
            )
            modified = (written or self._store.stat(location)).modification_time
        summary = CommitSummary(
            txn_id=transaction.txn_id,
            in_commit_timestamp=timestamp,
            operation=transaction.operation,
            data_change=transaction.data_change,
            metrics=dict(transaction.metrics),
            tags=feed_tags(transaction),
        )
        proposal = CommitProposal(
            version=version,
            file_name=file_name,
            file_size=len(data),
            file_modification_time=modified,
            summary=summary,
            mode=mode,
            content=data if mode is CommitMode.INLINE or len(data) <= self._settings.copied_content_bytes else None,
            metadata=metadata,
            protocol=protocol,
            sha256=digest_of(data),
            published_version=self._after_commit.unreported_published_version(base.version)
            if mode is not CommitMode.PUT_IF_ABSENT
            else None,
        )
        return _Staged(data=data, proposal=proposal)

    def _propose(self, base: Snapshot, staged: _Staged) -> CommitOutcome:
        last: CatalogUnavailableError | StorageError | None = None
        for attempt in range(self._settings.max_resolve_attempts):
            if attempt:
                self._pause(attempt + 2)
            try:
                # Proposing the same file name for the same version again cannot ratify it twice.
                outcome = (
                    self._catalog.commit(base.table_id, staged.proposal)
                    if last is None
                    else self._resolve(base, staged)
                )
            except TableNotFoundError as error:
                if last is None:
                    raise
                raise CommitStateUnknownError(
                    f"{base.identifier} was dropped while the catalog did not answer whether version {staged.version} was "
                    f"ratified ({last}). If the table is brought back, look for the txnId {staged.proposal.summary.txn_id} in "
                    "its history; nothing was deleted.",
                    txn_id=staged.proposal.summary.txn_id,
                    version=staged.version,
                ) from error
            except (CatalogUnavailableError, StorageError) as error:
                _log.warning(
                    "No answer to the proposal of version %d of %s: %s", staged.version, base.identifier, error
                )
                last = error
                continue
            return outcome
        raise CommitStateUnknownError(
            f"The catalog did not answer whether version {staged.version} of {base.identifier} was ratified ({last}). The commit "
            f"with txnId {staged.proposal.summary.txn_id} may or may not become visible; nothing was retried and nothing "
            "deleted. Once the catalog answers again, look for that txnId in the table's history before writing again.",
            txn_id=staged.proposal.summary.txn_id,
            version=staged.version,
        ) from last

    def _resolve(self, base: Snapshot, staged: _Staged) -> CommitOutcome:
        """Find out what became of a proposal whose answer was lost (CM-W4); ask again only if it had no effect."""
        version = staged.version
        ratified = self._catalog.get_ratified_commits(base.table_id, start=version)
        if ratified.latest_version < version:
            return self._catalog.commit(base.table_id, staged.proposal)
        named = next((commit for commit in ratified.commits if commit.version == version), None)
        txn_id = named.txn_id if named is not None else self._published_txn_id(base, version)
        if txn_id == staged.proposal.summary.txn_id:
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
        self, transaction: Transaction, race: Race, staged: _Staged, outcome: Ratified, *, retries: int
    ) -> Committed:
        base = race.base
        own = commit_json.decode_commit(staged.data, version=staged.version)
        snapshot = advance(base, (own,), published_version=min(outcome.published_version, staged.version))
        snapshot = self._after_commit.ratified(
            snapshot,
            own,
            data=staged.data,
            mode=staged.proposal.mode,
            outcome=outcome,
            winners=race.told,
            in_a_crowd=self._is_in_a_crowd,
        )
        return Committed(
            version=staged.version,
            txn_id=transaction.txn_id,
            in_commit_timestamp=staged.proposal.summary.in_commit_timestamp,
            retries=retries,
            snapshot=snapshot,
        )


def _definition(actions: Sequence[Action], base: Snapshot) -> tuple[Metadata | None, Protocol | None]:
    """Metadata and protocol after a commit that changes the one or the other; they follow commitInfo."""
    metadata = next((action for action in actions[1:3] if isinstance(action, Metadata)), None)
    protocol = next((action for action in actions[1:3] if isinstance(action, Protocol)), None)
    if metadata is None and protocol is None:
        return None, None
    return metadata or base.metadata, protocol or base.protocol


def feed_tags(transaction: Transaction) -> dict[str, str]:
    """Provenance for the catalog's feed and, where it is known and short, which partitions changed."""
    tags = dict(transaction.context.tags)
    partitions = transaction.changed_partitions()
    if partitions is not None:
        tags[CHANGED_PARTITIONS_TAG] = json.dumps([dict(values) for values in partitions])
    return tags
