"""Bytes in an object store, through fsspec.

Protocol heading "Delta Log Entries" (atomic, exclusive creation, LOG-5). The only module that calls
fsspec, and the border at which its exceptions end. Local files are served by
:mod:`~cm_delta_dagster.storage.local_store` instead.
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
"""Schemes whose plain write is atomic: an object appears whole or not at all."""

CONDITIONAL_CREATE_SCHEMES = frozenset({"s3", "s3a"})
"""Schemes whose fsspec implementation passes ``mode="create"`` on to the server. Many others take it and overwrite."""

_TAKEN_CODES = frozenset({"PreconditionFailed", "412"})
_RIVAL_CODES = frozenset({"ConditionalRequestConflict", "409"})
_RIVAL_ATTEMPTS = 8
_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")


class FsspecStore:
    """Objects of one scheme.

    Invariants: listings are never answered from a cache; ``write_if_absent`` is used only on servers that were seen to
    refuse a second creation, because some S3-compatible servers ignore the condition and overwrite.

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
                f"Locations of the scheme {scheme!r} need another Python package: {error}."
                + (" pip install 'cm-delta-dagster[s3]' has it." if scheme in CONDITIONAL_CREATE_SCHEMES else "")
            ) from error
        self._lock = threading.Lock()
        self._proven_buckets: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens its own file system."""
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
        """Create or replace. Object stores have no directories, so that ``within`` means nothing."""
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
            self._prove_conditional_create(self._path(location))
            self._create(self._path(location), bytes(data))

    def stat(self, location: str) -> ObjectStatus:
        """Raises ObjectNotFoundError."""
        with _mapped("stat", location):
            info = self._filesystem.info(self._path(location))
            if info["type"] != "file":
                raise FileNotFoundError(errno.ENOENT, "a directory", location)
            return _status(location, info)

    def delete(self, location: str) -> None:
        """Remove the object; an absent one is no error."""
        with _mapped("delete", location), suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(location))

    def resolve(self, location: str) -> str:
        """There are no links here."""
        return location

    def remove_empty_directories(self, directory: str) -> None:
        """Object stores have no directories."""

    def _create(self, path: str, data: bytes) -> None:
        for attempt in range(1, _RIVAL_ATTEMPTS + 1):
            try:
                self._filesystem.pipe_file(path, data, mode="create")
                return
            except OSError as error:
                code = _server_code(error)
                if code in _TAKEN_CODES:
                    raise FileExistsError(errno.EEXIST, "exists already", path) from error
                # The server answers so while a rival's conditional write is under way; who wins is not decided yet.
                if code not in _RIVAL_CODES or attempt == _RIVAL_ATTEMPTS:
                    raise
                time.sleep(0.05 * attempt)

    def _prove_conditional_create(self, path: str) -> None:
        directory, _, _ = path.rpartition("/")
        bucket = path.split("/", 1)[0]
        with self._lock:
            if bucket in self._proven_buckets:
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
            self._proven_buckets.add(bucket)

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
            # A zero-byte "directory" object of a console and the answer for a plain object are not below the directory.
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
        raise StorageError(f"The store gives no modification time for {location}; it cannot hold tables.")
    return int(value * 1000)


def _server_code(error: BaseException) -> str:
    """The server's own code, from the botocore error that s3fs translated; s3fs folds several codes into one errno."""
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
        raise ObjectAlreadyExistsError(f"{location} exists already; it was left as it is.") from error
    except PermissionError as error:
        raise StorageError(
            f"Could not {verb} {location}: {error}. Check the credentials and their rights on that location."
        ) from error
    except Exception as error:  # Each implementation of fsspec brings exceptions of its own; there is no common root.
        raise StorageError(
            f"Could not {verb} {location}: {error}. Check the endpoint, the options and the network."
        ) from error
