"""Where the type ``void`` may occur in a schema (protocol heading "Void Type").

A void column or field contains only NULL and is not written to data files. That works for a column, and for a field of a struct
that has other fields. An array or a map of void would lose its length, and a struct of void fields only would lose its own NULLs,
so both are refused before files are written.
"""

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.schema.types import VOID, ArrayType, DataType, MapType, StructType, walk_types


def check_void_places(schema: StructType) -> None:
    """Refuse void where data files cannot represent the value around it.

    Raises:
        SchemaMismatchError: void inside an array or a map, or a struct with void fields only; names the column.
    """
    for item in schema.fields:
        for inner in walk_types(item.type):
            fault = _fault(inner)
            if fault is not None:
                raise SchemaMismatchError(
                    f"Column {item.name!r} has {fault}, whose values a data file cannot hold. Nothing was written. Cast the "
                    "column to a type without void, e.g. CAST(array() AS ARRAY<STRING>), or leave it out."
                )


def _fault(data_type: DataType) -> str | None:
    match data_type:
        case ArrayType() if VOID in walk_types(data_type.element_type):
            return "the type void (NullType) inside of an array"
        case MapType() if VOID in (*walk_types(data_type.key_type), *walk_types(data_type.value_type)):
            return "the type void (NullType) inside of a map"
        case StructType() if data_type.fields and all(item.type == VOID for item in data_type.fields):
            return "a struct with fields of the type void (NullType) only"
        case _:
            return None
