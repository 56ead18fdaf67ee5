"""NOT NULL on read: a promise of the schema that is checked (protocol heading "Column Invariants").

The schema of the result repeats the promise, and those who take the result rely on it; a file that breaks it is an error.
"""

import pyarrow as pa

from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType


def promises(item: StructField) -> bool:
    """Whether the column, or anything inside it, is declared to hold no null."""
    return not item.nullable or _promises_inside(item.type)


def check_not_null(array: pa.Array, item: StructField) -> None:
    """``array`` keeps the promises of ``item``, at every level.

    Raises:
        InvalidDataError: a null where none may be, naming the field.
    """
    where = item.name if not item.nullable and array.null_count else _broken_inside(array, item.type, item.name)
    if where is not None:
        raise InvalidDataError(
            f"Column {where!r} is NOT NULL by the schema of the table, and a data file holds a null in it. The file or the "
            "schema is wrong; rewrite the rows, or make the column nullable."
        )


def _promises_inside(data_type: DataType) -> bool:
    match data_type:
        case StructType():
            return any(map(promises, data_type.fields))
        case ArrayType():
            return not data_type.contains_null or _promises_inside(data_type.element_type)
        case MapType():
            return not data_type.value_contains_null or any(
                map(_promises_inside, (data_type.key_type, data_type.value_type))
            )
        case _:
            return False


def _broken_inside(array: pa.Array, data_type: DataType, where: str) -> str | None:
    if not _promises_inside(data_type):
        return None
    # What lies below a null is nothing.
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
        found = name if not nullable and values.null_count else _broken_inside(values, inner, name)
        if found is not None:
            return found
    return None
