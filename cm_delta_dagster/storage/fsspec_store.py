"""Bytes in an object store, through fsspec.

Protocol heading "Delta Log Entries" (atomic, exclusive creation). What differs between stores is in one module each:
:mod:`~cm_delta_dagster.storage.s3`, :mod:`~cm_delta_dagster.storage.azure`, :mod:`~cm_delta_dagster.storage.gcs`.
:mod:`~cm_delta_dagster.storage.local_store` serves local files.
"""

import datetime
import errno
import hashlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import tenacity

from cm_delta_dagster.errors import (
    InvalidArgumentError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreNotSupportedError,
    WriteRefusedError,
)
from cm_delta_dagster.storage.azure import Azure
from cm_delta_dagster.storage.backend import Backend, Fault
from cm_delta_dagster.storage.gcs import GoogleStorage
from cm_delta_dagster.storage.s3 import S3
from cm_delta_dagster.storage.storage_options import redacted, without_secrets
from cm_delta_dagster.storage.store import ObjectStatus

BACKENDS: tuple[Backend, ...] = (S3(), Azure(), GoogleStorage())

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_TRANSIENT = frozenset({Fault.TRANSIENT, Fault.UNREACHABLE, Fault.THROTTLED, Fault.CONFLICT, Fault.CORRUPT})
_REFUSALS = frozenset(
    {
        Fault.NO_KEY,
        Fault.WRONG_KEY,
        Fault.EXPIRED,
        Fault.DENIED,
        Fault.WRONG_REGION,
        Fault.WRONG_CLOCK,
        Fault.NO_BUCKET,
        Fault.NO_STORE,
        Fault.FULL,
        Fault.UNSENDABLE,
    }
)
_ATTEMPTS, _RETRY_SECONDS = 8, 60
_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")

_WHY = {
    Fault.NO_BUCKET: "the {container} {bucket} does not exist. Create it, or correct the location",
    Fault.NO_KEY: "there are no credentials, neither in storage_options nor in the environment. Give them in storage_options, or "
    "set up one of the ways in which the store's client finds them",
    Fault.WRONG_KEY: "the store does not accept the credentials. Check the key, secret or token in storage_options, or those "
    "of the environment",
    Fault.EXPIRED: "the credentials have expired. Get new ones and open the catalog again, or use credentials that the "
    "environment renews",
    Fault.REJECTED: "the store rejected the request and gave no reason, as for credentials that have expired. Check the "
    "credentials, the endpoint and the options",
    Fault.DENIED: "access is denied. Check the permissions of the credentials on that location",
    Fault.WRONG_REGION: "the {container} {bucket} is in another region. Give its region in storage_options, e.g. "
    'client_kwargs={{"region_name": "eu-central-1"}}',
    Fault.WRONG_CLOCK: "the clock of this machine and that of the store differ by more than the store accepts, usually 15 minutes. "
    "Set the clock of this machine, e.g. by NTP",
    Fault.FULL: "the store is full, or a quota is used up. Free space, raise the quota or write to another {container}; vacuum "
    "deletes files that no version within the retention needs",
    Fault.NO_STORE: "the server does not permit the request; probably it is not an object store. Check the endpoint in "
    "storage_options: its host, its port, and that it has no path of a web page",
    Fault.UNSENDABLE: "the request cannot be sent, because a credential has a line break or another control character. Remove "
    "it in storage_options or in the environment, for example at the end of the file that it was read from",
    Fault.THROTTLED: "the store refuses requests because there are too many, also after retries. Try again later, or with "
    "fewer writers",
    Fault.UNREACHABLE: "no connection to the store can be made, also after retries. Check the endpoint and the network, and "
    "whether the server runs",
    Fault.TRANSIENT: "the store did not answer completely, also after retries. Check the endpoint, the network and the state "
    "of the store",
    Fault.CORRUPT: "the bytes that arrived do not have the checksum that the store sent, also after retries. Check the object, "
    "and what lies between this machine and the store",
}
_OTHER = "the request failed. Check the endpoint, the options and the network"

_UNKNOWN = " The object may have been written or not."

_CHECKED: set[tuple[str, str]] = set()
"""Server and bucket in which this process has seen that a second creation is refused. A server is a digest of its options."""


