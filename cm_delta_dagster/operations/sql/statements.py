"""The kind of a statement, from its first words, and what is refused with the Python call to use instead.

A new kind of statement is an entry of ``STATEMENTS``, a module of this package, and an entry of the dispatch table in ``api``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.lexemes import Lexeme, lexemes, place


class Family(StrEnum):
    """Statements that one module runs."""

    QUERY = "query"
    DESCRIBE = "describe"
    SHOW = "show"


STATEMENTS: Mapping[tuple[str, ...], Family] = {
    ("SELECT",): Family.QUERY,
    ("WITH",): Family.QUERY,
    ("FROM",): Family.QUERY,
    ("TABLE",): Family.QUERY,
    ("VALUES",): Family.QUERY,
    ("MAP",): Family.QUERY,
    ("REDUCE",): Family.QUERY,
    ("(",): Family.QUERY,
    ("EXPLAIN",): Family.QUERY,
    **{
        (first, second): Family.QUERY
        for first in ("DESCRIBE", "DESC")
        for second in ("QUERY", "SELECT", "WITH", "VALUES")
    },
    ("DESCRIBE",): Family.DESCRIBE,
    ("DESC",): Family.DESCRIBE,
    ("SHOW",): Family.SHOW,
}
"""The family by the first words; the longest match counts."""

_TABLE = "lake.table(name)"
REFUSED: Mapping[tuple[str, ...], str] = {
    ("CREATE", "TEMPORARY"): 'lake.sql("SELECT ...").createOrReplaceTempView(name)',
    ("CREATE", "TEMP"): 'lake.sql("SELECT ...").createOrReplaceTempView(name)',
    ("CREATE", "OR", "REPLACE", "TEMPORARY"): 'lake.sql("SELECT ...").createOrReplaceTempView(name)',
    ("CREATE", "OR", "REPLACE", "TEMP"): 'lake.sql("SELECT ...").createOrReplaceTempView(name)',
    ("CREATE",): "lake.create_table, lake.create_table_as or lake.open_or_create",
    ("REPLACE",): f"{_TABLE}.overwrite",
    ("INSERT", "OVERWRITE"): f"{_TABLE}.overwrite",
    ("INSERT",): f"{_TABLE}.append, or .overwrite with where=",
    ("UPDATE",): f"{_TABLE}.update",
    ("DELETE",): f"{_TABLE}.delete",
    ("MERGE",): f"{_TABLE}.merge",
    ("TRUNCATE",): f'{_TABLE}.delete("true")',
    ("ALTER", "TABLE"): f"{_TABLE}.alter, or lake.rename for the name",
    ("DROP",): "lake.drop",
    ("UNDROP",): "lake.undrop",
    ("OPTIMIZE",): f"{_TABLE}.optimize",
    ("REORG",): f"{_TABLE}.reorg",
    ("VACUUM",): f"{_TABLE}.vacuum",
    ("RESTORE",): f"{_TABLE}.restore(version=...)",
    ("CACHE",): 'lake.sql("SELECT ...").cache()',
    ("FSCK",): f"{_TABLE}.doctor",
    ("CONVERT",): "lake.path_table and lake.create_table_as",
}
"""The Python call by the first words of statements that are not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A text with its lexemes, without semicolons at the end, and its family."""

    text: str
    lexemes: tuple[Lexeme, ...]
    family: Family


def read_statement(text: str) -> Statement:
    """The kind of the statement ``text``.

    Raises:
        InvalidArgumentError: the text is empty, or a statement that is not supported; the message names the Python call.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(
            f"The statement is of type {type(text).__name__}; give the text of one SQL statement."
        )
    found = lexemes(text)
    while found and found[-1].symbol == ";":
        found = found[:-1]
    if not found:
        raise InvalidArgumentError(
            "The SQL text holds no statement. Write one, such as SELECT * FROM catalog.schema.table."
        )
    text = text[: found[-1].end]
    words = tuple(lexeme.word or lexeme.symbol for lexeme in found[:4])
    for length in range(len(words), 0, -1):
        family = STATEMENTS.get(words[:length])
        if family is not None:
            return Statement(text=text, lexemes=found, family=family)
    raise _refusal(text, found, words)


def _refusal(text: str, found: tuple[Lexeme, ...], words: tuple[str, ...]) -> InvalidArgumentError:
    first = words[0] or found[0].source
    for length in range(len(words), 0, -1):
        call = REFUSED.get(words[:length])
        if call is not None:
            name = " ".join(words[:length])
            return InvalidArgumentError(f"lake.sql does not run {name} statements; it only reads. Use {call}.")
    return InvalidArgumentError(
        f"lake.sql does not run statements that begin with {first!r} (at {place(text, found[0].start)}). It runs queries, EXPLAIN, "
        "DESCRIBE and SHOW. A statement that concerns only the Spark session runs with lake.spark.sql(...)."
    )


class Words:
    """A position in a statement, for statements that are read word by word."""

    def __init__(self, statement: Statement, *, after: int) -> None:
        self._text = statement.text
        self._lexemes = statement.lexemes
        self._at = after

    def take(self, *words: str) -> str:
        """The next word, if it is one of ``words``; else "", and the position stays."""
        word = self._peek().word if self._at < len(self._lexemes) else ""
        if word not in words:
            return ""
        self._at += 1
        return word

    def name(self) -> tuple[str, ...]:
        """The name of one or more parts that comes next. Raises InvalidArgumentError."""
        parts = [self._part()]
        while self._symbol("."):
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> str:
        name = self._peek().name if self._at < len(self._lexemes) else None
        if name is None:
            raise self.fault("a name")
        self._at += 1
        return name

    def _symbol(self, symbol: str) -> bool:
        found = self._at < len(self._lexemes) and self._peek().symbol == symbol
        self._at += found
        return found

    def literal(self) -> str | None:
        """The text of the string that comes next, in brackets or not; None if none comes next."""
        start = self._at
        in_brackets = self._symbol("(")
        if self._at < len(self._lexemes) and self._peek().source[0] in "'\"" and "\\" not in self._peek().source:
            value = self._peek().source[1:-1]
            self._at += 1
            if not in_brackets or self._symbol(")"):
                return value
        self._at = start
        return None

    def number(self) -> int | None:
        """The whole number that comes next; None if none comes next."""
        if self._at < len(self._lexemes) and (digits := self._peek().source).isascii() and digits.isdigit():
            self._at += 1
            return int(digits)
        return None

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

    def _peek(self) -> Lexeme:
        return self._lexemes[self._at]
