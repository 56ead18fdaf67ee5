"""Tables of the catalog by the place of their files, where a location can have several names.

The catalog compares locations as texts. This module resolves symbolic links, and the names of Azure's containers.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.tables import RelatedTable
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.log_reader import load_state
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.log.cloning import directories_above, named_files
from cm_delta_dagster.storage.other_names import resolved_files, resolved_location

_log = logging.getLogger(__name__)

_SCHEMES: Mapping[str, tuple[str, ...]] = MappingProxyType({"file": ("file",), "az": ("az", "abfs", "abfss")})
"""Schemes of the locations in each kind of store in which one directory can have several names."""


def tables_with_places(client: DeltaClient, kind: str) -> Iterator[tuple[RelatedTable, str]]:
    """The tables in a kind of store in which one directory can have several names, with their location as ``Store.resolve`` has it.

    Args:
        kind: the scheme of a resolved location. In other stores than local ones and Azure's, the catalog compares locations well.
    """
    for scheme in _SCHEMES.get(kind, ()):
        for table in client.recovery.overlapping_tables(f"{scheme}:/"):
            place = resolved_location(client.stores, table.location)
            if place is not None:
                yield table, place


def source_locations(client: DeltaClient, location: str, files: Sequence[pa.Table]) -> frozenset[str]:
    """Locations among which are those of the tables whose files the table at ``location`` names, also through symbolic links.

    Args:
        files: add or remove actions of the table.
    """
    directories = _directories_elsewhere(client, location, files)
    kinds = {place.partition("://")[0] for place in directories if "://" in place}
    linked = {
        table.location for kind in kinds for table, place in tables_with_places(client, kind) if place in directories
    }
    return directories | linked


def _directories_elsewhere(client: DeltaClient, location: str, files: Sequence[pa.Table]) -> frozenset[str]:
    """The directories, and all above them, of the files that the table names elsewhere, as they are spelled and resolved.

    A file is elsewhere if its spelling or, through links, its place is not below ``location``.
    """
    named = named_files(location, files)
    places = resolved_files(client.stores, named)
    root = resolved_location(client.stores, location) or location
    inside = pc.and_(_is_below(named, normalise_location(location)), _is_below(places, root))
    return directories_above(pa.concat_arrays([spellings.filter(pc.invert(inside)) for spellings in (named, places)]))


def _is_below(files: pa.Array, directory: str) -> pa.Array:
    """Whether each file lies below; true for one without a place."""
    return pc.fill_null(pc.starts_with(files, f"{directory.rstrip('/')}/"), True)


def record_sources(client: DeltaClient, table_id: str, location: str, files: Sequence[pa.Table]) -> None:
    """Let the catalog know of which of its tables the one at ``location`` names files. Arguments as of :func:`source_locations`."""
    sources = source_locations(client, location, files)
    if sources:
        client.recovery.record_sources(table_id, sources)


def record_clones(client: DeltaClient, locations: Mapping[str, str]) -> None:
    """Let the catalog know which of its tables name files of tables that came to these locations.

    A table that cannot be read counts as one: VACUUM of the tables is refused as long as that is so. It reads the latest version
    of each table that may name files elsewhere.

    Args:
        locations: by table id; each table came under the catalog, or to its location, in this operation.
    """
    # No table is the clone of itself.
    tables = [table for table in client.recovery.tables_with_files_elsewhere() if locations.keys() - {table.table_id}]
    if not tables:
        return
    _log.info("Looking for files of %d tables in %d tables that may name files elsewhere.", len(locations), len(tables))
    places = {location: {location, resolved_location(client.stores, location)} for location in locations.values()}
    for table in tables:
        others = {location for table_id, location in locations.items() if table_id != table.table_id}
        try:
            directories = _directories_named_by(client, table)
            sources = {location for location in others if not places[location].isdisjoint(directories)}
        except (CmDeltaError, OSError) as error:
            sources = others
            _log.warning(
                "%s cannot be read, and may name files below %s. It counts as a shallow clone of the tables there, of which VACUUM "
                "is refused until %s is repaired, or dropped and purged (%s).",
                table.identifier,
                ", ".join(sorted(others)),
                table.identifier,
                error,
            )
        if sources:
            client.recovery.record_sources(table.table_id, sources)


def _directories_named_by(client: DeltaClient, table: RelatedTable) -> frozenset[str]:
    assert table.ratified is not None, "staging tables are left out"
    reader = CommitReader(client.stores.store_for(table.location), table.location)
    loaded = load_state(reader, version=table.ratified.latest_version, ratified=table.ratified.commits)
    files = loaded.state.files
    return _directories_elsewhere(client, table.location, (files.adds, files.removes))
