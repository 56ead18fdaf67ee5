"""Strings declared as ``char(n)`` and ``varchar(n)``: blanks that fill a ``char``, and lengths that rows must keep to."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, LengthLimits, length_limits
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructType
from cm_delta_dagster.spark.errors import Violation
from cm_delta_dagster.spark.row_rules import Rule, row_message
from cm_delta_dagster.spark.schema import quoted


def padded(frame: DataFrame, layout: TableLayout) -> DataFrame:
    """An aligned frame with blanks at the end of ``char`` strings that are too short; the same frame if it has none."""
    columns = {}
    for item in layout.schema.fields:
        limits = length_limits(item)
        if limits is not None and _has_char(limits):
            columns[item.name] = _padded(F.col(quoted(item.name)), item.type, limits)
    return frame.withColumns(columns) if columns else frame


def length_rules(layout: TableLayout) -> Iterator[Rule]:
    """A string is not longer than its declared length; blanks at its end count."""
    schema = layout.schema
    for item in schema.fields:
        limits = length_limits(item)
        if limits is None:
            continue
        text = (
            f"A row has a string in column {item.name!r} that is longer than its declared type "
            f"{item.metadata[CHAR_METADATA]} allows; nothing was committed. Shorten the string. The row has "
        )
        broken = F.coalesce(_too_long(F.col(quoted(item.name)), item.type, limits), F.lit(False))
        yield Rule(broken, row_message(Violation.CONSTRAINT, text, [(item.name,)], schema))


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
    found = F.lit(False)
    for condition in conditions:
        found = found | F.coalesce(condition, F.lit(False))
    return found


def _any(values: Column, data_type: DataType, limits: LengthLimits) -> Column:
    return F.exists(values, lambda value: F.coalesce(_too_long(value, data_type, limits), F.lit(False)))
