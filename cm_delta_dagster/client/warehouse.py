"""Markers of the warehouse and of tables, written when a table is created and checked before creation, recovery and purge.

``protocol.log.markers`` defines their encoding. A client reads the marker of its warehouse once, before its first creation.
"""

import itertools
import logging
import os
from collections.abc import Iterable

from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import CatalogIdentity, TableIdentifier
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    OperationRefusedError,
    TableStorageMissingError,
    WarehouseMismatchError,
)
from cm_delta_dagster.protocol.actions.paths import flaw_of_path, normalise_location
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
from cm_delta_dagster.remedies import RecoverWarehouse, RelocateTables
from cm_delta_dagster.storage.store import Store, StoreRegistry

_log = logging.getLogger(__name__)

_MAX_LISTED_OBJECTS = 1000
"""Number of objects to list in a warehouse without a marker, to find tables before an empty catalog creates its first one."""

_MAX_CHECKED_TABLES = 20
"""Number of the catalog's tables whose logs to look for in a warehouse without a marker."""


class WarehouseGuard:
    """Compares the warehouse of one client with its catalog, once. Thread-safe."""

    def __init__(self, catalog: TableRegistry, stores: StoreRegistry) -> None:
        self._catalog, self._stores = catalog, stores
        self._verified: CatalogIdentity | None = None
        self._catalog_id: str | None = None

    def catalog_id(self) -> str:
        """The id of the catalog, for which the catalog is asked once. Raises CatalogUnavailableError."""
        if self._verified is not None:
            return self._verified.catalog_id
        if self._catalog_id is None:
            self._catalog_id = self._catalog.identity().catalog_id
        return self._catalog_id

    def ensure_marker(self) -> CatalogIdentity:
        """Verify, before a table is created, that the warehouse belongs to this catalog; write the marker if it is missing.

        Raises:
            WarehouseMismatchError: the marker names another catalog; or there is no marker, the warehouse has tables, and the
                catalog has no tables. Nothing was written.
            TableStorageMissingError: the warehouse has neither a marker nor any of the catalog's tables.
            CatalogUnavailableError, StorageError: the check failed.
        """
        if self._verified is None:  # Concurrent threads may both check, with the same result.
            identity = self._catalog.identity()
            if identity.warehouse is not None and not identity.checks_warehouse:
                self._ensure_marker(identity, identity.warehouse)
            self._verified = identity
        return self._verified

    def check_own(self) -> CatalogIdentity:
        """:meth:`check` for the warehouse of this client, if it has one."""
        identity = self._catalog.identity()
        if identity.warehouse is not None:
            self.check(identity.warehouse)
        return identity

    def check(self, warehouse: str) -> None:
        """Refuse a warehouse whose marker names another catalog; one without a marker passes.

        Raises:
            WarehouseMismatchError: the marker names another catalog.
        """
        marker = read_warehouse_marker(self._stores.store_for(warehouse), warehouse)
        if marker is not None:
            _compare(marker, self._catalog.identity(), warehouse)

    def _ensure_marker(self, identity: CatalogIdentity, warehouse: str) -> None:
        store = self._stores.store_for(warehouse)
        marker = read_warehouse_marker(store, warehouse)
        if marker is None:
            self._refuse_missing(store, warehouse)
            foreign = self._foreign_log(store, warehouse)
            # A client writes the marker before its first table: if another client created that table just now, there is one.
            marker = None if foreign is None else read_warehouse_marker(store, warehouse)
            if foreign is not None and marker is None:
                raise WarehouseMismatchError(
                    f"The warehouse {warehouse} holds tables, such as the one of {foreign}, and the catalog {identity.catalog_id} "
                    f"has no tables. Nothing was written. {_CAUSES}"
                ).with_remedy(RecoverWarehouse(warehouse=warehouse))
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
        """Refuse a warehouse that has neither a marker nor any of the catalog's tables: the volume may not be mounted."""
        locations = self._readable_locations(self._catalog.list_tables()[:_MAX_CHECKED_TABLES])
        expected = [location for location in locations if location.startswith(f"{warehouse}/")]
        if expected and not any(store.list_from(log_files.log_directory(location)) for location in expected):
            raise TableStorageMissingError(
                f"No table was created: the catalog has tables in the warehouse {warehouse}, such as the one at {expected[0]}, and "
                "their logs are missing. Nothing was written. Likely causes: the volume is not mounted, or the warehouse was "
                "moved."
            ).with_remedy(RelocateTables())

    def _readable_locations(self, names: Iterable[TableIdentifier]) -> list[str]:
        """Locations of the tables that the caller may read. Others cannot be looked for, and do not keep it from creating one."""
        locations = []
        for name in names:
            try:
                locations.append(self._catalog.load_table(name).location)
            except OperationRefusedError:
                continue
        return locations

    def _foreign_log(self, store: Store, warehouse: str) -> str | None:
        """A log file in the warehouse, if this catalog has no tables: its URL may be mistyped, or its database was lost."""
        inactive = self._catalog.inactive_tables()
        if self._catalog.list_tables() or any(table.registered for table in inactive):
            return None
        own = tuple(f"{table.location}/" for table in inactive)
        listed = itertools.islice(store.list_recursive(warehouse), _MAX_LISTED_OBJECTS)
        log_files = (status.location for status in listed if "/_delta_log/" in status.location)
        return next((location for location in log_files if not location.startswith(own)), None)


