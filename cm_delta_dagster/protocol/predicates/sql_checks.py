"""Checks of a condition's text that need no more than its tokens.

Spark evaluates parts of a condition and must read the same text that is checked here. So a text with ``${...}``, which Spark
substitutes before parsing, is refused, and so are queries and functions that could run code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from sqlglot import TokenType

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import literal_sql
from cm_delta_dagster.protocol.predicates.sql_functions import CLOCK, DETERMINISTIC, OVER_ROWS, SYNTAX, VARYING, words
from cm_delta_dagster.protocol.predicates.sql_lexer import Token, shown, token_word, tokens_of
from cm_delta_dagster.remedies import PassUncheckedCondition

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The value of ``current_timestamp()`` and similar functions, and the time zone of ``current_date()``."""

    now: datetime
    zone: tzinfo


def check_closed_text(tokens: Sequence[Token], text: str) -> None:
    """Refuse text whose meaning depends on settings, and text that makes Spark run a query or code.

    Raises:
        InvalidArgumentError: names the function or the construct.
    """
    reason = why_not_closed(tokens, text)
    if reason is not None:
        raise InvalidArgumentError(
            f"The condition {shown(text)} {reason}. Check the names, or compute the value before the call."
        ).with_remedy(PassUncheckedCondition())


def why_not_closed(tokens: Sequence[Token], text: str) -> str | None:
    """What a text contains or calls that :func:`check_closed_text` refuses; None for nothing."""
    if "${" in text:
        return "contains ${...}, which Spark replaces by settings and environment variables"
    for position, token in enumerate(tokens):
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        word = token_word(token, text)
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
    names = [tokens[start].text for start, _ in _clock_calls(tokens, text, known_columns)]
    for position in range(len(tokens) - 1):
        if tokens[position + 1].token_type == TokenType.L_PAREN:
            name = _function_name(tokens, position, text)
            if name is not None and name.lower() in VARYING:
                names.append(name)
    return list(dict.fromkeys(names))


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
        word = (token_word(token, text) or "").lower()
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


def _function_name(tokens: Sequence[Token], position: int, text: str) -> str | None:
    """The name of the function that is called at ``position``, with its qualifier; None if it is not a call."""
    token = tokens[position]
    written = text[token.start : token.end + 1]
    if written[:1] in "'\"`":
        name = token.text
    else:
        word = token_word(token, text)
        if word is None or word in _BEFORE_BRACKETS:
            return None
        name = written
    if position and tokens[position - 1].token_type == TokenType.DOT:
        return f"{tokens[position - 2].text if position > 1 else ''}.{name}"
    return str(name)


def _begins_query(tokens: Sequence[Token], position: int, text: str) -> bool:
    if not position or tokens[position - 1].token_type != TokenType.L_PAREN or position + 1 >= len(tokens):
        return False
    word = token_word(tokens[position], text)
    if word not in _QUERY_WORDS:
        return False
    # Otherwise the word is a column, or the function map() or reduce().
    following = tokens[position + 1]
    if following.token_type == TokenType.L_PAREN:
        return word not in ("MAP", "REDUCE")
    written = text[following.start : following.end + 1]
    return written[:1] == "`" or token_word(following, text) not in (None, *_AFTER_COLUMN)
