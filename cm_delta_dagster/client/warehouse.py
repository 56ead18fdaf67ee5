"""The markers of warehouse and tables: written by creations, compared before a client creates, recovers or purges.

The encoding is in ``protocol.markers``. A client reads the marker of its warehouse once; creations after the first one ask
storage nothing more.
"""

import itertools
import logging
import os

from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import CatalogIdentity, TableIdentifier
from cm_delta_dagster.errors import (
    CmDeltaError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    TableStorageMissingError,
    WarehouseMismatchError,
)
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.markers import (
    TABLE_MARKER_NAME,
    WAREHOUSE_MARKER_NAME,
    MarkedState,
    TableMarker,
    WarehouseMarker,
    decode_table_marker,
    decode_warehouse_marker,
    encode_marker,
)
from cm_delta_dagster.storage.store import Store, StoreRegistry

_log = logging.getLogger(__name__)

_LOOKED_AT = 1000
"""Objects that the first creation of a new catalog looks at, to find tables in a warehouse without a marker."""


_TABLES_LOOKED_FOR = 20
"""Tables of the catalog that the first creation looks for in a warehouse without a marker."""


class WarehouseGuard:
    """Compares the warehouse of one client with its catalog, once. Thread-safe."""

    def __init__(self, catalog: TableRegistry, stores: StoreRegistry) -> None:
        self._catalog, self._stores = catalog, stores
        self._claimed: CatalogIdentity | None = None

    def claim(self) -> CatalogIdentity:
        """Make sure, before a table is created, that the warehouse is this catalog's; the first one leaves the marker.

        Raises:
            WarehouseMismatchError: the marker names another catalog, or there is none although tables are there that this
                catalog, which knows no table, cannot have made. Nothing was written.
            TableStorageMissingError: there is no marker, and none of the tables that the catalog has in the warehouse.
            CatalogUnavailableError, StorageError: it could not be found out.
        """
        if self._claimed is None:  # Of two threads at once both look, to the same end.
            identity = self._catalog.identity()
            if identity.warehouse is not None:
                self._claim(identity, identity.warehouse)
            self._claimed = identity
        return self._claimed

    def check_own(self) -> CatalogIdentity:
        """:meth:`check` for the warehouse of this client, if it has one."""
        identity = self._catalog.identity()
        if identity.warehouse is not None:
            self.check(identity.warehouse)
        return identity

    def check(self, warehouse: str) -> None:
        """Refuse a warehouse whose marker names another catalog; one without a marker is let pass.

        Raises:
            WarehouseMismatchError: with both ids and the likely causes.
        """
        marker = read_warehouse_marker(self._stores.store_for(warehouse), warehouse)
        if marker is not None:
            _compare(marker, self._catalog.identity(), warehouse)

    def _claim(self, identity: CatalogIdentity, warehouse: str) -> None:
        store = self._stores.store_for(warehouse)
        marker = read_warehouse_marker(store, warehouse)
        if marker is None:
            self._refuse_missing(store, warehouse)
            foreign = self._foreign_log(store, warehouse)
            # Whoever creates leaves the marker first: a table that another client has made meanwhile comes with one.
            marker = None if foreign is None else read_warehouse_marker(store, warehouse)
            if foreign is not None and marker is None:
                raise WarehouseMismatchError(
                    f"The warehouse {warehouse} holds tables, such as the one of {foreign}, and the catalog {identity.catalog_id} "
                    f"knows no table at all. Nothing was written. {_CAUSES} {_remedy(warehouse)}"
                )
        if marker is None:
            own = WarehouseMarker(catalog_id=identity.catalog_id)
            try:
                store.write_if_absent(f"{warehouse}/{WAREHOUSE_MARKER_NAME}", encode_marker(own))
                return
            except ObjectAlreadyExistsError:
                marker = read_warehouse_marker(store, warehouse)
        if marker is not None:
            _compare(marker, identity, warehouse)

    def _refuse_missing(self, store: Store, warehouse: str) -> None:
        """A warehouse without a marker and without the tables that the catalog has there is a volume that is not mounted."""
        known = self._catalog.list_tables()[:_TABLES_LOOKED_FOR]
        locations = [self._catalog.load_table(name).location for name in known]
        own = [location for location in locations if location.startswith(f"{warehouse}/")]
        if own and not any(store.list_from(log_files.log_directory(location)) for location in own):
            raise TableStorageMissingError(
                f"No table was created: the catalog has tables in the warehouse {warehouse}, such as the one at {own[0]}, and "
                "their logs are not there. Nothing was written. Likely causes: the volume is not mounted, or the warehouse was "
                "moved (`cm-delta relocate` tells the catalog where it is now)."
            )

    def _foreign_log(self, store: Store, warehouse: str) -> str | None:
        """A file of a log in the warehouse if this catalog has no tables: its URL may be mistyped, or it was lost."""
        inactive = self._catalog.inactive_tables()
        if self._catalog.list_tables() or any(table.registered for table in inactive):
            return None
        own = tuple(f"{table.location}/" for table in inactive)
        looked_at = itertools.islice(store.list_recursive(warehouse), _LOOKED_AT)
        found = (status.location for status in looked_at if "/_delta_log/" in status.location)
        return next((location for location in found if not location.startswith(own)), None)


