"""Commits made by creating their published file (protocol heading "Catalog-managed tables", put-if-absent).

The file is the commit, whether the catalog has recorded it or not. A client that asks the catalog about such a table also looks
for files above the catalog's latest version, and has the catalog record them before it uses them.

Only the first file of a name is the commit of its version. A writer that is suspended before it creates its file may resume
after metadata cleanup removed that version; its file then is not a commit. So a creation counts if the catalog accepts it or,
while the catalog does not answer, if the version before is in the log: cleanup deletes in ascending order. Otherwise the writer
deletes its file. If the writer crashes first, a file below the oldest checkpoint remains, which no client reads and the next
cleanup deletes.
"""

import logging
from dataclasses import replace

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitProposal,
    CommitSummary,
    Ratified,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.client.snapshots.commit_sources import digest_of, published_source
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitStateUnknownError,
    CorruptLogError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreNotSupportedError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


def ratified_commits(
    coordinator: CommitCoordinator,
    store: Store,
    *,
    table_id: str,
    location: str,
    content_from_version: int | None = None,
) -> RatifiedCommits:
    """The catalog's answer, after it has recorded every commit that it did not know.

    Commits after the one that released the table are those of writers by path, and not the catalog's.

    Args:
        content_from_version: as of :meth:`CommitCoordinator.get_ratified_commits`.

    Raises:
        CorruptLogError: a file above the catalog's latest version is no commit that could have been made.
        TableNotFoundError: unknown or dropped table.
    """
    answer = coordinator.get_ratified_commits(table_id, content_from_version=content_from_version)
    if answer.commit_policy.through_catalog:
        return answer
    version = answer.latest_version
    while (data := _read_next(store, location, version + 1)) is not None:
        if _has_released(store, location, version):
            break
        version += 1
        try:
            coordinator.record_published(table_id, found_proposal(version, data))
        except (CorruptLogError, CommitRejectedError) as error:
            raise CorruptLogError(
                f"{published_source(location, version).location} is a commit file after the latest version that the catalog "
                f"knows, but no client of the catalog can have committed it: {error} Nothing was read or written. If none of your "
                "writers committed it, move it away."
            ) from error
    if version == answer.latest_version:
        return answer
    return coordinator.get_ratified_commits(table_id, content_from_version=content_from_version)


def _has_released(store: Store, location: str, version: int) -> bool:
    """Whether the commit of that version dropped the feature ``catalogManaged``."""
    try:
        data = store.read(published_source(location, version).location)
    except ObjectNotFoundError:
        return False
    protocol = commit_json.decode_commit(data, version=version).protocol
    return protocol is not None and not is_catalog_managed(protocol)


def create_commit(store: Store, *, location: str, proposal: CommitProposal, data: bytes) -> CommitProposal | None:
    """Create the published file of ``proposal``. Returns None if it holds another commit.

    Otherwise it returns the proposal, with the modification time of the file if the store returns it with the creation.
    Retrying after an error is safe: the ``txnId`` in an existing file identifies the commit.

    Raises:
        StorageError: whether the file was created is unknown.
        StoreNotSupportedError: the store cannot create exclusively; nothing was created.
    """
    target = published_source(location, proposal.version).location
    try:
        written = store.write_if_absent(target, data, within=log_files.log_directory(location))
    except StoreNotSupportedError as error:
        raise StoreNotSupportedError(
            f"Version {proposal.version} was not committed by creating its file, which needs a store where only one of two "
            f"writers can create it: {error}"
        ) from error
    except ObjectAlreadyExistsError:
        info = commit_json.decode_commit_info(store.read(target))
        if info is None or info.txn_id != proposal.summary.txn_id:
            return None
        written = None
    return proposal if written is None else replace(proposal, file_modification_time=written.modification_time)


