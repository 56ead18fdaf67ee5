"""Where the server may read and write files: below its storage roots, and nowhere else.

Locations come from the catalog, whose tables may be outside of the roots, and names of files from callers.
"""

from cm_delta_dagster.errors import OperationRefusedError
from cm_delta_dagster.protocol.actions.paths import canonical_location
from cm_delta_dagster.storage.store import Store, StoreRegistry


class StorageAccess:
    """Stores of locations below the storage roots. Thread-safe.

    Args:
        roots: locations of the server's configuration.
    """

    def __init__(self, stores: StoreRegistry, roots: tuple[str, ...]) -> None:
        self.stores = stores
        self._roots = tuple(self._canonical(root) for root in roots)

    def store_for(self, location: str, *, below: str | None = None) -> Store:
        """The store of a location, with symbolic links resolved below one of the roots, and below the location ``below``.

        Raises:
            OperationRefusedError: it is not; nothing was read or written.
            StoreNotSupportedError: no store serves it.
        """
        resolved = self._canonical(location)
        if not _is_below(resolved, self._roots):
            raise OperationRefusedError(
                f"The server does not access {location}: it is not below one of its storage roots. Ask who runs the server "
                "to add a storage root."
            )
        if below is not None and not _is_below(resolved, (self._canonical(below),)):
            raise OperationRefusedError(f"The server does not access {location}: it is not below {below}.")
        return self.stores.store_for(location)

    def _canonical(self, location: str) -> str:
        return canonical_location(self.stores.store_for(location).resolve(location)).rstrip("/") + "/"


def _is_below(location: str, parents: tuple[str, ...]) -> bool:
    return any(location.startswith(parent) for parent in parents)
