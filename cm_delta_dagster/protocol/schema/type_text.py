"""Types of columns as SQL text: ``bigint``, ``decimal(10,2)``, ``struct<a: int, b: array<varchar(5)>>``.

Reads what Spark accepts in ``CREATE TABLE``, without Spark. Intervals and collations are not types that this client writes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    check_unique_names,
    data_type_text,
)

_SIMPLE: Mapping[str, DataType] = {
    "tinyint": BYTE, "byte": BYTE, "smallint": SHORT, "short": SHORT, "int": INTEGER, "integer": INTEGER, "bigint": LONG,
    "long": LONG, "float": FLOAT, "real": FLOAT, "double": DOUBLE, "string": STRING, "binary": BINARY, "boolean": BOOLEAN,
    "date": DATE, "timestamp": TIMESTAMP, "timestamp_ltz": TIMESTAMP, "timestamp_ntz": TIMESTAMP_NTZ, "void": VOID,
    "variant": VARIANT, "decimal": DecimalType(), "dec": DecimalType(), "numeric": DecimalType(),
}  # fmt: skip
_DECIMALS = frozenset(("decimal", "dec", "numeric"))
_CHARS: Mapping[str, str] = {"char": "char", "character": "char", "varchar": "varchar"}
_TOKEN = re.compile(r"\s*(?:(\w+)|`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|([<>(),:]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """A type, and the metadata that its column gets because of it (the declared type, if it contains ``char`` or ``varchar``)."""

    type: DataType
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Parsed:
    type: DataType
    declared: str


@dataclass(slots=True)
class _Tokens:
    """The tokens of a text; ``kind`` is ``word``, ``name``, ``text`` or ``mark``."""

    text: str
    items: list[tuple[str, str]]
    position: int = 0

    def peek(self) -> tuple[str, str]:
        return self.items[self.position] if self.position < len(self.items) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.position += 1
        return token

    def takes(self, mark: str) -> bool:
        """Whether the next token is ``mark``, which is then consumed."""
        if self.peek() in (("mark", mark), ("word", mark)) or (
            self.peek()[0] == "word" and self.peek()[1].lower() == mark
        ):
            self.position += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.takes(mark):
            raise _invalid(self.text, f"{mark!r} is missing")

    def number(self) -> int:
        kind, text = self.take()
        if kind != "word" or not text.isascii() or not text.isdigit():
            raise _invalid(self.text, "a number is missing")
        return int(text)


def parse_column_type(text: str) -> ColumnType:
    """The type that ``text`` names.

    Raises:
        InvalidArgumentError: the text is not a type that a column can have; says what is wrong.
    """
    tokens = _tokens(text)
    try:
        parsed = _type(tokens)
    except RecursionError as error:
        raise _invalid(text, "it is nested too deeply") from error
    if tokens.peek()[0] != "end":
        raise _invalid(text, f"{tokens.peek()[1]!r} follows the type")
    plain = parsed.declared == data_type_text(parsed.type)
    return ColumnType(type=parsed.type, metadata={} if plain else {CHAR_METADATA: parsed.declared})


def _tokens(text: str) -> _Tokens:
    items: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid(text, f"{text[position:].strip()!r} cannot be read")
        word, name, literal, mark = match.groups()
        if word is not None:
            items.append(("word", word))
        elif name is not None:
            items.append(("name", name.replace("``", "`")))
        elif literal is not None:
            items.append(("text", re.sub(r"\\(.)", r"\1", literal)))
        else:
            items.append(("mark", mark))
        position = match.end()
    return _Tokens(text, items)


def _type(tokens: _Tokens) -> _Parsed:
    kind, text = tokens.take()
    name = text.lower()
    if kind != "word":
        raise _invalid(tokens.text, "a type is missing" if kind == "end" else f"{text!r} is not a type")
    if name in ("array", "map", "struct"):
        return _nested(name, tokens)
    if name in _CHARS:
        tokens.expect("(")
        width = tokens.number()
        tokens.expect(")")
        if width < 1:
            raise _invalid(tokens.text, "the length must be at least 1")
        return _Parsed(STRING, f"{_CHARS[name]}({width})")
    if name in _DECIMALS and tokens.takes("("):
        precision = tokens.number()
        scale = tokens.number() if tokens.takes(",") else 0
        tokens.expect(")")
        decimal: DataType = DecimalType(precision, scale)
        return _Parsed(decimal, data_type_text(decimal))
    if name not in _SIMPLE:
        raise _invalid(tokens.text, f"{text!r} is not a type")
    return _Parsed(_SIMPLE[name], data_type_text(_SIMPLE[name]))


def _nested(name: str, tokens: _Tokens) -> _Parsed:
    tokens.expect("<")
    if name == "struct":
        return _struct(tokens)
    first = _type(tokens)
    if name == "array":
        tokens.expect(">")
        return _Parsed(ArrayType(first.type), f"array<{first.declared}>")
    tokens.expect(",")
    second = _type(tokens)
    tokens.expect(">")
    return _Parsed(MapType(first.type, second.type), f"map<{first.declared},{second.declared}>")


def _struct(tokens: _Tokens) -> _Parsed:
    fields: list[StructField] = []
    declared: list[str] = []
    while True:
        kind, name = tokens.take()
        if kind not in ("word", "name"):
            raise _invalid(tokens.text, "the name of a field is missing")
        tokens.takes(":")
        parsed = _type(tokens)
        nullable = True
        if tokens.takes("not"):
            tokens.expect("null")
            nullable = False
        metadata = {"comment": _comment(tokens)} if tokens.takes("comment") else {}
        fields.append(StructField(name, parsed.type, nullable, metadata))
        declared.append(f"{name}:{parsed.declared}")
        if not tokens.takes(","):
            break
    tokens.expect(">")
    struct = StructType(tuple(fields))
    check_unique_names(struct)
    return _Parsed(struct, f"struct<{','.join(declared)}>")


def _comment(tokens: _Tokens) -> str:
    kind, text = tokens.take()
    if kind != "text":
        raise _invalid(tokens.text, "a comment must be in single quotes")
    return text


def _invalid(text: str, fault: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{text[:200]!r} is not the type of a column: {fault}. Write e.g. 'bigint', 'decimal(10,2)', 'array<string>' or "
        "'struct<a: int, b: date>'."
    )
