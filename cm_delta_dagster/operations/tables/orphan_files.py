"""List files in a warehouse that belong to no table that the catalog knows.

A writer may write data files to a table after the table was purged. It deletes them when the catalog rejects the commit,
unless it crashes before. Nothing uses such files, but the catalog has no record of them, and another catalog may have tables
in the same directory. Therefore they are listed and never deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import ObjectNotFoundError, TableNotFoundError
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME
from cm_delta_dagster.storage.other_names import resolved_location
from cm_delta_dagster.storage.store import ObjectStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFiles:
    """The files below a directory that belongs to no table. ``last_written_ms``: epoch milliseconds."""

    location: str
    num_files: int
    num_bytes: int
    last_written_ms: int


def find_orphan_files(client: DeltaClient, *, warehouse: str) -> tuple[OrphanFiles, ...]:
    """List the directories of the warehouse that hold files and belong to no table, by location. Deletes nothing.

    Directories of dropped tables and of tables being created are not orphans. Tables of other catalogs in the same warehouse
    are not known to this client and are listed.

    Args:
        warehouse: directory or URI, as for ``connect``.
    """
    root = absolute_location(warehouse)
    # List storage first: a table reserved later was not listed. A table that changes its state between the three calls of
    # the catalog is in at least one answer.
    listed = list(client.stores.store_for(root).list_recursive(root))
    table_locations = {table.location for table in client.registry.inactive_tables()}
    table_locations |= set(_active_locations(client))
    table_locations |= {table.location for table in client.registry.inactive_tables()}
    # Root and tables may be named through symbolic links, each in its own way.
    known = frozenset(resolved_location(client.stores, location) for location in table_locations)
    place = resolved_location(client.stores, root) or root
    orphans: dict[str, list[ObjectStatus]] = {}
    for status in listed:
        if status.location == f"{root}/{WAREHOUSE_MARKER_NAME}":
            continue
        parents = _parents(normalise_location(status.location), root)
        if known.isdisjoint(place + parent.removeprefix(root) for parent in parents):
            orphans.setdefault(parents[-1], []).append(status)
    return tuple(
        OrphanFiles(
            location=location,
            num_files=len(files),
            num_bytes=sum(status.size for status in files),
            last_written_ms=max(status.modification_time for status in files),
        )
        for location, files in sorted(orphans.items())
    )


def is_empty(client: DeltaClient, *, warehouse: str) -> bool:
    """Whether the warehouse has no object at all, as at a location that is misspelled.

    Args:
        warehouse: directory or URI, as for ``connect``.
    """
    root = absolute_location(warehouse)
    store = client.stores.store_for(root)
    try:
        store.stat(f"{root}/{WAREHOUSE_MARKER_NAME}")  # Nearly every warehouse has it, and a listing can be long.
    except ObjectNotFoundError:
        return next(iter(store.list_recursive(root)), None) is None
    return False


def _active_locations(client: DeltaClient) -> Iterable[str]:
    for identifier in client.registry.list_tables():
        try:
            yield client.registry.load_table(identifier).location
        except TableNotFoundError:
            continue


def _parents(location: str, root: str) -> list[str]:
    """Return the directories above a file, from the warehouse down to the level of table directories."""
    parts = location.removeprefix(f"{root}/").split("/")[:-1]
    return ["/".join([root, *parts[:depth]]) for depth in range(min(len(parts), LEVELS_BELOW_WAREHOUSE) + 1)]
