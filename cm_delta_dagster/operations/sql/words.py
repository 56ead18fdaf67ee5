"""Reads a statement word by word. Expressions, types and queries are taken as text, which Spark parses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.protocol.predicates.sql_lexer import Kind, Lexeme, parts_of, place
from cm_delta_dagster.protocol.predicates.sql_strings import literal_value

_Item = TypeVar("_Item")

_OPENING = frozenset(("(", "["))
_CLOSING = frozenset((")", "]"))
_AFTER_TYPE = frozenset(
    (
        "NOT", "NULL", "DEFAULT", "COMMENT", "GENERATED", "FIRST", "AFTER", "PRIMARY", "UNIQUE", "REFERENCES", "CHECK",
        "CONSTRAINT", "COLLATE", "MASK", "INVISIBLE",
    )
)  # fmt: skip
"""Words that come after the type of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the text of a statement, from the first to the last of ``lexemes``."""

    text: str
    start: int
    lexemes: tuple[Lexeme, ...]


class Words:
    """A position in a statement."""

    def __init__(self, statement: Statement, *, after: int) -> None:
        self._text = statement.text
        self._lexemes: Sequence[Lexeme] = statement.lexemes
        self._at = after

    # --- words and symbols --------------------------------------------------------------------------------------------

    def take(self, *words: str) -> str:
        """The next word, if it is one of ``words``; else "", and the position stays."""
        word = self.peek()
        if word not in words:
            return ""
        self._at += 1
        return word

    def takes(self, phrase: str) -> bool:
        """Whether the words of ``phrase`` come next, which are then taken."""
        words = phrase.split()
        if not self._comes(words):
            return False
        self._at += len(words)
        return True

    def expect(self, phrase: str) -> None:
        """Take the words of ``phrase``. Raises InvalidArgumentError."""
        if not self.takes(phrase):
            raise self.fault(phrase)

    def peek(self, offset: int = 0) -> str:
        """A word that comes next, in upper case, or the characters of a symbol; "" for other lexemes and at the end."""
        if self._at + offset >= len(self._lexemes):
            return ""
        lexeme = self._lexemes[self._at + offset]
        return lexeme.word or lexeme.symbol

    def upcoming(self) -> str:
        """All words and symbols that come next, in upper case, with spaces between them."""
        return " ".join(lexeme.word or lexeme.symbol for lexeme in self._lexemes[self._at :])

    def symbol(self, symbol: str) -> bool:
        """Whether ``symbol`` comes next, which is then taken."""
        is_next = self._at < len(self._lexemes) and self._lexemes[self._at].symbol == symbol
        self._at += is_next
        return is_next

    def bracket(self, symbol: str) -> None:
        """Take ``symbol``. Raises InvalidArgumentError."""
        if not self.symbol(symbol):
            raise self.fault(f"{symbol!r}")

    # --- names --------------------------------------------------------------------------------------------------------

    def name(self) -> tuple[str, ...]:
        """The name of one or more parts that comes next. Raises InvalidArgumentError."""
        parts = [self.part()]
        while self.symbol("."):
            parts.append(self.part())
        return tuple(parts)

    def table(self) -> tuple[str, ...]:
        """The name of a table, also as ``IDENTIFIER('catalog.schema.table')``. Raises InvalidArgumentError."""
        if self.peek() == "IDENTIFIER" and self.peek(1) == "(":
            self._at += 1
            text = self.literal()
            if text is None:
                raise self.fault("the name of a table as a text in quotes")
            return parts_of(text)
        return self.name()

    def part(self) -> str:
        """The name without dots that comes next. Raises InvalidArgumentError."""
        name = self._lexemes[self._at].name if self._at < len(self._lexemes) else None
        if name is None:
            raise self.fault("a name")
        self._at += 1
        return name

    def alias(self, *following: str) -> str | None:
        """The alias that comes next, with AS or without; None if there is none.

        Args:
            following: words that are no alias without AS.
        """
        if self.takes("AS"):
            return self.part()
        has_name = self._at < len(self._lexemes) and self._lexemes[self._at].name is not None
        return self.part() if has_name and self.peek() not in following else None

    # --- literals -----------------------------------------------------------------------------------------------------

    def literal(self) -> str | None:
        """The text of the string that comes next, in brackets or not; None if none comes next."""
        start = self._at
        in_brackets = self.symbol("(")
        source = ""
        # Two quotes within a string are two lexemes without a gap.
        while self._at < len(self._lexemes) and self._lexemes[self._at].kind is Kind.STRING:
            lexeme = self._lexemes[self._at]
            if source and lexeme.start != self._lexemes[self._at - 1].end:
                break
            source += lexeme.source
            self._at += 1
        if source and (not in_brackets or self.symbol(")")):
            return literal_value(source)
        self._at = start
        return None

    def string(self, what: str) -> str:
        """The text of the string that comes next. Raises InvalidArgumentError."""
        text = None if self.peek() == "(" else self.literal()
        if text is None:
            raise self.fault(what)
        return text

    def number(self) -> int | None:
        """The whole number that comes next; None if none comes next."""
        if self._at < len(self._lexemes) and (digits := self._lexemes[self._at].source).isascii() and digits.isdigit():
            self._at += 1
            return int(digits)
        return None

    # --- parts of the text --------------------------------------------------------------------------------------------

    def until(self, *ends: str, what: str) -> Span:
        """The text up to a phrase or symbol of ``ends`` outside of brackets and CASE, or to the end of the statement.

        Args:
            what: what the text is, for messages.

        Raises:
            InvalidArgumentError: there is no text.
        """
        first, depth, cases = self._at, 0, 0
        while self._at < len(self._lexemes):
            lexeme = self._lexemes[self._at]
            after_dot = self._at > first and self._lexemes[self._at - 1].symbol == "."
            word = "" if after_dot else lexeme.word
            if depth == 0 and cases == 0 and (word or lexeme.symbol) and self._ends(ends):
                break
            if lexeme.symbol in _CLOSING and depth == 0:
                break
            depth += (lexeme.symbol in _OPENING) - (lexeme.symbol in _CLOSING)
            cases = max(0, cases + (word == "CASE") - (word == "END"))
            self._at += 1
        if self._at == first:
            raise self.fault(what)
        return self._span(first, self._at)

    def _ends(self, ends: Sequence[str]) -> bool:
        """Whether one of the phrases comes next, and does not belong to ``IS DISTINCT FROM`` or ``IS NOT NULL``."""
        before = self._lexemes[self._at - 1].word if self._at else ""
        if (before, self.peek()) in (("DISTINCT", "FROM"), ("IS", "NOT")):
            return False
        return any(self._comes(end.split()) for end in ends)

    def _comes(self, words: Sequence[str]) -> bool:
        return all(self.peek(offset) == word for offset, word in enumerate(words))

    def type(self) -> str:
        """The text of the type of a column that comes next. Raises InvalidArgumentError."""
        first, depth = self._at, 0
        while self._at < len(self._lexemes):
            lexeme = self._lexemes[self._at]
            closes = depth + sum({"<": 1, "(": 1, ">": -1, ")": -1}.get(mark, 0) for mark in lexeme.symbol)
            if closes < 0 or (depth == 0 and (lexeme.symbol == "," or lexeme.word in _AFTER_TYPE)):
                break
            depth = closes
            self._at += 1
        if self._at == first:
            raise self.fault("the type of the column")
        return self._span(first, self._at).text

    def in_brackets(self, what: str) -> Span:
        """The text between the brackets that come next. Raises InvalidArgumentError."""
        self.bracket("(")
        span = self.until(what=what)
        self.bracket(")")
        return span

    def rest(self, what: str) -> Span:
        """The text up to the end of the statement. Raises InvalidArgumentError."""
        if self.is_done():
            raise self.fault(what)
        first, self._at = self._at, len(self._lexemes)
        return self._span(first, self._at)

    def listed(self, item: Callable[[], _Item], *, brackets: bool = True) -> list[_Item]:
        """Items with commas between them, in brackets or not."""
        if brackets:
            self.bracket("(")
        items = [item()]
        while self.symbol(","):
            items.append(item())
        if brackets:
            self.bracket(")")
        return items

    def _span(self, first: int, end: int) -> Span:
        lexemes = tuple(self._lexemes[first:end])
        return Span(text=self._text[lexemes[0].start : lexemes[-1].end], start=lexemes[0].start, lexemes=lexemes)

    # --- position -----------------------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """The number of the lexeme that comes next; may be set to an earlier position."""
        return self._at

    @at.setter
    def at(self, position: int) -> None:
        self._at = position

    def is_done(self) -> bool:
        """Whether nothing follows."""
        return self._at >= len(self._lexemes)

    def done(self) -> None:
        """Raise InvalidArgumentError if something follows."""
        if not self.is_done():
            raise self.fault("the end of the statement")

    def fault(self, expected: str) -> InvalidArgumentError:
        """The error for a statement that goes on otherwise than with ``expected``."""
        position = self._lexemes[self._at].start if self._at < len(self._lexemes) else len(self._text)
        return InvalidArgumentError(
            f"The SQL statement needs {expected} at {place(self._text, position)}: {self._text}"
        )

    def refusal(self, what: str, instead: str) -> InvalidArgumentError:
        """The error for a part of a statement that is not supported.

        Args:
            what: the part.
            instead: what to do, as a sentence.
        """
        position = self._lexemes[min(self._at, len(self._lexemes) - 1)].start
        return InvalidArgumentError(
            f"This package does not support {what} (at {place(self._text, position)}). Nothing was changed. {instead}"
        )
