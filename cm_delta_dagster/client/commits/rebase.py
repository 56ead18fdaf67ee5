"""Rebases a transaction over the commits of other writers (winners).

Winners are read and checked for conflicts with the transaction, which then follows them; nothing that the user computed is
computed again. ``protocol.commits.conflicts`` decides whether two commits conflict.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.commits.put_if_absent import ratified_commits
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.snapshot import advance, changes_data
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CorruptLogError,
    HoldOutdatedError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.commits.conflicts import Conflict, ConflictKind, check_conflict, following
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files, log_segment
from cm_delta_dagster.storage.store import Store


class Rebase:
    """One transaction, the snapshot on which it is proposed next, and the winners so far.

    Args:
        threads: number of winners read concurrently.
        on_winners: called with winners, oldest first, and the published version that the catalog returned with them.
        audited_version: the version that the commit would have become when its result was checked; None if nothing was checked.
    """

    def __init__(
        self,
        transaction: Transaction,
        *,
        coordinator: CommitCoordinator,
        store: Store,
        threads: int,
        on_winners: Callable[[Sequence[CommitActions], int], None],
        audited_version: int | None = None,
    ) -> None:
        self.base = transaction.snapshot
        self.winners: list[CommitActions] = []
        self.winner_records: dict[int, RatifiedCommit] = {}
        """The catalog's records of winners by version; incomplete if the catalog was asked again."""
        self._transaction = transaction
        self._coordinator = coordinator
        self._store = store
        self._reader = CommitReader(
            store,
            self.base.location,
            records=CatalogRecords(coordinator, self.base.table_id),
            threads=threads,
        )
        self._on_winners = on_winners
        self._audited_version = audited_version

    def catch_up(self) -> None:
        """Rebase over commits that were made during a wait, since a proposal without them would be refused.

        If catalog or storage do not answer, nothing happens; the proposal handles that. Raises as :meth:`apply`.
        """
        base = self.base
        try:
            known = self._known_from(base.version + 1)
        except (CatalogUnavailableError, StorageError):
            return
        policy_changed = base.commit_policy.through_catalog and not known.commit_policy.through_catalog
        if not policy_changed:
            self._follow(known)

    def follow_latest(self) -> None:
        """Rebase over all commits that were made so far, to see what the commit would give now.

        Raises as :meth:`apply`, also if the catalog does not answer.
        """
        self._follow(self._known_from(self.base.version + 1))

    def _known_from(self, start: int) -> RatifiedCommits:
        base = self.base
        if base.commit_policy.through_catalog:
            return self._coordinator.get_ratified_commits(base.table_id, start=start, content_from_version=start)
        return ratified_commits(
            self._coordinator,
            self._store,
            table_id=base.table_id,
            location=base.location,
            content_from_version=start,
        )

    def _follow(self, known: RatifiedCommits) -> None:
        if known.latest_version > self.base.version:
            self.apply(replace(known, commits=(*known.cached_commits, *known.commits), cached_commits=()))

    def apply(self, ratified: RatifiedCommits) -> None:
        """Check every winner for conflicts with the transaction, and advance ``base`` to the newest winner.

        Args:
            ratified: the catalog's answer with the winners; if their files were deleted since, the catalog is asked again.

        Raises:
            CommitConflictError: a winner conflicts with the transaction.
            HoldOutdatedError: a winner changed rows after the result of the transaction was checked.
            CorruptLogError: a winner cannot be read or understood.
            StorageError, CatalogUnavailableError: there was no answer; nothing was proposed.
        """
        transaction, base = self._transaction, self.base
        winners = self._read(ratified)
        self._on_winners(winners, ratified.published_version)
        pending = transaction.pending(base)
        for winner in winners:
            self._refuse_itself(winner)
            conflict = check_conflict(pending, winner, location=base.location) or _unsupported(winner, base.identifier)
            if conflict is not None:
                raise CommitConflictError(
                    f"{transaction.operation} on {base.identifier}, which read version {transaction.snapshot.version}, "
                    f"conflicts with version {winner.version} ({describe(winner)}): {conflict.message} Nothing was "
                    "committed. Retry on the latest version.",
                    kind=str(conflict.kind.value),
                    winning_version=winner.version,
                )
            self._check_audited(winner)
            pending = following(pending, winner)
        self.base = replace(
            advance(base, winners, published_version=ratified.published_version), commit_policy=ratified.commit_policy
        )
        self.winners += winners
        self.winner_records.update((commit.version, commit) for commit in ratified.commits)

    def _refuse_itself(self, winner: CommitActions) -> None:
        """Refuse to commit a hold again that a catalog, restored from a backup, does not know to be ratified."""
        transaction, info = self._transaction, winner.commit_info
        if transaction.hold_id is not None and info is not None and info.txn_id == transaction.txn_id:
            raise CommitConflictError(
                f"{transaction.operation} on {self.base.identifier} was committed as version {winner.version}. Read that version.",
                winning_version=winner.version,
            )

    def _check_audited(self, winner: CommitActions) -> None:
        audited = self._audited_version
        if audited is not None and winner.version >= audited and changes_data(winner):
            raise HoldOutdatedError(
                f"{self._transaction.operation} on {self.base.identifier} was checked as version {audited}, and version "
                f"{winner.version} ({describe(winner)}) has changed rows since. Nothing was committed; the hold stays. Have the "
                "held state checked again, e.g. by the step that made it. Then it can be ratified or approved."
            )

    def _read(self, ratified: RatifiedCommits) -> tuple[CommitActions, ...]:
        base = self.base
        start = base.version + 1
        for answer in (ratified, None):
            known = answer or self._coordinator.get_ratified_commits(base.table_id, start=start)
            unpublished = [commit for commit in known.commits if commit.version > known.published_version]
            published = [commit for commit in known.commits if commit.version <= known.published_version]
            sources = commit_sources(
                base.location, start=start, end=known.latest_version, ratified=unpublished, cached=published
            )
            try:
                return self._reader.decode_all(sources)
            except ObjectNotFoundError as error:
                # It may have been published and its staged file deleted since the catalog answered: ask once more.
                missing = error
        names = [status.name for status in self._store.list_from(log_files.log_directory(base.location))]
        listed = [commit.version for commit in known.commits]
        if (
            log_segment.version_after_cleanup(names, ratified=listed, version=start, latest=known.latest_version)
            is not None
        ):
            raise CommitConflictError(
                f"The write to {base.identifier} read version {base.version}, and version {start} after it is gone: "
                "metadata cleanup has removed it, so that conflicts with it cannot be checked. Nothing was committed. Retry on "
                "the latest version.",
                winning_version=start,
            )
        raise CorruptLogError(
            f"A winning commit of {base.identifier} after version {base.version} cannot be read: {missing} The catalog lists it, "
            "so storage lost it; restore the file before writing to the table."
        )


def describe(commit: CommitActions) -> str:
    """Operation, writer and txnId of a commit, for a message."""
    info = commit.commit_info
    if info is None:
        return "without commitInfo"
    writer = (info.tags or {}).get("dagster/asset_key") or info.engine_info or "unknown writer"
    return f"{info.operation or 'unknown operation'} by {writer}, txnId {info.txn_id}"


def _unsupported(winner: CommitActions, table: str) -> Conflict | None:
    """The conflict with a winner that changed the protocol to one that this client cannot write."""
    if winner.protocol is None:
        return None
    try:
        check_writable(winner.protocol, table)
    except UnsupportedFeatureError as error:
        return Conflict(kind=ConflictKind.PROTOCOL_CHANGED, version=winner.version, message=str(error))
    return None
