"""Schemas and their JSON (protocol heading "Schema Serialization Format").

Parses and writes the schema JSON of the log, which is the JSON of Spark's ``StructType``, and checks column names. Which
columns fit a table is decided by :mod:`~cm_delta_dagster.protocol.schema.evolution`, which features a type needs by
:mod:`~cm_delta_dagster.protocol.features.table_features`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.protocol.schema.interval_types import DAY_TIME_NAMES, YEAR_MONTH_NAMES

# The types accept positional arguments, as those of Spark do: `DecimalType(10, 2)`, `PrimitiveType("long")`.


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters, by its name in the log, e.g. ``long`` (not ``bigint``)."""

    name: str


@dataclass(frozen=True, slots=True)
class DecimalType:
    """Fixed point number: 1 <= ``precision`` <= 38, 0 <= ``scale`` <= ``precision``."""

    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise InvalidArgumentError(
                f"decimal({self.precision},{self.scale}) is not a Delta type: precision must be 1 to 38 and scale 0 "
                "to precision."
            )


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list; if ``contains_null``, elements may be null."""

    element_type: "DataType"
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; keys are never null; if ``value_contains_null``, values may be null."""

    key_type: "DataType"
    value_type: "DataType"
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class StructField:
    """A column or nested field. ``metadata`` keeps every key of the log, known or not."""

    name: str
    type: "DataType"
    nullable: bool = True
    # A mapping is not hashable, so the hash ignores it. Equality compares it.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


class _FieldIndex:
    """Holds the fields of a struct by name, from the first time that one is looked up; no part of its value."""

    __slots__ = ("_by_name",)
    _by_name: dict[str, StructField]


