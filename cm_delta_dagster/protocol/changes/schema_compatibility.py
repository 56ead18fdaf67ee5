"""Whether files of one version can be read with the schema of another (protocol headings "Change Metadata", "Column Mapping").

Used by the change data feed and by streams, which read several versions with one schema. The rules are those of delta-spark:
columns may be added and NOT NULL may be dropped; any other change is incompatible.
"""

from dataclasses import dataclass

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, column_mapping_mode, physical_schema
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructType, parse_schema, walk_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDefinition:
    """Protocol and metadata of a table at ``version``."""

    version: int
    protocol: Protocol
    metadata: Metadata

    @property
    def mapping(self) -> ColumnMappingMode:
        return column_mapping_mode(self.protocol, self.metadata)

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    def after(self, commit: CommitActions) -> "VersionDefinition":
        """The definition after ``commit``."""
        return VersionDefinition(
            version=commit.version, protocol=commit.protocol or self.protocol, metadata=commit.metadata or self.metadata
        )


def incompatibility(older: VersionDefinition, newer: VersionDefinition) -> str | None:
    """Why files written under ``older`` cannot be read with the schema of ``newer``, for a message; None if they can."""
    if older.metadata is newer.metadata and older.protocol is newer.protocol:
        return None
    if older.mapping is not ColumnMappingMode.NONE or newer.mapping is not ColumnMappingMode.NONE:
        reason = _mapping_incompatibility(older, newer)
        if reason is not None:
            return reason
    if older.metadata.partition_columns != newer.metadata.partition_columns:
        return "the table was partitioned by other columns"
    return _struct_incompatibility(older.schema, newer.schema, "")


def _mapping_incompatibility(older: VersionDefinition, newer: VersionDefinition) -> str | None:
    if older.mapping is not newer.mapping and older.mapping is not ColumnMappingMode.NONE:
        return f"the column mapping mode changed from {older.mapping} to {newer.mapping}"
    # Enabling column mapping on an existing table makes the names of its columns their physical names.
    before, after = _names_by_physical_path(older), _names_by_physical_path(newer)
    for path, name in before.items():
        if path not in after:
            return f"the column {name!r} was dropped"
        if after[path] != name:
            return f"the column {name!r} was renamed to {after[path]!r}"
    return None


def _names_by_physical_path(definition: VersionDefinition) -> dict[tuple[str, ...], str]:
    schema = definition.schema
    physical = physical_schema(schema, definition.mapping)
    pairs = zip(walk_fields(physical), walk_fields(schema), strict=True)
    return {path: path_text(names) for (path, _), (names, _) in pairs}


def _struct_incompatibility(older: StructType, newer: StructType, where: str) -> str | None:
    for field in older.fields:
        name = f"{where}{field.name}"
        found = newer.field(field.name)
        if found is None:
            return f"the column {name!r} is missing in it"
        if found.name != field.name:
            return f"the column {name!r} is spelled {found.name!r} in it"
        if field.nullable and not found.nullable:
            return f"the column {name!r} became NOT NULL"
        reason = _type_incompatibility(field.type, found.type, name)
        if reason is not None:
            return reason
    return None


def _type_incompatibility(older: DataType, newer: DataType, name: str) -> str | None:
    match older, newer:
        case StructType(), StructType():
            return _struct_incompatibility(older, newer, f"{name}.")
        case ArrayType(), ArrayType():
            if older.contains_null and not newer.contains_null:
                return f"the elements of {name!r} became NOT NULL"
            return _type_incompatibility(older.element_type, newer.element_type, f"{name}.element")
        case MapType(), MapType():
            if older.value_contains_null and not newer.value_contains_null:
                return f"the values of {name!r} became NOT NULL"
            key = _type_incompatibility(older.key_type, newer.key_type, f"{name}.key")
            return key or _type_incompatibility(older.value_type, newer.value_type, f"{name}.value")
    return None if older == newer else f"the type of {name!r} changed"
