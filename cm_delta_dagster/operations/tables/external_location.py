"""Checks of a location outside of the warehouse, which a table is created at or adopted from. They change nothing."""

import itertools
from pathlib import PurePosixPath

from cm_delta_dagster.catalog.tables import RelatedTable
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.warehouse import absolute_location, read_warehouse_marker
from cm_delta_dagster.errors import InvalidArgumentError, WarehouseMismatchError
from cm_delta_dagster.operations.recovery.table_places import tables_with_places
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.remedies import AdoptTable, RecoverWarehouse
from cm_delta_dagster.storage.other_names import resolved_location
from cm_delta_dagster.storage.store import Store, StoreRegistry


def check_location(client: DeltaClient, location: str) -> str:
    """The absolute location of a table that is to be created there; it must be empty.

    Args:
        location: directory, or URI with its scheme; a relative path starts at the working directory.

    Raises:
        InvalidArgumentError: the location has files, is below a Delta table, or is in the warehouse of this client.
        WarehouseMismatchError: it is in the warehouse of another catalog.
        StorageError: it cannot be listed.
    """
    at = absolute_location(location).rstrip("/")
    warehouse = client.registry.identity().warehouse
    if warehouse is not None and any(
        _is_in(inner, outer)
        for inner in _spellings(client.stores, at)
        for outer in _spellings(client.stores, warehouse)
    ):
        raise InvalidArgumentError(
            f"No table was created: {at} is in the warehouse {warehouse}, in which the catalog places tables itself. Leave out the "
            "location, or give one outside of the warehouse."
        )
    refuse_other_warehouse(client, at, not_done="No table was created")
    store = client.stores.store_for(at)
    refuse_part_of_table(store, at, not_done="No table was created")
    first_object = next(iter(itertools.islice(store.list_recursive(at), 1)), None)
    if first_object is not None:
        raise InvalidArgumentError(
            f"No table was created: {at} is not empty; it has {first_object.location}. Nothing was changed. Give an empty "
            "location."
        ).with_remedy(AdoptTable(location=at))
    return at


def refuse_part_of_table(store: Store, location: str, *, not_done: str) -> None:
    """Refuse a location below a Delta table, whose vacuum would delete files there. Raises InvalidArgumentError."""
    scheme, separator, _ = location.partition("://")
    spelled = dict.fromkeys((location, store.resolve(location) if scheme == "file" else location))
    paths = [PurePosixPath(spelling.removeprefix(f"{scheme}{separator}")) for spelling in spelled]
    for parent in (parent for path in paths for parent in path.parents if parent.name):
        table = f"{scheme}{separator}{parent}"
        if store.list_from(log_files.log_directory(table)):
            raise InvalidArgumentError(
                f"{not_done}: {location} is below the Delta table {table}, and its files may be a part of that table. Nothing was "
                "changed. Use that table, or another location."
            )


def refuse_other_warehouse(client: DeltaClient, location: str, *, not_done: str) -> None:
    """Refuse a location at or below a warehouse whose marker names another catalog. Raises WarehouseMismatchError."""
    own = client.registry.identity().catalog_id
    store = client.stores.store_for(location)
    scheme, separator, rest = location.partition("://")
    parts = rest.split("/")
    for length in range(len(parts), 0, -1):
        root = f"{scheme}{separator}{'/'.join(parts[:length])}"
        marker = read_warehouse_marker(store, root) if parts[length - 1] else None
        if marker is not None and marker.catalog_id != own:
            raise WarehouseMismatchError(
                f"{not_done}: {location} is in the warehouse {root} of the catalog {marker.catalog_id}, and this is the catalog "
                f"{own}. Nothing was changed. Release the table there first, unless that catalog is lost."
            ).with_remedy(RecoverWarehouse(warehouse=root))


def overlapping_tables(client: DeltaClient, location: str) -> tuple[RelatedTable, ...]:
    """The tables of the catalog at, above or below ``location``, also through symbolic links in one or the other path."""
    tables = list(client.recovery.overlapping_tables(location))
    real = resolved_location(client.stores, location)
    if real is not None:
        others = tables_with_places(client, real.partition("://")[0])
        tables += [table for table, place in others if _is_in(real, place) or _is_in(place, real)]
    return tuple({table.table_id: table for table in tables}.values())


def _is_in(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer}/")


def _spellings(stores: StoreRegistry, location: str) -> tuple[str, ...]:
    """The location as it is written, and with symbolic links resolved."""
    return tuple(dict.fromkeys((location, resolved_location(stores, location) or location)))
