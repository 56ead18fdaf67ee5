"""The registry of stores: one for each kind, options and process, created on first use."""

import os
import threading
from collections.abc import Mapping

from cm_delta_dagster.errors import StoreNotSupportedError
from cm_delta_dagster.storage.fsspec_store import FsspecStore, backend_of
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.store import Store


class Stores:
    """Implements :class:`~cm_delta_dagster.storage.store.StoreRegistry`. Thread-safe.

    ``memory://`` objects belong to this registry; another one does not see them.

    Args:
        stores: for each scheme, a store that replaces the built-in one.
        storage_options: how object stores are reached.
    """

    def __init__(
        self,
        stores: Mapping[str, Store] | None = None,
        *,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self.storage_options = storage_options or StorageOptions()
        self._stores = dict(stores or {})
        self._memory = MemoryStore()
        self._local = LocalStore()
        self._lock = threading.Lock()
        # By process: file systems of object stores have sockets and threads, which a forked child must not share.
        self._made: dict[tuple[int, str, str | None, str], Store] = {}

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
        options = backend.options_for(location, self.storage_options.for_location(location))
        account = str(options.get("account_name") or "")
        key = (os.getpid(), backend.name, self.storage_options.prefix_of(location), account)
        with self._lock:
            if key not in self._made:
                self._made[key] = FsspecStore(scheme, options=options)
            return self._made[key]


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