@dataclass(frozen=True, slots=True)
class StructType(_FieldIndex):
    """The fields of a table or of a nested struct, in order."""

    fields: tuple[StructField, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in order, as spelled in the schema."""
        return tuple(item.name for item in self.fields)

    def field(self, name: str) -> StructField | None:
        """The field with that name ignoring case, or None."""
        known = getattr(self, "_by_name", None)
        if known is None:
            # The first of two fields of one name counts.
            known = {item.name.lower(): item for item in reversed(self.fields)}
            object.__setattr__(self, "_by_name", known)
        item: StructField | None = known.get(name.lower())
        return item


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
FLOAT = PrimitiveType("float")
DOUBLE = PrimitiveType("double")
BOOLEAN = PrimitiveType("boolean")
BINARY = PrimitiveType("binary")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMP_NTZ = PrimitiveType("timestamp_ntz")
VOID = PrimitiveType("void")
VARIANT = PrimitiveType("variant")
INTEGERS: tuple[PrimitiveType, ...] = (BYTE, SHORT, INTEGER, LONG)
"""The types of integers, from the narrowest to the widest."""

_PRIMITIVES: Mapping[str, PrimitiveType] = {
    item.name: item
    for item in (
        STRING, LONG, INTEGER, SHORT, BYTE, FLOAT, DOUBLE, BOOLEAN, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, VOID,
        VARIANT, *map(PrimitiveType, sorted(DAY_TIME_NAMES | YEAR_MONTH_NAMES)),
    )
}  # fmt: skip

# Four types have another name in SQL than in the log.
_SIMPLE_NAMES: Mapping[str, str] = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}

_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?", re.ASCII)

_FORBIDDEN_CHARACTERS = frozenset(" ,;{}()\n\t=")


# --- JSON -------------------------------------------------------------------------------------------------------------


def parse_schema(text: str) -> StructType:
    """The schema of a ``schemaString``.

    Raises:
        CorruptLogError: the text is not schema JSON, or contains a type that this client does not know; names the column and
            the type.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or value.get("type") != "struct":
            raise CorruptLogError(
                "The table's schema is not the JSON of a struct; the metadata of the table is damaged."
            )
        return _parse_struct(value, "")
    except (ValueError, TypeError) as error:  # ValueError for more digits than Python parses, too.
        raise CorruptLogError(
            f"The table's schema is not readable JSON ({error}); the metadata of the table is damaged."
        ) from error
    except RecursionError as error:
        raise CorruptLogError("The table's schema is nested too deeply to be read; the metadata is damaged.") from error


def schema_to_json(schema: StructType) -> str:
    """The ``schemaString`` of ``schema``, on one line."""
    return json.dumps(_type_to_value(schema), ensure_ascii=False, separators=(",", ":"))


def _parse_struct(value: Mapping[str, Any], where: str) -> StructType:
    fields = value.get("fields")
    if not isinstance(fields, list):
        raise CorruptLogError(f"The schema's struct {_place(where)} has no list of fields; the metadata is damaged.")
    return StructType(tuple(_parse_field(item, where) for item in fields))


def _parse_field(value: Any, where: str) -> StructField:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise CorruptLogError(
            f"A field of the schema {_place(where)} has no name; the metadata of the table is damaged."
        )
    path = f"{where}.{name}" if where else name
    metadata = value.get("metadata")
    if "type" not in value or not isinstance(value.get("nullable"), bool) or not isinstance(metadata, dict | None):
        raise CorruptLogError(
            f"Column {path!r} of the schema needs a type, a boolean 'nullable' and an object 'metadata'; the metadata "
            "of the table is damaged."
        )
    return StructField(name, _parse_type(value["type"], path), value["nullable"], metadata or {})


def _parse_type(value: Any, path: str) -> DataType:
    if isinstance(value, str):
        return _parse_type_name(value, path)
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "struct":
        return _parse_struct(value, path)
    if kind == "array" and "elementType" in value:
        element = _parse_type(value["elementType"], f"{path}.element")
        return ArrayType(element, _flag(value, "containsNull", path))
    if kind == "map" and "keyType" in value and "valueType" in value:
        return MapType(
            _parse_type(value["keyType"], f"{path}.key"),
            _parse_type(value["valueType"], f"{path}.value"),
            _flag(value, "valueContainsNull", path),
        )
    raise _unknown_type(path, json.dumps(value))


def _parse_type_name(name: str, path: str) -> DataType:
    primitive = _PRIMITIVES.get(name)
    if primitive is not None:
        return primitive
    match = _DECIMAL.fullmatch(name)
    if match is None:
        raise _unknown_type(path, name)
    try:
        return DecimalType() if match[1] is None else DecimalType(int(match[1]), int(match[2]))
    except InvalidArgumentError as error:
        raise CorruptLogError(f"Column {path!r} of the schema has an impossible type: {error}") from error


def _flag(value: Mapping[str, Any], key: str, path: str) -> bool:
    # The protocol does not say what an absent key means; true accepts every file.
    flag = value.get(key, True)
    if not isinstance(flag, bool):
        raise CorruptLogError(f"Column {path!r} of the schema has {key}={flag!r}, which is not a boolean.")
    return flag


def _unknown_type(path: str, name: str) -> CorruptLogError:
    return CorruptLogError(
        f"Column {path!r} has the type {name!r}, which is not a Delta type that this client knows. Read the table with a "
        "client that knows the type."
    )


def _place(where: str) -> str:
    return f"in column {where!r}" if where else "at the top level"


def _type_to_value(data_type: DataType) -> Any:
    match data_type:
        case PrimitiveType():
            return data_type.name
        case DecimalType():
            return f"decimal({data_type.precision},{data_type.scale})"
        case ArrayType():
            element = _type_to_value(data_type.element_type)
            return {"type": "array", "elementType": element, "containsNull": data_type.contains_null}
        case MapType():
            return {
                "type": "map",
                "keyType": _type_to_value(data_type.key_type),
                "valueType": _type_to_value(data_type.value_type),
                "valueContainsNull": data_type.value_contains_null,
            }
        case StructType():
            return {"type": "struct", "fields": [_field_to_value(item) for item in data_type.fields]}


def _field_to_value(item: StructField) -> dict[str, Any]:
    return {
        "name": item.name,
        "type": _type_to_value(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }


# --- text for messages ------------------------------------------------------------------------------------------------


def data_type_text(data_type: DataType) -> str:
    """Spark's ``simpleString``: ``bigint``, ``decimal(10,2)``, ``array<string>``, ``struct<a:int>``."""
    match data_type:
        case PrimitiveType():
            return _SIMPLE_NAMES.get(data_type.name, data_type.name)
        case DecimalType():
            return f"decimal({data_type.precision},{data_type.scale})"
        case ArrayType():
            return f"array<{data_type_text(data_type.element_type)}>"
        case MapType():
            return f"map<{data_type_text(data_type.key_type)},{data_type_text(data_type.value_type)}>"
        case StructType():
            return f"struct<{','.join(f'{item.name}:{data_type_text(item.type)}' for item in data_type.fields)}>"


def schema_text(schema: StructType) -> str:
    """The schema for error messages: one line per field, nested fields indented."""
    return "\n".join(_schema_lines(schema, "  ")) or "  (no columns)"


def _schema_lines(schema: StructType, indent: str) -> Iterator[str]:
    for item in schema.fields:
        suffix = "" if item.nullable else " not null"
        if isinstance(item.type, StructType):
            yield f"{indent}{item.name}: struct{suffix}"
            yield from _schema_lines(item.type, indent + "  ")
        else:
            yield f"{indent}{item.name}: {data_type_text(item.type)}{suffix}"


# --- walking and names ------------------------------------------------------------------------------------------------


def walk_fields(schema: StructType) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Every field with its path, parents first; the path contains ``element``, ``key`` and ``value`` for arrays and maps."""
    yield from _walk(schema, ())


def map_fields(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    """``schema`` with ``change`` applied to each field at every level, a parent before the fields in its type."""
    return StructType(tuple(_mapped_field(change(item), change) for item in schema.fields))


def _mapped_field(item: StructField, change: Callable[[StructField], StructField]) -> StructField:
    return replace(item, type=_mapped_type(item.type, change))


def _mapped_type(data_type: DataType, change: Callable[[StructField], StructField]) -> DataType:
    match data_type:
        case StructType():
            return map_fields(data_type, change)
        case ArrayType():
            return replace(data_type, element_type=_mapped_type(data_type.element_type, change))
        case MapType():
            key = _mapped_type(data_type.key_type, change)
            return replace(data_type, key_type=key, value_type=_mapped_type(data_type.value_type, change))
        case _:
            return data_type


def walk_types(data_type: DataType) -> Iterator[DataType]:
    """``data_type`` itself and every type within it."""
    yield data_type
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield from walk_types(item.type)
        case ArrayType():
            yield from walk_types(data_type.element_type)
        case MapType():
            yield from walk_types(data_type.key_type)
            yield from walk_types(data_type.value_type)


def _walk(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], StructField]]:
    match data_type:
        case StructType():
            for item in data_type.fields:
                here = (*path, item.name)
                yield here, item
                yield from _walk(item.type, here)
        case ArrayType():
            yield from _walk(data_type.element_type, (*path, "element"))
        case MapType():
            yield from _walk(data_type.key_type, (*path, "key"))
            yield from _walk(data_type.value_type, (*path, "value"))


TRANSACTION_COLUMN = "delta.txn"
"""Reserved name: each write has a directory ``delta.txn=<hex>``, which Spark takes for a partition column where it lists files."""


def check_column_names(schema: StructType, *, any_characters: bool = False) -> None:
    """Refuse names that a table cannot have, at any level.

    Args:
        any_characters: the table has column mapping, so that data files do not contain the names.

    Raises:
        SchemaMismatchError: a name occurs twice ignoring case, is empty, is reserved, or contains a space, a tab, a newline or
            one of ``,;{}()=``.
    """
    check_unique_names(schema)
    for name in schema.names:
        if name.lower() == TRANSACTION_COLUMN or name.lower().startswith("__cm_delta_"):
            raise SchemaMismatchError(
                f"The column name {name!r} is reserved: reads and merges use it internally. Rename the column."
            )
    for path, item in walk_fields(schema):
        forbidden = not any_characters and _FORBIDDEN_CHARACTERS.intersection(item.name)
        if not item.name or forbidden:
            raise SchemaMismatchError(
                f"Column {'.'.join(path)!r} has a name that the table cannot store: it is empty or contains a space, a "
                "tab, a line break or one of ,;{}()=. Rename the column before writing, or give the table column mapping "
                "(delta.columnMapping.mode = 'name')."
            )


def check_writable_types(schema: StructType) -> None:
    """Refuse types that this client reads but does not write, at any level.

    Raises:
        SchemaMismatchError: a column contains an interval; names the column.
    """
    for item in schema.fields:
        for leaf in walk_types(item.type):
            if isinstance(leaf, PrimitiveType) and leaf.name in DAY_TIME_NAMES | YEAR_MONTH_NAMES:
                raise SchemaMismatchError(
                    f"Column {item.name!r} has the type {leaf.name!r}, which this client reads but does not write. Nothing "
                    "was written. Cast the column, e.g. to a number of months or microseconds, or leave it out."
                )


def check_unique_names(schema: StructType) -> None:
    """Refuse names that occur twice at one level, ignoring case. The only rule for names in tables with column mapping.

    Raises:
        SchemaMismatchError: names the columns.
    """
    for struct in walk_types(schema):
        if not isinstance(struct, StructType):
            continue
        seen: dict[str, str] = {}
        for name in struct.names:
            if name.lower() in seen:
                raise SchemaMismatchError(
                    f"Columns {seen[name.lower()]!r} and {name!r} are at the same level; names that differ only in case "
                    "denote the same column in Delta. Rename or drop one of them."
                )
            seen[name.lower()] = name