_CAUSES = (
    "Either the URL of the catalog is mistyped, or the warehouse is another catalog's, or the database of its catalog was "
    "lost. Correct the URL or the warehouse."
)


def _compare(marker: WarehouseMarker, identity: CatalogIdentity, warehouse: str) -> None:
    if marker.catalog_id != identity.catalog_id:
        raise WarehouseMismatchError(
            f"The warehouse {warehouse} belongs to the catalog {marker.catalog_id}, and this is the catalog "
            f"{identity.catalog_id}. Nothing was written. {_CAUSES}"
        ).with_remedy(RecoverWarehouse(warehouse=warehouse))


def read_warehouse_marker(store: Store, warehouse: str) -> WarehouseMarker | None:
    """The marker of the warehouse; None if there is none.

    Raises:
        WarehouseMismatchError: the marker cannot be decoded.
    """
    location = f"{warehouse}/{WAREHOUSE_MARKER_NAME}"
    try:
        marker = decode_warehouse_marker(store.read(location))
    except ObjectNotFoundError:
        return None
    if marker is None:
        raise WarehouseMismatchError(
            f"{location} should name the catalog of the warehouse and cannot be decoded: it is damaged, or a newer release "
            "wrote it. Nothing was written. Restore the file, or upgrade the package; if you know that the warehouse belongs to "
            "this catalog, delete it; the next creation writes it again."
        )
    return marker


def write_warehouse_marker(store: Store, warehouse: str, identity: CatalogIdentity) -> None:
    """Assign the warehouse to the catalog; an existing marker is replaced."""
    marker = WarehouseMarker(catalog_id=identity.catalog_id)
    store.write(f"{warehouse}/{WAREHOUSE_MARKER_NAME}", encode_marker(marker))


def read_table_marker(store: Store, location: str) -> TableMarker | None:
    """The marker of the table at ``location``; None if it is missing or cannot be decoded."""
    try:
        return decode_table_marker(store.read(f"{log_files.log_directory(location)}/{TABLE_MARKER_NAME}"))
    except ObjectNotFoundError:
        return None


def rewrite_table_marker(
    store: Store, location: str, *, table_id: str, identifier: TableIdentifier, catalog_id: str, state: MarkedState
) -> None:
    """As :func:`write_table_marker`, after a change of name or state. Writes nothing without a log, to create no directory."""
    try:
        has_log = bool(store.list_from(log_files.log_directory(location)))
    except (CmDeltaError, OSError) as error:
        _log.warning("The marker of %s at %s was not written: %s", identifier, location, error)
        return
    if not has_log:
        _log.warning("The marker of %s was not written: there is no log at %s", identifier, location)
        return
    write_table_marker(store, location, table_id=table_id, identifier=identifier, catalog_id=catalog_id, state=state)


def write_table_marker(
    store: Store, location: str, *, table_id: str, identifier: TableIdentifier, catalog_id: str, state: MarkedState
) -> None:
    """Store what the catalog knows of a table, to recover it if the catalog is lost. A failure is logged only."""
    marker = TableMarker(table_id=table_id, name=str(identifier), catalog_id=catalog_id, state=state)
    try:
        store.write(f"{log_files.log_directory(location)}/{TABLE_MARKER_NAME}", encode_marker(marker))
    except (CmDeltaError, OSError) as error:
        _log.warning("The marker of %s at %s was not written: %s", identifier, location, error)


def absolute_location(text: str) -> str:
    """The absolute URI of a directory or URI that a user gave; a local one has no ``..``. Raises InvalidArgumentError."""
    flaw = flaw_of_path(text)
    if flaw is not None:
        raise InvalidArgumentError(
            f"The path {text!r} cannot be used: {flaw}. Give a directory, or a URI with its scheme."
        )
    location = normalise_location(text if "://" in text or text.startswith("file:/") else os.path.abspath(text))
    scheme, separator, path = location.partition("://")
    return f"file://{os.path.abspath(path)}" if separator and scheme == "file" and path.startswith("/") else location
