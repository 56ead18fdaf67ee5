"""Copies the data files and deletion vectors of a version to another table, for a deep clone."""

import logging
import posixpath
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import pyarrow as pa

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.actions.paths import encode_path, resolve_path
from cm_delta_dagster.protocol.features.deletion_vectors import dv_location, encode_relative_name
from cm_delta_dagster.protocol.log.cloning import copied_files, descriptor_named, renamed_vectors, vector_names
from cm_delta_dagster.storage.store import StoreRegistry

_log = logging.getLogger(__name__)

_COPY_THREADS = 16
_STREAM_THREADS = 4
"""Each holds one file in memory."""
_FILES_PER_REPORT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopy:
    """One file to copy. ``size`` in bytes; None if the log does not say, as for a file of deletion vectors."""

    source: str
    target: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopyPlan:
    """The copies, and the add actions that name them (columns of ``ADD_SCHEMA``)."""

    copies: tuple[FileCopy, ...]
    adds: pa.Table


def plan_copies(files: pa.Table, *, location: str, target: str) -> CopyPlan:
    """Choose where the live files of the table at ``location`` go in the table at ``target``.

    Files below ``location`` keep their relative paths. Others, which a shallow clone names, get a directory of their own.

    Raises:
        CorruptLogError: a path or a deletion vector of the source is damaged.
    """
    below = f"{location}/"
    paths, copies = [], {}
    for path, size in zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True):
        at = resolve_path(location, path)
        relative = at.removeprefix(below) if at.startswith(below) else f"{uuid.uuid4()}/{posixpath.basename(at)}"
        paths.append(encode_path(relative))
        copies[at] = FileCopy(source=at, target=f"{target}/{relative}", size=size)
    names = {name: _vector_name(name) for name in set(vector_names(files["deletionVector"])) if name is not None}
    for old, new in names.items():
        at_source, at_target = (
            dv_location(root, descriptor_named(name)) for root, name in ((location, old), (target, new))
        )
        if at_source is not None and at_target is not None:
            copies[at_source] = FileCopy(source=at_source, target=at_target, size=None)
    adds = copied_files(
        files, paths=pa.array(paths, pa.string()), vectors=renamed_vectors(files["deletionVector"], names)
    )
    return CopyPlan(copies=tuple(copies.values()), adds=adds)


def _vector_name(name: tuple[str, str]) -> tuple[str, str]:
    return ("u", encode_relative_name(uuid.uuid4())) if name[0] == "p" else name


def copy_files(stores: StoreRegistry, copies: tuple[FileCopy, ...], *, what: str) -> int:
    """Copy in parallel, and compare the size of each copy. Returns the bytes that were copied.

    Args:
        what: the table, for log messages.

    Raises:
        ObjectNotFoundError: a file no longer exists.
        StorageError: a copy failed, or has another size than its source.
    """
    if not copies:
        return 0
    in_store = all(stores.store_for(copy.source) is stores.store_for(copy.target) for copy in copies)
    copied = 0
    pool = ThreadPoolExecutor(_COPY_THREADS if in_store else _STREAM_THREADS, thread_name_prefix="cm-delta-copy")
    try:
        futures = [pool.submit(_copy, stores, copy) for copy in copies]
        for done, future in enumerate(as_completed(futures), start=1):
            copied += future.result()
            if done % _FILES_PER_REPORT == 0 or done == len(copies):
                _log.info("Copied %d of %d files of %s (%d bytes)", done, len(copies), what, copied)
    finally:
        # No copy may end after the files of a failed clone were deleted.
        pool.shutdown(wait=True, cancel_futures=True)
    return copied


def _copy(stores: StoreRegistry, copy: FileCopy) -> int:
    source, target = stores.store_for(copy.source), stores.store_for(copy.target)
    if source is target:
        source.copy(copy.source, copy.target)
    else:
        target.write(copy.target, source.read(copy.source))
    expected = source.stat(copy.source).size if copy.size is None else copy.size
    copied = target.stat(copy.target).size
    if copied != expected:
        raise StorageError(
            f"The copy of {copy.source} has {copied} bytes instead of {expected}: the source is damaged, or the copy is not "
            "complete. Check the source table with doctor, and try again."
        )
    return copied
