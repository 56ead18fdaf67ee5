"""Publication of ratified commits (protocol heading "Publishing Commits").

Copies ratified content byte for byte to ``_delta_log/<version>.json``, in order, put-if-absent. Any number of publishers may
run concurrently: an existing file with the same content counts as published. Staged files are kept; metadata cleanup deletes
them.
"""

from collections.abc import Callable, Mapping, Sequence

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.backoff import attempts_without_jitter
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source, ratified_source
from cm_delta_dagster.errors import CatalogBehindStorageError, CorruptLogError, ObjectAlreadyExistsError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import ChooseHistory
from cm_delta_dagster.storage.store import Store

_LOOKS = 8
"""How often a file that is being written is read: over about two and a half seconds, as the waits double."""


def publish_commits(
    reader: CommitReader,
    *,
    commits: Sequence[RatifiedCommit],
    reached: Callable[[int], None],
    contents: Mapping[int, bytes] | None = None,
) -> tuple[int, ...]:
    """Publish ratified commits, whose predecessors are published, in the order given.

    Args:
        reached: called with the newest published version, also if a later commit fails.
        contents: bytes of commits that the caller has in memory, by version; others are read from their staged files or,
            if inline, from the record of the catalog.

    Returns:
        The versions published or found published, ascending.

    Raises:
        CorruptLogError: a staged file differs from the ratified commit, or a published one does; one that is a beginning of it only
            after a wait.
        CatalogBehindStorageError: that content is another commit of a catalog; the table has two histories.
        StorageError: a commit could not be copied; earlier ones were reported, later ones were not tried.
    """
    content_by_version = contents or {}
    done: list[int] = []
    try:
        for commit in commits:
            data = content_by_version.get(commit.version)
            if data is None:
                data = reader.read(ratified_source(reader.location, commit))
            publish_one(reader.store, reader.location, version=commit.version, data=data)
            done.append(commit.version)
    finally:
        if done:
            reached(done[-1])
    return tuple(done)


def publish_one(store: Store, location: str, *, version: int, data: bytes) -> None:
    """Publish one ratified commit, whose predecessors are published. Errors as in :func:`publish_commits`."""
    target = published_source(location, version).location
    try:
        store.write_if_absent(target, data, within=log_files.log_directory(location))
    except ObjectAlreadyExistsError as error:
        existing = _read_finished(store, target, data)
        if existing != data:
            if data.startswith(existing):
                raise CorruptLogError(
                    f"{target} has the first {len(existing)} of {len(data)} bytes of version {version}, and no more came while "
                    "this client waited: a program that published the version seems to have been ended meanwhile. Readers of the "
                    "catalog see the ratified commit, whose content is kept in its staged file or in the catalog. Move that file "
                    "away and publish again."
                ) from error
            _refuse_fork(target, version, existing)
            raise CorruptLogError(
                f"{target} was there before version {version} was published and is not what the catalog ratified: another program "
                "wrote to the log by its path. Readers of the catalog see the ratified commit, whose content is kept in its "
                "staged file or in the catalog. Move that file away and publish again."
            ) from error


def _read_finished(store: Store, target: str, data: bytes) -> bytes:
    """The content of the file; while it is a beginning of ``data``, it is read again a few times.

    Another publisher, such as DuckDB, creates the file and then writes it, so that it can be seen before it is complete.
    """
    existing = b""
    for _ in attempts_without_jitter(ClientSettings(), _LOOKS):
        existing = store.read(target)
        if existing == data or not data.startswith(existing):
            break
    return existing


def _refuse_fork(target: str, version: int, existing: bytes) -> None:
    """Raise if the existing file is another commit of a catalog, so that the table has two histories."""
    try:
        info = commit_json.decode_commit_info(existing)
    except CorruptLogError:
        return
    if info is None or not info.txn_id or info.in_commit_timestamp is None:
        return
    raise CatalogBehindStorageError(
        f"{target} holds another commit than the one that the catalog ratified as version {version}: {info.operation} of "
        f"{utc_text(info.in_commit_timestamp)}, txnId {info.txn_id}. The table has two histories from version {version} on, as "
        "after its catalog was restored from a backup and then written to. Nothing was changed: the content of the catalog's "
        "commit is kept in its staged file or in the catalog.",
        latest_version=version,
        storage_version=version,
    ).with_remedy(ChooseHistory())
