"""Proposes a prepared commit and finds its outcome (protocol heading "Commit Protocol").

If catalog or storage do not answer, the request is repeated with a backoff. Before a proposal is repeated, the catalog is asked
for the version and its ``txnId``; nothing is assumed.
"""

import logging

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import CommitOutcome, Ratified, VersionTaken
from cm_delta_dagster.client.commits.backoff import attempts
from cm_delta_dagster.client.commits.proposal import PreparedCommit
from cm_delta_dagster.client.commits.put_if_absent import create_commit, ratified_commits, record_commit
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    DirectoryNotFoundError,
    StorageError,
    StoreNotSupportedError,
    TableNotFoundError,
    WriteRefusedError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


class CommitProposer:
    """Proposes prepared commits of one table to the catalog, or creates their files. Safe to share between threads."""

    def __init__(self, *, store: Store, coordinator: CommitCoordinator, settings: ClientSettings) -> None:
        self._store = store
        self._coordinator = coordinator
        self._settings = settings

    def propose(self, base: Snapshot, prepared: PreparedCommit) -> CommitOutcome:
        """Propose the version after ``base`` to the catalog.

        Raises:
            CommitRejectedError: the catalog refused for another reason than the version.
            CommitStateUnknownError: the catalog did not answer whether it ratified the commit.
            TableNotFoundError: the table was dropped before the first proposal.
        """
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

    def create(self, base: Snapshot, prepared: PreparedCommit) -> CommitOutcome:
        """Commit the version after ``base`` by creating its published file.

        Raises:
            CommitStateUnknownError: storage did not answer whether the file exists.
            DirectoryNotFoundError: the table has no log directory; nothing was created.
            StoreNotSupportedError: the store cannot create exclusively.
            WriteRefusedError: the store refused the first request; nothing was created.
        """
        last: StorageError | None = None
        for _ in attempts(self._settings, self._settings.max_resolve_attempts):
            try:
                created = create_commit(
                    self._store, location=base.location, proposal=prepared.proposal, data=prepared.data
                )
            except (StoreNotSupportedError, DirectoryNotFoundError):
                raise
            except StorageError as error:
                if last is None and isinstance(error, WriteRefusedError):
                    raise
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
                    proposal=created,
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
