"""Where an SQL text names tables, found from its words and brackets without parsing its expressions.

Spark parses the text. Only the places of tables are needed here, so that text which sqlglot's parser does not know works too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.time_travel import VersionText, read_time_travel
from cm_delta_dagster.protocol.predicates.sql_functions import words
from cm_delta_dagster.protocol.predicates.sql_lexer import Kind, Lexeme, lexemes, parts_of, place, plain_string

_CLAUSES = words(
    """
    WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW UNION EXCEPT MINUS INTERSECT QUALIFY
    """
)
"""Words that end a FROM clause: a comma after them does not separate tables."""
_SET_OPERATIONS = frozenset(["UNION", "EXCEPT", "MINUS", "INTERSECT"])
_BEFORE_QUERY = frozenset(
    ["EXPLAIN", "EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL", "DESCRIBE", "DESC", "QUERY"]
)
"""Words that may come before a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReference:
    """The name of a table in a query.

    Attributes:
        parts: the name, one to any number of parts.
        start, end: place of the name and its time travel clause, ``end`` exclusive.
        version: the time travel clause.
        is_bare: only a name may stand here, without alias or brackets.
        is_shadowed: the name is that of a visible common table expression.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    version: VersionText | None = None
    is_bare: bool = False
    is_shadowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesReference:
    """A call ``table_changes('name', first[, last])``: ``name`` is a text, the bounds are SQL expressions."""

    name: str
    first: str
    last: str | None
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReference:
    """A name of several parts outside of FROM. ``ends`` has the end of each part; the last part may be a ``*``."""

    parts: tuple[str, ...]
    start: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """What a query refers to, in the order of the text."""

    tables: tuple[TableReference, ...]
    changes: tuple[ChangesReference, ...]
    columns: tuple[ColumnReference, ...]


@dataclass(slots=True, kw_only=True)
class _Frame:
    """The state between two brackets.

    Attributes:
        is_query: FROM begins a list of tables here, and is not part of a call such as ``extract(year FROM x)``.
        expects_table: a table comes next.
        is_bare: as of the table that comes next.
        in_from: a comma separates tables.
        at_start: a query may begin with the next word.
        with_part: what comes next in a WITH clause: "name", "body" or "next"; "" outside.
        defined: names of the common table expressions of this query, in lower case.
        defines: the common table expression whose query this is.
    """

    is_query: bool = False
    expects_table: bool = False
    is_bare: bool = False
    in_from: bool = False
    at_start: bool = True
    with_part: str = ""
    is_recursive: bool = False
    cte: str = ""
    defined: set[str] = field(default_factory=set)
    defines: str = ""


def find_references(text: str, parameters: Mapping[str, object] | None = None) -> References:
    """The tables and qualified columns that a query names.

    Args:
        parameters: values of named parameters, of which ``IDENTIFIER(:name)`` takes the name of a table.

    Raises:
        InvalidArgumentError: the text is not closed, holds several statements or one that writes, or has a malformed time
            travel clause or ``table_changes``.
    """
    reader = _Reader(text, parameters or {})
    reader.read()
    return References(tables=tuple(reader.tables), changes=tuple(reader.changes), columns=tuple(reader.columns))


class _Reader:
    def __init__(self, text: str, parameters: Mapping[str, object]) -> None:
        self.text = text
        self.parameters = parameters
        self.lexemes: Sequence[Lexeme] = lexemes(text)
        self.at = next((i for i, item in enumerate(self.lexemes) if item.word not in _BEFORE_QUERY), 0)
        self.frames = [_Frame(is_query=True)]
        self.tables: list[TableReference] = []
        self.changes: list[ChangesReference] = []
        self.columns: list[ColumnReference] = []

    def read(self) -> None:
        while self.at < len(self.lexemes):
            lexeme, frame = self.lexemes[self.at], self.frames[-1]
            before = self.at
            if lexeme.symbol and lexeme.symbol[0] in "(),;|":
                self._symbol(lexeme)
            elif lexeme.name is not None and not self._follows_dot():
                self._name(lexeme, frame)
            else:
                frame.expects_table = False
                frame.at_start = False
            self.at = max(self.at, before + 1)

    def _word(self, position: int) -> str:
        return self.lexemes[position].word if 0 <= position < len(self.lexemes) else ""

    def _symbol_at(self, position: int) -> str:
        return self.lexemes[position].symbol if 0 <= position < len(self.lexemes) else ""

    def _follows_dot(self) -> bool:
        return self._symbol_at(self.at - 1) == "."

    def _symbol(self, lexeme: Lexeme) -> None:
        frame = self.frames[-1]
        match lexeme.symbol:
            case "(":
                self._open(frame)
            case ")":
                self._close()
            case ",":
                if frame.with_part == "next":
                    frame.with_part = "name"
                else:
                    frame.expects_table = frame.in_from
            case "|>":
                frame.in_from = frame.expects_table = False
            case ";" if self.at + 1 < len(self.lexemes):
                raise InvalidArgumentError(
                    f"The SQL text has a second statement at {place(self.text, lexeme.end)}. Run the statements one by one."
                )
        frame.at_start = False

    def _open(self, frame: _Frame) -> None:
        if frame.with_part == "body" and self._word(self.at - 1) in ("AS", "MATERIALIZED"):
            inner = _Frame(is_query=True, defines=frame.cte)
            if frame.is_recursive:
                inner.defined.add(frame.cte)
        elif frame.with_part == "next" or frame.expects_table:
            inner = _Frame(is_query=frame.with_part == "next", expects_table=frame.expects_table, is_bare=frame.is_bare)
            frame.with_part = ""
            frame.expects_table = frame.is_bare = False
        else:
            inner = _Frame()
        self.frames.append(inner)

    def _close(self) -> None:
        if len(self.frames) == 1:
            return  # Spark's parser reports it.
        inner = self.frames.pop()
        if inner.defines:
            self.frames[-1].defined.add(inner.defines)
            self.frames[-1].with_part = "next"

    def _name(self, lexeme: Lexeme, frame: _Frame) -> None:
        if frame.with_part == "next":
            frame.with_part, frame.at_start = "", True
        word = "" if self._symbol_at(self.at + 1) == "." else lexeme.word
        starts, frame.at_start = frame.at_start, False
        if frame.with_part:
            self._with(lexeme, frame)
        elif word and self._keyword(word, frame, starts=starts):
            return
        elif frame.expects_table:
            self._table(frame)
        else:
            self._column()

    def _with(self, lexeme: Lexeme, frame: _Frame) -> None:
        if frame.with_part == "name":
            if lexeme.word == "RECURSIVE" and self._symbol_at(self.at + 1) != "(" and self._word(self.at + 1) != "AS":
                frame.is_recursive = True
                return
            frame.cte, frame.with_part = (lexeme.name or "").lower(), "body"

    def _keyword(self, word: str, frame: _Frame, *, starts: bool) -> bool:
        """Whether ``word`` is part of the structure of a query here, and not a name."""
        match word:
            case "WITH" if starts:
                frame.is_query, frame.with_part, frame.expects_table = True, "name", False
            case "VALUES" if frame.expects_table and not starts:
                frame.expects_table = False
            case "SELECT" | "VALUES" if word == "SELECT" or starts:
                frame.is_query, frame.in_from, frame.expects_table = True, False, False
            case "FROM" if (frame.is_query or starts) and not self._is_distinct_from():
                frame.is_query = frame.in_from = frame.expects_table = True
            case "JOIN":
                frame.expects_table = True
            case "TABLE" if self._names_table(starts):
                frame.expects_table = frame.is_bare = True
            case "LATERAL" if self._word(self.at + 1) == "VIEW":
                frame.in_from, self.at = False, self.at + 2
            case "LATERAL" if frame.expects_table:
                pass
            case "ALL" | "DISTINCT" if self._word(self.at - 1) in _SET_OPERATIONS:
                frame.at_start = True
            case "INSERT" | "MERGE" | "UPDATE" | "DELETE" if len(self.frames) == 1 and self._is_write(starts):
                raise InvalidArgumentError(
                    f"The query goes on with {word} at {place(self.text, self.lexemes[self.at].start)}. Nothing was "
                    "changed. A statement that writes begins with that word; put WITH and its queries after INSERT INTO name."
                )
            case _ if word in _CLAUSES and not frame.expects_table:
                frame.in_from, frame.at_start = False, word in _SET_OPERATIONS
            case _:
                return False
        return True

    def _is_write(self, starts: bool) -> bool:
        return starts or self._word(self.at + 1) in ("INTO", "OVERWRITE")

    def _is_distinct_from(self) -> bool:
        return self._word(self.at - 1) == "DISTINCT" and self._word(self.at - 2) in ("IS", "NOT")

    def _names_table(self, starts: bool) -> bool:
        if self.at + 1 >= len(self.lexemes):
            return False
        following = self.lexemes[self.at + 1]
        begins = starts or self._symbol_at(self.at - 1) in ("(", ",", "=>")
        return begins and (following.name is not None or following.symbol == "(")

    def _chain(self, position: int) -> Iterator[Lexeme]:
        """The parts of the name that begins at ``position``."""
        yield self.lexemes[position]
        while self._symbol_at(position + 1) == "." and position + 2 < len(self.lexemes):
            position += 2
            if self.lexemes[position].name is None and self.lexemes[position].symbol != "*":
                return
            yield self.lexemes[position]

    def _table(self, frame: _Frame) -> None:
        chain = tuple(self._chain(self.at))
        parts = tuple(part.name or part.source for part in chain)
        is_bare, frame.is_bare, frame.expects_table = frame.is_bare, False, False
        first, after = self.lexemes[self.at], self.at + 2 * len(chain) - 1
        self.at = after
        if self._symbol_at(after) == "(":
            identifier = self._identifier(after + 1) if first.word == "IDENTIFIER" else None
            if identifier is None:
                if [part.upper() for part in parts] == ["TABLE_CHANGES"]:
                    self._table_changes(first)
                return
            parts, after = identifier
        version, self.at = read_time_travel(self.text, self.lexemes, after)
        shadowed = len(parts) == 1 and any(parts[0].lower() in frame.defined for frame in self.frames)
        self.tables.append(
            TableReference(
                parts=parts,
                start=first.start,
                end=self.lexemes[self.at - 1].end,
                version=version,
                is_bare=is_bare,
                is_shadowed=shadowed,
            )
        )

    def _identifier(self, position: int) -> tuple[tuple[str, ...], int] | None:
        """The name that ``IDENTIFIER(...)`` with a text or a parameter has, and the position after it; None for expressions."""
        inner = self.lexemes[position : position + 3]
        if len(inner) > 1 and inner[0].kind is Kind.STRING and inner[1].symbol == ")":
            return parts_of(plain_string(inner[0])), position + 2
        if [lexeme.symbol for lexeme in inner] == [":", "", ")"]:
            value = self.parameters.get(inner[1].source)
            if isinstance(value, str):
                return parts_of(value), position + 3
        return None

    def _column(self) -> None:
        chain = tuple(self._chain(self.at))
        after = self.at + 2 * len(chain) - 1
        if len(chain) > 1 and self._symbol_at(after) != "(":
            self.columns.append(
                ColumnReference(
                    parts=tuple(part.name or part.source for part in chain),
                    start=chain[0].start,
                    ends=tuple(part.end for part in chain),
                )
            )
        self.at = after

    def _table_changes(self, first: Lexeme) -> None:
        """Read the call whose opening bracket is at ``self.at``."""
        arguments: list[list[Lexeme]] = [[]]
        depth = 0
        for position in range(self.at, len(self.lexemes)):
            lexeme = self.lexemes[position]
            depth += {"(": 1, ")": -1}.get(lexeme.symbol, 0)
            if depth == 0:
                break
            if lexeme.symbol == "," and depth == 1:
                arguments.append([])
            elif position > self.at:
                arguments[-1].append(lexeme)
        where = place(self.text, first.start)
        named = arguments[0]
        is_complete = depth == 0 and len(arguments) in (2, 3) and all(arguments)
        if not is_complete or len(named) != 1 or named[0].kind is not Kind.STRING:
            raise InvalidArgumentError(
                f"table_changes at {where} needs the name of a table as a text, and the first and optionally the last version "
                "or time: table_changes('catalog.schema.table', 3, 7)."
            )
        if any(lexeme.symbol == "?" for argument in arguments for lexeme in argument):
            raise InvalidArgumentError(
                f"table_changes at {where} has a parameter without a name. Name it, as in :first, and give a dict as args."
            )
        texts = [self.text[argument[0].start : argument[-1].end] for argument in arguments]
        self.at = position + 1
        self.changes.append(
            ChangesReference(
                name=plain_string(named[0]),
                first=texts[1],
                last=texts[2] if len(texts) == 3 else None,
                start=first.start,
                end=self.lexemes[position].end,
            )
        )
