"""Columns and nested fields to which a change assigns values (protocol heading "Schema Serialization Format")."""

from collections.abc import Iterable
from typing import Any, TypeVar

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import column_path
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructField, StructType, data_type_text

_Value = TypeVar("_Value")


def target_path(column: str, schema: StructType, alias: str) -> ColumnPath:
    """The path of a column or nested field that a user names, as the schema spells it.

    Raises:
        InvalidArgumentError: the table has no such column, or the path leads into an array or map.
    """
    names = column_path(column)
    is_qualified = len(names) > 1 and names[0].lower() == alias.lower()
    if is_qualified and (schema.field(names[1]) is not None or schema.field(names[0]) is None):
        names = names[1:]
    path: list[str] = []
    inside: DataType = schema
    for name in names:
        if isinstance(inside, ArrayType | MapType):
            raise InvalidArgumentError(
                f"{column!r} is inside of an array or map, whose elements cannot be set one by one. Nothing was written. Set the "
                f"whole column {path[0]!r}."
            )
        item = inside.field(name) if isinstance(inside, StructType) else None
        if item is None:
            where = f"{'.'.join(path)!r} has no field" if path else "The table has no column"
            if not path and len(names) > 1:
                where = "The table has no column or alias"
            known = ", ".join(inside.names) if isinstance(inside, StructType) else data_type_text(inside)
            raise InvalidArgumentError(
                f"{where} {name!r}, to which a value is assigned; it has {known}. Nothing was written. Check the name."
            )
        path.append(item.name)
        inside = item.type
    return tuple(path)


def type_at(path: ColumnPath, schema: StructType) -> DataType:
    """The type of the column or nested field at ``path``, spelled as in the schema."""
    inside: DataType = schema
    for name in path:
        item = inside.field(name) if isinstance(inside, StructType) else None
        assert item is not None
        inside = item.type
    return inside


def assigned_field(path: ColumnPath, schema: StructType) -> StructField:
    """The column or nested field at ``path``, spelled as in the schema."""
    item = schema.field(path[0]) if len(path) == 1 else None
    return StructField(path[-1], type_at(path, schema)) if item is None else item


def assignment_trees(values: Iterable[tuple[ColumnPath, _Value]]) -> dict[str, "_Value | dict[str, Any]"]:
    """Values by column; of a column to whose fields values are assigned, a dictionary of these by field, and so on.

    Raises:
        InvalidArgumentError: two values are assigned to the same column or field, or to a struct and a field of it.
    """
    trees: dict[str, Any] = {}
    for path, value in values:
        inside = trees
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                raise _assigned_twice(path)
        if path[-1] in inside:
            raise _assigned_twice(path)
        inside[path[-1]] = value
    return trees


def _assigned_twice(path: ColumnPath) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Two values are assigned to {'.'.join(path)!r}, or one to it and one to a field of it. Nothing was written. Assign each "
        "column once."
    )
