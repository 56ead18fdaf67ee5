"""What lies in a warehouse and belongs to no table that the catalog knows (CM-D5, CM-D8).

A writer that still holds a table that was purged may write its rows after the purge; it takes them back when the catalog
refuses the commit, unless it dies before. Such files are of no use to anybody, but the catalog has forgotten whose they
were, and another catalog may have tables in the same directory. So they are listed, never deleted.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME
from cm_delta_dagster.storage.store import ObjectStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFiles:
    """What lies below one directory that no table has. ``last_written_ms``: epoch milliseconds."""

    location: str
    num_files: int
    num_bytes: int
    last_written_ms: int


def find_orphan_files(client: DeltaClient, *, warehouse: str) -> tuple[OrphanFiles, ...]:
    """Every directory of the warehouse with files and without a table, by location. Nothing is deleted.

    Files of creations under way and of dropped tables are claimed. Other catalogs that use the warehouse are not asked.

    Args:
        warehouse: directory or URI, as of ``connect``.
    """
    root = normalise_location(warehouse if "://" in warehouse else os.path.abspath(warehouse))
    # Storage first: what is reserved later was not listed. A table that is registered or dropped meanwhile is in one of
    # the three answers of the catalog.
    found = list(client.stores.store_for(root).list_recursive(root))
    claimed = {one.location for one in client.catalog.inactive_tables()}
    claimed |= set(_locations(client))
    claimed |= {one.location for one in client.catalog.inactive_tables()}
    known = frozenset(normalise_location(location) for location in claimed)
    below: dict[str, list[ObjectStatus]] = {}
    for status in found:
        if status.location == f"{root}/{WAREHOUSE_MARKER_NAME}":
            continue
        parents = _parents(normalise_location(status.location), root)
        if known.isdisjoint(parents):
            below.setdefault(parents[-1], []).append(status)
    return tuple(
        OrphanFiles(
            location=location,
            num_files=len(files),
            num_bytes=sum(status.size for status in files),
            last_written_ms=max(status.modification_time for status in files),
        )
        for location, files in sorted(below.items())
    )


def _locations(client: DeltaClient) -> Iterable[str]:
    for identifier in client.catalog.list_tables():
        try:
            yield client.catalog.load_table(identifier).location
        except TableNotFoundError:
            continue


def _parents(location: str, root: str) -> list[str]:
    """The directories above a file, from the warehouse down to where a table would be."""
    parts = location.removeprefix(f"{root}/").split("/")[:-1]
    return ["/".join([root, *parts[:depth]]) for depth in range(min(len(parts), LEVELS_BELOW_WAREHOUSE) + 1)]
