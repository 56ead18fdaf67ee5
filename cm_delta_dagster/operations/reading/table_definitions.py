"""The definition of a table at the version of a snapshot, and the layout by which its files are read.

Shared by the readers of the change feed and of streams. Importing this module needs no Spark.
"""

from collections.abc import Sequence
from datetime import tzinfo

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.features.column_mapping import physical_name
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import StructType


def definition_of(snapshot: Snapshot) -> VersionDefinition:
    """Protocol and metadata of the snapshot."""
    return VersionDefinition(version=snapshot.version, protocol=snapshot.protocol, metadata=snapshot.metadata)


def layout_of(
    definition: VersionDefinition,
    location: str,
    *,
    schema: StructType | None = None,
    time_zone: tzinfo | None = None,
    stored_partitions: Sequence[str] | None = None,
) -> TableLayout:
    """The layout of the table at ``location``.

    Args:
        location: absolute URI of the table root.
        schema: what the files hold; the schema of the table for None.
        time_zone: as in :class:`TableLayout`.
        stored_partitions: the partition columns by the names that partition values have; those of the table for None.
    """
    return TableLayout(
        location=location,
        schema=definition.schema if schema is None else schema,
        partition_columns=partitions_of(definition, stored_partitions),
        mapping=definition.mapping,
        time_zone=time_zone,
    )


def partitions_of(definition: VersionDefinition, stored_partitions: Sequence[str] | None) -> tuple[str, ...]:
    """The partition columns of files; arguments as of :func:`layout_of`. Columns that the table no longer has are left out."""
    if stored_partitions is None:
        return definition.metadata.partition_columns
    names = {physical_name(item, definition.mapping): item.name for item in definition.schema.fields}
    return tuple(names[stored] for stored in stored_partitions if stored in names)
