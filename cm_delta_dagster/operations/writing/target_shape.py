"""The table that a write leads to: columns, partition columns and table features, from those of the snapshot and of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.operations.arguments import one_of
from cm_delta_dagster.operations.writing.column_names import unique_name
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.clustering import is_clustered
from cm_delta_dagster.protocol.features.column_ids import with_ids_of
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.column_specs import check_partition_columns
from cm_delta_dagster.protocol.features.enablement import (
    TableDefinition,
    changed_definition,
    check_change_feed_columns,
    without_own_metadata,
)
from cm_delta_dagster.protocol.features.table_changes import check_widened_columns
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.type_widening import widening_in_writes, with_type_changes
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.types import (
    StructType,
    check_column_names,
    data_type_text,
    schema_text,
)
from cm_delta_dagster.protocol.schema.void_columns import check_void_places
from cm_delta_dagster.remedies import SetClusteringColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """Schema, metadata and protocol of the table after a write; those of the snapshot unless the schema changes."""

    schema: StructType
    metadata: Metadata
    protocol: Protocol


def target_shape(
    snapshot: Snapshot, offered: StructType, mode: SchemaMode | str, partition_by: Sequence[str] | None = None
) -> TargetShape:
    """Return schema, metadata and protocol of the table after a write of rows.

    Args:
        offered: the columns of the rows.
        partition_by: with the mode OVERWRITE, the partition columns afterwards; None for those that the table has.

    Raises:
        SchemaMismatchError: the columns do not fit, there are no columns, or a partition column is missing.
        InvalidArgumentError: the rows cannot be partitioned by ``partition_by``, a column becomes wider that a constraint or a
            generated column uses, or the change data feed does not permit that the write drops or renames a column.
        UnsupportedFeatureError: the table or a new column needs a table feature that this client does not support.
    """
    mode = one_of(SchemaMode, mode, name="schema_mode")
    check_writable(snapshot.protocol, snapshot.identifier)
    present = snapshot.schema
    offered = without_own_metadata(offered)
    if not offered.fields:
        raise SchemaMismatchError(
            f"The rows for {snapshot.identifier} have no columns; nothing was written. Select at least one of the "
            f"table's columns: {', '.join(present.names)}."
        )
    before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
    schema = reconcile_schemas(present, offered, mode=mode, widens=widening_in_writes(before.properties))
    partitions = snapshot.partition_columns
    if mode is SchemaMode.OVERWRITE:
        partitions = _replacement_partitions(schema, snapshot, partition_by)
        schema = with_ids_of(_replacement_schema(schema, partitions), present)
    else:
        schema = _recorded(present, before, schema)
    return _shape(snapshot, before, schema, partitions)


def shape_with_schema(snapshot: Snapshot, schema: StructType) -> TargetShape:
    """Return schema, metadata and protocol of the table after its schema becomes ``schema``, with more columns or wider types.

    Raises:
        SchemaMismatchError: a new column has a type that a table cannot have.
        InvalidArgumentError: a column becomes wider that a constraint or a generated column uses.
        UnsupportedFeatureError: a new column needs a table feature that this client does not support.
    """
    before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
    return _shape(snapshot, before, _recorded(snapshot.schema, before, schema), snapshot.partition_columns)


def _recorded(present: StructType, before: TableDefinition, schema: StructType) -> StructType:
    """``schema`` with the record of the types that the write widens; ``present`` is the schema of ``before``."""
    recorded = with_type_changes(present, schema)
    if recorded != present:
        check_widened_columns(before, recorded)
    return recorded


def _shape(snapshot: Snapshot, before: TableDefinition, schema: StructType, partitions: tuple[str, ...]) -> TargetShape:
    present = snapshot.schema
    if schema == present and partitions == snapshot.partition_columns:
        return TargetShape(schema=present, metadata=snapshot.metadata, protocol=snapshot.protocol)
    check_column_names(schema, any_characters=snapshot.column_mapping is not ColumnMappingMode.NONE)
    check_void_places(schema)
    definition = before.with_schema(schema)
    definition = replace(definition, metadata=replace(definition.metadata, partition_columns=partitions))
    after = changed_definition(before, definition, new_name=unique_name)
    try:
        check_writable(after.protocol, snapshot.identifier)
    except UnsupportedFeatureError as error:
        changed = [item for item in schema.fields if present.field(item.name) != item]
        columns = ", ".join(f"{item.name!r} ({data_type_text(item.type)})" for item in changed)
        raise UnsupportedFeatureError(
            f"With the new or changed columns {columns}, {snapshot.identifier} would need a feature that this client "
            f"does not have; nothing was written. Leave them out or cast them, e.g. to a string. ({error})"
        ) from error
    check_change_feed_columns(before, after)
    return TargetShape(schema=after.schema, metadata=after.metadata, protocol=after.protocol)


def _replacement_partitions(
    offered: StructType, snapshot: Snapshot, partition_by: Sequence[str] | None
) -> tuple[str, ...]:
    """The partition columns of a table whose rows and schema are replaced."""
    if partition_by is not None:
        if partition_by and is_clustered(snapshot.protocol):
            raise InvalidArgumentError(
                f"{snapshot.identifier} is a clustered table, which cannot get partition columns. Nothing was written. Leave out "
                "`partition_by`, and cluster by these columns."
            ).with_remedy(SetClusteringColumns())
        return check_partition_columns(offered, partition_by)
    missing = [name for name in snapshot.partition_columns if offered.field(name) is None]
    if missing:
        raise SchemaMismatchError(
            f"The new schema lacks the partition column {missing[0]!r} of {snapshot.identifier}; nothing was written. "
            f"Keep it, or give other partition columns as `partition_by`. Offered schema:\n{schema_text(offered)}"
        )
    return snapshot.partition_columns


def _replacement_schema(offered: StructType, partition_columns: Sequence[str]) -> StructType:
    """Return the offered schema with every field nullable: NOT NULL in a DataFrame depends on how Spark computed it."""
    partitions = {name.lower(): name for name in partition_columns}
    nullable = reconcile_schemas(StructType(()), offered, mode=SchemaMode.MERGE)
    # The partition columns keep the spelling that the metadata has for them.
    return StructType(
        tuple(replace(item, name=partitions.get(item.name.lower(), item.name)) for item in nullable.fields)
    )
