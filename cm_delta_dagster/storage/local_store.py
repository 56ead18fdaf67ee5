"""Bytes on a local or mounted file system, by calls of the operating system.

Protocol heading "Delta Log Entries" (atomic, exclusive creation). fsspec's local file system is slower, cannot create a file
exclusively, and does not sync files. This module takes no locks.
"""

import ctypes
import errno
import functools
import os
import shutil
import stat as stat_module
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

from cm_delta_dagster.errors import (
    DirectoryNotFoundError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreNotSupportedError,
)
from cm_delta_dagster.storage.store import ObjectStatus

_TEMPORARY_SUFFIX = ".cm-delta-tmp"
_UNSUPPORTED = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EMLINK})
_ADVICE = {
    errno.ENOSPC: "The disk is full: free some space and try again.",
    errno.EDQUOT: "The disk quota is used up: free some space and try again.",
    errno.EACCES: "Give this user permission on that path.",
    errno.EPERM: "Give this user permission on that path.",
    errno.EROFS: "The file system is mounted read-only.",
    errno.ENOTDIR: "A parent of that path is a file, not a directory.",
    errno.EISDIR: "That path is a directory, not an object.",
    errno.ENAMETOOLONG: "Use a shorter name.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}

PlaceExclusively: TypeAlias = Callable[[str, str], None]
"""Gives a complete temporary file its name atomically. Raises FileExistsError if the name exists."""


def place_by_link(temporary: str, target: str) -> None:
    """By a hard link, which fails if its name exists."""
    os.link(temporary, target, follow_symlinks=False)
    with suppress(OSError):  # The object exists; the remaining temporary name is hidden and harmless.
        os.unlink(temporary)


def place_by_exclusive_rename(temporary: str, target: str) -> None:
    """By ``renameat2(RENAME_NOREPLACE)`` of Linux, for mounts without hard links."""
    rename = _renameat2()
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    at_current_directory, no_replace = -100, 1
    if rename(at_current_directory, os.fsencode(temporary), at_current_directory, os.fsencode(target), no_replace):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """The function of the C library; None where it does not exist."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]  # ctypes does not type foreign functions.


class LocalStore:
    """Files below ``file:`` locations.

    Invariants: an object gets its name after all its bytes are on disk, except with ``may_show_unfinished``. A call that creates
    or replaces returns after the directory entry is on disk. Names of temporary files start with a dot; listings leave them out.

    Args:
        primitives: ways to name a complete file exclusively, tried in order until the file system supports one.
    """

    def __init__(self, *, primitives: Sequence[PlaceExclusively] = (place_by_link, place_by_exclusive_rename)) -> None:
        self._primitives = tuple(primitives)

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """Objects directly in ``directory`` whose name is >= ``start``, in order of name."""
        prefix = directory.rstrip("/")
        with _mapped("list", directory):
            statuses = [
                status
                for name, entry in _entries(local_path(directory))
                if name >= start and (status := _status_of_entry(entry, f"{prefix}/{name}")) is not None
            ]
        statuses.sort(key=lambda status: status.location)
        return statuses

    def list_recursive(self, directory: str, *, with_directories: bool = False) -> Iterator[ObjectStatus]:
        """Every object below ``directory``, in order of location; symbolic links to directories are not followed."""
        prefix = directory.rstrip("/")
        with _mapped("list", directory):
            # "a/" sorts after "a-b": a directory is sorted by its name with the slash, as its objects are.
            listed = sorted(
                (f"{name}/", None) if _is_directory(entry) else (name, _status_of_entry(entry, f"{prefix}/{name}"))
                for name, entry in _entries(local_path(directory))
            )
        for key, status in listed:
            if key.endswith("/"):
                yield from self.list_recursive(f"{prefix}/{key[:-1]}")
            elif status is not None:
                yield status

    def read(self, location: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        with _mapped("read", location), open(local_path(location), "rb", buffering=0) as file:
            return file.readall()

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end. Raises ObjectNotFoundError."""
        with _mapped("read", location), open(local_path(location), "rb") as file:
            file.seek(offset)
            return file.read(length)

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        """Create or replace, atomically and durably."""
        target = local_path(location)
        with _mapped("write", location), _finished_file(target, data, within) as (temporary, _):
            os.replace(temporary, target)

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> ObjectStatus:
        """Create only, durably and, without ``may_show_unfinished``, atomically.

        Raises ObjectAlreadyExistsError, StoreNotSupportedError.
        """
        target = local_path(location)
        with _mapped("create", location):
            if os.path.lexists(target):  # Saves the write; the primitive below ensures exclusivity.
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            if may_show_unfinished:  # One directory entry fewer to sync.
                written = _created(target, data, within)
                _sync_directory(os.path.dirname(target))
            else:
                with _finished_file(target, data, within) as (temporary, written):
                    self._place(temporary, target)
        modified = written.st_mtime_ns // 1_000_000
        return ObjectStatus(location=location, size=written.st_size, modification_time=modified)

    def _place(self, temporary: str, target: str) -> None:
        for primitive in self._primitives:
            try:
                return primitive(temporary, target)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        # Exclusive creation of the target before its bytes are written could leave a partial file.
        raise StoreNotSupportedError(
            f"{target} was not written: its file system offers neither hard links nor an exclusive rename, so that two "
            "writers could overwrite each other. Keep the table on another file system."
        )

    def copy(self, source: str, target: str) -> None:
        """Copy a file, atomically and durably. Raises ObjectNotFoundError."""
        with _mapped("read", source), open(local_path(source), "rb"):
            pass
        with _mapped("write", target), _finished_file(local_path(target), b"", None) as (temporary, _):
            shutil.copyfile(local_path(source), temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, local_path(target))

    def stat(self, location: str) -> ObjectStatus:
        """Size and modification time. Raises ObjectNotFoundError, also for a directory."""
        with _mapped("stat", location):
            result = os.stat(local_path(location))
            if stat_module.S_ISDIR(result.st_mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)
        return ObjectStatus(location=location, size=result.st_size, modification_time=result.st_mtime_ns // 1_000_000)

    def delete(self, location: str) -> None:
        """Delete the object; a missing one is not an error."""
        with _mapped("delete", location), suppress(FileNotFoundError):
            os.unlink(local_path(location))

    def resolve(self, location: str) -> str:
        """The location with symbolic links resolved."""
        with _mapped("resolve", location):
            return f"file://{os.path.realpath(local_path(location))}"

    def links_in(self, directory: str) -> dict[str, str]:
        """Names of the symbolic links directly in ``directory``, and where they lead to."""
        with _mapped("list", directory):
            links = [name for name, entry in _entries(local_path(directory)) if entry.is_symlink()]
        return {name: self.resolve(f"{directory.rstrip('/')}/{name}") for name in links}

    def unlisted_links(self, directory: str) -> Iterator[str]:
        """Locations of symbolic links below ``directory`` to directories and to nothing."""
        prefix = directory.rstrip("/")
        with _mapped("list", directory):
            entries = _entries(local_path(directory))
        for name, entry in sorted(entries):
            if _is_directory(entry):
                yield from self.unlisted_links(f"{prefix}/{name}")
            elif entry.is_symlink() and not os.path.isfile(entry.path):
                yield f"{prefix}/{name}"

    def remove_empty_directories(self, directory: str) -> None:
        """Remove the empty directories among ``directory`` and those below it."""
        with _mapped("delete", directory):
            for path, _, _ in os.walk(local_path(directory), topdown=False):
                with suppress(OSError):  # rmdir fails for a directory that is not empty.
                    os.rmdir(path)


def local_path(location: str) -> str:
    """Path of a ``file:`` location (``file:/x``, ``file:///x`` or plain ``/x``). Raises StoreNotSupportedError."""
    path = location
    if location.startswith("file:"):
        path = location[len("file:") :]
        if path.startswith("//"):
            authority, slash, rest = path[2:].partition("/")
            path = slash + rest if authority in ("", "localhost") else ""
    if not path.startswith("/") or "\0" in path:
        raise StoreNotSupportedError(f"{location!r} is not a local location: write it as file:///absolute/path.")
    return path


def _entries(path: str) -> list[tuple[str, "os.DirEntry[str]"]]:
    try:
        with os.scandir(path) as entries:
            return [(entry.name, entry) for entry in entries if not _is_temporary(entry.name)]
    except FileNotFoundError:
        return []


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False)


def _status_of_entry(entry: "os.DirEntry[str]", location: str) -> ObjectStatus | None:
    """None for a directory, for a link that leads to nothing or to itself, and for a file that was deleted after the listing."""
    try:
        if entry.is_dir():
            return None
        result = entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    return ObjectStatus(
        location=location,
        size=result.st_size,
        modification_time=result.st_mtime_ns // 1_000_000,
        is_link=entry.is_symlink(),
    )


@contextmanager
def _finished_file(target: str, data: bytes, within: str | None) -> Iterator[tuple[str, os.stat_result]]:
    """A temporary file beside ``target`` with ``data`` on disk. When the block ends it is deleted, or renamed and durable."""
    directory = os.path.dirname(target)
    temporary = f"{directory.rstrip('/')}/.{uuid.uuid4().hex}{_TEMPORARY_SUFFIX}"
    written = _created(temporary, data, within)
    try:
        yield temporary, written
        _sync_directory(directory)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _created(path: str, data: bytes, within: str | None) -> os.stat_result:
    """Create a file with ``data`` on disk; its directory entry is not synced. After a failure the file is deleted."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        if within is not None and not os.path.isdir(local_path(within)):
            raise DirectoryNotFoundError(
                f"{path} was not written, because the directory {within} does not exist. Check that its volume is mounted and "
                "that it was not moved."
            ) from None
        _make_directories(os.path.dirname(path))
        descriptor = os.open(path, flags, 0o666)
    try:
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            os.fsync(descriptor)
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _make_directories(directory: str) -> None:
    """Like ``os.makedirs``, and sync every new directory entry."""
    missing = []
    path = directory
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(path)
        _sync_directory(os.path.dirname(path))


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network mounts do not support fsync of directories; the server determines the durability of entries.
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _mapped(verb: str, location: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"No object at {location}: check the location, or whether it was deleted.") from error
    except FileExistsError as error:
        raise ObjectAlreadyExistsError(f"{location} exists already; it was not changed.") from error
    except (OSError, ValueError) as error:
        advice = _ADVICE.get(error.errno or 0, "Check the file system.") if isinstance(error, OSError) else ""
        raise StorageError(f"Could not {verb} {location}: {error}. {advice}".rstrip()) from error
