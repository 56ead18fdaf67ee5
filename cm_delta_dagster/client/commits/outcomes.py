"""Proposes prepared commits and finds their outcome (protocol heading "Commit Protocol").

If catalog or storage do not answer, the request is repeated with a backoff. Before a proposal is repeated, the catalog is asked
for the version and its ``txnId``; nothing is assumed. An error after an unanswered proposal leaves the outcome unknown, except the
refusal of a repeated proposal whose version did not exist.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import CommitOutcome, Ratified, RatifiedTogether, VersionTaken
from cm_delta_dagster.client.backoff import attempts
from cm_delta_dagster.client.commits.proposal import PreparedCommit
from cm_delta_dagster.client.commits.put_if_absent import create_commit, ratified_commits, record_commit
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CmDeltaError,
    CommitRejectedError,
    CommitStateUnknownError,
    DirectoryNotFoundError,
    IllegalCommitError,
    StorageError,
    StoreNotSupportedError,
    TableNotFoundError,
    WriteRefusedError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A prepared commit of one table, after the snapshot ``base``."""

    base: Snapshot
    prepared: PreparedCommit
    store: Store

    @property
    def txn_id(self) -> str:
        return self.prepared.proposal.summary.txn_id

    def __str__(self) -> str:
        return f"version {self.prepared.version} of {self.base.identifier}"


def propose(
    attempts_of_tables: Sequence[Attempt], *, coordinator: CommitCoordinator, settings: ClientSettings
) -> Mapping[str, CommitOutcome]:
    """Propose one commit for each of some tables, of which the catalog ratifies all or none.

    Returns:
        By table id: ``Ratified`` for each table, or the answers of the tables that prevented it.

    Raises:
        CommitRejectedError: the catalog refused for another reason than the version.
        CommitStateUnknownError: the catalog did not answer whether it ratified the commits, or then refused to say it.
        IllegalCommitError: the catalog refused the content of a commit.
        TableNotFoundError: a table was dropped before the first proposal.
    """
    tries, names = tuple(attempts_of_tables), " and ".join(map(str, attempts_of_tables))
    last: CatalogUnavailableError | StorageError | None = None
    for _ in attempts(settings, settings.max_resolve_attempts):
        is_absent = False
        try:
            if last is not None:
                outcomes = {attempt.base.table_id: _known_outcome(attempt, coordinator) for attempt in tries}
                if (answers := _common_outcome(outcomes)) is not None:
                    return answers
                is_absent = all(outcome is None for outcome in outcomes.values())
            # Proposing the same file name for the same version again cannot ratify it twice.
            return _send(tries, coordinator)
        except (CatalogUnavailableError, StorageError) as error:
            _log.warning("No answer to the proposal of %s: %s", names, error)
            last = error
        except CmDeltaError as error:
            if last is None or (is_absent and isinstance(error, CommitRejectedError | IllegalCommitError)):
                raise
            event = "the table was dropped" if isinstance(error, TableNotFoundError) else "a request failed"
            raise _unknown(tries, f"{last} Then {event}: {error}") from error
    raise _unknown(tries, str(last)) from last


def _send(tries: Sequence[Attempt], coordinator: CommitCoordinator) -> Mapping[str, CommitOutcome]:
    proposals = {attempt.base.table_id: attempt.prepared.proposal for attempt in tries}
    if len(proposals) == 1:
        return {table_id: coordinator.commit(table_id, proposal) for table_id, proposal in proposals.items()}
    outcome = coordinator.commit_together(proposals)
    return outcome.commits if isinstance(outcome, RatifiedTogether) else outcome.refusals


def _common_outcome(outcomes: Mapping[str, Ratified | VersionTaken | None]) -> Mapping[str, CommitOutcome] | None:
    """The outcome of proposals that the catalog did not answer, by the outcomes of their tables.

    None if they had no effect, or if the catalog has to compare them.
    """
    ratified = {table_id: outcome for table_id, outcome in outcomes.items() if isinstance(outcome, Ratified)}
    if len(ratified) == len(outcomes):
        return ratified
    taken = {table_id: outcome for table_id, outcome in outcomes.items() if isinstance(outcome, VersionTaken)}
    return taken if taken and not ratified else None


def _known_outcome(attempt: Attempt, coordinator: CommitCoordinator) -> Ratified | VersionTaken | None:
    base, version = attempt.base, attempt.prepared.version
    ratified = coordinator.get_ratified_commits(base.table_id, start=version)
    if ratified.latest_version < version:
        return None
    named = next((commit for commit in ratified.commits if commit.version == version), None)
    txn_id = named.txn_id if named is not None else _published_txn_id(attempt.store, base, version)
    if txn_id != attempt.txn_id:
        return VersionTaken(proposed_version=version, winners=ratified)
    return Ratified(
        version=version,
        latest_version=ratified.latest_version,
        published_version=ratified.published_version,
        repeated=True,
    )


def _published_txn_id(store: Store, base: Snapshot, version: int) -> str | None:
    info = commit_json.decode_commit_info(store.read(published_source(base.location, version).location))
    return None if info is None else info.txn_id


def _unknown(tries: Sequence[Attempt], reason: str) -> CommitStateUnknownError:
    commits = " and ".join(f"{attempt} (txnId {attempt.txn_id})" for attempt in tries)
    effect = "Either all of them become visible or none" if len(tries) > 1 else "It may or may not become visible"
    return CommitStateUnknownError(
        f"The catalog did not answer whether it ratified {commits}: {reason} {effect}; nothing was deleted. Once the catalog "
        "answers again, look for the txnId in the history of the table before you retry.",
        txn_id=tries[0].txn_id,
        version=tries[0].prepared.version,
    )


def create(attempt: Attempt, *, coordinator: CommitCoordinator, settings: ClientSettings) -> CommitOutcome:
    """Commit by creating the published file.

    Raises:
        CommitStateUnknownError: storage did not answer whether the file exists.
        DirectoryNotFoundError: the table has no log directory; nothing was created.
        StoreNotSupportedError: the store cannot create exclusively.
        WriteRefusedError: the store refused the first request; nothing was created.
    """
    base, prepared, store = attempt.base, attempt.prepared, attempt.store
    last: StorageError | None = None
    for _ in attempts(settings, settings.max_resolve_attempts):
        try:
            created = create_commit(store, location=base.location, proposal=prepared.proposal, data=prepared.data)
        except (StoreNotSupportedError, DirectoryNotFoundError):
            raise
        except StorageError as error:
            if last is None and isinstance(error, WriteRefusedError):
                raise
            _log.warning("No answer to the creation of %s: %s", attempt, error)
            last = error
            continue
        if created is not None:
            return record_commit(
                coordinator,
                store,
                table_id=base.table_id,
                location=base.location,
                proposal=created,
                follows_ms=base.timestamp_ms,
            )
        known = ratified_commits(coordinator, store, table_id=base.table_id, location=base.location)
        return VersionTaken(proposed_version=prepared.version, winners=known)
    raise CommitStateUnknownError(
        f"Storage did not answer whether {attempt} was created ({last}). The commit with txnId {attempt.txn_id} may or may not be "
        "there; nothing was deleted. Once storage answers again, look for that txnId in the table's history before you retry.",
        txn_id=attempt.txn_id,
        version=prepared.version,
    ) from last
