"""Delta types as Arrow types and back (protocol heading "Delta Data Type to Parquet Type Mappings").

Rows and partition values have these types. ``variant`` has no Arrow type here; the scans convert variants.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as pat

from cm_delta_dagster.errors import InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.interval_types import DAY_TIME_NAMES, YEAR_MONTH_NAMES
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_text,
)

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    **dict.fromkeys(DAY_TIME_NAMES, pa.duration("us")),
    # Arrow's type of months also has days and nanoseconds, which stay zero.
    **dict.fromkeys(YEAR_MONTH_NAMES, pa.month_day_nano_interval()),
}

# Unsigned integers become the next wider signed type, so that no value changes.
_FROM_ARROW: Mapping[pa.DataType, DataType] = {
    pa.int64(): LONG,
    pa.int32(): INTEGER,
    pa.int16(): SHORT,
    pa.int8(): BYTE,
    pa.uint8(): SHORT,
    pa.uint16(): INTEGER,
    pa.uint32(): LONG,
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FLOAT,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.bool_(): BOOLEAN,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.null(): VOID,
}


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema for rows of ``schema``, without the metadata of fields.

    Raises:
        UnsupportedFeatureError: a type has no Arrow type (``variant``, a map with keys of type ``void``); names the column.
    """
    return pa.schema([_to_arrow_field(item, item.name) for item in schema.fields])


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of ``data_type``. Raises UnsupportedFeatureError for ``variant``."""
    return _to_arrow_type(data_type, data_type_text(data_type))


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """The Delta schema that can hold every value of ``schema``, without the metadata of fields.

    Raises:
        InvalidArgumentError: Delta has no type for an Arrow type (time, duration, interval, union ...); names the column.
    """
    return StructType(tuple(_from_arrow_field(item, item.name) for item in schema))


def _to_arrow_field(item: StructField, path: str) -> pa.Field:
    return _arrow_field(item.name, _to_arrow_type(item.type, path), item.nullable)


def _arrow_field(name: str, arrow: pa.DataType, nullable: bool) -> pa.Field:
    # Arrow fields of type null must be nullable. A `void` column contains only null, even if it is declared NOT NULL.
    return pa.field(name, arrow, nullable=nullable or pat.is_null(arrow))


def _to_arrow_type(data_type: DataType, path: str) -> pa.DataType:
    match data_type:
        case PrimitiveType():
            arrow = _ARROW_TYPES.get(data_type.name)
            if arrow is None:
                raise UnsupportedFeatureError(
                    f"Column {path!r} has the type {data_type.name!r}, which this client cannot hold in Arrow. Leave "
                    "the column out or use a client that supports the type."
                )
            return arrow
        case DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case ArrayType():
            element = _to_arrow_type(data_type.element_type, f"{path}.element")
            return pa.list_(_arrow_field("element", element, data_type.contains_null))
        case MapType():
            key = _to_arrow_type(data_type.key_type, f"{path}.key")
            value = _to_arrow_type(data_type.value_type, f"{path}.value")
            if pat.is_null(key):
                raise UnsupportedFeatureError(
                    f"Column {path!r} is a map with keys of type 'void'; keys cannot be null, so such a map has no "
                    "entries. Leave the column out."
                )
            return pa.map_(
                pa.field("key", key, nullable=False), _arrow_field("value", value, data_type.value_contains_null)
            )
        case StructType():
            return pa.struct([_to_arrow_field(item, f"{path}.{item.name}") for item in data_type.fields])


def _from_arrow_field(item: pa.Field, path: str) -> StructField:
    return StructField(item.name, _from_arrow_type(item.type, path), item.nullable)


def _from_arrow_type(arrow: pa.DataType, path: str) -> DataType:
    simple = _FROM_ARROW.get(arrow)
    if simple is not None:
        return simple
    if pat.is_timestamp(arrow):
        return TIMESTAMP_NTZ if arrow.tz is None else TIMESTAMP
    if pat.is_decimal(arrow) and 1 <= arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    if pat.is_fixed_size_binary(arrow):
        return BINARY
    if pat.is_struct(arrow):
        return StructType(tuple(_from_arrow_field(item, f"{path}.{item.name}") for item in arrow))
    if pat.is_map(arrow):
        return MapType(
            _from_arrow_type(arrow.key_type, f"{path}.key"),
            _from_arrow_type(arrow.item_type, f"{path}.value"),
            arrow.item_field.nullable,
        )
    if is_list(arrow):
        return ArrayType(_from_arrow_type(arrow.value_type, f"{path}.element"), arrow.value_field.nullable)
    if pat.is_dictionary(arrow) or pat.is_run_end_encoded(arrow):
        return _from_arrow_type(arrow.value_type, path)
    raise InvalidArgumentError(
        f"Column {path!r} has the Arrow type {arrow}, for which Delta has no type. Cast the column before writing, or "
        "leave it out."
    )


def is_list(arrow: pa.DataType) -> bool:
    """Whether ``arrow`` is one of the list types of Arrow."""
    kinds = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view, pat.is_large_list_view)
    return any(is_kind(arrow) for is_kind in kinds)
