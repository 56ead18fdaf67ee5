"""Which files of a version storage no longer holds."""

from collections.abc import Iterable

import pyarrow as pa

from cm_delta_dagster.protocol.actions.paths import normalise_location, resolve_path
from cm_delta_dagster.protocol.features.deletion_vectors import vector_files
from cm_delta_dagster.storage.other_names import sizes_of
from cm_delta_dagster.storage.store import StoreRegistry

_FILES_TO_LIST = 1000
"""From this many files on, listing the table costs less than a request for each file."""


def missing_files(stores: StoreRegistry, files: pa.Table, *, location: str) -> set[str]:
    """Keys of the data files and deletion vector files of ``files``, of the table at ``location``, that storage does not hold."""
    needed = {
        **vectors_by_key(location, files),
        **_by_key(resolve_path(location, path) for path in files["path"].to_pylist()),
    }
    if len(needed) >= _FILES_TO_LIST:
        for status in stores.store_for(location).list_recursive(location):
            needed.pop(normalise_location(status.location), None)
    existing_sizes = sizes_of(stores.store_for, needed.values())
    return {key for key, at in needed.items() if at not in existing_sizes}


def vectors_by_key(location: str, files: pa.Table) -> dict[str, str]:
    """Keys and locations of the deletion vector files of ``files``."""
    return _by_key(vector_files(location, files))


def _by_key(locations: Iterable[str]) -> dict[str, str]:
    return {normalise_location(location): location for location in locations}
