"""The words, names, literals and symbols of an SQL text, with their places, from sqlglot's tokens of Spark's dialect."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError

_PART = re.compile(r"\w+|[^\w\s]+")
_CLOSED = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|[^'"`/-]+|-|/(?!\*)""",
    re.DOTALL,
)
"""Text up to the next quote, or closed text of a string, quoted name or comment."""
_SPARK = Dialect.get_or_raise("spark")
_COMMANDS = _SPARK.tokenizer_class.COMMANDS
"""After such a token, sqlglot returns the rest of the statement as one text."""


class Kind(StrEnum):
    """What a lexeme is. QUOTED is a name in backquotes, STRING any literal in quotes, HINT a comment ``/*+ ... */``."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Lexeme:
    """``source`` is the text at ``start`` up to ``end``, exclusive."""

    kind: Kind
    source: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.source)

    @property
    def word(self) -> str:
        """A word that is not quoted, in upper case; "" for other lexemes."""
        return self.source.upper() if self.kind is Kind.WORD else ""

    @property
    def symbol(self) -> str:
        """The characters of a symbol; "" for other lexemes."""
        return self.source if self.kind is Kind.SYMBOL else ""

    @property
    def name(self) -> str | None:
        """The name that a word or quoted name is; None for other lexemes."""
        if self.kind is Kind.QUOTED:
            return self.source[1:-1].replace("``", "`")
        return self.source if self.kind is Kind.WORD else None


def lexemes(text: str) -> tuple[Lexeme, ...]:
    """The lexemes of ``text`` in order; comments are left out.

    Raises:
        InvalidArgumentError: a string, quoted name or comment is not closed.
    """
    found: list[Lexeme] = []
    for start, end, kind in _tokens(text):
        if found and start < found[-1].end:
            continue  # A number and its suffix are several tokens of the same characters.
        if kind in (Kind.WORD, Kind.SYMBOL):
            parts = [(match[0], start + match.start()) for match in _PART.finditer(text[start:end])]
            found += [Lexeme(Kind.WORD if _is_word(part) else Kind.SYMBOL, part, place) for part, place in parts]
        else:
            found.append(Lexeme(kind, text[start:end], start))
    return tuple(found)


def _tokens(text: str) -> Iterator[tuple[int, int, Kind]]:
    """Start, end and kind of each token; several words of one keyword are one token."""
    done = 0
    while True:
        try:
            tokens = _SPARK.tokenize(text[done:])
        except SqlglotError as error:
            raise InvalidArgumentError(
                "The SQL text cannot be split into words: the string, quoted name or comment that begins at "
                f"{place(text, _unclosed(text))} is not closed."
            ) from error
        for token in tokens:
            start, end = done + token.start, done + token.end + 1
            yield start, end, _kind(text[start:end], is_number=token.token_type.name == "NUMBER")
            if token.token_type in _COMMANDS:
                done = end
                break
        else:
            return


def _unclosed(text: str) -> int:
    """Where the string, quoted name or comment begins that is not closed; the end of the text if it is not found."""
    position = 0
    while match := _CLOSED.match(text, position):
        position = match.end()
    return position


def _kind(source: str, *, is_number: bool) -> Kind:
    if source.startswith("`"):
        return Kind.QUOTED
    if source.startswith("/*"):
        return Kind.HINT
    if "'" in source or '"' in source:
        return Kind.STRING
    if is_number:
        return Kind.NUMBER
    return Kind.WORD if _is_word(source[:1]) else Kind.SYMBOL


def _is_word(source: str) -> bool:
    return source[:1].isalnum() or source[:1] == "_"


def place(text: str, position: int) -> str:
    """Line and column of a position in ``text``, counted from 1, for messages."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - (text.rfind(chr(10), 0, position) + 1) + 1}"


def string_value(lexeme: Lexeme) -> str:
    """The value of a literal such as ``'x'``, for names and times; prefixes and escapes are not supported.

    Raises:
        InvalidArgumentError: the literal has a prefix or an escape.
    """
    source = lexeme.source
    if source[0] not in "'\"" or "\\" in source:
        raise InvalidArgumentError(f"The literal {source} stands where a plain text in quotes is expected.")
    return source[1:-1]


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CONTROLS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def literal_value(source: str) -> str:
    """The value of a literal in quotes, with the escapes that Spark knows; ``r'...'`` has none."""
    if source[0] in "rR":
        return source[2:-1]
    quote = source[0]
    inner = source[1:-1].replace(quote * 2, quote)
    return _ESCAPE.sub(_unescaped, inner)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    if code is not None:
        return chr(int(code, 16))
    return chr(int(match[3], 8)) if match[3] is not None else _CONTROLS.get(match[4], match[4])


def literal_text(value: str) -> str:
    """A literal with this value."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of a name given as a text, which may have backquotes."""
    if "`" not in text:
        return tuple(text.split("."))
    return tuple(part.name for part in lexemes(text) if part.name is not None)