_CAUSES = (
    "Either the URL of the catalog is mistyped, or the warehouse is another catalog's, or the database of its catalog was "
    "lost."
)


def _remedy(warehouse: str) -> str:
    return (
        "Correct the URL or the warehouse; to bring the tables of a lost catalog into this one, run `cm-delta recover "
        f"--warehouse {warehouse}`."
    )


def _compare(marker: WarehouseMarker, identity: CatalogIdentity, warehouse: str) -> None:
    if marker.catalog_id != identity.catalog_id:
        raise WarehouseMismatchError(
            f"The warehouse {warehouse} belongs to the catalog {marker.catalog_id}, and this is the catalog "
            f"{identity.catalog_id}. Nothing was written. {_CAUSES} {_remedy(warehouse)}"
        )


def read_warehouse_marker(store: Store, warehouse: str) -> WarehouseMarker | None:
    """The marker, None if there is none.

    Raises:
        WarehouseMismatchError: there is one that cannot be understood.
    """
    location = f"{warehouse}/{WAREHOUSE_MARKER_NAME}"
    try:
        marker = decode_warehouse_marker(store.read(location))
    except ObjectNotFoundError:
        return None
    if marker is None:
        raise WarehouseMismatchError(
            f"{location} should name the catalog of the warehouse, and cannot be understood: it is damaged, or a newer release "
            "wrote it. Nothing was written. Restore the file, or upgrade the package; if you know that the warehouse is this "
            "catalog's, delete it, and the next creation writes it anew."
        )
    return marker


def write_warehouse_marker(store: Store, warehouse: str, identity: CatalogIdentity) -> None:
    """Give the warehouse to the catalog, whatever the marker said before."""
    marker = WarehouseMarker(catalog_id=identity.catalog_id)
    store.write(f"{warehouse}/{WAREHOUSE_MARKER_NAME}", encode_marker(marker))


def read_table_marker(store: Store, location: str) -> TableMarker | None:
    """The marker of the table at ``location``; None if there is none that can be understood."""
    try:
        return decode_table_marker(store.read(f"{log_files.log_directory(location)}/{TABLE_MARKER_NAME}"))
    except ObjectNotFoundError:
        return None


def rewrite_table_marker(
    store: Store, location: str, *, table_id: str, identifier: TableIdentifier, catalog_id: str, state: MarkedState
) -> None:
    """As :func:`write_table_marker`, after a change of name or state; only where the log is, so that no directory is made."""
    try:
        there = bool(store.list_from(log_files.log_directory(location)))
    except (CmDeltaError, OSError) as error:
        _log.warning("The marker of %s at %s was not written: %s", identifier, location, error)
        return
    if not there:
        _log.warning("The marker of %s was not written: there is no log at %s", identifier, location)
        return
    write_table_marker(store, location, table_id=table_id, identifier=identifier, catalog_id=catalog_id, state=state)


def write_table_marker(
    store: Store, location: str, *, table_id: str, identifier: TableIdentifier, catalog_id: str, state: MarkedState
) -> None:
    """Note what the catalog says of a table, for the case that the catalog is lost. A failure is logged: it is a hint."""
    marker = TableMarker(table_id=table_id, name=str(identifier), catalog_id=catalog_id, state=state)
    try:
        store.write(f"{log_files.log_directory(location)}/{TABLE_MARKER_NAME}", encode_marker(marker))
    except (CmDeltaError, OSError) as error:
        _log.warning("The marker of %s at %s was not written: %s", identifier, location, error)


def absolute_location(text: str) -> str:
    """A directory or URI that a user has given, as locations are written everywhere else."""
    return normalise_location(text if "://" in text else os.path.abspath(text))
