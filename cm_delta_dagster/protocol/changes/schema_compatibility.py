"""Whether files of one version can be read with the schema of another (protocol headings "Change Metadata", "Column Mapping").

Used by the change feed and by streams, which read several versions with one schema. There are three rules:

* :func:`incompatibility`: rows of an older version can be mapped to a newer schema. Columns were added, renamed or widened, are no
  longer NOT NULL, or were dropped. Column mapping identifies columns; without it the name does.
* :func:`non_additive_change`: rows of both versions can be read with the newer schema without a change of names or types. This is
  the rule of delta-spark for a query that runs, whose schema has columns under the names that they had when it began.
* :func:`unreadable_column`: the files of an older version have the values of each column under its name in the newer schema, of a
  type that can be read as the newer one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, column_mapping_mode, physical_name
from cm_delta_dagster.protocol.features.type_widening import can_read_as
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)


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


class _Rule(Enum):
    ADDITIVE = auto()
    MAPPED = auto()
    STORED = auto()


def incompatibility(older: VersionDefinition, newer: VersionDefinition) -> str | None:
    """Why rows of ``older`` cannot be mapped to the schema of ``newer``, for a message; None if they can."""
    return _difference(older, newer, _Rule.MAPPED)


def non_additive_change(older: VersionDefinition, newer: VersionDefinition) -> str | None:
    """What ``newer`` changes that is more than new columns and dropped NOT NULL, for a message; None for nothing."""
    return _difference(older, newer, _Rule.ADDITIVE)


def unreadable_column(older: VersionDefinition, newer: VersionDefinition) -> str | None:
    """Which column of ``older`` has another type in ``newer``, or has lost its name to a new column there, for a message.

    None if files of ``older`` can be read. Columns that ``newer`` lacks are left out, and new ones are NULL.
    """
    return _difference(older, newer, _Rule.STORED)


def _difference(older: VersionDefinition, newer: VersionDefinition, rule: _Rule) -> str | None:
    if older.metadata is newer.metadata and older.protocol is newer.protocol:
        return None
    before, after = older.schema, newer.schema
    if rule is not _Rule.STORED:
        if older.mapping is not newer.mapping and older.mapping is not ColumnMappingMode.NONE:
            return f"the column mapping mode changed from {older.mapping} to {newer.mapping}"
        if _stored_partitions(older, before) != _stored_partitions(newer, after):
            return "the table was partitioned by other columns"
    return _ColumnComparison(older.mapping, newer.mapping, rule).structs(before, after, "")


def _stored_partitions(definition: VersionDefinition, schema: StructType) -> list[str]:
    names = definition.metadata.partition_columns
    fields = ((name, schema.field(name)) for name in names)
    return [name if item is None else physical_name(item, definition.mapping) for name, item in fields]


@dataclass(frozen=True, slots=True)
class _ColumnComparison:
    """Compares the columns of two versions, which are the same column if they have the same name in the files.

    Attributes:
        older, newer: the mapping modes. Column mapping that is enabled on an existing table makes the names of its columns
            their physical names.
    """

    older: ColumnMappingMode
    newer: ColumnMappingMode
    rule: _Rule

    def structs(self, older: StructType, newer: StructType, where: str) -> str | None:
        stored = {physical_name(item, self.newer): item for item in newer.fields}
        is_mapped = {self.older, self.newer} != {ColumnMappingMode.NONE}
        for item in older.fields:
            newer_field = stored.get(physical_name(item, self.older))
            if newer_field is not None:
                reason = self._fields(item, newer_field, where)
            elif self.rule is _Rule.STORED and not is_mapped:
                reason = None
            else:
                reason = self._dropped(item, older, newer, where) if is_mapped else _missing(item, newer, where)
            if reason is not None:
                return reason
        return None

    def _fields(self, item: StructField, newer: StructField, where: str) -> str | None:
        name = f"{where}{item.name}"
        if self.rule is _Rule.ADDITIVE and newer.name != item.name:
            return f"the column {name!r} was renamed to {f'{where}{newer.name}'!r}"
        if self._tightened(item.nullable, newer.nullable):
            return f"the column {name!r} became NOT NULL"
        return self._types(item.type, newer.type, name)

    def _tightened(self, older: bool, newer: bool) -> bool:
        return self.rule is not _Rule.STORED and older and not newer

    def _dropped(self, item: StructField, older: StructType, newer: StructType, where: str) -> str | None:
        """A dropped column is left out, unless a new one has its name: its values would not be those of the rows."""
        if self.rule is _Rule.ADDITIVE:
            return f"the column {f'{where}{item.name}'!r} was dropped"
        other = newer.field(item.name)
        if other is None or physical_name(other, self.newer) in self._stored_names(older.fields):
            return None
        return f"the column {f'{where}{item.name}'!r} was dropped, and another column of that name was added"

    def _stored_names(self, fields: Iterable[StructField]) -> set[str]:
        return {physical_name(item, self.older) for item in fields}

    def _types(self, older: DataType, newer: DataType, name: str) -> str | None:
        match older, newer:
            case StructType(), StructType():
                return self.structs(older, newer, f"{name}.")
            case ArrayType(), ArrayType():
                if self._tightened(older.contains_null, newer.contains_null):
                    return f"the elements of {name!r} became NOT NULL"
                return self._types(older.element_type, newer.element_type, f"{name}.element")
            case MapType(), MapType():
                if self._tightened(older.value_contains_null, newer.value_contains_null):
                    return f"the values of {name!r} became NOT NULL"
                key = self._types(older.key_type, newer.key_type, f"{name}.key")
                return key or self._types(older.value_type, newer.value_type, f"{name}.value")
        if older == newer or (self.rule is not _Rule.ADDITIVE and can_read_as(older, newer)):
            return None
        return f"the type of {name!r} changed"


def _missing(item: StructField, newer: StructType, where: str) -> str:
    """Without column mapping a column is known by its name only, so that a missing one may have been replaced."""
    name, other = f"{where}{item.name}", newer.field(item.name)
    if other is not None:
        return f"the column {name!r} is spelled {other.name!r} in it"
    return f"the column {name!r} is missing in it"
