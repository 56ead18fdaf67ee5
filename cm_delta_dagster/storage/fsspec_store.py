"""Bytes in an object store, through fsspec.

Protocol heading "Delta Log Entries" (atomic, exclusive creation). The only module that calls fsspec; it maps its exceptions.
:mod:`~cm_delta_dagster.storage.local_store` serves local files.
"""

import datetime
import errno
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import fsspec

from cm_delta_dagster.errors import (
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreNotSupportedError,
)
from cm_delta_dagster.storage.store import ObjectStatus

OBJECT_STORE_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs"})
"""Schemes whose plain write is atomic: readers see the whole object or none."""

CONDITIONAL_CREATE_SCHEMES = frozenset({"s3", "s3a"})
"""Schemes whose fsspec implementation sends ``mode="create"`` to the server. Many others accept it and overwrite."""

_EXISTS_CODES = frozenset({"PreconditionFailed", "412"})
_CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "409"})
_CONFLICT_ATTEMPTS = 8
_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


class FsspecStore:
    """Objects of one scheme.

    Invariants: listings do not use a cache. Before the first ``write_if_absent`` a probe object shows that the server refuses a
    second creation, because some S3-compatible servers ignore the condition and overwrite.

    Args:
        scheme: one of ``OBJECT_STORE_SCHEMES``.
        options: keyword arguments of the fsspec file system (endpoint, credentials, region).
    """

    def __init__(self, scheme: str, *, options: Mapping[str, Any] | None = None) -> None:
        if scheme not in OBJECT_STORE_SCHEMES:
            raise StoreNotSupportedError(
                f"Locations of the scheme {scheme!r} are not supported: use file or one of "
                f"{', '.join(sorted(OBJECT_STORE_SCHEMES))}, or register a store for the scheme."
            )
        self._scheme = scheme
        self._options = dict(options or {})
        try:
            self._filesystem = fsspec.filesystem(
                scheme, **{**(options or {}), "use_listings_cache": False, "skip_instance_cache": True}
            )
        except ImportError as error:
            raise StoreNotSupportedError(
                f"Locations of the scheme {scheme!r} require another Python package: {error}."
                + (
                    " Install it with pip install '<path of the clone>[s3]'."
                    if scheme in CONDITIONAL_CREATE_SCHEMES
                    else ""
                )
            ) from error
        self._lock = threading.Lock()
        self._checked_buckets: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process creates its own file system object."""
        return partial(FsspecStore, self._scheme, options=self._options), ()

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """Objects directly in ``directory`` whose name is >= ``start``, in order of name."""
        path = self._path(directory)
        with _mapped("list", directory):
            try:
                infos = self._filesystem.ls(path, detail=True)
            except FileNotFoundError:
                infos = []
        found = self._statuses(directory, path, infos)
        return [
            status
            for status in found
            if "/" not in status.location[len(directory.rstrip("/")) + 1 :] and status.name >= start
        ]

    def list_recursive(self, directory: str) -> Iterator[ObjectStatus]:
        """Every object below ``directory``, in order of location."""
        path = self._path(directory)
        with _mapped("list", directory):
            try:
                infos = self._filesystem.find(path, detail=True)
            except FileNotFoundError:
                infos = {}
        yield from self._statuses(directory, path, infos.values())

    def read(self, location: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        with _mapped("read", location):
            return bytes(self._filesystem.cat_file(self._path(location)))

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end. Raises ObjectNotFoundError."""
        with _mapped("read", location):
            end = min(offset + length, self._filesystem.info(self._path(location))["size"])
            if offset >= end:
                return b""
            return bytes(self._filesystem.cat_file(self._path(location), start=offset, end=end))

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        """Create or replace. ``within`` is ignored: object stores have no directories."""
        with _mapped("write", location):
            self._filesystem.pipe_file(self._path(location), bytes(data))

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> None:
        """Create only. Raises ObjectAlreadyExistsError, StoreNotSupportedError."""
        if self._scheme not in CONDITIONAL_CREATE_SCHEMES:
            raise StoreNotSupportedError(
                f"{location} was not written: exclusive creation is not available for {self._scheme} locations, and "
                "without it two writers could overwrite each other. Keep the table on a local file system or on S3."
            )
        with _mapped("create", location):
            self._check_conditional_create(self._path(location))
            self._create(self._path(location), bytes(data))

    def stat(self, location: str) -> ObjectStatus:
        """Raises ObjectNotFoundError."""
        with _mapped("stat", location):
            info = self._filesystem.info(self._path(location))
            if info["type"] != "file":
                raise FileNotFoundError(errno.ENOENT, "a directory", location)
            return _status(location, info)

    def delete(self, location: str) -> None:
        """Delete the object; a missing one is not an error."""
        with _mapped("delete", location), suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(location))

    def resolve(self, location: str) -> str:
        """The location itself: object stores have no links."""
        return location

    @property
    def options(self) -> Mapping[str, Any]:
        """Keyword arguments of the fsspec file system. They may hold secrets."""
        return self._options

    def remove_empty_directories(self, directory: str) -> None:
        """Does nothing: object stores have no directories."""

    def _create(self, path: str, data: bytes) -> None:
        for attempt in range(1, _CONFLICT_ATTEMPTS + 1):
            try:
                self._filesystem.pipe_file(path, data, mode="create")
                return
            except OSError as error:
                code = _server_code(error)
                if code in _EXISTS_CODES:
                    raise FileExistsError(errno.EEXIST, "exists already", path) from error
                # Another conditional write of the same object is in progress; its outcome is not decided yet.
                if code not in _CONFLICT_CODES or attempt == _CONFLICT_ATTEMPTS:
                    raise
                time.sleep(0.05 * attempt)

    def _check_conditional_create(self, path: str) -> None:
        directory, _, _ = path.rpartition("/")
        bucket = path.split("/", 1)[0]
        with self._lock:
            if bucket in self._checked_buckets:
                return
            probe = f"{directory}/.cm-delta-probe-{uuid.uuid4().hex}"
            self._create(probe, b"1")
            try:
                with suppress(FileExistsError):
                    self._create(probe, b"2")
                    raise StoreNotSupportedError(
                        f"Nothing was written: the server of {self._scheme}://{bucket} ignores If-None-Match, so "
                        "that two writers could overwrite each other. Use a server with conditional writes."
                    )
            finally:
                self._filesystem.rm_file(probe)
            self._checked_buckets.add(bucket)

    def _path(self, location: str) -> str:
        scheme, separator, path = location.partition("://")
        if not separator or scheme not in OBJECT_STORE_SCHEMES:
            raise StoreNotSupportedError(f"{location!r} is not a location of the scheme {self._scheme}.")
        return path.rstrip("/")

    def _statuses(self, directory: str, path: str, infos: Any) -> list[ObjectStatus]:
        prefix = directory.rstrip("/")
        found = [
            _status(f"{prefix}/{info['name'][len(path) + 1 :]}", info)
            for info in infos
            # Left out: the zero-byte "directory" object of a web console, and the object with the name of the directory.
            if info["type"] == "file" and info["name"].startswith(path + "/") and not info["name"].endswith("/")
        ]
        return sorted(found, key=lambda status: status.location)


def _status(location: str, info: Mapping[str, Any]) -> ObjectStatus:
    return ObjectStatus(location=location, size=int(info["size"]), modification_time=_modified_ms(location, info))


def _modified_ms(location: str, info: Mapping[str, Any]) -> int:
    value = next((info[key] for key in _MODIFIED_KEYS if info.get(key) is not None), None)
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        value = value.timestamp()
    if not isinstance(value, int | float):
        raise StorageError(
            f"The store returns no modification time for {location}, which tables require. Use another store."
        )
    return int(value * 1000)


def _server_code(error: BaseException) -> str:
    """The error code of the server, from the botocore error; s3fs maps several codes to one errno."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        cause = cause.__cause__
    return ""


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
    except PermissionError as error:
        raise StorageError(
            f"Could not {verb} {location}: {error}. Check the credentials and their permissions on that location."
        ) from error
    except Exception as error:  # The exceptions of the fsspec implementations have no common base class.
        raise StorageError(
            f"Could not {verb} {location}: {error}. Check the endpoint, the options and the network."
        ) from error
