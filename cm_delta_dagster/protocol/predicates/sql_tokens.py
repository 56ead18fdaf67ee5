"""The tokens of a condition's text, and the checks that need no more than the tokens.

Spark evaluates parts of a condition and must read the same text that is checked here. So literals and quoted names are accepted
only in forms that Spark's lexer reads in the same way, comments are removed from the text that Spark gets, and ``${...}``,
which Spark substitutes before parsing, is refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeAlias

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import MAX_SHOWN_CHARACTERS, literal_sql
from cm_delta_dagster.protocol.predicates.sql_functions import CLOCK, DETERMINISTIC, OVER_ROWS, SYNTAX, VARYING, words

Token: TypeAlias = Any
"""A token of sqlglot: ``token_type``, ``text``, and the positions ``start`` and ``end`` of its characters."""

_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | [rR]'[^']*' | [rR]"[^"]*" | [xX]'[^']*' | [xX]"[^"]*" | `(?:[^`]|``)+`""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"[^\W\d]\w*|\d+[^\W\d]\w*")
_BEFORE_BRACKETS = words(
    """
    ALL AND ANY AS BETWEEN BOTH CASE COLLATE DISTINCT DIV ELSE ESCAPE FILTER FROM ILIKE IN INTERVAL IS LEADING LIKE NOT OR
    OVER REGEXP RLIKE SOME THEN TRAILING WHEN
    """
)
"""Words that may come before a bracket without being the name of a function."""
_QUERY_WORDS = frozenset(("FROM", "MAP", "REDUCE", "TABLE", "VALUES", "WITH"))
"""Words that begin a query if they come first in brackets and a name or a bracket follows."""
_AFTER_COLUMN = ("AND", "OR", "IS", "IN", "NOT", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "DIV", "COLLATE")
_WITHOUT_BRACKETS = frozenset(("current_date", "current_time", "current_timestamp", "localtimestamp"))
_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The value of ``current_timestamp()`` and similar functions, and the time zone of ``current_date()``."""

    now: datetime
    zone: tzinfo


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
        tokens = list(sqlglot.tokenize(text, read="spark"))
    except SqlglotError as error:
        raise invalid_sql(text, str(error).splitlines()[0] + ".") from error
    if not tokens:
        raise invalid_sql(text, "it is empty.")
    for token in tokens:
        written = text[token.start : token.end + 1]
        if any(quote in written for quote in "'\"`\\") and _QUOTED.fullmatch(written) is None:
            raise invalid_sql(text, f"the literal or name {written} cannot be read safely.")
    return tokens


def check_closed_text(tokens: Sequence[Token], text: str) -> None:
    """Refuse text whose meaning depends on settings, and text that makes Spark run a query or code.

    Raises:
        InvalidArgumentError: names the function or the construct.
    """
    reason = why_not_closed(tokens, text)
    if reason is not None:
        raise InvalidArgumentError(
            f"The condition {shown(text)} {reason}. Check the names, or compute the value before the call. If your own program "
            "wrote this text, raw_sql(...) passes it to Spark unchecked; never do that with text that a user entered."
        )


def why_not_closed(tokens: Sequence[Token], text: str) -> str | None:
    """What a text contains or calls that :func:`check_closed_text` refuses; None for nothing."""
    if "${" in text:
        return "contains ${...}, which Spark replaces by settings and environment variables"
    for position, token in enumerate(tokens):
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        word = _word(token, text)
        if word in ("SELECT", "USING") or _begins_query(tokens, position, text):
            return "contains a query"
        if following is None or following.token_type != TokenType.L_PAREN:
            continue
        name = _function_name(tokens, position, text)
        if name is None:
            continue
        lowered = name.lower()
        if "." in name or not (lowered in DETERMINISTIC or lowered in VARYING | CLOCK | SYNTAX | OVER_ROWS):
            return f"calls {name}(), which is not one of Spark's built-in functions for conditions"
    return None


def varying_functions(text: str, known_columns: frozenset[str] = frozenset()) -> list[str]:
    """Functions called in the text whose value differs from one evaluation to the next; empty if the text is not valid SQL.

    Args:
        known_columns: lower-cased column names, which are not function calls unless a bracket follows.
    """
    try:
        tokens = tokens_of(text)
    except InvalidArgumentError:
        return []
    found = [tokens[start].text for start, _ in _clock_calls(tokens, text, known_columns)]
    for position in range(len(tokens) - 1):
        if tokens[position + 1].token_type == TokenType.L_PAREN:
            name = _function_name(tokens, position, text)
            if name is not None and name.lower() in VARYING:
                found.append(name)
    return list(dict.fromkeys(found))


