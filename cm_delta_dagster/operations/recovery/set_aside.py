"""Sets aside commits of a history that is not kept, and protects their data files.

The commits are copied unchanged to ``_delta_log/_set_aside/<time>/``, under their names. Delta readers ignore that directory. While
a commit is there, VACUUM keeps every data file that it adds, so that its rows can be read and written again.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectAlreadyExistsError, RecoveryError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.commits.superseding import readable_actions
from cm_delta_dagster.protocol.features.deletion_vectors import vector_files
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import CommitFile, StagedCommitFile, parse_log_file
from cm_delta_dagster.storage.store import Store

SET_ASIDE_DIRECTORY = "_set_aside"


def set_aside_directory(location: str, now_ms: int) -> str:
    """Return the directory for commits that are set aside at that time."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC)
    return f"{_root(location)}/{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z"


def copy_aside(store: Store, directory: str, contents: Mapping[str, bytes]) -> None:
    """Write each content under its name, and verify it by reading it.

    Raises:
        RecoveryError: another file has the name, or the copy has other bytes than were written.
        StorageError: a copy failed. No original was removed.
    """
    for name, data in contents.items():
        target = f"{directory}/{name}"
        try:
            store.write_if_absent(target, data)
        except ObjectAlreadyExistsError:
            pass  # From an interrupted attempt, if it has the same bytes.
        if store.read(target) != data:
            raise RecoveryError(
                f"{target} differs from the file that was to be copied there. The original was not removed; retry."
            )


def files_set_aside(table: Table) -> frozenset[str]:
    """Return the locations of all files that set-aside commits add, including deletion vectors and change files.

    Raises:
        CorruptLogError: a commit there cannot be read, so that its files are not known.
    """
    locations: set[str] = set()
    for status in table.store.list_recursive(_root(table.location)):
        file = parse_log_file(status.name)
        if isinstance(file, CommitFile | StagedCommitFile):
            try:
                locations.update(files_added_by(table.location, table.store.read(status.location), file.version))
            except CorruptLogError as error:
                raise CorruptLogError(
                    f"{status.location}, a commit that was set aside, cannot be read, so that the files that it needs are not "
                    f"known: {error} Nothing was deleted. Move the file out of the table if it is no longer needed."
                ) from error
    return frozenset(locations)


def txn_ids_set_aside(store: Store, location: str) -> frozenset[str]:
    """Return the ``txnId`` of every commit that was set aside and can be read."""
    txn_ids: set[str] = set()
    for status in store.list_recursive(_root(location)):
        if isinstance(parse_log_file(status.name), CommitFile | StagedCommitFile):
            with suppress(CorruptLogError):
                info = commit_json.decode_commit_info(store.read(status.location))
                txn_ids.update([] if info is None or info.txn_id is None else [info.txn_id])
    return frozenset(txn_ids)


def files_added_by(location: str, data: bytes, version: int) -> Iterable[str]:
    """Return the locations of the data files, change files and deletion vectors that a commit adds."""
    try:
        commit = commit_json.decode_commit(data, version=version)
    except CorruptLogError:
        commit = readable_actions(data, version=version)  # Of a commit that was taken back.
    for path in commit.adds["path"].to_pylist():
        yield resolve_path(location, path)
    for change in commit.cdc:
        yield resolve_path(location, change.path)
    yield from vector_files(location, commit.adds)


def files_added_by_all(location: str, commits: Sequence[tuple[int, bytes]]) -> set[str]:
    """As :func:`files_added_by` for many commits, pairs of version and content, whose files are decoded in one step."""
    small = [commit for commit in commits if len(commit[1]) < commit_json.LARGE_COMMIT_BYTES]
    try:
        decoded = commit_json.decode_commits(small)
    except CorruptLogError:
        return {file for version, data in commits for file in files_added_by(location, data, version)}
    large = (commit for commit in commits if len(commit[1]) >= commit_json.LARGE_COMMIT_BYTES)
    locations = {file for version, data in large for file in files_added_by(location, data, version)}
    locations.update(resolve_path(location, change.path) for commit in decoded for change in commit.cdc)
    with_files = [commit.adds for commit in decoded if commit.adds.num_rows]
    if with_files:
        adds = pa.concat_tables(with_files)
        locations.update(resolve_path(location, path) for path in adds["path"].to_pylist())
        locations |= vector_files(location, adds)
    return locations


def _root(location: str) -> str:
    return f"{log_files.log_directory(location)}/{SET_ASIDE_DIRECTORY}"
