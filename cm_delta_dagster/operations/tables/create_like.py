"""CREATE TABLE ... LIKE: the definition of a table, for a new table without rows."""

from collections.abc import Mapping

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.create import TableDesign
from cm_delta_dagster.protocol.features.column_ids import strip_metadata
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX, check_user_properties
from cm_delta_dagster.protocol.schema.column_paths import path_text

_OF_THE_FILES = ("delta.columnMapping.", "parquet.", "delta.typeChanges", "delta.identity.highWaterMark")
"""Metadata of columns that describe the files of the table, or values that it has given."""


def design_like(snapshot: Snapshot, properties: Mapping[str, str]) -> TableDesign:
    """The columns with their defaults and computed values, the layout, the comment, constraints and properties of a table.

    Properties that only the client sets are left out.

    Args:
        properties: in addition to those of the table, or in their place.
    """
    return TableDesign(
        schema=strip_metadata(snapshot.schema, _OF_THE_FILES),
        partition_columns=snapshot.partition_columns,
        properties={**settable_properties(snapshot), **_constraints(snapshot), **properties},
        description=snapshot.metadata.description,
        clustering_columns=[path_text(path) for path in snapshot.clustering_columns],
    )


def _constraints(snapshot: Snapshot) -> dict[str, str]:
    return {key: text for key, text in snapshot.metadata.configuration.items() if key.startswith(CONSTRAINT_PREFIX)}


def settable_properties(snapshot: Snapshot) -> dict[str, str]:
    """The properties of a table that a user can set on another one, by name; without constraints."""
    properties = sorted(snapshot.metadata.configuration.items())
    return {key: value for key, value in properties if _may_be_set(key, value)}


def _may_be_set(key: str, value: str) -> bool:
    try:
        check_user_properties({key: value}, force=True)
    except InvalidArgumentError:
        return False
    return not key.startswith(CONSTRAINT_PREFIX)