def bare_clock_names(text: str) -> list[str]:
    """The names of functions in the text that return the current time and are called without brackets."""
    tokens = tokens_of(text)
    calls = list(_clock_calls(tokens, text, frozenset()))
    following = [tokens[last + 1 : last + 2] for _, last in calls]
    return [
        tokens[first].text
        for (first, last), after in zip(calls, following, strict=True)
        if first == last and not any(token.token_type == TokenType.L_PAREN for token in after)
    ]


def calls_clock(tokens: Sequence[Token], text: str, known_columns: frozenset[str]) -> bool:
    """Whether the text calls a function that returns the current time."""
    return next(_clock_calls(tokens, text, known_columns), None) is not None


def at_moment(text: str, clock: Clock, known_columns: frozenset[str]) -> str:
    """The text with a literal of the time of ``clock`` in place of each function that returns the current time."""
    tokens = tokens_of(text)
    written: list[str] = []
    done = 0
    for first, last in _clock_calls(tokens, text, known_columns):
        literal = _moment_literal(tokens[first].text.lower(), clock)
        if literal is not None:
            written += (text[done : tokens[first].start], literal)
            done = tokens[last].end + 1
    return "".join((*written, text[done:]))


def _moment_literal(name: str, clock: Clock) -> str | None:
    local = clock.now.astimezone(clock.zone)
    match name:
        case "current_timestamp" | "now":
            return literal_sql(clock.now.astimezone(UTC))
        case "current_date" | "curdate":
            return literal_sql(local.date())
        case "localtimestamp":
            return literal_sql(local.replace(tzinfo=None))
        case "unix_timestamp":
            return f"{int(clock.now.timestamp())}L"
        case _:
            return None


def _clock_calls(tokens: Sequence[Token], text: str, known_columns: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Positions of the first and last token of each call that returns the current time."""
    for position, token in enumerate(tokens):
        word = (_word(token, text) or "").lower()
        if word not in CLOCK or (position and tokens[position - 1].token_type == TokenType.DOT):
            continue
        types = [item.token_type for item in tokens[position + 1 : position + 3]]
        if types == [TokenType.L_PAREN, TokenType.R_PAREN]:
            yield position, position + 2
        elif types[:1] == [TokenType.L_PAREN]:
            if word == "current_time":  # The bracket holds a precision.
                yield position, position
        elif word in _WITHOUT_BRACKETS and word not in known_columns:
            yield position, position


def closing_positions(tokens: Sequence[Token], text: str) -> dict[int, int]:
    """The position of the closing bracket by the position of its opening bracket.

    Raises:
        InvalidArgumentError: a bracket has no counterpart.
    """
    found: dict[int, int] = {}
    opened: list[int] = []
    for position, token in enumerate(tokens):
        if token.token_type in _CLOSING:
            opened.append(position)
        elif token.token_type in _CLOSING.values():
            if not opened or _CLOSING[tokens[opened[-1]].token_type] != token.token_type:
                raise invalid_sql(text, "a closing bracket has no opening bracket.")
            found[opened.pop()] = position
    if opened:
        raise invalid_sql(text, "a bracket is not closed.")
    return found


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


def _function_name(tokens: Sequence[Token], position: int, text: str) -> str | None:
    """The name of the function that is called at ``position``, with its qualifier; None if it is not a call."""
    token = tokens[position]
    written = text[token.start : token.end + 1]
    if written[:1] in "'\"`":
        name = token.text
    else:
        word = _word(token, text)
        if word is None or word in _BEFORE_BRACKETS:
            return None
        name = written
    if position and tokens[position - 1].token_type == TokenType.DOT:
        return f"{tokens[position - 2].text if position > 1 else ''}.{name}"
    return str(name)


def _word(token: Token, text: str) -> str | None:
    """The upper-cased word of an unquoted token; None for other tokens."""
    written = text[token.start : token.end + 1]
    return written.upper() if _WORD.fullmatch(written) else None


def _begins_query(tokens: Sequence[Token], position: int, text: str) -> bool:
    if not position or tokens[position - 1].token_type != TokenType.L_PAREN or position + 1 >= len(tokens):
        return False
    word = _word(tokens[position], text)
    if word not in _QUERY_WORDS:
        return False
    # Otherwise the word is a column, or the function map() or reduce().
    following = tokens[position + 1]
    if following.token_type == TokenType.L_PAREN:
        return word not in ("MAP", "REDUCE")
    written = text[following.start : following.end + 1]
    return written[:1] == "`" or _word(following, text) not in (None, *_AFTER_COLUMN)
