"""The lexer of Spark SQL: the words, names, literals and symbols of a text with their places.

sqlglot splits the text. Statements are read as lexemes, which have the words of the text one by one. Conditions are read as tokens,
which sqlglot's parser takes; Spark evaluates parts of a condition and must read the same text that is checked here, so
:func:`tokens_of` accepts literals and quoted names only in forms that Spark's lexer reads in the same way, and :func:`source_of`
leaves out comments.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from sqlglot import TokenType
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import MAX_SHOWN_CHARACTERS

Token: TypeAlias = Any
"""A token of sqlglot: ``token_type``, ``text``, and the positions ``start`` and ``end`` of its characters."""

_PART = re.compile(r"\w+|[^\w\s]+")
_CLOSED = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|[^'"`/-]+|-|/(?!\*)""",
    re.DOTALL,
)
"""Text up to the next quote, or closed text of a string, quoted name or comment."""
_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | [rR]'[^']*' | [rR]"[^"]*" | [xX]'[^']*' | [xX]"[^"]*" | `(?:[^`]|``)+`""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[^\W\d]\w*|\d+[^\W\d]\w*")
_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
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
    parts_of_text: list[Lexeme] = []
    for start, end, kind in _tokens(text):
        if parts_of_text and start < parts_of_text[-1].end:
            continue  # A number and its suffix are several tokens of the same characters.
        if kind in (Kind.WORD, Kind.SYMBOL):
            parts = [(match[0], start + match.start()) for match in _PART.finditer(text[start:end])]
            parts_of_text += [
                Lexeme(Kind.WORD if _is_word(part) else Kind.SYMBOL, part, place) for part, place in parts
            ]
        else:
            parts_of_text.append(Lexeme(kind, text[start:end], start))
    return tuple(parts_of_text)


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


def plain_string(lexeme: Lexeme) -> str:
    """The value of a literal such as ``'x'``, for names and times; prefixes and escapes are not supported.

    Raises:
        InvalidArgumentError: the literal has a prefix or an escape.
    """
    source = lexeme.source
    if source[0] not in "'\"" or "\\" in source:
        raise InvalidArgumentError(f"The literal {source} stands where a plain text in quotes is expected.")
    return source[1:-1]


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of a name given as a text, which may have backquotes."""
    if "`" not in text:
        return tuple(text.split("."))
    return tuple(part.name for part in lexemes(text) if part.name is not None)


def shown(text: str) -> str:
    """A condition's text for an error message, quoted and truncated to ``MAX_SHOWN_CHARACTERS``."""
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return repr(text)
    return f"{text[:MAX_SHOWN_CHARACTERS]!r} ... ({len(text)} characters)"


def invalid_sql(text: str, fault: str) -> InvalidArgumentError:
    """The error for a text that is not an SQL condition because of ``fault``."""
    return InvalidArgumentError(
        f"The predicate {shown(text)} is not valid SQL: {fault} Write only what would follow WHERE, such as `x > 1`."
    )


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text.

    Raises:
        InvalidArgumentError: the text is empty, cannot be split into tokens, or Spark could split it differently.
    """
    try:
        tokens = list(_SPARK.tokenize(text))
    except SqlglotError as error:
        raise invalid_sql(text, str(error).splitlines()[0] + ".") from error
    if not tokens:
        raise invalid_sql(text, "it is empty.")
    for token in tokens:
        written = text[token.start : token.end + 1]
        if any(quote in written for quote in "'\"`\\") and _QUOTED.fullmatch(written) is None:
            raise invalid_sql(text, f"the literal or name {written} cannot be read safely.")
    return tokens


def closing_positions(tokens: Sequence[Token], text: str) -> dict[int, int]:
    """The position of the closing bracket by the position of its opening bracket.

    Raises:
        InvalidArgumentError: a bracket has no counterpart.
    """
    closing: dict[int, int] = {}
    opened: list[int] = []
    for position, token in enumerate(tokens):
        if token.token_type in _CLOSING:
            opened.append(position)
        elif token.token_type in _CLOSING.values():
            if not opened or _CLOSING[tokens[opened[-1]].token_type] != token.token_type:
                raise invalid_sql(text, "a closing bracket has no opening bracket.")
            closing[opened.pop()] = position
    if opened:
        raise invalid_sql(text, "a bracket is not closed.")
    return closing


def source_of(tokens: Sequence[Token], text: str) -> str:
    """The text of the tokens, without the comments between them."""
    written: list[str] = []
    done: int | None = None
    for token in tokens:
        if done is not None and token.start <= done:
            continue  # A number and its suffix are several tokens of the same characters.
        gap = "" if done is None else text[done + 1 : token.start]
        written += (gap if not gap.strip() else " ", text[token.start : token.end + 1])
        done = token.end
    return "".join(written)


def token_word(token: Token, text: str) -> str | None:
    """The upper-cased word of an unquoted token; None for other tokens."""
    written = text[token.start : token.end + 1]
    return written.upper() if _WORD.fullmatch(written) else None
