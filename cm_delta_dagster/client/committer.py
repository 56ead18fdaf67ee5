"""From a transaction to a ratified version (protocol "Commit protocol for catalog-managed tables"). Room: client.

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

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicyKind
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitPolicyChanged,
    CommitProposal,
    CommitSummary,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.client.after_commit import AfterCommit
from cm_delta_dagster.client.log_reader import commit_sources, published_source, read_commits
from cm_delta_dagster.client.publisher import publish_commits
from cm_delta_dagster.client.put_if_absent import create_commit, ratified_commits, record_commit
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshot import Snapshot
from cm_delta_dagster.client.transaction import Committed, Transaction
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitRejectedError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
    StoreNotSupportedError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol import action_json, log_files, log_segment
from cm_delta_dagster.protocol.action_json import CommitActions
from cm_delta_dagster.protocol.actions import Action, Metadata, Protocol
from cm_delta_dagster.protocol.commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.conflicts import Conflict, ConflictKind, PendingCommit, check_conflict, following
from cm_delta_dagster.protocol.reconciliation import replay
from cm_delta_dagster.protocol.table_features import check_writable
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


class _Race:
    """What one transaction has met on its way: the version it stands on now, and the commits that were faster."""

    def __init__(self, base: Snapshot) -> None:
        self.base = base
        self.winners: list[CommitActions] = []
        self.told: dict[int, RatifiedCommit] = {}
        """Winners by version, as the catalog has told of them; not all, if it was asked more than once."""


class TableCommitter:
    """Commits transactions of one table. Safe to share between threads.

    Between commits it remembers nothing but when it last met other writers, since for a moment after that it waits for its turn,
    and how often it did so in vain.
    """

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        settings: ClientSettings,
        after_commit: AfterCommit,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._settings = settings
        self._after_commit = after_commit
        self._takes_turns_until = 0.0
        self._own_version = -1
        self._waits_in_vain = 0

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`."""
        base = transaction.snapshot
        self._bound_backlog(base)
        if 0 <= self._own_version < base.version:
            self._met_others()
        race = _Race(base)
        for attempt in range(self._settings.max_commit_attempts):
            with self._turn(race.base) as ones_turn:
                if ones_turn or (attempt and self._pause(attempt)):
                    self._catch_up(transaction, race)
                staged, outcome = self._attempt(transaction, race.base)
            if isinstance(outcome, Ratified) and staged is not None:
                self._own_version = outcome.version
                return self._finish(transaction, race, staged, outcome, retries=max(attempt, min(1, len(race.winners))))
            if isinstance(outcome, VersionTaken):
                self._met_others()
                self._rebase(transaction, race, outcome.winners)
            elif isinstance(outcome, CommitPolicyChanged):
                race.base = replace(race.base, commit_policy=outcome.policy)
        raise self._exceeded(transaction, race.base, race.winners)

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
        seconds = self._settings.turn_seconds * 0.5 ** min(self._waits_in_vain, _HALVINGS)
        # All writers wait for a switch, and not in a row.
        switching = base.commit_policy.kind is CommitPolicyKind.SWITCHING
        if seconds <= 0 or switching or not self._is_in_a_crowd:
            yield False
            return
        with self._catalog.turn(base.table_id, seconds=seconds) as ones_turn:
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
            except StoreNotSupportedError:
                raise
            except StorageError as error:
                _log.warning(
                    "No answer to the creation of version %d of %s: %s", staged.version, base.identifier, error
                )
                last = error
                continue
            if created:
                return record_commit(
                    self._catalog,
                    self._store,
                    table_id=base.table_id,
                    location=base.location,
                    proposal=staged.proposal,
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
                    self._store,
                    location=base.location,
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
        named = "; ".join(f"version {winner.version} ({_describe(winner)})" for winner in winners)
        return CommitRetriesExceededError(
            f"{what}Others were faster each time, with commits that are compatible with it: {named or 'none that is known'}. "
            "Run it again, write less often, or raise ClientSettings.max_commit_attempts.",
            winning_versions=tuple(winner.version for winner in winners),
        )

    def _pause(self, retry: int) -> float:
        seconds = random.uniform(0, self._settings.longest_pause_seconds(retry))
        time.sleep(seconds)
        return seconds

    def _catch_up(self, transaction: Transaction, race: _Race) -> None:
        """Learn what others have committed during a pause: a proposal that does not know of it would be made in vain."""
        base = race.base
        start, table_id = base.version + 1, base.table_id
        try:
            known = (
                self._catalog.get_ratified_commits(table_id, start=start, kept_from=start)
                if base.commit_policy.through_catalog
                else ratified_commits(
                    self._catalog, self._store, table_id=table_id, location=base.location, kept_from=start
                )
            )
        except (CatalogUnavailableError, StorageError):
            return  # The proposal meets the same, and knows what to do about it.
        otherwise = base.commit_policy.through_catalog and not known.commit_policy.through_catalog
        if not otherwise and known.latest_version >= start:
            self._met_others()
            self._rebase(transaction, race, replace(known, commits=(*known.kept, *known.commits), kept=()))

    def _prepare(self, transaction: Transaction, base: Snapshot, mode: CommitMode | None) -> _Staged:
        """The commit after ``base``; staged, if that is its mode. With None the policy chooses, by size."""
        version = base.version + 1
        timestamp = next_in_commit_timestamp(self._after_commit.now_ms(), base.timestamp_ms)
        actions = transaction.actions(base, in_commit_timestamp=timestamp)
        data = action_json.encode_commit(actions)
        metadata, protocol = _definition(actions, base)
        mode = base.commit_policy.mode_for(len(data)) if mode is None else mode
        file_name = log_files.commit_file_name(version)
        if mode is not CommitMode.PUT_IF_ABSENT:
            file_name = log_files.staged_commit_file_name(version, str(uuid.uuid4()))
        written = None
        if mode is CommitMode.STAGED:
            directory = log_files.staged_commits_directory(base.location)
            written = self._store.write_if_absent(f"{directory}/{file_name}", data, may_show_unfinished=True)
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
            file_modification_time=timestamp if written is None else written.modification_time,
            summary=summary,
            mode=mode,
            content=data if mode is CommitMode.INLINE or len(data) <= self._settings.copied_content_bytes else None,
            metadata=metadata,
            protocol=protocol,
            published_version=self._after_commit.untold_mark(base.version)
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
        info = action_json.decode_commit_info(self._store.read(published_source(base.location, version).location))
        return None if info is None else info.txn_id

    def _rebase(self, transaction: Transaction, race: _Race, told: RatifiedCommits) -> None:
        """Check every winner against the transaction, and let it stand on them. Raises CommitConflictError."""
        base = race.base
        winners = self._read_winners(base, told)
        pending = transaction.pending(base)
        for winner in winners:
            conflict = check_conflict(pending, winner, location=base.location) or _unsupported(
                pending, winner, base.identifier
            )
            if conflict is not None:
                raise CommitConflictError(
                    f"{transaction.operation} on {base.identifier}, which read version {transaction.snapshot.version}, "
                    f"conflicts with version {winner.version} ({_describe(winner)}): {conflict.message} Nothing was "
                    "committed. Run it again on the latest version.",
                    kind=str(conflict.kind.value),
                    winning_version=winner.version,
                )
            pending = following(pending, winner)
        race.base = replace(
            advance(base, winners, published_version=told.published_version), commit_policy=told.commit_policy
        )
        race.winners += winners
        race.told.update((commit.version, commit) for commit in told.commits)
        self._after_commit.note(winners, published_version=told.published_version)

    def _read_winners(self, base: Snapshot, ratified: RatifiedCommits) -> tuple[CommitActions, ...]:
        start = base.version + 1
        for answer in (ratified, None):
            known = answer or self._catalog.get_ratified_commits(base.table_id, start=start)
            unpublished = [commit for commit in known.commits if commit.version > known.published_version]
            published = [commit for commit in known.commits if commit.version <= known.published_version]
            sources = commit_sources(
                base.location, start=start, end=known.latest_version, ratified=unpublished, kept=published
            )
            try:
                return read_commits(self._store, sources, threads=self._settings.read_threads)
            except ObjectNotFoundError as error:
                # It may have been published and its staged file cleaned since the catalog answered: ask once more (CM-R10).
                missing = error
        names = [status.name for status in self._store.list_from(log_files.log_directory(base.location))]
        held = [commit.version for commit in known.commits]
        if (
            log_segment.version_after_cleanup(names, ratified=held, version=start, latest=known.latest_version)
            is not None
        ):
            raise CommitConflictError(
                f"The write to {base.identifier} read version {base.version}, and version {start} after it is so old that "
                "metadata cleanup has removed it: whether it conflicts can no longer be told. Nothing was committed. Run it "
                "again on the latest version.",
                winning_version=start,
            )
        raise CorruptLogError(
            f"A winning commit of {base.identifier} after version {base.version} cannot be read: {missing} The catalog lists it, "
            "so storage lost it; restore the file before writing to the table."
        )

    def _finish(
        self, transaction: Transaction, race: _Race, staged: _Staged, outcome: Ratified, *, retries: int
    ) -> Committed:
        base = race.base
        own = action_json.decode_commit(staged.data, version=staged.version)
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


def _unsupported(pending: PendingCommit, winner: CommitActions, table: str) -> Conflict | None:
    """Whether a winner has changed the protocol to one that this client does not keep (OCC-6)."""
    if winner.protocol is None:
        return None
    try:
        check_writable(winner.protocol, table, metadata=pending.metadata)
    except UnsupportedFeatureError as error:
        return Conflict(kind=ConflictKind.PROTOCOL_CHANGED, version=winner.version, message=str(error))
    return None


def _definition(actions: Sequence[Action], base: Snapshot) -> tuple[Metadata | None, Protocol | None]:
    """Metadata and protocol after a commit that changes the one or the other; they follow commitInfo."""
    metadata = next((action for action in actions[1:3] if isinstance(action, Metadata)), None)
    protocol = next((action for action in actions[1:3] if isinstance(action, Protocol)), None)
    if metadata is None and protocol is None:
        return None, None
    return metadata or base.metadata, protocol or base.protocol


def advance(base: Snapshot, commits: Sequence[CommitActions], *, published_version: int) -> Snapshot:
    """``base`` with ``commits``, which follow it without a gap, applied (CACHE-4).

    Raises CorruptLogError if the last commit has no in-commit timestamp (ICT-12).
    """
    if not commits:
        return replace(base, published_version=min(max(base.published_version, published_version), base.version))
    state = replay(base.state, commits, location=base.location)
    last = commits[-1]
    if last.commit_info is None or last.commit_info.in_commit_timestamp is None:
        raise CorruptLogError(
            f"Version {last.version} of {base.identifier} has no inCommitTimestamp in its first action, which every commit of "
            "a catalog-managed table must have; the commit is corrupt."
        )
    data_version = max((c.version for c in commits if changes_data(c)), default=base.data_version)
    return replace(
        base,
        state=state,
        version=last.version,
        published_version=min(max(base.published_version, published_version), last.version),
        data_version=max(data_version, base.data_version),
        timestamp_ms=last.commit_info.in_commit_timestamp,
    )


def changes_data(commit: CommitActions) -> bool:
    """Whether a commit changed rows or metadata, as :attr:`CommitSummary.data_change` has it."""
    return commit.metadata is not None or commit.has_data_change


def feed_tags(transaction: Transaction) -> dict[str, str]:
    """Provenance for the catalog's feed and, where it is known and short, which partitions changed."""
    tags = dict(transaction.context.tags)
    partitions = transaction.changed_partitions()
    if partitions is not None:
        tags[CHANGED_PARTITIONS_TAG] = json.dumps([dict(values) for values in partitions])
    return tags


def _describe(commit: CommitActions) -> str:
    info = commit.commit_info
    if info is None:
        return "without commitInfo"
    who = (info.tags or {}).get("dagster/asset_key") or info.engine_info or "unknown writer"
    return f"{info.operation or 'unknown operation'} by {who}, txnId {info.txn_id}"
