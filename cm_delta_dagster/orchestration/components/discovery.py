"""Reads the tables of a scope from the catalog and their logs, and stores what their asset specs need as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.orchestration.metadata.metadata import STORAGE_KIND, TABLE_ID, standard_metadata
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.features.column_mapping import stored_names
from cm_delta_dagster.protocol.schema.types import data_type_text, parse_schema

_FORMAT = 1
_MAX_DIMENSIONS = 2
"""Dagster's multi-dimensional partitions have two dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTableProps:
    """A table of the catalog, as a translation sees it.

    Attributes:
        name: full name, ``catalog.schema.table``.
        catalog: first part of the name.
        schema: second part of the name.
        table: third part of the name.
        location: absolute URI.
        comment: the comment of the table; None without one.
        schema_string: the columns, in the JSON of the Delta protocol.
        partition_types: type of each partition column, in order.
        partition_values: values of each partition column when the table was discovered, sorted; without those that are NULL.
        properties: table properties.
    """

    name: str
    catalog: str
    schema: str
    table: str
    table_id: str
    location: str
    comment: str | None
    schema_string: str
    partition_types: Mapping[str, str] = field(default_factory=dict)
    partition_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def discover(
    client: DeltaClient, scope: str, *, include: Sequence[str], exclude: Sequence[str]
) -> tuple[DeltaTableProps, ...]:
    """The tables of ``scope`` whose full name matches a pattern of ``include`` and none of ``exclude``, by name.

    Raises:
        InvalidArgumentError: the scope is malformed.
        StorageError, CatalogError: a request failed.
        CorruptLogError, UnsupportedFeatureError: a table cannot be read.
    """
    tables = []
    for identifier in client.registry.list_tables(scope):
        name = str(identifier)
        if any(fnmatchcase(name, pattern) for pattern in include) and not any(
            fnmatchcase(name, pattern) for pattern in exclude
        ):
            tables.append(_props(identifier, client.table(identifier).snapshot()))
    return tuple(tables)


def _props(identifier: TableIdentifier, snapshot: Snapshot) -> DeltaTableProps:
    columns = snapshot.partition_columns
    stored = stored_names(columns, snapshot.schema, snapshot.column_mapping)
    fields = {column: snapshot.schema.field(column) for column in columns}
    return DeltaTableProps(
        name=str(identifier),
        catalog=identifier.catalog,
        schema=identifier.schema,
        table=identifier.table,
        table_id=snapshot.table_id,
        location=snapshot.location,
        comment=snapshot.metadata.description,
        schema_string=snapshot.metadata.schema_string,
        partition_types={name: data_type_text(item.type) for name, item in fields.items() if item is not None},
        partition_values={
            column: sorted({value for value in partition_column(snapshot.files, own).to_pylist() if value is not None})
            for column, own in zip(columns, stored, strict=True)
        },
        properties=dict(snapshot.metadata.configuration),
    )


def encode(tables: Sequence[DeltaTableProps]) -> str:
    """The state of the component."""
    return json.dumps({"format": _FORMAT, "tables": [asdict(table) for table in tables]}, indent=1)


def decode(text: str) -> tuple[DeltaTableProps, ...]:
    """The tables of a state. A state of another release has none; Dagster then shows none until it is refreshed."""
    state = json.loads(text)
    if state.get("format") != _FORMAT:
        return ()
    return tuple(DeltaTableProps(**table) for table in state["tables"])


def table_spec(props: DeltaTableProps, *, max_partitions: int, io_manager_key: str) -> dg.AssetSpec:
    """The external asset of a table: key, group and name as for the IO manager, columns, description and partitions.

    Args:
        max_partitions: greatest number of values of a partition column; with more, the asset has no partitions. 0: none has.
    """
    metadata: dict[str, Any] = {
        **standard_metadata(
            table=props.name, location=props.location, schema=parse_schema(props.schema_string), counts=None
        ),
        "table": props.name,
        TABLE_ID: props.table_id,
    }
    partitions = _partitions(props, max_partitions)
    if partitions is not None:
        names = list(props.partition_types)
        metadata["partition_expr"] = names[0] if len(names) == 1 else {name: name for name in names}
    spec = dg.AssetSpec(
        key=dg.AssetKey([props.schema, props.table]),
        description=props.comment or f"The Delta table {props.name}, discovered in the catalog.",
        group_name=props.schema,
        kinds={STORAGE_KIND},
        metadata=metadata,
        partitions_def=partitions,
    )
    return spec.with_io_manager_key(io_manager_key)


def _partitions(props: DeltaTableProps, limit: int) -> dg.PartitionsDefinition[Any] | None:
    """Days for a date column, the values for a column of another type; None if a column has no values or too many."""
    parts = {
        name: _dimension(kind, props.partition_values[name], limit) for name, kind in props.partition_types.items()
    }
    known = {name: part for name, part in parts.items() if part is not None}
    if not parts or len(known) < len(parts) or len(parts) > _MAX_DIMENSIONS:
        return None
    if len(known) == 1:
        return next(iter(known.values()))
    return dg.MultiPartitionsDefinition(known)


def _dimension(kind: str, values: Sequence[str], limit: int) -> dg.PartitionsDefinition[Any] | None:
    if not values or not limit or kind in ("timestamp", "timestamp_ntz", "binary"):
        return None
    if kind == "date":
        return dg.DailyPartitionsDefinition(start_date=values[0])
    return dg.StaticPartitionsDefinition(list(values)) if len(values) <= limit else None
