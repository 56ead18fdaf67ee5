"""What a transaction meets on its way to a version (protocol "Commit protocol", OCC-5 to OCC-14).

Others may be faster. Their commits are read and checked against the transaction, which then stands on them; what the user has
computed is not computed again. Whether they are in each other's way is decided in ``protocol.conflicts``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.client.commits.put_if_absent import ratified_commits
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.commit_reader import CatalogRecords, CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.snapshot import advance
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.commits.conflicts import Conflict, ConflictKind, PendingCommit, check_conflict, following
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.log import log_files, log_segment
from cm_delta_dagster.storage.store import Store


class Race:
    """One transaction, the version that it stands on now, and the commits that were faster.

    Args:
        threads: of those that read winners at once.
        learned: is told of winners, oldest first, and of the version up to which the catalog says that they are published.
    """

    def __init__(
        self,
        transaction: Transaction,
        *,
        catalog: CommitCoordinator,
        store: Store,
        threads: int,
        learned: Callable[[Sequence[CommitActions], int], None],
    ) -> None:
        self.base = transaction.snapshot
        self.winners: list[CommitActions] = []
        self.told: dict[int, RatifiedCommit] = {}
        """Winners by version, as the catalog has told of them; not all, if it was asked more than once."""
        self._transaction = transaction
        self._catalog = catalog
        self._store = store
        self._reader = CommitReader(
            store,
            self.base.location,
            records=CatalogRecords(catalog, self.base.table_id),
            threads=threads,
        )
        self._learned = learned

    def catch_up(self) -> None:
        """Learn what others have committed while one waited: a proposal that does not know of it would be made in vain.

        A catalog or storage that does not answer is left to the proposal. Raises as :meth:`rebase`.
        """
        base = self.base
        start, table_id = base.version + 1, base.table_id
        try:
            known = (
                self._catalog.get_ratified_commits(table_id, start=start, content_from_version=start)
                if base.commit_policy.through_catalog
                else ratified_commits(
                    self._catalog, self._store, table_id=table_id, location=base.location, content_from_version=start
                )
            )
        except (CatalogUnavailableError, StorageError):
            return  # The proposal meets the same, and knows what to do about it.
        otherwise = base.commit_policy.through_catalog and not known.commit_policy.through_catalog
        if not otherwise and known.latest_version >= start:
            self.rebase(replace(known, commits=(*known.cached_commits, *known.commits), cached_commits=()))

    def rebase(self, told: RatifiedCommits) -> None:
        """Check every winner against the transaction, and let it stand on them.

        Args:
            told: the answer that tells of the winners; if their files have gone since, the catalog is asked once more.

        Raises:
            CommitConflictError: a winner and the transaction cannot both stand.
            CorruptLogError: a winner cannot be read or understood.
            StorageError, CatalogUnavailableError: there was no answer; nothing was proposed.
        """
        transaction, base = self._transaction, self.base
        winners = self._read(told)
        self._learned(winners, told.published_version)
        pending = transaction.pending(base)
        for winner in winners:
            conflict = check_conflict(pending, winner, location=base.location) or _unsupported(
                pending, winner, base.identifier
            )
            if conflict is not None:
                raise CommitConflictError(
                    f"{transaction.operation} on {base.identifier}, which read version {transaction.snapshot.version}, "
                    f"conflicts with version {winner.version} ({describe(winner)}): {conflict.message} Nothing was "
                    "committed. Run it again on the latest version.",
                    kind=str(conflict.kind.value),
                    winning_version=winner.version,
                )
            pending = following(pending, winner)
        self.base = replace(
            advance(base, winners, published_version=told.published_version), commit_policy=told.commit_policy
        )
        self.winners += winners
        self.told.update((commit.version, commit) for commit in told.commits)

    def _read(self, ratified: RatifiedCommits) -> tuple[CommitActions, ...]:
        base = self.base
        start = base.version + 1
        for answer in (ratified, None):
            known = answer or self._catalog.get_ratified_commits(base.table_id, start=start)
            unpublished = [commit for commit in known.commits if commit.version > known.published_version]
            published = [commit for commit in known.commits if commit.version <= known.published_version]
            sources = commit_sources(
                base.location, start=start, end=known.latest_version, ratified=unpublished, cached=published
            )
            try:
                return self._reader.decode_all(sources)
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


def describe(commit: CommitActions) -> str:
    """Who made a commit, for a message."""
    info = commit.commit_info
    if info is None:
        return "without commitInfo"
    who = (info.tags or {}).get("dagster/asset_key") or info.engine_info or "unknown writer"
    return f"{info.operation or 'unknown operation'} by {who}, txnId {info.txn_id}"


def _unsupported(pending: PendingCommit, winner: CommitActions, table: str) -> Conflict | None:
    """Whether a winner has changed the protocol to one that this client does not keep (OCC-6)."""
    if winner.protocol is None:
        return None
    try:
        check_writable(winner.protocol, table, metadata=pending.metadata)
    except UnsupportedFeatureError as error:
        return Conflict(kind=ConflictKind.PROTOCOL_CHANGED, version=winner.version, message=str(error))
    return None
