"""Schemas between the log and Spark (protocol heading "Schema Serialization Format")."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from cm_delta_dagster.errors import CorruptLogError, SchemaMismatchError
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_writable_types,
    data_type_text,
    parse_schema,
    schema_to_json,
)
from cm_delta_dagster.spark.library import DataFrame, T
from cm_delta_dagster.spark.session.errors import spark_errors


def to_spark(schema: StructType) -> T.StructType:
    """Spark's form of a table schema, with nullability and metadata."""
    return T.StructType.fromJson(json.loads(schema_to_json(schema)))


def spark_type(data_type: DataType) -> T.DataType:
    """The type as a value of pyspark, independent of session settings."""
    return to_spark(StructType((StructField("value", data_type),)))["value"].dataType


def from_spark(schema: T.StructType) -> StructType:
    """The Delta form of a DataFrame's schema.

    Raises:
        SchemaMismatchError: a column has a type that Delta does not have, e.g. an interval or a user-defined type.
    """
    schema_of_frame = _from_json(schema.json())
    check_writable_types(schema_of_frame)
    return schema_of_frame


def schema_of(frame: DataFrame) -> StructType:
    """The Delta form of the columns of ``frame``, which Spark Connect analyses at this call.

    Raises:
        SchemaMismatchError: as :func:`from_spark`.
        InvalidArgumentError: the frame refers to a table or column that does not exist.
    """
    with spark_errors("looking at the columns of the rows"):
        return from_spark(frame.schema)


@lru_cache(maxsize=256)
def _from_json(text: str) -> StructType:
    try:
        return parse_schema(json.dumps(_plain_strings(json.loads(text))))
    except CorruptLogError as error:
        # The advice of the parser is for a table that is read from its log.
        fault = str(error).partition(" Read the table")[0]
        raise SchemaMismatchError(
            f"The DataFrame has a column that a Delta table cannot hold: {fault} Nothing was written. "
            "Cast the column or leave it out."
        ) from error


def _plain_strings(value: Any) -> Any:
    """``char(n)`` and ``varchar(n)`` are strings in the log."""
    if isinstance(value, str):
        return "string" if value.startswith(("char(", "varchar(")) else value
    if isinstance(value, dict):
        return {
            key: _plain_strings(item) if key in ("type", "elementType", "keyType", "valueType", "fields") else item
            for key, item in value.items()
        }
    return [_plain_strings(item) for item in value] if isinstance(value, list) else value


def same_shape(first: DataType, other: DataType) -> bool:
    """Whether two types have the same names in the same order and the same leaf types; nullability may differ."""
    match first, other:
        case StructType(), StructType():
            return first.names == other.names and all(
                same_shape(a.type, b.type) for a, b in zip(first.fields, other.fields, strict=True)
            )
        case ArrayType(), ArrayType():
            return same_shape(first.element_type, other.element_type)
        case MapType(), MapType():
            return same_shape(first.key_type, other.key_type) and same_shape(first.value_type, other.value_type)
        case _:
            return first == other


def sql_type(data_type: DataType) -> str:
    """The type in the text form of Spark's casts; names of nested fields are quoted."""
    match data_type:
        case StructType():
            return f"struct<{','.join(f'{quoted(item.name)}:{sql_type(item.type)}' for item in data_type.fields)}>"
        case ArrayType():
            return f"array<{sql_type(data_type.element_type)}>"
        case MapType():
            return f"map<{sql_type(data_type.key_type)},{sql_type(data_type.value_type)}>"
        case PrimitiveType("timestamp"):
            return "timestamp_ltz"  # The meaning of `timestamp` depends on a session setting.
        case _:
            return data_type_text(data_type)


def quoted(name: str) -> str:
    """A column name quoted for SQL and ``functions.col``, including names with dots and back-quotes."""
    return "`" + name.replace("`", "``") + "`"


def without(schema: StructType, names: frozenset[str]) -> StructType:
    """``schema`` without the top-level fields of these lower-case names."""
    return StructType(tuple(item for item in schema.fields if item.name.lower() not in names))


def nullable(item: StructField) -> StructField:
    """The field, nullable."""
    return StructField(item.name, item.type, True, item.metadata)
