"""Types written as SQL text, such as ``decimal(10,2)`` or ``struct<a: int, b: array<varchar(5)>>``."""

import re
from dataclasses import dataclass, replace

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError
from cm_delta_dagster.protocol.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_text,
    parse_schema,
)

_ALIASES = {
    "bigint": "long",
    "int": "integer",
    "smallint": "short",
    "tinyint": "byte",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|([\w.$-]+)|([<>(),:]))", re.DOTALL)
_CHAR = re.compile(r"(?:var)?char\(")


def parse_type(text: str) -> DataType:
    """The type that a text denotes. ``char(n)`` and ``varchar(n)`` are strings; see :func:`declared_text`.

    Raises:
        InvalidArgumentError: the text is not a type that Delta has.
    """
    return _as_stored(_declared(text))


def declared_text(text: str) -> str | None:
    """The text that the metadata of a column of this type holds: the type itself if it contains ``char(n)`` or ``varchar(n)``."""
    declared = _declared(text)
    return None if _as_stored(declared) == declared else data_type_text(declared)


def _declared(text: str) -> DataType:
    """The type, with primitive types of the names ``char(n)`` and ``varchar(n)``."""
    reader = _Reader(text=text, tokens=_tokens(text))
    found = reader.type()
    if reader.position != len(reader.tokens):
        raise _invalid(text)
    return found


def _as_stored(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return StructType(tuple(replace(item, type=_as_stored(item.type)) for item in data_type.fields))
        case ArrayType():
            return replace(data_type, element_type=_as_stored(data_type.element_type))
        case MapType():
            key, value = _as_stored(data_type.key_type), _as_stored(data_type.value_type)
            return replace(data_type, key_type=key, value_type=value)
        case PrimitiveType() if _CHAR.match(data_type.name):
            return STRING
        case _:
            return data_type


def _tokens(text: str) -> list[tuple[str, str]]:
    """Names, quoted names, literals and signs, each with its kind."""
    found: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid(text)
        quoted, literal, word, sign = match.groups()
        if quoted is not None:
            found.append(("quoted", quoted.replace("``", "`")))
        elif literal is not None:
            found.append(("literal", literal))
        else:
            found.append(("word", word) if word is not None else ("sign", sign))
        position = match.end()
    return found


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads types from the tokens of ``text``, beginning at ``position``."""

    text: str
    tokens: list[tuple[str, str]]
    position: int = 0

    def type(self) -> DataType:
        kind, word = self._next()
        name = word.lower()
        if kind != "word":
            raise _invalid(self.text)
        match name:
            case "struct":
                return self._struct()
            case "array":
                self._expect("<")
                element = self.type()
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self.type()
                self._expect(",")
                value = self.type()
                self._expect(">")
                return MapType(key, value)
            case "char" | "varchar" | "character":
                length = self._numbers()
                if len(length) != 1 or int(length[0]) < 1:
                    raise _invalid(self.text)
                return PrimitiveType(f"{name.removesuffix('acter')}({length[0]})")
            case _:
                return self._simple(_ALIASES.get(name, name))

    def _struct(self) -> StructType:
        self._expect("<")
        fields: list[StructField] = []
        while not self._skip(">"):
            if fields:
                self._expect(",")
            kind, name = self._next()
            if kind not in ("word", "quoted"):
                raise _invalid(self.text)
            self._skip(":")
            fields.append(self._field(name))
        return StructType(tuple(fields))

    def _field(self, name: str) -> StructField:
        data_type, nullable, metadata = self.type(), True, {}
        if self._skip("not"):
            self._expect("null")
            nullable = False
        if self._skip("comment"):
            kind, comment = self._next()
            if kind != "literal":
                raise _invalid(self.text)
            metadata = {"comment": comment}
        return StructField(name, data_type, nullable, metadata)

    def _simple(self, name: str) -> DataType:
        numbers = self._numbers() if self._peek() == "(" else []
        if name == "decimal":
            name = f"decimal({','.join([*numbers, '0'][:2])})" if numbers else "decimal(10,0)"
        elif numbers:
            raise _invalid(self.text)
        escaped = name.replace("\\", "").replace('"', "")
        schema = f'{{"type":"struct","fields":[{{"name":"c","type":"{escaped}","nullable":true,"metadata":{{}}}}]}}'
        try:
            return parse_schema(schema).fields[0].type
        except CorruptLogError as error:
            raise _invalid(self.text) from error

    def _numbers(self) -> list[str]:
        self._expect("(")
        numbers = [self._next()[1]]
        while self._skip(","):
            numbers.append(self._next()[1])
        self._expect(")")
        if not all(number.isdecimal() for number in numbers):
            raise _invalid(self.text)
        return numbers

    def _peek(self) -> str:
        return self.tokens[self.position][1].lower() if self.position < len(self.tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self.position >= len(self.tokens):
            raise _invalid(self.text)
        self.position += 1
        return self.tokens[self.position - 1]

    def _skip(self, word: str) -> bool:
        found = self._peek() == word and self.tokens[self.position][0] != "quoted"
        self.position += found
        return found

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise _invalid(self.text)


def _invalid(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{text!r} is not a type of a Delta table. Write it as in SQL, e.g. 'bigint', 'decimal(10,2)', 'varchar(20)' or "
        "'struct<a: int, b: array<string>>'."
    )
