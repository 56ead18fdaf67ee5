"""String literals: their values and the patterns of LIKE, as Spark 4 reads them with its default settings.

A backslash begins an escape, a doubled quote is one quote, a literal that begins with ``r`` has no escapes, and adjacent literals
are one. ``spark.sql.parser.escapedStringLiterals`` and ``spark.sql.legacy.consecutiveStringLiterals.enabled`` are off.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import TokenType

from cm_delta_dagster.protocol.predicates.sql_lexer import Token

_LITERAL = re.compile(
    r"""[rR]'(?P<raw>[^']*)' | [rR]"(?P<raw2>[^"]*)" | '(?P<single>(?:[^'\\]|\\.|'')*)' | "(?P<double>(?:[^"\\]|\\.|"")*)" """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"""\\u(?P<u16>[0-9a-fA-F]{4}) | \\U(?P<u32>[0-9a-fA-F]{8}) | \\(?P<octal>[01][0-7]{2}) | \\(?P<letter>.) | ''|\"\"""",
    re.VERBOSE | re.DOTALL,
)
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_LAST_CODE_POINT = 0x10FFFF


def with_joined_strings(tokens: Sequence[Token], text: str) -> list[Token] | None:
    """The tokens with one token for adjacent string literals, whose text is the value; None if a value is not certain."""
    joined: list[Token] = []
    position = 0
    while position < len(tokens):
        end = position
        while end < len(tokens) and tokens[end].token_type in _STRINGS:
            end += 1
        if end == position:
            joined.append(tokens[position])
            position += 1
            continue
        first, last = tokens[position], tokens[end - 1]
        value = _joined_value(tokens[position:end], text)
        if value is None:
            return None
        joined.append(type(first)(TokenType.STRING, value, first.line, first.col, first.start, last.end))
        position = end
    return joined


def _joined_value(tokens: Sequence[Token], text: str) -> str | None:
    """The value of adjacent literals. Tokens without a gap between them can be parts of one literal, as in ``'O''Brien'``."""
    sources: list[str] = []
    end: int | None = None
    for token in tokens:
        written = text[token.start : token.end + 1]
        if end is not None and token.start == end + 1:
            sources[-1] += written
        else:
            sources.append(written)
        end = token.end
    values = [string_value(source) for source in sources]
    return None if None in values else "".join(value for value in values if value is not None)


def string_value(source: str) -> str | None:
    """The value of literals that follow each other without a gap; None if it is not certain, e.g. for half a surrogate pair."""
    value: list[str] = []
    position = 0
    while position < len(source):
        match = _LITERAL.match(source, position)
        if match is None:
            return None
        raw = match["raw"] if match["raw"] is not None else match["raw2"]
        value.append(_unescaped(match) if raw is None else raw)
        position = match.end()
    try:
        # Escapes of UTF-16 surrogates make one character.
        return "".join(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def _unescaped(literal: re.Match[str]) -> str:
    quote, body = ("'", literal["single"]) if literal["single"] is not None else ('"', literal["double"])

    def replaced(escape: re.Match[str]) -> str:
        if escape["letter"] is not None:
            return _LETTERS.get(escape["letter"], escape["letter"])
        if escape["octal"] is not None:
            return chr(int(escape["octal"], 8))
        code = escape["u16"] or escape["u32"]
        if code is None:
            return quote if escape[0] == quote * 2 else escape[0]
        # Half a surrogate pair has no value.
        return chr(int(code, 16)) if int(code, 16) <= _LAST_CODE_POINT else "\ud800"

    return _ESCAPE.sub(replaced, body)


_LENIENT_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


def literal_value(source: str) -> str:
    """The value of a literal in quotes, with the escapes that Spark knows; ``r'...'`` has none."""
    if source[0] in "rR":
        return source[2:-1]
    quote = source[0]
    inner = source[1:-1].replace(quote * 2, quote)
    return _LENIENT_ESCAPE.sub(_leniently_unescaped, inner)


def _leniently_unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    if code is not None:
        return chr(int(code, 16))
    return chr(int(match[3], 8)) if match[3] is not None else _LETTERS.get(match[4], match[4])


def literal_text(value: str) -> str:
    """A literal with this value."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class LikePattern:
    """A pattern of LIKE.

    Attributes:
        prefix: the text before the first wildcard.
        rest: ``""`` if there is no wildcard, ``"%"`` if it is the only one and stands at the end, else something else.
    """

    prefix: str
    rest: str


def like_pattern(pattern: str, escape: str = "\\") -> LikePattern | None:
    """The parts of a pattern; None if Spark refuses it, because the character after an escape is no special one."""
    prefix: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            following = pattern[position + 1 : position + 2]
            if following not in ("%", "_", escape):
                return None
            prefix.append(following)
            position += 2
            continue
        if character in "%_":
            break
        prefix.append(character)
        position += 1
    rest = pattern[position:]
    return LikePattern(prefix="".join(prefix), rest=rest) if _is_valid(rest, escape) else None


def like_regex(pattern: str, escape: str) -> str:
    """The regular expression of the texts that a pattern matches, one that :func:`like_pattern` does not refuse."""
    parts = re.finditer(f"(?s:{re.escape(escape)}(.)|(.))", pattern)
    wildcards = {"%": ".*", "_": "."}
    texts = (re.escape(part[1]) if part[1] else wildcards.get(part[2], re.escape(part[2])) for part in parts)
    return rf"(?s)\A{''.join(texts)}\z"


def _is_valid(pattern: str, escape: str) -> bool:
    return re.fullmatch(f"(?s:[^{re.escape(escape)}]|{re.escape(escape)}[%_{re.escape(escape)}])*", pattern) is not None
