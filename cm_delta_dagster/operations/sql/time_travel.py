"""The clauses VERSION AS OF and TIMESTAMP AS OF after the name of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.holds import HOLD_PREFIX
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.sql_lexer import Kind, Lexeme, place, plain_string

_OPERATORS = frozenset(("+", "-", "*", "/", "%", "||"))
_UNITS = frozenset(
    f"{unit}{plural}"
    for unit in ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"]
    for plural in ("", "S")
)
_TYPED_LITERALS = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionText:
    """A time travel clause: a version, the SQL text of a time, or the id of a hold. Exactly one is given."""

    version: int | None = None
    timestamp: str | None = None
    hold_id: str | None = None


def read_time_travel(text: str, lexemes: Sequence[Lexeme], at: int) -> tuple[VersionText | None, int]:
    """The clause that begins at ``at``, and the position after it; None and ``at`` if there is none.

    Raises:
        InvalidArgumentError: the clause is malformed; the message has its place.
    """
    return _TimeTravelClause(text, lexemes).read(at)


class _TimeTravelClause:
    def __init__(self, text: str, lexemes: Sequence[Lexeme]) -> None:
        self._text = text
        self._lexemes = lexemes

    def read(self, start: int) -> tuple[VersionText | None, int]:
        if self._symbol(start) == "@":
            raise self._fault(start, "VERSION AS OF 3 or TIMESTAMP AS OF '2026-01-31' in place of @")
        at = start + 1 if self._word(start) == "FOR" else start
        kind = self._word(at)
        if (self._word(at + 1), self._word(at + 2)) != ("AS", "OF"):
            return None, start
        value = at + 3
        if kind in ("VERSION", "SYSTEM_VERSION"):
            hold_id = self._hold_id(value)
            if hold_id is not None:
                return VersionText(hold_id=hold_id), value + 1
            return VersionText(version=self._version(value)), value + 1
        if kind not in ("TIMESTAMP", "SYSTEM_TIME"):
            return None, start
        end = self._expression(value)
        for lexeme in self._lexemes[value:end]:
            if lexeme.word in ("SELECT", "FROM") or lexeme.symbol == "?":
                raise self._fault(value, "a time without a query and without parameters that have no name")
        return VersionText(timestamp=self._text[self._lexemes[value].start : self._lexemes[end - 1].end]), end

    def _hold_id(self, at: int) -> str | None:
        if at >= len(self._lexemes) or self._lexemes[at].kind is not Kind.STRING:
            return None
        text = plain_string(self._lexemes[at])
        return text if text.startswith(HOLD_PREFIX) else None

    def _version(self, at: int) -> int:
        if at < len(self._lexemes):
            lexeme = self._lexemes[at]
            digits = plain_string(lexeme) if lexeme.kind is Kind.STRING else lexeme.source
            if digits.isascii() and digits.isdigit():
                return int(digits)
        raise self._fault(at, "the number of a version")

    def _word(self, at: int) -> str:
        return self._lexemes[at].word if at < len(self._lexemes) else ""

    def _symbol(self, at: int) -> str:
        return self._lexemes[at].symbol if at < len(self._lexemes) else ""

    def _fault(self, at: int, expected: str) -> InvalidArgumentError:
        position = self._lexemes[at].start if at < len(self._lexemes) else len(self._text)
        return InvalidArgumentError(f"The time travel clause needs {expected} at {place(self._text, position)}.")

    def _expression(self, at: int) -> int:
        at = self._operand(at)
        while self._symbol(at) in _OPERATORS or self._word(at) == "DIV":
            at = self._operand(at + 1)
        return at

    def _operand(self, at: int) -> int:
        if at >= len(self._lexemes):
            raise self._fault(at, "a time")
        lexeme = self._lexemes[at]
        if lexeme.symbol in ("+", "-"):
            return self._operand(at + 1)
        if lexeme.symbol == "(":
            return self._cast(self._after_bracket(at))
        if lexeme.symbol == ":" and self._word(at + 1):
            return self._cast(at + 2)
        if lexeme.kind in (Kind.STRING, Kind.NUMBER) or lexeme.symbol == "?":
            return self._cast(at + 1)
        if lexeme.word == "INTERVAL":
            return self._interval(at)
        if lexeme.word in _TYPED_LITERALS and [item.kind for item in self._lexemes[at + 1 : at + 2]] == [Kind.STRING]:
            return at + 2
        if lexeme.name is None:
            raise self._fault(at, "a time")
        return self._cast(self._after_bracket(at + 1) if self._symbol(at + 1) == "(" else at + 1)

    def _cast(self, at: int) -> int:
        return at + 2 if self._symbol(at) == "::" and self._word(at + 1) else at

    def _interval(self, at: int) -> int:
        at += 1
        while at < len(self._lexemes):
            end = at + 1 if self._symbol(at) in ("+", "-") else at
            if end >= len(self._lexemes) or self._lexemes[end].kind not in (Kind.STRING, Kind.NUMBER):
                break
            at = end + 1
            if self._word(at) in _UNITS:
                at += 1
            if self._word(at) == "TO" and self._word(at + 1) in _UNITS:
                at += 2
        return at

    def _after_bracket(self, at: int) -> int:
        depth = 0
        for position in range(at, len(self._lexemes)):
            depth += {"(": 1, ")": -1}.get(self._symbol(position), 0)
            if depth == 0:
                return position + 1
        raise self._fault(len(self._lexemes), "a closing bracket")
