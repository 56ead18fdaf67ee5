"""Changes of a schema by name: add, rename, drop and move columns, comments, nullability, types (protocol heading "Change
Metadata").

Each function returns another schema. Columns are found ignoring case, at every depth: the path of a column goes through
``element`` of an array, ``key`` and ``value`` of a map. Whether table features or other columns permit a change is decided in
:mod:`~cm_delta_dagster.protocol.features.table_changes`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath, path_text
from cm_delta_dagster.protocol.schema.former_names import with_name_taken, with_new_name
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    walk_types,
)

COMMENT = "comment"
"""Key in the metadata of a field with its comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a column is placed among its neighbours: after the column ``after``, or first."""

    after: str | None = None

    def __str__(self) -> str:
        return "FIRST" if self.after is None else f"AFTER {path_text((self.after,))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundColumn:
    """A column of a schema.

    Attributes:
        path: as the schema spells it.
        owner: the path of the nearest field, which is the column itself or contains it in arrays and maps.
        field: the nearest field.
        inner: steps from ``field`` to the column: ``element``, ``key``, ``value``; empty if the column is a field.
        type: type of the column.
    """

    path: ColumnPath
    owner: ColumnPath
    field: StructField
    inner: ColumnPath
    type: DataType


def find_column(schema: StructType, path: Sequence[str]) -> FoundColumn:
    """Find a column, or the element, key or value of an array or map.

    Raises:
        InvalidArgumentError: there is no such column; names those that exist at that place.
    """
    current: DataType = schema
    field: StructField | None = None
    walked: list[str] = []
    owner, inner = 0, 0
    for name in path:
        part = _part(current, name)
        if part is None:
            raise _unknown(path, walked, current)
        if isinstance(part, StructField):
            field, current, owner, inner = part, part.type, len(walked) + 1, 0
            walked.append(part.name)
        else:
            current, inner = part, inner + 1
            walked.append(name.lower())
    if field is None:
        raise _unknown(path, walked, current)
    spelled = tuple(walked)
    return FoundColumn(
        path=spelled, owner=spelled[:owner], field=field, inner=spelled[owner:] if inner else (), type=current
    )


def _part(data_type: DataType, name: str) -> StructField | DataType | None:
    step = name.lower()
    match data_type:
        case StructType():
            return data_type.field(name)
        case ArrayType() if step == "element":
            return data_type.element_type
        case MapType() if step == "key":
            return data_type.key_type
        case MapType() if step == "value":
            return data_type.value_type
        case _:
            return None


def _unknown(path: Sequence[str], walked: Sequence[str], current: DataType) -> InvalidArgumentError:
    match current:
        case StructType():
            there = f"the columns there are {', '.join(current.names) or 'none'}"
        case ArrayType():
            there = f"{path_text(walked)!r} is an array; the path continues with 'element'"
        case MapType():
            there = f"{path_text(walked)!r} is a map; the path continues with 'key' or 'value'"
        case _:
            there = f"{path_text(walked)!r} is of type {data_type_text(current)} and has no fields"
    return InvalidArgumentError(
        f"There is no column {path_text(path)!r}: {there}. Nothing was changed. Check the name."
    )


# --- changes ----------------------------------------------------------------------------------------------------------


def add_column(
    schema: StructType, parent: Sequence[str], item: StructField, position: Position | None = None
) -> StructType:
    """Add the field ``item`` to the struct at ``parent``, or as a top-level column for an empty path; last by default.

    Raises:
        InvalidArgumentError: the struct or the neighbour does not exist, the name is taken, or the column is NOT NULL.
    """
    path = (*parent, item.name)
    if not item.nullable:
        raise InvalidArgumentError(
            f"Column {path_text(path)!r} cannot be added as NOT NULL: the rows that exist have no value for it. Nothing was "
            "changed. Add it as nullable, fill it, and add a CHECK constraint."
        )
    check_nested_not_null(item, path)
    place: DataType = schema
    if parent:
        place = find_column(schema, parent).type
    if not isinstance(place, StructType):
        raise _unknown(path, tuple(parent), place)
    taken = place.field(item.name)
    if taken is not None:
        raise _taken("added", path, taken)

    def insert(struct: StructType) -> StructType:
        return _inserted(with_name_taken(struct, item.name), item, position, path)

    return _edit_struct(schema, parent, insert)


def rename_column(schema: StructType, path: Sequence[str], to: str) -> StructType:
    """Rename a field; its metadata keeps the old name. Raises InvalidArgumentError if it does not exist, or the name is taken."""
    column = _whole_field(schema, path, "renamed")
    parent, old = column.path[:-1], column.path[-1]
    if not to:
        raise InvalidArgumentError(
            f"Column {path_text(column.path)!r} cannot be renamed to an empty name. Nothing was changed."
        )

    def rename(struct: StructType) -> StructType:
        other = struct.field(to)
        if other is not None:  # Also if it is the column itself in other case, as for delta-spark.
            raise _taken(f"renamed to {to!r}", column.path, other)
        others = with_name_taken(struct, to)
        return StructType(tuple(with_new_name(item, to) if item.name == old else item for item in others.fields))

    return _edit_struct(schema, parent, rename)


def drop_column(schema: StructType, path: Sequence[str]) -> StructType:
    """Remove a field. Raises InvalidArgumentError if it does not exist, or is the only field of its struct."""
    column = _whole_field(schema, path, "dropped")
    parent, name = column.path[:-1], column.path[-1]

    def drop(struct: StructType) -> StructType:
        if len(struct.fields) == 1:
            owner = f"of {path_text(parent)!r}, which" if parent else "of the table, which"
            raise InvalidArgumentError(
                f"Column {path_text(column.path)!r} is the last one {owner} must have at least one. Nothing was changed. "
                f"Drop {'the whole column' if parent else 'the table'} instead."
            )
        return StructType(tuple(item for item in struct.fields if item.name != name))

    return _edit_struct(schema, parent, drop)


def move_column(schema: StructType, path: Sequence[str], position: Position) -> StructType:
    """Move a field among the fields of its struct. Raises InvalidArgumentError if it or its new neighbour does not exist."""
    column = _whole_field(schema, path, "moved")
    parent, name = column.path[:-1], column.path[-1]

    def move(struct: StructType) -> StructType:
        rest = StructType(tuple(item for item in struct.fields if item.name != name))
        if position.after is not None and position.after.lower() == name.lower():
            raise InvalidArgumentError(
                f"Column {path_text(column.path)!r} cannot be placed after itself. Nothing was changed. Name another column."
            )
        return _inserted(rest, column.field, position, column.path)

    return _edit_struct(schema, parent, move)


def comment_column(schema: StructType, path: Sequence[str], comment: str | None) -> StructType:
    """Set the comment of a field; None removes it."""
    column = _whole_field(schema, path, "commented")
    metadata = {key: value for key, value in column.field.metadata.items() if key != COMMENT}
    if comment is not None:
        metadata[COMMENT] = comment
    return edit_field(schema, column.path, lambda item: replace(item, metadata=metadata))


def set_nullable(schema: StructType, path: Sequence[str], nullable: bool) -> StructType:
    """Allow or forbid NULL in a field."""
    column = _whole_field(schema, path, "changed")
    return edit_field(schema, column.path, lambda item: replace(item, nullable=nullable))


def replace_type(schema: StructType, path: Sequence[str], data_type: DataType) -> StructType:
    """Give a column, or an element, key or value, another type. Whether the type may change is not checked."""
    column = find_column(schema, path)

    def change(item: StructField) -> StructField:
        return replace(item, type=_with_inner(item.type, column.inner, data_type))

    return edit_field(schema, column.owner, change)


def _with_inner(data_type: DataType, inner: ColumnPath, new_type: DataType) -> DataType:
    if not inner:
        return new_type
    step, *rest = inner
    match data_type:
        case ArrayType():
            return replace(data_type, element_type=_with_inner(data_type.element_type, tuple(rest), new_type))
        case MapType() if step == "key":
            return replace(data_type, key_type=_with_inner(data_type.key_type, tuple(rest), new_type))
        case MapType():
            return replace(data_type, value_type=_with_inner(data_type.value_type, tuple(rest), new_type))
        case _:
            return data_type


def edit_field(schema: StructType, path: Sequence[str], edit: Callable[[StructField], StructField]) -> StructType:
    """The schema with ``edit`` applied to one field. Raises InvalidArgumentError if it does not exist."""
    column = _whole_field(schema, path, "changed")
    name = column.path[-1]

    def change(struct: StructType) -> StructType:
        return StructType(tuple(edit(item) if item.name == name else item for item in struct.fields))

    return _edit_struct(schema, column.path[:-1], change)


def check_nested_not_null(item: StructField, path: Sequence[str]) -> None:
    """Refuse NOT NULL fields inside an array or a map, as delta-spark does: it does not check them.

    Raises:
        InvalidArgumentError: names the column.
    """
    for collection in walk_types(item.type):
        parts: tuple[DataType, ...] = ()
        if isinstance(collection, ArrayType):
            parts = (collection.element_type,)
        elif isinstance(collection, MapType):
            parts = (collection.key_type, collection.value_type)
        structs = (inner for part in parts for inner in walk_types(part) if isinstance(inner, StructType))
        if any(not field.nullable for struct in structs for field in struct.fields):
            raise InvalidArgumentError(
                f"Column {path_text(path)!r} has a NOT NULL field inside an array or a map, which not every writer checks. "
                "Nothing was changed. Make the field nullable."
            )


def _whole_field(schema: StructType, path: Sequence[str], verb: str) -> FoundColumn:
    column = find_column(schema, path)
    if column.inner:
        raise InvalidArgumentError(
            f"{path_text(column.path)!r} is a part of the column {path_text(column.owner)!r} and cannot be {verb} by itself. "
            "Nothing was changed. Name the column, or a field of a struct in it."
        )
    return column


def _taken(verb: str, path: Sequence[str], other: StructField) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Column {path_text(path)!r} cannot be {verb}: {other.name!r} exists at the same level, and names that differ only in "
        "case denote the same column. Nothing was changed. Choose another name."
    )


def _inserted(struct: StructType, item: StructField, position: Position | None, path: Sequence[str]) -> StructType:
    fields = list(struct.fields)
    if position is None:
        return StructType((*fields, item))
    if position.after is None:
        return StructType((item, *fields))
    neighbour = struct.field(position.after)
    if neighbour is None:
        raise InvalidArgumentError(
            f"Column {path_text(path)!r} cannot be placed after {position.after!r}, which is not a column at that level; the "
            f"columns there are {', '.join(struct.names)}. Nothing was changed. Check the name."
        )
    fields.insert(fields.index(neighbour) + 1, item)
    return StructType(tuple(fields))


def _edit_struct(schema: StructType, path: Sequence[str], edit: Callable[[StructType], StructType]) -> StructType:
    """``schema`` with ``edit`` applied to the struct at ``path``, which exists."""
    if not path:
        return edit(schema)
    changed = _edit_type(schema, tuple(path), edit)
    assert isinstance(changed, StructType)
    return changed


def _edit_type(data_type: DataType, path: ColumnPath, edit: Callable[[StructType], StructType]) -> DataType:
    if not path:
        assert isinstance(data_type, StructType)
        return edit(data_type)
    step, rest = path[0].lower(), path[1:]
    match data_type:
        case StructType():
            return StructType(
                tuple(
                    replace(item, type=_edit_type(item.type, rest, edit)) if item.name.lower() == step else item
                    for item in data_type.fields
                )
            )
        case ArrayType():
            return replace(data_type, element_type=_edit_type(data_type.element_type, rest, edit))
        case MapType() if step == "key":
            return replace(data_type, key_type=_edit_type(data_type.key_type, rest, edit))
        case MapType():
            return replace(data_type, value_type=_edit_type(data_type.value_type, rest, edit))
        case _:
            return data_type
