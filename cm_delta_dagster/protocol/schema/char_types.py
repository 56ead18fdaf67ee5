"""Strings with a declared type or a collation, which Spark writes to the metadata of the field: ``char(n)``, ``varchar(n)``.

The metadata is that of the top-level column, also for strings inside of it: ``struct<a:char(3),b:array<char(5)>>``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cm_delta_dagster.protocol.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of the declared type in the metadata of a field."""
COLLATIONS_METADATA = "__COLLATIONS"
"""Key of the collations in the metadata of a field."""
_CHAR = re.compile(r"char\((\d+)\)", re.IGNORECASE)
_LIMITED = re.compile(r"(var)?char\((\d+)\)", re.IGNORECASE)
_NESTED = re.compile(r"(struct|array|map)<", re.IGNORECASE)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^:`]*?))\s*:\s*")
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


def _limits(declared: _Declared, data_type: DataType) -> LengthLimits | None:
    if data_type == STRING and (found := _LIMITED.fullmatch(declared.text)):
        return LengthLimits(limit=int(found[2]), is_char=found[1] is None)
    parts = _parts(declared, data_type)
    inside = {name: limits for name, part, kind in parts if (limits := _limits(part, kind)) is not None}
    return LengthLimits(inside=inside) if inside else None


def _widths(declared: _Declared, data_type: DataType) -> CharWidths | None:
    if data_type == STRING and (found := _CHAR.fullmatch(declared.text)):
        return CharWidths(int(found[1]))
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
    found = []
    for position, item in enumerate(struct.fields):
        part = by_name.get(item.name.lower()) or (declared.parts[position][1] if same_count else None)
        found += [] if part is None else [(item.name, part, item.type)]
    return found


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
