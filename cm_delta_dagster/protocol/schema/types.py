"""Schemas (protocol headings "Schema Serialization Format" and the type part of "Parquet").

Parses and writes the log's schema JSON, which is the JSON of Spark's ``StructType``, and translates it to and from
Arrow. It does not decide which schemas may be mixed (:mod:`~cm_delta_dagster.protocol.schema.evolution`) nor which
features a type needs (:mod:`~cm_delta_dagster.protocol.features.table_features`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.interval_types import DAY_TIME_NAMES, YEAR_MONTH_NAMES

# The values below may be built by position as well as by keyword: `DecimalType(10, 2)` and `PrimitiveType("long")` are
# the way every reader of Spark code expects to see them.


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
                f"decimal({self.precision},{self.scale}) is no Delta type: precision must be 1 to 38 and scale 0 to "
                "precision."
            )


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list; ``contains_null`` says whether elements may be null."""

    element_type: "DataType"
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; keys are never null, ``value_contains_null`` says whether values may be."""

    key_type: "DataType"
    value_type: "DataType"
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class StructField:
    """One column or nested field. ``metadata`` keeps every key of the log, known or not (SCHEMA-7)."""

    name: str
    type: "DataType"
    nullable: bool = True
    # Left out of the hash only: a mapping has none. Equality does compare it.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StructType:
    """The fields of a table or of a nested struct, in order."""

    fields: tuple[StructField, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in order, in their own case."""
        return tuple(item.name for item in self.fields)

    def field(self, name: str) -> StructField | None:
        """The field of that name ignoring case, or None."""
        wanted = name.lower()
        return next((item for item in self.fields if item.name.lower() == wanted), None)


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

_PRIMITIVES: Mapping[str, PrimitiveType] = {
    item.name: item
    for item in (
        STRING, LONG, INTEGER, SHORT, BYTE, FLOAT, DOUBLE, BOOLEAN, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, VOID,
        VARIANT, *map(PrimitiveType, sorted(DAY_TIME_NAMES | YEAR_MONTH_NAMES)),
    )
}  # fmt: skip

# Spark shows four types under their SQL names; every other name is the same in the log and in SQL.
_SIMPLE_NAMES: Mapping[str, str] = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}

_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?", re.ASCII)

_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    **dict.fromkeys(DAY_TIME_NAMES, pa.duration("us")),
    # Arrow has a type of months only together with days and nanoseconds, which stay zero.
    **dict.fromkeys(YEAR_MONTH_NAMES, pa.month_day_nano_interval()),
}

# Unsigned integers become the next wider signed type, so that no value changes.
_FROM_ARROW: Mapping[pa.DataType, DataType] = {
    pa.int64(): LONG,
    pa.int32(): INTEGER,
    pa.int16(): SHORT,
    pa.int8(): BYTE,
    pa.uint8(): SHORT,
    pa.uint16(): INTEGER,
    pa.uint32(): LONG,
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FLOAT,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.bool_(): BOOLEAN,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.null(): VOID,
}

_FORBIDDEN_CHARACTERS = frozenset(" ,;{}()\n\t=")


# --- JSON -------------------------------------------------------------------------------------------------------------


def parse_schema(text: str) -> StructType:
    """The schema of a ``schemaString``.

    Raises:
        CorruptLogError: not schema JSON, or a type this client does not know; names the column and the type (SCHEMA-4).
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or value.get("type") != "struct":
            raise CorruptLogError(
                "The table's schema is not the JSON of a struct; the metadata of the table is damaged."
            )
        return _parse_struct(value, "")
    except (json.JSONDecodeError, TypeError) as error:
        raise CorruptLogError(
            f"The table's schema is not readable JSON ({error}); the metadata of the table is damaged."
        ) from error
    except RecursionError as error:
        raise CorruptLogError("The table's schema is nested too deeply to be read; the metadata is damaged.") from error


def schema_to_json(schema: StructType) -> str:
    """The log's text of ``schema``, on one line (META-3)."""
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
    # Ruling X20: the type table omits the key, so its absence means the wider reading.
    flag = value.get(key, True)
    if not isinstance(flag, bool):
        raise CorruptLogError(f"Column {path!r} of the schema has {key}={flag!r}, which is no boolean.")
    return flag


