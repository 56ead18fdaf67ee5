"""Commits made by creating their published file (protocol "Catalog-managed tables", put-if-absent). Room: client.

The file is the commit, whether the catalog was told or not (CM-C5). So whoever asks the catalog about such a table looks behind
its latest version, and tells the catalog what it finds before anything is built on top (CM-C6). Staged and inline commits do not
come through here.
"""

import logging

from cm_delta_dagster.catalog.catalog import (
    Catalog,
    CommitOutcome,
    CommitProposal,
    CommitSummary,
    Ratified,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.client.log_reader import published_source
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    CorruptLogError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StoreNotSupportedError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol import action_json
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


def ratified_commits(
    catalog: Catalog, store: Store, *, table_id: str, location: str, start: int | None = None
) -> RatifiedCommits:
    """The catalog's answer, after it was told of every commit that only storage knew.

    Raises:
        CorruptLogError: a file above the catalog's latest version is no commit that could have been made.
        TableNotFoundError: unknown or dropped table.
    """
    answer = _ask(catalog, table_id, start)
    if answer.commit_policy.through_catalog:
        return answer
    version = answer.latest_version
    while (data := _read_next(store, location, version + 1)) is not None:
        version += 1
        catalog.record_published(table_id, _found(location, version, data))
    return answer if version == answer.latest_version else _ask(catalog, table_id, start)


def create_commit(store: Store, *, location: str, proposal: CommitProposal, data: bytes) -> bool:
    """Create the published file of ``proposal``; whether it is there now with this very commit in it.

    Asking again after an error is safe: a file that is there tells by its ``txnId`` whose it is.

    Raises:
        StorageError: whether the file was created is unknown.
        StoreNotSupportedError: the store cannot create exclusively; nothing was created.
    """
    target = published_source(location, proposal.version).location
    try:
        store.write_if_absent(target, data)
    except StoreNotSupportedError as error:
        raise StoreNotSupportedError(
            f"Version {proposal.version} was not committed by creating its file, which needs a store where only one of two "
            f"writers can create it: {error}"
        ) from error
    except ObjectAlreadyExistsError:
        info = action_json.decode_commit_info(store.read(target))
        return info is not None and info.txn_id == proposal.summary.txn_id
    return True


def record_commit(catalog: Catalog, *, table_id: str, location: str, proposal: CommitProposal) -> CommitOutcome:
    """Tell the catalog of a commit that was created. It stands whether the catalog can be told or not (CM-C5).

    Raises:
        CommitStateUnknownError: the table was dropped meanwhile.
        CorruptLogError: the catalog knows another commit of that version.
    """
    try:
        outcome = catalog.record_published(table_id, proposal)
    except CatalogUnavailableError:
        _log.warning(
            "The catalog was not told of version %d of %s; whoever asks next tells it", proposal.version, location
        )
        return Ratified(version=proposal.version, latest_version=proposal.version, published_version=proposal.version)
    except TableNotFoundError as error:
        raise CommitStateUnknownError(
            f"Version {proposal.version} at {location} was created while the table was dropped. Nobody sees it unless the table "
            "is brought back; nothing was deleted."
        ) from error
    if isinstance(outcome, VersionTaken):
        raise CorruptLogError(
            f"Version {proposal.version} at {location} was created with the txnId {proposal.summary.txn_id}, and the catalog "
            "knows another commit of that version. Its file was removed, or two catalogs manage one location; stop writing and "
            "compare the two."
        )
    return outcome


def _ask(catalog: Catalog, table_id: str, start: int | None) -> RatifiedCommits:
    return (
        catalog.get_ratified_commits(table_id) if start is None else catalog.get_ratified_commits(table_id, start=start)
    )


def _read_next(store: Store, location: str, version: int) -> bytes | None:
    try:
        return store.read(published_source(location, version).location)
    except ObjectNotFoundError:
        return None


def _found(location: str, version: int, data: bytes) -> CommitProposal:
    """What the writer would have told the catalog, but for the partitions that it changed, which then are not known."""
    source = published_source(location, version)
    commit = action_json.decode_commit(data, version=version)
    info = commit.commit_info
    if info is None or not info.txn_id or info.in_commit_timestamp is None:
        raise CorruptLogError(
            f"{source.location} was created without a commitInfo that has txnId and inCommitTimestamp, which every commit of "
            "a catalog-managed table must have. The catalog does not know it; nothing was read or written."
        )
    return CommitProposal(
        version=version,
        file_name=source.location.rpartition("/")[2],
        file_size=len(data),
        file_modification_time=info.in_commit_timestamp,
        mode=CommitMode.PUT_IF_ABSENT,
        summary=CommitSummary(
            txn_id=info.txn_id,
            in_commit_timestamp=info.in_commit_timestamp,
            operation=info.operation or "",
            data_change=commit.metadata is not None or commit.has_data_change,
            metrics=dict(info.operation_metrics or {}),
            tags=dict(info.tags or {}),
        ),
    )
