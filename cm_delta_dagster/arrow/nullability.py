"""Check of NOT NULL columns on read (protocol heading "Column Invariants").

The schema of the result declares NOT NULL, and consumers rely on it; a null in a data file is an error.
"""

import pyarrow as pa

from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType


def promises(item: StructField) -> bool:
    """Whether the column, or anything inside it, is NOT NULL."""
    return not item.nullable or promises_inside(item.type)


def check_not_null(array: pa.Array, item: StructField) -> None:
    """Check that ``array`` holds no null where ``item`` is NOT NULL, at every level.

    Raises:
        InvalidDataError: a NOT NULL field holds a null; the message names it.
    """
    where = item.name if not item.nullable and array.null_count else _broken_inside(array, item.type, item.name)
    if where is not None:
        raise InvalidDataError(
            f"Column {where!r} is NOT NULL by the schema of the table, and a data file holds a null in it. The file or the "
            "schema is wrong; rewrite the rows, or make the column nullable."
        )


def promises_inside(data_type: DataType) -> bool:
    """Whether anything inside a value of the type is NOT NULL."""
    match data_type:
        case StructType():
            return any(map(promises, data_type.fields))
        case ArrayType():
            return not data_type.contains_null or promises_inside(data_type.element_type)
        case MapType():
            return not data_type.value_contains_null or any(
                map(promises_inside, (data_type.key_type, data_type.value_type))
            )
        case _:
            return False


def _broken_inside(array: pa.Array, data_type: DataType, where: str) -> str | None:
    if not promises_inside(data_type):
        return None
    # Values below a null are undefined.
    array = array.filter(array.is_valid()) if array.null_count else array
    match data_type:
        case StructType():
            parts = [
                (array.field(position), item.type, item.nullable, f"{where}.{item.name}")
                for position, item in enumerate(data_type.fields)
            ]
        case ArrayType():
            parts = [(array.flatten(), data_type.element_type, data_type.contains_null, f"{where}.element")]
        case MapType():
            parts = [
                (array.keys, data_type.key_type, True, f"{where}.key"),
                (array.items, data_type.value_type, data_type.value_contains_null, f"{where}.value"),
            ]
        case _:
            return None
    for values, inner, nullable, name in parts:
        broken = name if not nullable and values.null_count else _broken_inside(values, inner, name)
        if broken is not None:
            return broken
    return None
