"""A table of the catalog as Unity Catalog's APIs describe it. Values only; nothing is read.

``properties`` of both generations name the protocol's features beside the properties of the log, because a client recognises by
``delta.feature.catalogManaged`` and ``io.unitycatalog.tableId`` that the catalog ratifies the table's commits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry
from cm_delta_dagster.protocol.actions.actions import Protocol
from cm_delta_dagster.protocol.features.table_properties import TABLE_ID_KEY
from cm_delta_dagster.server.unity.columns import column_infos, columns_of

MANAGED = "MANAGED"
FEATURE_PREFIX = "delta.feature."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table to answer with.

    Attributes:
        commits: the unpublished commits, ascending; each has a staged file.
        clustering: JSON text of the physical names of the clustering columns; None without clustering.
        maintenance: the kinds of maintenance that clients may do by themselves.
    """

    entry: TableEntry
    definition: RecordedDefinition
    commits: tuple[RatifiedCommit, ...] = ()
    clustering: str | None = None
    maintenance: tuple[MaintenanceKind, ...] = ()


def loaded_table(table: ShownTable) -> dict[str, Any]:
    """The answer to ``GET tables/{table}`` of the Delta API, and to what changes a table."""
    entry, definition = table.entry, table.definition
    return {
        "metadata": {
            "etag": entry.etag,
            "table-type": MANAGED,
            "table-uuid": entry.table_id,
            "location": entry.location,
            "created-time": entry.created_ms,
            "updated-time": _updated_ms(table),
            "columns": columns_of(definition.metadata.schema_string),
            "partition-columns": list(definition.partition_columns),
            "properties": shown_properties(table),
            "last-commit-version": definition.version,
            "last-commit-timestamp-ms": definition.in_commit_timestamp,
        },
        "commits": [_commit(commit) for commit in reversed(table.commits)],
        "latest-table-version": entry.ratified.latest_version,
        "allowed-maintenance-operations": [kind.value for kind in table.maintenance],
    }


def _commit(commit: RatifiedCommit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "timestamp": commit.in_commit_timestamp,
        "file-name": commit.file_name,
        "file-size": commit.file_size,
        "file-modification-timestamp": commit.file_modification_time,
    }


def shown_properties(table: ShownTable) -> dict[str, str]:
    """The properties of the log, and those that describe protocol, clustering and the last change of the definition."""
    definition = table.definition
    derived = {
        **protocol_properties(definition.protocol),
        "delta.lastUpdateVersion": str(definition.version),
        "delta.lastCommitTimestamp": str(definition.in_commit_timestamp),
        TABLE_ID_KEY: table.entry.table_id,
    }
    if table.clustering is not None:
        derived["clusteringColumns"] = table.clustering
    return {**definition.properties, **derived}


def protocol_properties(protocol: Protocol) -> Mapping[str, str]:
    """The protocol as properties."""
    features: Iterable[str] = (*(protocol.reader_features or ()), *(protocol.writer_features or ()))
    return {
        "delta.minReaderVersion": str(protocol.min_reader_version),
        "delta.minWriterVersion": str(protocol.min_writer_version),
        **{f"{FEATURE_PREFIX}{feature}": "supported" for feature in features},
    }


def _updated_ms(table: ShownTable) -> int:
    return max(table.entry.created_ms, table.definition.in_commit_timestamp)


def table_info(table: ShownTable) -> dict[str, Any]:
    """The table as the older API describes it."""
    entry, metadata = table.entry, table.definition.metadata
    return {
        "name": entry.identifier.table,
        "catalog_name": entry.identifier.catalog,
        "schema_name": entry.identifier.schema,
        "table_type": MANAGED,
        "data_source_format": "DELTA",
        "columns": column_infos(metadata.schema_string, metadata.partition_columns),
        "storage_location": entry.location,
        "comment": metadata.description,
        "properties": shown_properties(table),
        "owner": None,
        "created_at": entry.created_ms,
        "created_by": None,
        "updated_at": _updated_ms(table),
        "updated_by": None,
        "table_id": entry.table_id,
        "view_definition": None,
        "view_dependencies": None,
    }


def schema_info(schema: Namespace, *, schema_id: str) -> dict[str, Any]:
    """A schema as the older API describes it."""
    catalog, _, name = schema.name.partition(".")
    return {
        "name": name,
        "catalog_name": catalog,
        "comment": schema.comment or None,
        "properties": dict(schema.properties),
        "full_name": schema.name,
        "owner": None,
        **_times(schema),
        "schema_id": schema_id,
        "storage_root": None,
        "storage_location": None,
    }


def catalog_info(catalog: Namespace, *, catalog_id: str) -> dict[str, Any]:
    """A catalog as the older API describes it."""
    return {
        "name": catalog.name,
        "comment": catalog.comment or None,
        "properties": dict(catalog.properties),
        "owner": None,
        **_times(catalog),
        "id": catalog_id,
        "storage_root": None,
        "storage_location": None,
    }


def _times(namespace: Namespace) -> dict[str, Any]:
    return {
        "created_at": namespace.created_ms,
        "created_by": namespace.created_by,
        "updated_at": namespace.created_ms,
        "updated_by": None,
    }