def backend_of(scheme: str) -> Backend:
    """What serves locations of the scheme. Raises StoreNotSupportedError."""
    server = next((backend for backend in BACKENDS if scheme in backend.schemes), None)
    if server is None:
        known = ", ".join(sorted(scheme for backend in BACKENDS for scheme in backend.schemes))
        raise StoreNotSupportedError(
            f"Locations of the scheme {scheme!r} are not supported: use file or one of {known}, or register a store for "
            "the scheme."
        )
    return server


class _UnknownOutcomeError(Exception):
    """A creation failed after a request that may have had effect. The cause is the last failure."""


class FsspecStore:
    """Objects of one object store.

    Listings do not use a cache. Before the first ``write_if_absent`` in a bucket, a probe object shows that the server refuses a
    second creation, because some servers ignore the condition and overwrite. Requests that fail with a transient error are
    repeated with growing random waits. If the outcome of a creation is unknown, the metadata of the object show which call
    created it.

    Args:
        scheme: one of the schemes of ``BACKENDS``.
        options: keyword arguments of the fsspec file system (endpoint, credentials, region).

    Raises:
        InvalidArgumentError: the file system has no option of a name in ``options``.
        StoreNotSupportedError: the file system is not installed.
        StorageError: the options cannot be used.
    """

    def __init__(self, scheme: str, *, options: Mapping[str, Any] | None = None) -> None:
        self._backend = backend_of(scheme)
        self._scheme = scheme
        self._options = dict(options or {})
        try:
            self._options = self._backend.checked_options(self._options, BACKENDS)
            self._filesystem = self._backend.open(self._options)
        except InvalidArgumentError:
            raise
        except ImportError as error:
            raise StoreNotSupportedError(
                f"Locations of the scheme {scheme!r} require another Python package: {error}. "
                f"Install it with pip install '<path of the clone>[{self._backend.extra}]'."
            ) from error
        except Exception as error:  # The implementations have no common class for unusable options.
            raise StorageError(
                f"{self._backend.name} cannot be opened with storage_options {redacted(self._options)}: "
                f"{without_secrets(str(error), self._options)}. Check the options."
            ) from None  # The cause may contain a secret.
        self._lock = threading.Lock()
        self._server = hashlib.sha256(repr((self._backend.name, sorted(self._options.items()))).encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process creates its own file system object."""
        return partial(FsspecStore, self._scheme, options=self._options), ()

    @property
    def options(self) -> Mapping[str, Any]:
        """Keyword arguments of the fsspec file system. They may hold secrets."""
        return self._options

    def __repr__(self) -> str:
        return f"FsspecStore({self._scheme!r}, options={redacted(self._options)!r})"

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """Objects directly in ``directory`` whose name is >= ``start``, in order of name."""
        path = self._path(directory)
        with self._mapped("list", directory):
            infos = self._listed(lambda: self._backend.listed(self._filesystem, path, recursive=False, start=start))
        statuses = self._statuses(directory, path, infos)
        return [
            status
            for status in statuses
            if "/" not in status.location[len(directory.rstrip("/")) + 1 :] and status.name >= start
        ]

    def list_recursive(self, directory: str, *, with_directories: bool = False) -> Iterator[ObjectStatus]:
        """Every object below ``directory``, in order of location."""
        path = self._path(directory)
        with self._mapped("list", directory):
            infos = self._listed(lambda: self._backend.listed(self._filesystem, path, recursive=True))
        yield from self._statuses(directory, path, infos, with_directories=with_directories)

    def read(self, location: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        with self._mapped("read", location):
            return self._retried(lambda: self._backend.read(self._filesystem, self._path(location)))

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end. Raises ObjectNotFoundError."""
        with self._mapped("read", location):
            return self._retried(lambda: self._read_range(self._path(location), offset, length))

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        """Create or replace. ``within`` is ignored: object stores have no directories."""
        with self._mapped("write", location, writes=True):
            self._retried(lambda: self._filesystem.pipe_file(self._path(location), bytes(data)))

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> None:
        """Create only. Raises ObjectAlreadyExistsError, StoreNotSupportedError."""
        with self._mapped("create", location, writes=True):
            self._check_conditional_create(self._path(location))
            self._create(self._path(location), bytes(data))

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store. Raises ObjectNotFoundError."""
        self.stat(source)  # The errors of a copy do not say which of the two objects is missing.
        with self._mapped("write", target, writes=True):
            self._retried(lambda: self._backend.copy(self._filesystem, self._path(source), self._path(target)))

    def stat(self, location: str) -> ObjectStatus:
        """Raises ObjectNotFoundError."""
        with self._mapped("stat", location):
            info = self._retried(lambda: self._filesystem.info(self._path(location)))
            if info["type"] != "file":
                raise FileNotFoundError(errno.ENOENT, "a directory", location)
            return _status(location, info)

    def delete(self, location: str) -> None:
        """Delete the object; a missing one is not an error."""
        with self._mapped("delete", location):
            try:
                self._retried(partial(self._delete, location))
            except Exception as error:
                if self._backend.fault(error) is not Fault.MISSING:
                    raise

    def resolve(self, location: str) -> str:
        """One form for all spellings; object stores have no links."""
        return self._backend.canonical(location, self._options)

    def links_in(self, directory: str) -> dict[str, str]:
        """None: object stores have no links."""
        return {}

    def unlisted_links(self, directory: str) -> Iterator[str]:
        """None: object stores have no links."""
        return iter(())

    def remove_empty_directories(self, directory: str) -> None:
        """Does nothing: object stores have no directories."""

    def _delete(self, location: str) -> None:
        path = self._path(location)
        if location.endswith("/"):
            self._backend.delete_directory(self._filesystem, path)
        else:
            self._filesystem.rm_file(path)

    def _retried(self, request: Callable[[], _Result]) -> _Result:
        """Send a request that may be repeated, until it succeeds or fails with an error that is not transient."""
        attempts = tenacity.Retrying(
            stop=tenacity.stop_any(tenacity.stop_after_attempt(_ATTEMPTS), tenacity.stop_after_delay(_RETRY_SECONDS)),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
            retry=tenacity.retry_if_exception(lambda error: self._backend.fault(error) in _TRANSIENT),
            before_sleep=self._log_retry,
            reraise=True,
        )
        return attempts(request)

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        text = without_secrets(str(error), self._options)
        _log.debug("Request %d to %s failed and is repeated: %s", state.attempt_number, self._backend.name, text)

    def _listed(self, request: Callable[[], Any]) -> Any:
        try:
            return self._retried(request)
        except Exception as error:
            if self._backend.fault(error) is not Fault.MISSING:
                raise
            return []

    def _read_range(self, path: str, offset: int, length: int) -> bytes:
        data = b""
        if length > 0:
            try:
                data = self._backend.read(self._filesystem, path, start=offset, end=offset + length)
            except Exception as error:
                if self._backend.fault(error) is not Fault.OUT_OF_RANGE:
                    raise
        if len(data) == length > 0:
            return data
        expected = max(0, min(length, int(self._filesystem.info(path)["size"]) - offset))
        if len(data) != expected:
            raise ConnectionError(f"the store sent {len(data)} bytes from {offset} instead of {expected}")
        return data

    def _create(self, path: str, data: bytes, *, may_be_own: bool = True) -> None:
        """Create only. A repeated request that finds the object of an earlier one has succeeded.

        Args:
            may_be_own: look whether an object that exists was created by this call.
        """
        write_id = uuid.uuid4().hex
        unknown: list[Fault] = []

        def is_created() -> bool:
            try:
                self._backend.create(self._filesystem, path, data, write_id=write_id)
            except Exception as error:
                fault = self._backend.fault(error)
                if fault is Fault.EXISTS:
                    return False
                if fault in (Fault.TRANSIENT, Fault.UNREACHABLE, Fault.THROTTLED):
                    unknown.append(fault)
                raise
            return True

        try:
            if self._retried(is_created):
                return
        except Exception as error:
            if unknown:
                raise _UnknownOutcomeError from error
            raise
        try:
            is_own = may_be_own and self._is_own(path, data, write_id=write_id, unknown=bool(unknown))
        except Exception as error:
            raise _UnknownOutcomeError from error
        if not is_own:
            raise FileExistsError(errno.EEXIST, "exists already", path)

    def _is_own(self, path: str, data: bytes, *, write_id: str, unknown: bool) -> bool:
        """Whether this call created the object. The libraries may repeat a request without notice, so this is always checked."""
        try:
            stored_id = self._retried(lambda: self._backend.write_id(self._filesystem, path))
            if stored_id is None and unknown:  # The server keeps no metadata, or another program created the object.
                return self._retried(lambda: self._backend.read(self._filesystem, path)) == data
        except Exception as error:
            if self._backend.fault(error) is not Fault.MISSING:
                raise
            return False  # Another client has deleted it since.
        return stored_id == write_id

    def _check_conditional_create(self, path: str) -> None:
        directory, _, _ = path.rpartition("/")
        bucket = path.split("/", 1)[0]
        with self._lock:
            if (self._server, bucket) in _CHECKED:
                return
            probe = f"{directory}/.cm-delta-probe-{uuid.uuid4().hex}"
            self._create(probe, b"1")
            try:
                with suppress(FileExistsError):
                    self._create(probe, b"2", may_be_own=False)
                    raise StoreNotSupportedError(
                        f"Nothing was written: the server of {self._scheme}://{bucket} ignores {self._backend.condition}, so "
                        "that two writers could overwrite each other. Use a server with conditional writes."
                    )
            finally:
                self._delete_probe(probe)
            _CHECKED.add((self._server, bucket))

    def _delete_probe(self, path: str) -> None:
        """A failure is logged: the probe that remains does no harm, and the creation that follows need not fail."""
        try:
            self._retried(lambda: self._filesystem.rm_file(path))
        except Exception as error:  # As in _mapped.
            if self._backend.fault(error) is not Fault.MISSING:
                text = without_secrets(str(error), self._options)
                _log.warning(
                    "The probe object %s://%s was not deleted and can be deleted: %s", self._scheme, path, text
                )

    def _path(self, location: str) -> str:
        scheme, separator, rest = location.partition("://")
        if not separator or scheme.lower() not in self._backend.schemes:
            raise StoreNotSupportedError(f"{location!r} is not a location of the scheme {self._scheme}.")
        path = self._backend.path(rest).rstrip("/")
        bucket, key = self._filesystem.split_path(path)[:2]
        if path not in (bucket, f"{bucket}/{key}"):
            raise StoreNotSupportedError(
                f"{location!r} cannot be used: {type(self._filesystem).__name__} would use {bucket}/{key} instead, because it "
                "takes the rest for the version of an object or for the end of a URL. Choose another location."
            )
        return path

    def _statuses(self, directory: str, path: str, infos: Any, *, with_directories: bool = False) -> list[ObjectStatus]:
        prefix = directory.rstrip("/")
        statuses = [
            _status(f"{prefix}/{info['name'][len(path) + 1 :]}", info)
            for info in infos
            # Left out: the object with the name of the directory itself.
            if info["type"] == "file"
            and info["name"].startswith(path + "/")
            and (not info["name"].endswith("/") or (with_directories and info["name"] != path + "/"))
        ]
        return sorted(statuses, key=lambda status: status.location)

    @contextmanager
    def _mapped(self, verb: str, location: str, *, writes: bool = False) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except _UnknownOutcomeError as error:
            cause = error.__cause__ or error
            raise self._storage_error(cause, verb, location, outcome=_UNKNOWN) from cause
        except Exception as error:  # The exceptions of the fsspec implementations have no common base class.
            fault = self._backend.fault(error)
            if fault is Fault.EXISTS:
                raise ObjectAlreadyExistsError(f"{location} exists already; it was not changed.") from error
            if not writes and fault is Fault.MISSING:
                text = f"No object at {location}: check the location, or whether it was deleted."
                raise ObjectNotFoundError(text) from error
            outcome = _UNKNOWN if writes and fault in _TRANSIENT else ""
            raise self._storage_error(error, verb, location, outcome=outcome) from error

    def _storage_error(self, error: BaseException, verb: str, location: str, *, outcome: str) -> StorageError:
        fault = self._backend.fault(error)
        if fault is Fault.MISSING:
            fault = Fault.NO_BUCKET  # Of what a write needs, only the bucket can be missing.
        why = _WHY.get(fault, _OTHER).format(
            container=self._backend.container, bucket=self._path(location).split("/")[0]
        )
        text = without_secrets(" ".join(str(error).split()), self._options)
        if fault is Fault.DENIED:
            why = f"{why}.{self._backend.when_denied}".rstrip(".")
        message = f"Could not {verb} {location}: {why}. ({self._backend.name}: {text})"
        if verb == "create" and not outcome and fault in _REFUSALS and self._backend.sends_once(self._filesystem):
            return WriteRefusedError(f"{message} Nothing was written.")
        return StorageError(message + outcome)


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
