"""Clustered tables (protocol heading "Clustered Table"): the clustering columns, and which implementation clustered a file.

The domain ``delta.clustering`` holds the columns by physical names, so that a renamed column stays a clustering column. Which
columns a table may be clustered by is checked in :mod:`~cm_delta_dagster.protocol.statistics.layout_columns`.
"""

import json
from collections.abc import Mapping, Sequence

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Protocol
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.remedies import SetClusteringColumns

FEATURE = "clustering"
DOMAIN = "delta.clustering"

PROVIDER = "cm-delta-dagster"
"""``clusteringProvider`` of files that this package clustered."""

MAX_CLUSTERING_COLUMNS = 4

_KEY = "clusteringColumns"


def is_clustered(protocol: Protocol) -> bool:
    """Whether the table is a clustered table; it may have no clustering columns at present."""
    return supports(protocol, FEATURE)


def clustering_domain(columns: Sequence[ColumnPath]) -> DomainMetadata:
    """The domain that records ``columns``, which are paths of physical names."""
    content = json.dumps({_KEY: [list(path) for path in columns]}, separators=(",", ":"), ensure_ascii=False)
    return DomainMetadata(domain=DOMAIN, configuration=content)


def stored_clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[ColumnPath, ...]:
    """The clustering columns as paths of physical names; empty if there are none.

    A column is a list of names, or one name, which is the form in the protocol text.

    Raises:
        CorruptLogError: the domain does not contain a list of columns.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return ()
    try:
        content = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        content = None
    listed = content.get(_KEY) if isinstance(content, dict) else None
    columns = [[item] if isinstance(item, str) else item for item in listed] if isinstance(listed, list) else None
    if columns is None or not all(
        isinstance(path, list) and path and all(isinstance(name, str) for name in path) for path in columns
    ):
        raise CorruptLogError(
            f"The domain {DOMAIN} contains {domain.configuration!r} instead of clustering columns such as "
            '{"clusteringColumns":[["a"],["b","c"]]}; the log is damaged.'
        )
    return tuple(tuple(path) for path in columns)


def clustering_columns(
    domains: Mapping[str, DomainMetadata], schema: StructType, mapping: ColumnMappingMode
) -> tuple[ColumnPath, ...]:
    """The clustering columns as paths of logical names; empty if there are none.

    Raises:
        CorruptLogError: the domain is damaged, or names a column that the schema does not have.
    """
    columns = []
    for path in stored_clustering_columns(domains):
        names = logical_path(path, schema, mapping)
        if names is None:
            raise CorruptLogError(
                f"The domain {DOMAIN} names the clustering column {'.'.join(path)!r}, which the schema does not have; the log is "
                "damaged."
            ).with_remedy(SetClusteringColumns())
        columns.append(names)
    return tuple(columns)


def physical_path(path: ColumnPath, schema: StructType, mapping: ColumnMappingMode) -> ColumnPath:
    """The physical names of a column of ``schema``, given its logical names as the schema spells them."""
    names: list[str] = []
    level: object = schema
    for name in path:
        item = _exact_field(level, name)
        assert item is not None
        names.append(physical_name(item, mapping))
        level = item.type
    return tuple(names)


def logical_path(path: ColumnPath, schema: StructType, mapping: ColumnMappingMode) -> ColumnPath | None:
    """The logical names of a column of ``schema``, given its physical names; None if there is no such column."""
    names: list[str] = []
    level: object = schema
    for name in path:
        fields = level.fields if isinstance(level, StructType) else ()
        item = next((item for item in fields if physical_name(item, mapping) == name), None)
        if item is None:
            return None
        names.append(item.name)
        level = item.type
    return tuple(names)


def _exact_field(level: object, name: str) -> StructField | None:
    fields = level.fields if isinstance(level, StructType) else ()
    return next((item for item in fields if item.name == name), None)