def _unknown_type(path: str, name: str) -> CorruptLogError:
    return CorruptLogError(
        f"Column {path!r} has the type {name!r}, which is no Delta type known to this client. Read the table with a "
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


# --- text for people --------------------------------------------------------------------------------------------------


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
    """One line per field, nested fields indented: what error messages show."""
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
    """Every field with its path, parents first; inside of arrays and maps the path has ``element``, ``key``,
    ``value``."""
    yield from _walk(schema, ())


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


def check_column_names(schema: StructType) -> None:
    """Refuse names that a table without column mapping cannot have, at any level (SCHEMA-8).

    Raises:
        SchemaMismatchError: a name is repeated ignoring case, is empty, or has one of the characters `` ,;{}()=``, tab,
            newline, or is reserved.
    """
    check_unique_names(schema)
    for name in schema.names:
        if name.lower() == "delta.txn" or name.lower().startswith("__cm_delta_"):
            raise SchemaMismatchError(
                f"The column name {name!r} is reserved: reading and merging use it for themselves. Rename the column."
            )
    for path, item in walk_fields(schema):
        if not item.name or _FORBIDDEN_CHARACTERS.intersection(item.name):
            raise SchemaMismatchError(
                f"Column {'.'.join(path)!r} has a name that the table cannot store: it is empty or has a space, a "
                "tab, a line break or one of ,;{}()=. Rename the column before writing."
            )


def check_writable_types(schema: StructType) -> None:
    """Refuse types that this client reads and does not write, at any level.

    Raises:
        SchemaMismatchError: an interval, naming the column.
    """
    for item in schema.fields:
        for leaf in walk_types(item.type):
            if isinstance(leaf, PrimitiveType) and leaf.name in DAY_TIME_NAMES | YEAR_MONTH_NAMES:
                raise SchemaMismatchError(
                    f"Column {item.name!r} has the type {leaf.name!r}, which this client reads and does not write. Nothing "
                    "was written. Cast the column, e.g. to a number of months or microseconds, or leave it out."
                )


def check_unique_names(schema: StructType) -> None:
    """Refuse names that are repeated ignoring case at one level; all that column mapping leaves of the rules.

    Raises:
        SchemaMismatchError: naming the column.
    """
    for struct in walk_types(schema):
        if not isinstance(struct, StructType):
            continue
        seen: dict[str, str] = {}
        for name in struct.names:
            if name.lower() in seen:
                raise SchemaMismatchError(
                    f"Columns {seen[name.lower()]!r} and {name!r} stand at the same level; names that differ only in "
                    "case are the same column to Delta. Rename or drop one of them."
                )
            seen[name.lower()] = name


# --- Arrow ------------------------------------------------------------------------------------------------------------


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which rows of ``schema`` are held; field metadata is not carried over.

    Raises:
        UnsupportedFeatureError: a type without an Arrow form (``variant``, a map by ``void``), naming the column.
    """
    return pa.schema([_to_arrow_field(item, item.name) for item in schema.fields])


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of ``data_type``. Raises UnsupportedFeatureError for ``variant``."""
    return _to_arrow_type(data_type, data_type_text(data_type))


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """The Delta schema that holds every value of ``schema``; field metadata is not carried over.

    Raises:
        InvalidArgumentError: a type that Delta has no counterpart for (time, duration, interval, union ...), naming the
            column.
    """
    return StructType(tuple(_from_arrow_field(item, item.name) for item in schema))


def from_arrow_type(data_type: pa.DataType) -> DataType:
    """The Delta type of an Arrow type. Raises InvalidArgumentError where there is none."""
    return _from_arrow_type(data_type, str(data_type))


def _to_arrow_field(item: StructField, path: str) -> pa.Field:
    return _arrow_field(item.name, _to_arrow_type(item.type, path), item.nullable)


def _arrow_field(name: str, arrow: pa.DataType, nullable: bool) -> pa.Field:
    # Arrow has no field of null type that is not nullable; a `void` column holds nothing but null, whatever it
    # declares.
    return pa.field(name, arrow, nullable=nullable or pat.is_null(arrow))


def _to_arrow_type(data_type: DataType, path: str) -> pa.DataType:
    match data_type:
        case PrimitiveType():
            arrow = _ARROW_TYPES.get(data_type.name)
            if arrow is None:
                raise UnsupportedFeatureError(
                    f"Column {path!r} has the type {data_type.name!r}, which this client cannot hold in Arrow. Leave "
                    "the column out or use a client that supports the type."
                )
            return arrow
        case DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case ArrayType():
            element = _to_arrow_type(data_type.element_type, f"{path}.element")
            return pa.list_(_arrow_field("element", element, data_type.contains_null))
        case MapType():
            key = _to_arrow_type(data_type.key_type, f"{path}.key")
            value = _to_arrow_type(data_type.value_type, f"{path}.value")
            if pat.is_null(key):
                raise UnsupportedFeatureError(
                    f"Column {path!r} is a map with keys of type 'void'; keys cannot be null, so no such map has an "
                    "entry. Leave the column out."
                )
            return pa.map_(
                pa.field("key", key, nullable=False), _arrow_field("value", value, data_type.value_contains_null)
            )
        case StructType():
            return pa.struct([_to_arrow_field(item, f"{path}.{item.name}") for item in data_type.fields])


def _from_arrow_field(item: pa.Field, path: str) -> StructField:
    return StructField(item.name, _from_arrow_type(item.type, path), item.nullable)


def _from_arrow_type(arrow: pa.DataType, path: str) -> DataType:
    simple = _FROM_ARROW.get(arrow)
    if simple is not None:
        return simple
    if pat.is_timestamp(arrow):
        return TIMESTAMP_NTZ if arrow.tz is None else TIMESTAMP
    if pat.is_decimal(arrow) and 1 <= arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    if pat.is_fixed_size_binary(arrow):
        return BINARY
    if pat.is_struct(arrow):
        return StructType(tuple(_from_arrow_field(item, f"{path}.{item.name}") for item in arrow))
    if pat.is_map(arrow):
        return MapType(
            _from_arrow_type(arrow.key_type, f"{path}.key"),
            _from_arrow_type(arrow.item_type, f"{path}.value"),
            arrow.item_field.nullable,
        )
    if _is_list(arrow):
        return ArrayType(_from_arrow_type(arrow.value_type, f"{path}.element"), arrow.value_field.nullable)
    if pat.is_dictionary(arrow) or pat.is_run_end_encoded(arrow):
        return _from_arrow_type(arrow.value_type, path)
    raise InvalidArgumentError(
        f"Column {path!r} has the Arrow type {arrow}, for which Delta has no type. Cast the column before writing, or "
        "leave it out."
    )


def _is_list(arrow: pa.DataType) -> bool:
    kinds = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view, pat.is_large_list_view)
    return any(is_kind(arrow) for is_kind in kinds)
