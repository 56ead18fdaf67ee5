"""The names of tables of the catalog in the text of a statement for DuckDB.

The text is split into tokens, not parsed: DuckDB has syntax that sqlglot does not know, and says itself what is wrong with a text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sqlglot import TokenType
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.catalog.tables import TableIdentifier

_PARTS = 3
_ENDS = (TokenType.R_PAREN, TokenType.SEMICOLON, TokenType.COMMA)
_CLAUSES = frozenset(
    (
        *(
            "WHERE",
            "GROUP",
            "ORDER",
            "HAVING",
            "LIMIT",
            "OFFSET",
            "QUALIFY",
            "WINDOW",
            "SELECT",
            "UNION",
            "EXCEPT",
            "INTERSECT",
        ),
        *(
            "JOIN",
            "LEFT",
            "RIGHT",
            "FULL",
            "INNER",
            "CROSS",
            "NATURAL",
            "SEMI",
            "ANTI",
            "ASOF",
            "POSITIONAL",
            "ON",
            "USING",
        ),
    )
)
"""Words that can follow a table without an alias, and that are no aliases."""
_DUCKDB = Dialect.get_or_raise("duckdb")
_COMMANDS = _DUCKDB.tokenizer_class.COMMANDS
"""After such a token, e.g. EXPLAIN, sqlglot returns the rest of the statement as one text."""


class NamePosition(Enum):
    """Where a name stands: after FROM or JOIN without an alias, or with one; before a column; elsewhere."""

    TABLE = auto()
    ALIASED_TABLE = auto()
    COLUMN = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class NameInText:
    """Three parts of a name in the text of a statement, from ``start`` to ``end``."""

    identifier: TableIdentifier
    start: int
    end: int
    place: NamePosition


def with_views(
    text: str, tokens: Sequence["TextToken"], names: Sequence["NameInText"], views: Mapping[TableIdentifier, str]
) -> str:
    """``text`` with the names of ``views``, which are unique, in the place of ``names``."""
    aliases = _aliases(names, views, tokens)
    written: list[str] = []
    position = 0
    for name in names:
        view = quoted_name(views[name.identifier])
        alias = aliases.get(views[name.identifier])
        if alias is not None and name.place is NamePosition.COLUMN:
            view = alias
        elif alias is not None and name.place is NamePosition.TABLE:
            view = f"{view} AS {alias}"
        written += (text[position : name.start], view)
        position = name.end
    return "".join((*written, text[position:]))


def quoted_name(name: str) -> str:
    """``name`` between quotes."""
    return '"' + name.replace('"', '""') + '"'


def _aliases(
    names: Sequence[NameInText], views: Mapping[TableIdentifier, str], tokens: Sequence["TextToken"]
) -> Mapping[str, str]:
    """By view, the last part of the name as an alias that qualifies columns, as it does for tables of DuckDB.

    A view has none if a place of it is not known to take one, or if the statement has the last part as a name of its own.
    """
    dots = {position for position, token in enumerate(tokens) if token.token_type is TokenType.DOT}
    alone = {token.text.lower() for at, token in enumerate(tokens) if not dots & {at - 1, at + 1}}
    places: dict[str, set[NamePosition]] = {}
    unnamed: dict[str, set[str]] = {}
    for name in names:
        view = views[name.identifier]
        places.setdefault(view, set()).add(name.place)
        if name.place in (NamePosition.TABLE, NamePosition.OTHER):
            unnamed.setdefault(name.identifier.table.lower(), set()).add(view)
    return {
        next(iter(same)): quoted_name(last)
        for last, same in unnamed.items()
        if len(same) == 1 and last not in alone and NamePosition.OTHER not in places[next(iter(same))]
    }


def names_in(tokens: Sequence["TextToken"]) -> Iterator[NameInText]:
    """What may be names of tables: ``a.b.c``, each part with or without quotes, and ``"a.b.c"``."""
    position = 0
    while position < len(tokens):
        length = _length_of_name(tokens, position)
        parts = [token.text for token in tokens[position : position + length : 2]]
        after = tokens[position + length] if position + length < len(tokens) else None
        if len(parts) == 1:
            parts = parts[0].split(".") if tokens[position].token_type is TokenType.IDENTIFIER else []
        if (
            len(parts) >= _PARTS
            and all(parts[:_PARTS])
            and (after is None or after.token_type is not TokenType.L_PAREN)
        ):
            last = tokens[position + (2 * _PARTS - 2 if length > 1 else 0)]
            before = tokens[position - 1] if position else None
            place = NamePosition.COLUMN if len(parts) > _PARTS else _place(before, after)
            yield NameInText(TableIdentifier(*parts[:_PARTS]), tokens[position].start, last.end, place)
        position += max(length, 1)


def _place(before: "TextToken | None", after: "TextToken | None") -> NamePosition:
    """The place of the name of a table between two tokens."""
    if before is None or before.token_type not in (TokenType.FROM, TokenType.JOIN):
        return NamePosition.OTHER
    if after is None or after.token_type in _ENDS or after.text.upper().split()[0] in _CLAUSES:
        return NamePosition.TABLE
    return NamePosition.ALIASED_TABLE if after.token_type is TokenType.ALIAS or _is_word(after) else NamePosition.OTHER


@dataclass(frozen=True, slots=True)
class TextToken:
    """A token from ``start`` up to ``end``, exclusive."""

    token_type: TokenType
    text: str
    start: int
    end: int


def tokens_of(text: str) -> Sequence[TextToken]:
    """The tokens; none of a text that has an unclosed quote, of which DuckDB says what is wrong."""
    try:
        return list(_tokens(text))
    except SqlglotError:
        return ()


def _tokens(text: str) -> Iterator[TextToken]:
    done = 0
    while True:
        for token in _DUCKDB.tokenize(text[done:]):
            end = done + token.end + 1
            yield TextToken(token.token_type, token.text, done + token.start, end)
            if token.token_type in _COMMANDS:
                done = end
                break
        else:
            return


def _length_of_name(tokens: Sequence[TextToken], start: int) -> int:
    """The number of tokens of the name that begins at ``start``, dots included; 0 if none begins there."""
    if not _is_word(tokens[start]):
        return 0
    length = 1
    while start + length + 1 < len(tokens) and tokens[start + length].token_type is TokenType.DOT:
        if not _is_word(tokens[start + length + 1]):
            break
        length += 2
    return length


def _is_word(token: TextToken) -> bool:
    return token.token_type is TokenType.IDENTIFIER or (
        token.token_type is not TokenType.STRING and token.text.isidentifier()
    )
