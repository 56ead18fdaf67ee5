"""Conversion of the columns of data files to the columns of the table (protocol heading "Column Mapping").

A file names its columns by physical names, may hold nulls in NOT NULL columns, and never stores ``void``. This module
determines the columns to read from a file and builds the table's columns from them: name, nesting, nullability, metadata.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, CharWidths, char_width, char_widths
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import VOID, ArrayType, DataType, MapType, StructField, StructType
from cm_delta_dagster.spark.expressions.nullability import non_null
from cm_delta_dagster.spark.expressions.schema import quoted, spark_type
from cm_delta_dagster.spark.library import Column, F

Names: TypeAlias = Callable[[ColumnPath, StructField], str]
"""The name in the files of the field at a path."""

# Keys that make Spark's Parquet reader fill in, match or pad values.
_READER_METADATA = frozenset(("EXISTS_DEFAULT", "parquet.field.id", CHAR_METADATA))


def names_of_mode(mode: ColumnMappingMode) -> Names:
    """Display names in mode ``none``, else physical names."""
    return lambda path, item: physical_name(item, mode)


def stored_schema(schema: StructType, names: Names, trusted: frozenset[ColumnPath]) -> StructType:
    """The columns to read from files for ``schema``: names as in the files, nullable unless ``trusted``.

    Columns that are not stored (void, or only void inside) are omitted.
    """
    return StructType(tuple(item for item in _stored_fields(schema, names, trusted, ()) if item is not None))


def table_column(item: StructField, stored: StructField | None) -> Column:
    """The column ``item`` of the table, from the column ``stored`` of a loaded frame; NULL if nothing is stored."""
    if stored is None:
        return named(_nulls(item.type), item)
    if is_unchanged(item, stored):
        return F.col(quoted(stored.name))
    widths = char_widths(item)
    value = _reshaped(F.col(quoted(stored.name)), stored.type, item.type, item.name, widths)
    # A struct that is rebuilt is nullable to Spark.
    rebuilt = isinstance(item.type, StructType) and (stored.type != item.type or widths is not None)
    if not item.nullable and (stored.nullable or rebuilt):
        value = non_null(value, item.type, item.name)
    return named(value, item)


def named(value: Column, item: StructField) -> Column:
    """``value`` under the name and with the metadata of ``item``."""
    return value.alias(item.name, metadata=dict(item.metadata))


def is_unchanged(item: StructField, stored: StructField | None) -> bool:
    """Whether the loaded column equals the column of the table."""
    return item == stored and char_widths(item) is None


def padded(value: Column, item: StructField) -> Column:
    """The value padded with blanks to the width of ``char(n)``; files may store it without them."""
    width = char_width(item)
    return _padded(value, width) if width else value


def _padded(value: Column, width: int) -> Column:
    return F.when(F.char_length(value) < width, F.rpad(value, width, " ")).otherwise(value)


def stored_path(path: ColumnPath, schema: StructType, stored: StructType) -> ColumnPath | None:
    """Names in the file of a column or a field of structs; None if it is not stored or is inside a list."""
    names: list[str] = []
    data_type: DataType = schema
    stored_type: DataType = stored
    for name in path:
        if not isinstance(data_type, StructType) or not isinstance(stored_type, StructType):
            return None
        pair = next(((a, b) for a, b in pairs(data_type, stored_type) if a.name.lower() == name.lower()), None)
        if pair is None or pair[1] is None:
            return None
        names.append(pair[1].name)
        data_type, stored_type = pair[0].type, pair[1].type
    return tuple(names)


def pairs(schema: StructType, stored: StructType) -> Iterator[tuple[StructField, StructField | None]]:
    """Each field of ``schema`` with its stored field, by position."""
    stored_fields = iter(stored.fields)
    for item in schema.fields:
        yield item, next(stored_fields) if is_stored(item.type) else None


def is_stored(data_type: DataType) -> bool:
    """Whether files store values of the type; void is never stored."""
    match data_type:
        case StructType():
            return not data_type.fields or any(is_stored(item.type) for item in data_type.fields)
        case ArrayType():
            return is_stored(data_type.element_type)
        case MapType():
            return is_stored(data_type.key_type) and is_stored(data_type.value_type)
        case _:
            return data_type != VOID


def non_null_paths(schema: StructType) -> Iterator[ColumnPath]:
    """Columns, and fields of structs outside of lists and maps, that the schema declares NOT NULL."""
    yield from _non_null(schema, ())


def _non_null(schema: StructType, above: ColumnPath) -> Iterator[ColumnPath]:
    for item in schema.fields:
        path = (*above, item.name)
        if not item.nullable and is_stored(item.type):
            yield path
        if isinstance(item.type, StructType):
            yield from _non_null(item.type, path)


def _stored_fields(
    schema: StructType, names: Names, trusted: frozenset[ColumnPath], above: ColumnPath
) -> Iterator[StructField | None]:
    for item in schema.fields:
        path = (*above, item.name)
        if not is_stored(item.type):
            yield None
            continue
        metadata = {key: value for key, value in item.metadata.items() if key not in _READER_METADATA}
        stored_type = _stored_type(item.type, names, trusted, path)
        yield StructField(names(path, item), stored_type, item.nullable or path not in trusted, metadata)


def _stored_type(data_type: DataType, names: Names, trusted: frozenset[ColumnPath], path: ColumnPath) -> DataType:
    match data_type:
        case StructType():
            fields = _stored_fields(data_type, names, trusted, path)
            return StructType(tuple(item for item in fields if item is not None))
        case ArrayType():
            return ArrayType(_stored_type(data_type.element_type, names, trusted, (*path, "element")), True)
        case MapType():
            return MapType(
                _stored_type(data_type.key_type, names, trusted, (*path, "key")),
                _stored_type(data_type.value_type, names, trusted, (*path, "value")),
                True,
            )
        case _:
            return data_type


def _reshaped(
    value: Column, stored: DataType, data_type: DataType, where: str, widths: CharWidths | None = None
) -> Column:
    """``value`` with the inner names, order, nullability and metadata of ``data_type``, and ``char(n)`` strings padded."""
    if widths is not None and widths.width:
        return _padded(value, widths.width)
    if stored == data_type and widths is None:
        return value
    match stored, data_type:
        case StructType(), StructType():
            # Spark's optimizer can prune this form, so that only the fields that a query needs are read.
            return F.when(value.isNotNull(), F.struct(*_reshaped_fields(value, stored, data_type, where, widths)))
        case _ if widths is None and _only_renamed(stored, data_type):
            # A cast by position is one compiled expression; a lambda is interpreted for each element.
            return value.cast(spark_type(data_type))
        case ArrayType(), ArrayType():
            return F.transform(value, lambda element: _reshaped_element(element, stored, data_type, where, widths))
        case MapType(), MapType():
            of_keys = _widths_of(widths, "key")
            if stored.key_type != data_type.key_type or of_keys is not None:
                value = F.transform_keys(
                    value, lambda key, _: _reshaped(key, stored.key_type, data_type.key_type, f"{where}.key", of_keys)
                )
            return F.transform_values(value, lambda _, entry: _reshaped_entry(entry, stored, data_type, where, widths))
        case _:
            return value


def _widths_of(widths: CharWidths | None, name: str) -> CharWidths | None:
    return None if widths is None else widths.of(name)


def _reshaped_fields(
    value: Column, stored: StructType, schema: StructType, where: str, widths: CharWidths | None
) -> Iterator[Column]:
    for item, stored_field in pairs(schema, stored):
        name = f"{where}.{item.name}"
        if stored_field is None:
            part = _nulls(item.type)
        else:
            part = _reshaped(
                value.getField(stored_field.name), stored_field.type, item.type, name, _widths_of(widths, item.name)
            )
            # Spark takes each field of a nullable struct for nullable, even if the field is NOT NULL.
            part = part if item.nullable else non_null(part, item.type, name)
        yield part.alias(item.name, metadata=dict(item.metadata))


def _reshaped_element(
    element: Column, stored: ArrayType, data_type: ArrayType, where: str, widths: CharWidths | None
) -> Column:
    of_elements = _widths_of(widths, "element")
    value = _reshaped(element, stored.element_type, data_type.element_type, f"{where}.element", of_elements)
    return value if data_type.contains_null else non_null(value, data_type.element_type, f"{where}.element")


def _reshaped_entry(
    entry: Column, stored: MapType, data_type: MapType, where: str, widths: CharWidths | None
) -> Column:
    value = _reshaped(entry, stored.value_type, data_type.value_type, f"{where}.value", _widths_of(widths, "value"))
    return value if data_type.value_contains_null else non_null(value, data_type.value_type, f"{where}.value")


def _only_renamed(stored: DataType, data_type: DataType) -> bool:
    """Whether the types differ only in names of fields, so that a cast by position is sufficient; nested NOT NULL excludes it."""
    match stored, data_type:
        case StructType(), StructType():
            return len(stored.fields) == len(data_type.fields) and all(
                b.nullable and _only_renamed(a.type, b.type)
                for a, b in zip(stored.fields, data_type.fields, strict=True)
            )
        case ArrayType(), ArrayType():
            return data_type.contains_null and _only_renamed(stored.element_type, data_type.element_type)
        case MapType(), MapType():
            return (
                data_type.value_contains_null
                and _only_renamed(stored.key_type, data_type.key_type)
                and _only_renamed(stored.value_type, data_type.value_type)
            )
        case _:
            return stored == data_type


def _nulls(data_type: DataType) -> Column:
    return F.lit(None).cast(spark_type(data_type))
