"""Ids and physical names of columns (protocol heading "Column Mapping"): which columns get new ones, and which keep theirs.

The names come from the caller, because this package has no randomness.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME, field_id
from cm_delta_dagster.protocol.schema.former_names import FORMER_NAMES, with_name_taken
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    map_fields,
    walk_fields,
)

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
"""Property: the largest id that any column of the table has had."""
MAPPING_PREFIX = "delta.columnMapping."

_MAX_ID = 2**31 - 1


@dataclass(slots=True, kw_only=True)
class ColumnIds:
    """Gives ids above the highest one so far, in the order in which fields are visited."""

    highest: int
    new_name: Callable[[StructField], str]

    def with_id(self, item: StructField) -> StructField:
        """The field with an id and a physical name: its own, or new ones."""
        if COLUMN_ID in item.metadata and PHYSICAL_NAME in item.metadata:
            return item
        if self.highest >= _MAX_ID:
            raise IllegalCommitError(
                f"Column {item.name!r} cannot be added: the table has used all {_MAX_ID} column ids. Copy its rows to a new table."
            )
        self.highest += 1
        metadata = {**item.metadata, COLUMN_ID: self.highest, PHYSICAL_NAME: self.new_name(item)}
        return replace(item, metadata=metadata)


def assign_column_ids(schema: StructType, ids: ColumnIds) -> StructType:
    """``schema`` in which every field, at every level, has an id and a physical name; parents before their fields."""
    return map_fields(schema, ids.with_id)


def highest_column_id(schema: StructType, configuration: Mapping[str, str]) -> int:
    """The highest id that the table has given to a column; 0 if it has given none."""
    recorded = recorded_column_id(configuration)
    known = [] if recorded is None else [recorded]
    known += [field_id(item) for _, item in walk_fields(schema) if COLUMN_ID in item.metadata]
    return max(known, default=0)


def recorded_column_id(configuration: Mapping[str, str]) -> int | None:
    """The value of ``MAX_COLUMN_ID``; None if the table has none, or another client wrote a text that is not a number."""
    recorded = configuration.get(MAX_COLUMN_ID, "")
    return int(recorded) if recorded.isascii() and recorded.isdigit() else None


def strip_metadata(schema: StructType, prefixes: tuple[str, ...]) -> StructType:
    """``schema`` without the metadata whose key begins with one of ``prefixes``, at every level."""

    def stripped(item: StructField) -> StructField:
        metadata = {key: value for key, value in item.metadata.items() if not key.startswith(prefixes)}
        return replace(item, metadata=metadata)

    return map_fields(schema, stripped)


def with_ids_of(schema: StructType, earlier: StructType) -> StructType:
    """``schema``, which replaces ``earlier``, with the ids, the physical and the former names of columns of the same name and type.

    A column whose type differs is another column and gets new ones.
    """
    kept = StructType(tuple(_kept(item, earlier.field(item.name)) for item in schema.fields))
    for name in schema.names:
        kept = with_name_taken(kept, name)
    return kept


def _kept(item: StructField, earlier: StructField | None) -> StructField:
    if earlier is None:
        return item
    kept = _kept_type(item.type, earlier.type)
    if kept is None:
        return item
    ids = {key: value for key, value in earlier.metadata.items() if key.startswith((MAPPING_PREFIX, FORMER_NAMES))}
    return replace(item, type=kept, metadata={**item.metadata, **ids})


def _kept_type(data_type: DataType, earlier: DataType) -> DataType | None:
    """``data_type`` with the ids of ``earlier``; None if they are different types."""
    match data_type, earlier:
        case StructType(), StructType():
            return with_ids_of(data_type, earlier)
        case ArrayType(), ArrayType():
            element = _kept_type(data_type.element_type, earlier.element_type)
            return None if element is None else replace(data_type, element_type=element)
        case MapType(), MapType():
            key = _kept_type(data_type.key_type, earlier.key_type)
            value = _kept_type(data_type.value_type, earlier.value_type)
            return None if key is None or value is None else replace(data_type, key_type=key, value_type=value)
        case _:
            return data_type if data_type == earlier else None
