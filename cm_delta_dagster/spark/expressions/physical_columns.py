"""The columns of data files: physical names and field ids of tables with column mapping (protocol heading "Column Mapping")."""

from __future__ import annotations

from typing import Any

from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, field_id, physical_name
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType
from cm_delta_dagster.spark.expressions.schema import quoted, spark_type
from cm_delta_dagster.spark.library import Column, F, T

FIELD_ID = "parquet.field.id"
"""Key of a field id in the metadata of Spark's fields, which its Parquet writer stores."""


def stored_column(item: StructField, mapping: ColumnMappingMode) -> Column:
    """The column as files store it: with physical names and field ids at every level if the table has column mapping.

    Raises:
        CorruptLogError: the mapping requires a physical name or an id that the schema lacks.
    """
    column = F.col(quoted(item.name))
    if mapping is ColumnMappingMode.NONE:
        return column
    if isinstance(item.type, StructType | ArrayType | MapType):
        column = column.cast(_stored_type(item.type, mapping))
    return column.alias(physical_name(item, mapping), metadata={FIELD_ID: field_id(item)})


def _stored_type(data_type: DataType, mapping: ColumnMappingMode) -> T.DataType:
    match data_type:
        case StructType():
            return T.StructType([_stored_field(item, mapping) for item in data_type.fields])
        case ArrayType():
            return T.ArrayType(_stored_type(data_type.element_type, mapping), True)
        case MapType():
            return T.MapType(
                _stored_type(data_type.key_type, mapping), _stored_type(data_type.value_type, mapping), True
            )
        case _:
            return spark_type(data_type)


def _stored_field(item: StructField, mapping: ColumnMappingMode) -> T.StructField:
    metadata: dict[str, Any] = {FIELD_ID: field_id(item)}
    return T.StructField(physical_name(item, mapping), _stored_type(item.type, mapping), True, metadata)