def record_commit(
    coordinator: CommitCoordinator,
    store: Store,
    *,
    table_id: str,
    location: str,
    proposal: CommitProposal,
    follows_ms: int,
) -> CommitOutcome:
    """Have the catalog record a commit that was created, which is valid even if the catalog does not answer.

    If the catalog knows another commit of that version, the file is deleted and VersionTaken returned.

    Args:
        follows_ms: in-commit timestamp of the version before, which identifies its commit.

    Raises:
        CommitStateUnknownError: the table was dropped meanwhile, or neither catalog nor log show whether the file
            was the first of its name.
        StorageError: the file could not be deleted.
    """
    try:
        outcome = coordinator.record_published(table_id, proposal)
    except CatalogUnavailableError as error:
        if not _is_next(store, location, proposal.version, follows_ms):
            raise CommitStateUnknownError(
                f"Version {proposal.version} at {location} was created with the txnId {proposal.summary.txn_id}, but the commit "
                f"before it is not in the log any more and the catalog does not answer ({error}): another client may have "
                "committed the version earlier. Nothing was deleted. Once the catalog answers again, look for that txnId in the "
                "table's history before writing again.",
                txn_id=proposal.summary.txn_id,
                version=proposal.version,
            ) from error
        _log.warning(
            "The catalog has not recorded version %d of %s; the next client that reads the table reports it",
            proposal.version,
            location,
        )
        return Ratified(version=proposal.version, latest_version=proposal.version, published_version=proposal.version)
    except TableNotFoundError as error:
        raise CommitStateUnknownError(
            f"Version {proposal.version} at {location} was created while the table was dropped. It has no effect unless the table "
            "is brought back; nothing was deleted.",
            txn_id=proposal.summary.txn_id,
            version=proposal.version,
        ) from error
    if isinstance(outcome, VersionTaken):
        _log.warning(
            "Version %d of %s was created, but has been another commit whose file is gone; the new file is deleted",
            proposal.version,
            location,
        )
        _delete_file(store, location, proposal)
    return outcome


def _is_next(store: Store, location: str, version: int, follows_ms: int) -> bool:
    """Whether the commit before ``version`` is in the log, so that cleanup has not removed ``version``."""
    try:
        info = commit_json.decode_commit_info(store.read(published_source(location, version - 1).location))
    except (StorageError, CorruptLogError):
        return False
    return info is not None and info.in_commit_timestamp == follows_ms


def _delete_file(store: Store, location: str, proposal: CommitProposal) -> None:
    """Delete exactly the file of ``proposal``, which the catalog has said is not the commit of its version."""
    target = published_source(location, proposal.version).location
    try:
        info = commit_json.decode_commit_info(store.read(target))
    except ObjectNotFoundError:
        return
    if info is not None and info.txn_id == proposal.summary.txn_id:
        store.delete(target)


def _read_next(store: Store, location: str, version: int) -> bytes | None:
    try:
        return store.read(published_source(location, version).location)
    except ObjectNotFoundError:  # There is none, or its writer deleted it.
        return None


def found_proposal(version: int, data: bytes) -> CommitProposal:
    """The proposal of a commit found in storage, as :func:`proposal_of`. Raises CorruptLogError if it cannot be read, too."""
    return proposal_of(commit_json.decode_commit(data, version=version), data)


def proposal_of(commit: CommitActions, data: bytes) -> CommitProposal:
    """The proposal of a commit of another writer, put-if-absent; its changed partitions are unknown.

    It carries metadata and protocol only if the commit sets them, and the commit time as the time of the file.

    Args:
        data: the bytes of the commit.

    Raises:
        CorruptLogError: it is not a commit of a catalog-managed table.
    """
    info = commit.commit_info
    if info is None or not info.txn_id or info.in_commit_timestamp is None:
        raise CorruptLogError(
            "It has no commitInfo with txnId and inCommitTimestamp, which every commit of a catalog-managed table must have."
        )
    return CommitProposal(
        version=commit.version,
        file_name=log_files.commit_file_name(commit.version),
        file_size=len(data),
        file_modification_time=info.in_commit_timestamp,
        mode=CommitMode.PUT_IF_ABSENT,
        metadata=commit.metadata,
        protocol=commit.protocol,
        sha256=digest_of(data),
        content_to_check=data,
        summary=CommitSummary(
            txn_id=info.txn_id,
            in_commit_timestamp=info.in_commit_timestamp,
            operation=info.operation or "",
            data_change=commit.metadata is not None or commit.has_data_change,
            metrics=dict(info.operation_metrics or {}),
            tags=dict(info.tags or {}),
            engine_info=info.engine_info,
            user_metadata=info.user_metadata,
        ),
    )
