"""Commits of a history that is not kept: they are set aside in the log, and their data files are protected.

They lie in ``_delta_log/_set_aside/<moment>/``, under their names and byte for byte. No reader of Delta looks there. As long as
they are there, VACUUM keeps every data file that they name, so that their rows can be read and written again.
"""

import datetime
from collections.abc import Iterable, Mapping
from contextlib import suppress

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError, ObjectAlreadyExistsError, RecoveryError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import CommitFile, StagedCommitFile, parse_log_file
from cm_delta_dagster.storage.store import Store

SET_ASIDE_DIRECTORY = "_set_aside"


def set_aside_directory(location: str, now_ms: int) -> str:
    """Where the commits go that are set aside at that moment."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC)
    return f"{_root(location)}/{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z"


def copy_aside(store: Store, directory: str, contents: Mapping[str, bytes]) -> None:
    """Write each content under its name, and read it back.

    Raises:
        RecoveryError: another file has the name, or other bytes were read than were written.
        StorageError: a copy could not be made. Nothing was removed from its place.
    """
    for name, data in contents.items():
        target = f"{directory}/{name}"
        try:
            store.write_if_absent(target, data)
        except ObjectAlreadyExistsError:
            pass  # Of an attempt that did not come to its end, if it has the same bytes.
        if store.read(target) != data:
            raise RecoveryError(
                f"{target} does not hold what was to be set aside there. Nothing was removed from its place; try again."
            )


def files_set_aside(table: Table) -> frozenset[str]:
    """Locations of every file that a commit which was set aside adds, deletion vectors and change files among them.

    Raises:
        CorruptLogError: a commit there cannot be read, so that nobody knows which files it needs.
    """
    found: set[str] = set()
    for status in table.store.list_recursive(_root(table.location)):
        file = parse_log_file(status.name)
        if isinstance(file, CommitFile | StagedCommitFile):
            try:
                found.update(_files_of(table.location, table.store.read(status.location), file.version))
            except CorruptLogError as error:
                raise CorruptLogError(
                    f"{status.location}, a commit that was set aside, cannot be read, so that the files that it needs are not "
                    f"known: {error} Nothing was deleted. Move the file out of the table if nobody needs it any more."
                ) from error
    return frozenset(found)


def txn_ids_set_aside(store: Store, location: str) -> frozenset[str]:
    """``txnId`` of every commit that was set aside, as far as they can be read."""
    found: set[str] = set()
    for status in store.list_recursive(_root(location)):
        if isinstance(parse_log_file(status.name), CommitFile | StagedCommitFile):
            with suppress(CorruptLogError):
                info = commit_json.decode_commit_info(store.read(status.location))
                found.update([] if info is None or info.txn_id is None else [info.txn_id])
    return frozenset(found)


def _files_of(location: str, data: bytes, version: int) -> Iterable[str]:
    commit = commit_json.decode_commit(data, version=version)
    for path in commit.adds["path"].to_pylist():
        yield resolve_path(location, path)
    for change in commit.cdc:
        yield resolve_path(location, change.path)
    for vector in commit.adds["deletionVector"].to_pylist():
        if vector is not None:
            descriptor = DeletionVectorDescriptor(
                storage_type=vector["storageType"],
                path_or_inline_dv=vector["pathOrInlineDv"],
                size_in_bytes=0,
                cardinality=0,
            )
            file = dv_location(location, descriptor)
            if file is not None:
                yield file


def _root(location: str) -> str:
    return f"{log_files.log_directory(location)}/{SET_ASIDE_DIRECTORY}"
