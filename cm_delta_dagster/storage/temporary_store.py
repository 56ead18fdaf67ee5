"""A store whose options expire, as those with temporary credentials do, and are renewed.

Options are asked for when they are needed: to read first, and to write when something is written or deleted.
"""

import threading
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.store import ObjectStatus

_USED_SHARE = 2 / 3
"""The share of their life for which options are used. A request that begins at its end can last the rest."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TemporaryOptions:
    """Options of an fsspec file system for the objects below a location. ``repr`` shows no secret.

    Attributes:
        expires_ms: epoch milliseconds; None for options that do not expire.
    """

    prefix: str
    options: Mapping[str, Any]
    expires_ms: int | None = None

    def __repr__(self) -> str:
        return f"TemporaryOptions(prefix={self.prefix!r}, expires_ms={self.expires_ms})"


class OptionSource(typing.Protocol):
    """Gets options for locations. Can be pickled."""

    def options_for(self, location: str, *, writes: bool) -> TemporaryOptions | None:
        """Options that reach the location, to read, or to write too; None if there are none. Raises CmDeltaError."""
        ...


def wall_clock_ms() -> int:
    """Epoch milliseconds of this machine, by which options expire."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    store: FsspecStore
    until_ms: float


class TemporaryStore:
    """Objects of one object store below one location. Implements :class:`~cm_delta_dagster.storage.store.Store`. Thread-safe.

    Args:
        prefix: the location.
        to_read: options to read, which the source has given.
        now_ms: clock by which options expire, epoch milliseconds.
    """

    def __init__(
        self,
        scheme: str,
        prefix: str,
        *,
        source: OptionSource,
        to_read: TemporaryOptions | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._scheme, self._prefix, self._source, self._now_ms = scheme, prefix, source, now_ms
        self._lock = threading.Lock()
        self._opened: dict[bool, _Opened] = {}
        if to_read is not None:
            self._opened[False] = self._open(to_read)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process asks the source for options of its own."""
        return partial(TemporaryStore, self._scheme, self._prefix, source=self._source, now_ms=self._now_ms), ()

    def __repr__(self) -> str:
        return f"TemporaryStore({self._prefix!r})"

    def list_from(self, directory: str, *, start: str = "") -> list[ObjectStatus]:
        """As :class:`~cm_delta_dagster.storage.store.Store` says, as all methods here."""
        return self._reader().list_from(directory, start=start)

    def list_recursive(self, directory: str, *, with_directories: bool = False) -> Iterator[ObjectStatus]:
        return self._reader().list_recursive(directory, with_directories=with_directories)

    def read(self, location: str) -> bytes:
        return self._reader().read(location)

    def read_range(self, location: str, *, offset: int, length: int) -> bytes:
        return self._reader().read_range(location, offset=offset, length=length)

    def write(self, location: str, data: bytes, *, within: str | None = None) -> None:
        self._writer().write(location, data, within=within)

    def write_if_absent(
        self, location: str, data: bytes, *, may_show_unfinished: bool = False, within: str | None = None
    ) -> None:
        self._writer().write_if_absent(location, data, may_show_unfinished=may_show_unfinished, within=within)

    def copy(self, source: str, target: str) -> None:
        self._writer().copy(source, target)

    def stat(self, location: str) -> ObjectStatus:
        return self._reader().stat(location)

    def delete(self, location: str) -> None:
        self._writer().delete(location)

    def resolve(self, location: str) -> str:
        return self._reader().resolve(location)

    def links_in(self, directory: str) -> Mapping[str, str]:
        return self._reader().links_in(directory)

    def unlisted_links(self, directory: str) -> Iterator[str]:
        return self._reader().unlisted_links(directory)

    def remove_empty_directories(self, directory: str) -> None:
        self._writer().remove_empty_directories(directory)

    def _reader(self) -> FsspecStore:
        return self._current(writes=True in self._opened)

    def _writer(self) -> FsspecStore:
        return self._current(writes=True)

    def _current(self, *, writes: bool) -> FsspecStore:
        with self._lock:
            opened = self._opened.get(writes)
            if opened is None or self._now_ms() >= opened.until_ms:
                options = self._source.options_for(self._prefix, writes=writes)
                opened = self._opened[writes] = self._open(options)
            return opened.store

    def _open(self, options: TemporaryOptions | None) -> _Opened:
        """Without options, the file system finds credentials in the environment, and the source is asked again at the next use."""
        now_ms = self._now_ms()
        if options is None:
            return _Opened(store=FsspecStore(self._scheme), until_ms=now_ms)
        life_ms = float("inf") if options.expires_ms is None else (options.expires_ms - now_ms) * _USED_SHARE
        return _Opened(store=FsspecStore(self._scheme, options=options.options), until_ms=now_ms + life_ms)
