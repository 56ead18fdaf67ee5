"""Strings with a declared type or a collation, which Spark writes to the metadata of the field: ``char(n)``, ``varchar(n)``.

The metadata is that of the top-level column, also for strings inside of it: ``struct<a:char(3),b:array<char(5)>>``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cm_delta_dagster.protocol.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    data_type_text,
    map_fields,
)

CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of the declared type in the metadata of a field."""
COLLATIONS_METADATA = "__COLLATIONS"
"""Key of the collations in the metadata of a field."""
_CHAR = re.compile(r"char\((\d+)\)", re.IGNORECASE)
_LIMITED = re.compile(r"(var)?char\((\d+)\)", re.IGNORECASE)
_NESTED = re.compile(r"(struct|array|map)<", re.IGNORECASE)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^:`]*?))\s*:\s*")
_PLAIN_NAME = re.compile(r"\w+")
_SIMPLE = re.compile(r"[^,<>(]*(?:\([^()]*\))?[^,<>(]*")


@dataclass(frozen=True, slots=True)
class CharWidths:
    """The width of a ``char(n)`` string, 0 for any other value, and the widths of what is inside of a struct, an array or a map.

    ``inside`` has only the parts with a ``char(n)``: by the name of the field, or ``element``, ``key`` and ``value``.
    """

    width: int = 0
    inside: Mapping[str, "CharWidths"] = field(default_factory=dict)

    def of(self, name: str) -> "CharWidths | None":
        """The widths of one part."""
        return self.inside.get(name)


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """The longest length of a ``char(n)`` or ``varchar(n)`` string in characters, None for any other value; ``inside`` as in
    :class:`CharWidths`.

    Attributes:
        is_char: a shorter value is filled with blanks.
    """

    limit: int | None = None
    is_char: bool = False
    inside: Mapping[str, "LengthLimits"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Declared:
    """A declared type: ``parts`` have the names of fields for a struct, and none for an array or a map."""

    text: str
    parts: tuple[tuple[str, "_Declared"], ...] = ()


def char_width(item: StructField) -> int:
    """Width of a ``char(n)`` column, 0 for any other column. Files may store values without the blanks that fill the width."""
    declared = _CHAR.fullmatch(str(item.metadata.get(CHAR_METADATA, "")))
    return int(declared[1]) if declared and item.type == STRING else 0


def char_widths(item: StructField) -> CharWidths | None:
    """Widths of the ``char(n)`` strings of a column, at any depth; None if it has none."""
    text = str(item.metadata.get(CHAR_METADATA, ""))
    if "char(" not in text.lower():
        return None
    declared, end = _declared(text, 0)
    return None if declared is None or end != len(text) else _widths(declared, item.type)


def length_limits(item: StructField) -> LengthLimits | None:
    """Limits of the ``char(n)`` and ``varchar(n)`` strings of a column, at any depth; None if it has none."""
    text = str(item.metadata.get(CHAR_METADATA, ""))
    if "char(" not in text.lower():
        return None
    declared, end = _declared(text, 0)
    return None if declared is None or end != len(text) else _limits(declared, item.type)


# --- declared types in schemas that change ----------------------------------------------------------------------------


def with_declared_fields(schema: StructType) -> StructType:
    """``schema``, in which nested fields have their declared types in their own metadata, so that they keep them when they move."""
    return StructType(tuple(replace(item, type=_spread(item.type, _declared_by(item))) for item in schema.fields))


def with_declared_columns(changed: StructType, before: StructType) -> StructType:
    """The inverse of :func:`with_declared_fields` after a change: the metadata of each column has the declared type of all of it.

    Args:
        changed: the result of :func:`with_declared_fields` for ``before``, with changes of columns and fields.
    """
    spread = with_declared_fields(before)
    fields: list[StructField] = []
    for item in changed.fields:
        original = before.field(item.name)
        if original is not None and spread.field(item.name) == item:
            fields.append(original)
            continue
        if CHAR_METADATA in item.metadata and _declared_by(item) is None:
            fields.append(item)  # The text of another writer, which cannot be read.
            continue
        text = _declared_text(item.type, _declared_by(item))
        (plain,) = map_fields(StructType((item,)), _without_declared).fields
        declared = {CHAR_METADATA: text} if "char(" in text else {}
        fields.append(replace(plain, metadata={**plain.metadata, **declared}))
    return StructType(tuple(fields))


def _without_declared(item: StructField) -> StructField:
    return replace(item, metadata={key: value for key, value in item.metadata.items() if key != CHAR_METADATA})


def _declared_by(item: StructField) -> _Declared | None:
    """The declared type in the metadata of a field; None without one that can be read."""
    text = str(item.metadata.get(CHAR_METADATA, ""))
    declared, end = _declared(text, 0)
    return declared if text and end == len(text) else None


def _spread(data_type: DataType, declared: _Declared | None) -> DataType:
    """The type, whose fields have the parts of ``declared`` in their metadata."""
    if declared is None:
        return data_type
    parts = {name: part for name, part, _ in _parts(declared, data_type)}
    match data_type:
        case StructType():
            fields = []
            for item in data_type.fields:
                part = parts.get(item.name)
                text = "" if part is None else _declared_text(item.type, part)
                metadata = {**item.metadata, CHAR_METADATA: text} if "char(" in text else item.metadata
                fields.append(replace(item, type=_spread(item.type, part), metadata=metadata))
            return StructType(tuple(fields))
        case ArrayType():
            return replace(data_type, element_type=_spread(data_type.element_type, parts.get("element")))
        case MapType():
            key, value = (
                _spread(data_type.key_type, parts.get("key")),
                _spread(data_type.value_type, parts.get("value")),
            )
            return replace(data_type, key_type=key, value_type=value)
        case _:
            return data_type


def _declared_text(data_type: DataType, declared: _Declared | None) -> str:
    """The type as Spark writes it. ``declared`` is that of elements, keys and values; fields have theirs in their metadata."""
    parts = {} if declared is None else {name: part for name, part, _ in _parts(declared, data_type)}
    match data_type:
        case StructType():
            texts = [
                f"{_quoted(item.name)}:{_declared_text(item.type, _declared_by(item))}" for item in data_type.fields
            ]
            return f"struct<{','.join(texts)}>"
        case ArrayType():
            return f"array<{_declared_text(data_type.element_type, parts.get('element'))}>"
        case MapType():
            key = _declared_text(data_type.key_type, parts.get("key"))
            return f"map<{key},{_declared_text(data_type.value_type, parts.get('value'))}>"
        case _ if data_type == STRING and declared is not None and _LIMITED.fullmatch(declared.text):
            return declared.text
        case _:
            return data_type_text(data_type)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


# --- the text ---------------------------------------------------------------------------------------------------------


def _limits(declared: _Declared, data_type: DataType) -> LengthLimits | None:
    if data_type == STRING and (match := _LIMITED.fullmatch(declared.text)):
        return LengthLimits(limit=int(match[2]), is_char=match[1] is None)
    parts = _parts(declared, data_type)
    inside = {name: limits for name, part, kind in parts if (limits := _limits(part, kind)) is not None}
    return LengthLimits(inside=inside) if inside else None


def _widths(declared: _Declared, data_type: DataType) -> CharWidths | None:
    if data_type == STRING and (match := _CHAR.fullmatch(declared.text)):
        return CharWidths(int(match[1]))
    parts = _parts(declared, data_type)
    inside = {name: widths for name, part, kind in parts if (widths := _widths(part, kind)) is not None}
    return CharWidths(inside=inside) if inside else None


def _parts(declared: _Declared, data_type: DataType) -> list[tuple[str, _Declared, DataType]]:
    """What is inside of a struct, an array or a map: the name, the declared type and the type of each part."""
    match data_type:
        case StructType():
            return _paired(declared, data_type)
        case ArrayType() if len(declared.parts) == 1:
            return [("element", declared.parts[0][1], data_type.element_type)]
        case MapType() if len(declared.parts) == 2:
            (_, key), (_, value) = declared.parts
            return [("key", key, data_type.key_type), ("value", value, data_type.value_type)]
        case _:
            return []


def _paired(declared: _Declared, struct: StructType) -> list[tuple[str, _Declared, DataType]]:
    """Each field with its declared type: of the same name, or of the same position where a field was renamed."""
    by_name = {name.lower(): part for name, part in declared.parts}
    same_count = len(declared.parts) == len(struct.fields)
    paired = []
    for position, item in enumerate(struct.fields):
        part = by_name.get(item.name.lower()) or (declared.parts[position][1] if same_count else None)
        paired += [] if part is None else [(item.name, part, item.type)]
    return paired


def _declared(text: str, start: int) -> tuple[_Declared | None, int]:
    """The type that begins at ``start``, and its end; None if the text is not that of a type."""
    nested = _NESTED.match(text, start)
    if nested is None:
        simple = _SIMPLE.match(text, start)
        end = start if simple is None else simple.end()
        return _Declared(text[start:end].strip()), end
    parts: list[tuple[str, _Declared]] = []
    position = nested.end()
    while text[position : position + 1] not in (">", ""):
        name = ""
        if nested[1].lower() == "struct":
            named = _NAME.match(text, position)
            if named is None:
                return None, position
            name, position = (named[1] or "").replace("``", "`") or named[2] or "", named.end()
        part, position = _declared(text, position)
        if part is None or text[position : position + 1] not in (",", ">"):
            return None, position
        parts.append((name, part))
        position += text[position] == ","
    return _Declared(nested[1].lower(), tuple(parts)), position + 1
