"""The registry of stores: one for each kind, options and process, created on first use."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar

from cm_delta_dagster.errors import StoreNotSupportedError
from cm_delta_dagster.storage.fsspec_store import FsspecStore, backend_of
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.storage_options import StorageOptions, canonical_location
from cm_delta_dagster.storage.store import Store
from cm_delta_dagster.storage.temporary_store import OptionSource, TemporaryStore

_Known = TypeVar("_Known")
_MAX_KNOWN = 1000
"""Locations of which it is known whether the source has options."""
_SECONDS_WITHOUT = 300.0
"""How long the source is not asked again for a location for which it had no options."""


class Stores:
    """Implements :class:`~cm_delta_dagster.storage.store.StoreRegistry`. Thread-safe.

    ``memory://`` objects belong to this registry; another one does not see them.

    Args:
        stores: for each scheme, a store that replaces the built-in one.
        storage_options: how object stores are reached.
        source: gets options for locations that have none in ``storage_options``, such as those with temporary credentials.
    """

    def __init__(
        self,
        stores: Mapping[str, Store] | None = None,
        *,
        storage_options: StorageOptions | None = None,
        source: OptionSource | None = None,
    ) -> None:
        self.storage_options = storage_options or StorageOptions()
        self._source = source
        self._stores = dict(stores or {})
        self._memory = MemoryStore()
        self._local = LocalStore()
        self._lock = threading.Lock()
        # By process: file systems of object stores have sockets and threads, which a forked child must not share.
        self._made: dict[tuple[int, str, str | None, str], Store] = {}
        self._temporary: OrderedDict[tuple[int, str], TemporaryStore] = OrderedDict()
        self._without_options: OrderedDict[tuple[int, str], float] = OrderedDict()

    def __repr__(self) -> str:
        return f"Stores(storage_options={self.storage_options!r})"

    def store_for(self, location: str) -> Store:
        """The store of the location; a plain absolute path is local.

        Raises:
            StoreNotSupportedError: no store serves the scheme, or its package is not installed.
            InvalidArgumentError: the storage options contradict the location.
        """
        scheme = scheme_of(location)
        if scheme in self._stores:
            return self._stores[scheme]
        if scheme == "file":
            return self._local
        if scheme == "memory":
            return self._memory
        backend = backend_of(scheme)
        temporary = self._temporary_store(location, scheme)
        if temporary is not None:
            return temporary
        options = backend.options_for(location, self.storage_options.for_location(location))
        account = str(options.get("account_name") or "")
        key = (os.getpid(), backend.name, self.storage_options.prefix_of(location), account)
        with self._lock:
            if key not in self._made:
                self._made[key] = FsspecStore(scheme, options=options)
            return self._made[key]

    def _temporary_store(self, location: str, scheme: str) -> Store | None:
        """The store with options of the source; None if there are none for the location."""
        if self._source is None or self.storage_options.prefix_of(location) is not None:
            return None
        place = canonical_location(location)
        steps = place.split("/")
        with self._lock:
            for count in range(len(steps), 2, -1):
                known = self._temporary.get((os.getpid(), "/".join(steps[:count])))
                if known is not None:
                    return known
            if self._without_options.get((os.getpid(), place), 0.0) > time.monotonic():
                return None
        options = self._source.options_for(location, writes=False)
        with self._lock:
            if options is None:
                _remember(self._without_options, (os.getpid(), place), time.monotonic() + _SECONDS_WITHOUT)
                return None
            key = (os.getpid(), canonical_location(options.prefix))
            store = self._temporary.get(key)
            if store is None:
                store = TemporaryStore(scheme, options.prefix, source=self._source, to_read=options)
                _remember(self._temporary, key, store)
            return store


def _remember(known: "OrderedDict[tuple[int, str], _Known]", key: tuple[int, str], value: "_Known") -> None:
    known[key] = value
    while len(known) > _MAX_KNOWN:
        known.popitem(last=False)


def scheme_of(location: str) -> str:
    """Scheme of a location in lower case. Raises StoreNotSupportedError for a relative path."""
    if location.startswith("/"):
        return "file"
    scheme, separator, _ = location.partition(":")
    if not separator or "/" in scheme or not scheme:
        raise StoreNotSupportedError(
            f"{location!r} is not an absolute location: write it with its scheme, file:///path."
        )
    return scheme.lower()
