"""Commits made by creating their published file (protocol "Catalog-managed tables", put-if-absent).

The file is the commit, whether the catalog was told or not (CM-C5). So whoever asks the catalog about such a table looks behind
its latest version, and tells the catalog what it finds before anything is built on top (CM-C6). Staged and inline commits do not
come through here.

A file proves its commit only as the first one of its name. A writer that is suspended between its question to the catalog and
the creation may wake up after metadata cleanup has removed that version, and then creates a file that means nothing. So a
creation counts once the catalog has agreed or, where it cannot be asked, once the version before is seen in the log: cleanup
goes in ascending order (CLEAN-11), and has never come to a version whose predecessor is there. Otherwise the writer takes its
file back. Of a writer that dies before that a file below the oldest checkpoint is left, which nobody reads and the next
cleanup deletes.
"""

import logging

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
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import ObjectStatus, Store

_log = logging.getLogger(__name__)


def ratified_commits(
    catalog: CommitCoordinator, store: Store, *, table_id: str, location: str, content_from_version: int | None = None
) -> RatifiedCommits:
    """The catalog's answer, after it was told of every commit that only storage knew.

    Args:
        content_from_version: as of :meth:`CommitCoordinator.get_ratified_commits`.

    Raises:
        CorruptLogError: a file above the catalog's latest version is no commit that could have been made.
        TableNotFoundError: unknown or dropped table.
    """
    answer = catalog.get_ratified_commits(table_id, content_from_version=content_from_version)
    if answer.commit_policy.through_catalog:
        return answer
    version = answer.latest_version
    while (found := _read_next(store, location, version + 1)) is not None:
        version += 1
        status, data = found
        try:
            catalog.record_published(table_id, _found(version, status, data))
        except (CorruptLogError, CommitRejectedError) as error:
            raise CorruptLogError(
                f"{status.location} follows the latest version that the catalog knows, as a commit does that was made by creating "
                f"its file, but no client can have made it: {error} Nothing was read or written. If it is nobody's commit, move "
                "it away."
            ) from error
    if version == answer.latest_version:
        return answer
    return catalog.get_ratified_commits(table_id, content_from_version=content_from_version)


def create_commit(store: Store, *, location: str, proposal: CommitProposal, data: bytes) -> ObjectStatus | None:
    """Create the published file of ``proposal``; the file if it is there now with this very commit in it, else None.

    Asking again after an error is safe: a file that is there tells by its ``txnId`` whose it is.

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
    return written or store.stat(target)


def record_commit(
    catalog: CommitCoordinator, store: Store, *, table_id: str, location: str, proposal: CommitProposal, follows_ms: int
) -> CommitOutcome:
    """Tell the catalog of a commit that was created. It stands whether the catalog can be told or not (CM-C5).

    Where the catalog has had another commit of that version for long, the file is taken back and the race is lost.

    Args:
        follows_ms: in-commit timestamp of the version before, by which its commit is known.

    Raises:
        CommitStateUnknownError: the table was dropped meanwhile, or neither catalog nor log can tell whether the file was
            the first of its name.
        StorageError: the file that means nothing could not be taken back.
    """
    try:
        outcome = catalog.record_published(table_id, proposal)
    except CatalogUnavailableError as error:
        if not _is_next(store, location, proposal.version, follows_ms):
            raise CommitStateUnknownError(
                f"Version {proposal.version} at {location} was created with the txnId {proposal.summary.txn_id}, but the commit "
                f"before it is not in the log any more and the catalog does not answer ({error}): the version may have been "
                "another one's long ago. Nothing was deleted. Once the catalog answers again, look for that txnId in the "
                "table's history before writing again.",
                txn_id=proposal.summary.txn_id,
                version=proposal.version,
            ) from error
        _log.warning(
            "The catalog was not told of version %d of %s; whoever asks next tells it", proposal.version, location
        )
        return Ratified(version=proposal.version, latest_version=proposal.version, published_version=proposal.version)
    except TableNotFoundError as error:
        raise CommitStateUnknownError(
            f"Version {proposal.version} at {location} was created while the table was dropped. Nobody sees it unless the table "
            "is brought back; nothing was deleted.",
            txn_id=proposal.summary.txn_id,
            version=proposal.version,
        ) from error
    if isinstance(outcome, VersionTaken):
        _log.warning(
            "Version %d of %s was created, but has been another commit whose file is gone; the new file is taken back",
            proposal.version,
            location,
        )
        _take_back(store, location, proposal)
    return outcome


def _is_next(store: Store, location: str, version: int, follows_ms: int) -> bool:
    """Whether the commit before ``version`` is in the log, so that cleanup cannot have been at ``version`` before."""
    try:
        info = commit_json.decode_commit_info(store.read(published_source(location, version - 1).location))
    except (StorageError, CorruptLogError):
        return False
    return info is not None and info.in_commit_timestamp == follows_ms


def _take_back(store: Store, location: str, proposal: CommitProposal) -> None:
    """Delete exactly the file of ``proposal``, which the catalog has said is not the commit of its version."""
    target = published_source(location, proposal.version).location
    try:
        info = commit_json.decode_commit_info(store.read(target))
    except ObjectNotFoundError:
        return
    if info is not None and info.txn_id == proposal.summary.txn_id:
        store.delete(target)


def _read_next(store: Store, location: str, version: int) -> tuple[ObjectStatus, bytes] | None:
    source = published_source(location, version).location
    try:
        data = store.read(source)
        return store.stat(source), data
    except ObjectNotFoundError:  # There is none, or it has been taken back since: it means nothing.
        return None


def _found(version: int, status: ObjectStatus, data: bytes) -> CommitProposal:
    """What the writer would have told the catalog, but for the partitions that it changed, which then are not known.

    Of metadata and protocol only that is told which the commit sets; the other one stays as it was.
    """
    commit = commit_json.decode_commit(data, version=version)
    info = commit.commit_info
    if info is None or not info.txn_id or info.in_commit_timestamp is None:
        raise CorruptLogError(
            "It has no commitInfo with txnId and inCommitTimestamp, which every commit of a catalog-managed table must have."
        )
    return CommitProposal(
        version=version,
        file_name=status.name,
        file_size=len(data),
        file_modification_time=status.modification_time,
        mode=CommitMode.PUT_IF_ABSENT,
        metadata=commit.metadata,
        protocol=commit.protocol,
        sha256=digest_of(data),
        summary=CommitSummary(
            txn_id=info.txn_id,
            in_commit_timestamp=info.in_commit_timestamp,
            operation=info.operation or "",
            data_change=commit.metadata is not None or commit.has_data_change,
            metrics=dict(info.operation_metrics or {}),
            tags=dict(info.tags or {}),
        ),
    )
