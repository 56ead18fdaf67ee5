"""The definition of a table at the version of a snapshot, and the layout by which its files are read.

Shared by the readers of the change feed and of streams. Importing this module needs no Spark.
"""

from datetime import tzinfo

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
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
) -> TableLayout:
    """The layout of the table at ``location``.

    Args:
        location: absolute URI of the table root.
        schema: what the files hold; the schema of the table for None.
        time_zone: as in :class:`TableLayout`.
    """
    return TableLayout(
        location=location,
        schema=definition.schema if schema is None else schema,
        partition_columns=definition.metadata.partition_columns,
        mapping=definition.mapping,
        time_zone=time_zone,
    )
