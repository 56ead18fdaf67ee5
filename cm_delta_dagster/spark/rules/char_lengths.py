"""Strings declared as ``char(n)`` and ``varchar(n)``: blanks that fill a ``char``, and lengths that rows must keep to."""

from collections.abc import Iterator, Mapping
from typing import Any

from cm_delta_dagster.protocol.features.row_messages import length_text
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, LengthLimits, char_width, length_limits
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.rules.row_rules import RowRule, row_message
from cm_delta_dagster.spark.session.errors import Violation


def padded(frame: DataFrame, schema: StructType) -> DataFrame:
    """A frame with the columns of ``schema`` and others, with blanks at the end of ``char`` strings that are too short; the same
    frame if it has none.
    """
    columns = {}
    for item in _char_columns(schema):
        limits = length_limits(item)
        assert limits is not None
        columns[item.name] = _padded(F.col(quoted(item.name)), item.type, limits)
    return frame.withColumns(columns) if columns else frame


def without_blanks(frame: DataFrame, layout: TableLayout) -> DataFrame:
    """Padded rows as files store them: ``char`` columns without the blanks that fill them, which readers add.

    delta-spark stores them so, too. A column that becomes a ``varchar`` or a string then has the text that was written. Nested
    strings keep their blanks. A partition column that is nothing but blanks keeps them, because the empty text would be NULL.
    """
    partitions = {name.lower() for name in layout.partition_columns}
    columns = {}
    for item in layout.schema.fields:
        width, column = char_width(item), F.col(quoted(item.name))
        if width:
            trimmed = F.rtrim(column)
            filled = F.char_length(column) == width
            is_trimmed = filled & (trimmed != "") if item.name.lower() in partitions else filled
            columns[item.name] = F.when(is_trimmed, trimmed).otherwise(column)
    return frame.withColumns(columns) if columns else frame


def with_declared_types(frame: DataFrame, schema: StructType) -> DataFrame:
    """A frame with the columns of ``schema``, whose ``char(n)`` columns Spark compares as those of a table: it then fills literals
    with blanks as it does for a SELECT. The same frame if it has none.
    """
    return _with_declared(frame, {item.name: item.metadata[CHAR_METADATA] for item in _char_columns(schema)})


def without_declared_types(frame: DataFrame, schema: StructType) -> DataFrame:
    """The inverse of :func:`with_declared_types`."""
    return _with_declared(frame, {item.name: None for item in _char_columns(schema)})


def _char_columns(schema: StructType) -> list[StructField]:
    return [item for item in schema.fields if (limits := length_limits(item)) is not None and _has_char(limits)]


def _with_declared(frame: DataFrame, declared: Mapping[str, Any]) -> DataFrame:
    if not declared:
        return frame
    columns = []
    for name in frame.columns:
        column = F.col(quoted(name))
        if name in declared:
            text = declared[name]
            column = column.alias(name, metadata={} if text is None else {CHAR_METADATA: text})
        columns.append(column)
    return frame.select(*columns)


def length_rules(layout: TableLayout) -> Iterator[RowRule]:
    """A string is not longer than its declared length; blanks at its end count."""
    schema = layout.schema
    for item in schema.fields:
        limits = length_limits(item)
        if limits is None:
            continue
        broken = F.coalesce(_too_long(F.col(quoted(item.name)), item.type, limits), F.lit(False))
        yield RowRule(broken, row_message(Violation.CONSTRAINT, length_text(item), [(item.name,)], schema))


def _has_char(limits: LengthLimits) -> bool:
    return limits.is_char or any(map(_has_char, limits.inside.values()))


def _padded(column: Column, data_type: DataType, limits: LengthLimits) -> Column:
    if limits.limit is not None:
        short = F.char_length(column) < limits.limit
        return F.when(short, F.rpad(column, limits.limit, " ")).otherwise(column) if limits.is_char else column
    inside = {name: part for name, part in limits.inside.items() if _has_char(part)}
    match data_type:
        case StructType():
            fields: list[Column] = []
            for item in data_type.fields:
                value, part = column.getField(item.name), inside.get(item.name)
                fields.append((value if part is None else _padded(value, item.type, part)).alias(item.name))
            return F.when(column.isNotNull(), F.struct(*fields))
        case ArrayType() if "element" in inside:
            return F.transform(column, lambda value: _padded(value, data_type.element_type, inside["element"]))
        case MapType():
            keyed = column
            if "key" in inside:
                keyed = F.transform_keys(column, lambda key, _: _padded(key, data_type.key_type, inside["key"]))
            if "value" not in inside:
                return keyed
            return F.transform_values(keyed, lambda _, value: _padded(value, data_type.value_type, inside["value"]))
        case _:
            return column


def _too_long(column: Column, data_type: DataType, limits: LengthLimits) -> Column:
    """True if a string in ``column`` is too long; false or NULL if none is."""
    if limits.limit is not None:
        return F.char_length(column) > limits.limit
    conditions: list[Column] = []
    for name, part in limits.inside.items():
        match data_type:
            case StructType():
                item = data_type.field(name)
                assert item is not None
                conditions.append(_too_long(column.getField(item.name), item.type, part))
            case ArrayType():
                conditions.append(_any(column, data_type.element_type, part))
            case MapType() if name == "key":
                conditions.append(_any(F.map_keys(column), data_type.key_type, part))
            case MapType():
                conditions.append(_any(F.map_values(column), data_type.value_type, part))
            case _:
                pass
    is_too_long = F.lit(False)
    for condition in conditions:
        is_too_long = is_too_long | F.coalesce(condition, F.lit(False))
    return is_too_long


def _any(values: Column, data_type: DataType, limits: LengthLimits) -> Column:
    return F.exists(values, lambda value: F.coalesce(_too_long(value, data_type, limits), F.lit(False)))
