"""The Arrow schema of a table's rows (protocol headings "Schema Serialization Format", "Variant Data Type").

It has the types, nullability, comments and all other metadata of the table, at every level. It depends on the log only;
:mod:`~cm_delta_dagster.arrow.columns` converts the content of data files to it.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_type
from cm_delta_dagster.protocol.schema.types import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

VARIANT_TYPE = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
"""The Arrow type of a variant: the two parts of the Parquet Variant encoding, never shredded."""

_RESERVED = "ARROW:"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Fields of ``schema`` in order, with their metadata: texts unchanged, any other value as JSON.

    Raises:
        UnsupportedFeatureError: a type without an Arrow form, naming the column.
    """
    return pa.schema([arrow_field(item) for item in schema.fields])


def arrow_field(item: StructField) -> pa.Field:
    """One field of :func:`arrow_schema`."""
    nullable = item.nullable or item.type == VOID
    return pa.field(item.name, arrow_type(item.type), nullable=nullable, metadata=_metadata(item.metadata) or None)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The type of :func:`arrow_field`, nested fields with their metadata."""
    match data_type:
        case StructType():
            return pa.struct([arrow_field(item) for item in data_type.fields])
        case ArrayType():
            contains_null = data_type.contains_null or data_type.element_type == VOID
            return pa.list_(pa.field("element", arrow_type(data_type.element_type), nullable=contains_null))
        case MapType() if data_type.key_type != VOID:
            contains_null = data_type.value_contains_null or data_type.value_type == VOID
            value = pa.field("value", arrow_type(data_type.value_type), nullable=contains_null)
            return pa.map_(pa.field("key", arrow_type(data_type.key_type), nullable=False), value)
    return VARIANT_TYPE if data_type == VARIANT else to_arrow_type(data_type)


def _metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    # Arrow interprets its own keys, such as the name of an extension type.
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in metadata.items()
        if not key.startswith(_RESERVED)
    }
