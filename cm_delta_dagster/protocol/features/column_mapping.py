"""Column mapping (protocol heading "Column Mapping"): the names and ids of columns in data files, statistics and partition values.

Schemas, predicates and ``partitionColumns`` use logical names; this module translates them to physical names. It does not assign
ids or physical names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema import former_names
from cm_delta_dagster.protocol.schema.types import StructField, StructType, map_fields

COLUMN_ID = "delta.columnMapping.id"
PHYSICAL_NAME = former_names.PHYSICAL_NAME

_MAX_ID = 2**31 - 1


class ColumnMappingMode(StrEnum):
    """How a reader finds a column in a data file: by its name, by its physical name, or by the ``field_id`` of Parquet."""

    NONE = "none"
    NAME = "name"
    ID = "id"


def column_mapping_mode(protocol: Protocol, metadata: Metadata) -> ColumnMappingMode:
    """The mode that readers must use: the table property, if the protocol supports the feature, else ``none``."""
    if not supports(protocol, "columnMapping"):
        return ColumnMappingMode.NONE
    return ColumnMappingMode(TableProperties(metadata.configuration).column_mapping_mode)


def physical_name(item: StructField, mode: ColumnMappingMode) -> str:
    """The name of one field in ``partitionValues``, statistics and (in ``none`` and ``name`` mode) data files.

    In mode ``none`` this is the logical name, even if the metadata of the field contains a physical name.

    Raises:
        CorruptLogError: the mode requires a physical name and the field has none.
    """
    if mode is ColumnMappingMode.NONE:
        return item.name
    name = item.metadata.get(PHYSICAL_NAME)
    if not isinstance(name, str) or not name:
        raise CorruptLogError(
            f"Column {item.name!r} has no {PHYSICAL_NAME} in its metadata, which every column of a table with column mapping "
            "must have; the schema in the log is damaged. Restore the table to a version with a valid schema."
        )
    return name


def stored_names(columns: Sequence[str], schema: StructType, mode: ColumnMappingMode) -> tuple[str, ...]:
    """The names of top-level columns in ``partitionValues`` and statistics; ``columns`` themselves without column mapping.

    Raises:
        CorruptLogError: the mode requires a physical name and a column has none.
    """
    if mode is ColumnMappingMode.NONE:
        return tuple(columns)
    fields = {name: schema.field(name) for name in columns}
    return tuple(name if item is None else physical_name(item, mode) for name, item in fields.items())


def logical_partitions(
    values: Mapping[str, str | None], columns: Sequence[str], schema: StructType, mode: ColumnMappingMode
) -> Mapping[str, str | None]:
    """Partition values of a file by the logical names of their columns; keys that are not known stay as they are.

    Raises:
        CorruptLogError: the mode requires a physical name and a column has none.
    """
    if mode is ColumnMappingMode.NONE:
        return values
    logical = dict(zip(stored_names(columns, schema, mode), columns, strict=True))
    return {logical.get(name, name): value for name, value in values.items()}


def field_id(item: StructField) -> int:
    """The id of one field of a table with column mapping.

    Raises:
        CorruptLogError: the field has no 32-bit id.
    """
    value = item.metadata.get(COLUMN_ID)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_ID:
        raise CorruptLogError(
            f"Column {item.name!r} has the {COLUMN_ID} {value!r}, which is not a 32-bit column id; the schema in the log is "
            "damaged. Restore the table to a version with a valid schema."
        )
    return value


def physical_schema(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """``schema`` with physical names at every level; types, nullability, order and metadata do not change.

    Raises:
        CorruptLogError: the mode requires physical names and a field has none.
    """
    if mode is ColumnMappingMode.NONE:
        return schema
    return map_fields(schema, lambda item: replace(item, name=physical_name(item, mode)))
