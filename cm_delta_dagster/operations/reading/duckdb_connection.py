"""Reading tables with DuckDB: as a relation, and by their names in SQL.

DuckDB reads a table through :class:`~cm_delta_dagster.arrow.dataset.DeltaDataset`. It cannot look up names in a catalog written in
Python, and reserves the catalog name ``main``. So :class:`DuckDBConnection` finds the names of tables in a statement before DuckDB
parses it, and registers these tables and no others, all at versions that were the latest ones at one moment.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import tzinfo
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from sqlglot import TokenType
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.consistent_snapshots import ReadableVersion
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
else:
    DuckDBPyConnection = DuckDBPyRelation = Any  # So that the hints can be evaluated without the package.

__all__ = ["DuckDBConnection", "DuckDBPyConnection", "DuckDBPyRelation", "to_relation"]

LoadTables: TypeAlias = Callable[[Iterable[TableIdentifier]], Mapping[TableIdentifier, ReadableVersion]]
"""The tables of these names that exist, at versions of one moment."""

ExplainUnknown: TypeAlias = Callable[[TableIdentifier], str]
"""What to report of a name that neither the catalog nor DuckDB has, with similar names."""

_Version: TypeAlias = tuple[str, int, tzinfo | None]
"""Id, version and time zone of a table."""

_KEPT_VERSIONS = 32
_PARTS = 3
_PART = re.compile(r"[\w-]+")


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


@dataclass(frozen=True, slots=True)
class _View:
    """The name of a view in DuckDB, and what it reads."""

    name: str
    dataset: DeltaDataset


def to_relation(
    dataset: DeltaDataset, connection: "DuckDBConnection | DuckDBPyConnection | None"
) -> "DuckDBPyRelation":
    """The dataset as a relation of ``connection``, or of DuckDB's default connection. Raises EngineError without DuckDB."""
    library = import_engine("duckdb")
    _check_connection(connection)
    raw = connection.connection if isinstance(connection, DuckDBConnection) else connection
    relation: DuckDBPyRelation = library.from_arrow(dataset) if raw is None else raw.from_arrow(dataset)
    return relation


def _check_connection(connection: object) -> None:
    """Raise InvalidArgumentError for a value that is not a connection of DuckDB or None."""
    if connection is not None and not hasattr(connection, "from_arrow"):
        raise InvalidArgumentError(f"connection is {connection!r}; give a connection of DuckDB, e.g. duckdb.connect().")


class DuckDBConnection:
    """A DuckDB connection in which statements can name tables of the catalog: ``select * from main.sales.orders``.

    ``sql``, ``query``, ``execute``, ``executemany`` and ``from_query`` read the tables that their text names at versions that were
    the latest ones at one moment. Other tables are not loaded. All other attributes are those of ``duckdb.DuckDBPyConnection``.
    Tables can be read only.

    Each version that statements read is a view of its own in DuckDB, so that a relation that is fetched later, also after other
    statements, reads the versions of the moment of its statement. The last 32 versions of a table are kept; a relation of an
    older one fails. After a first statement, other DuckDB clients of ``connection`` find the table under the name
    ``"main.sales.orders"``, with quotes, at the version that a statement last named.

    Attributes:
        connection: the connection of DuckDB.
    """

    def __init__(
        self,
        connection: "DuckDBPyConnection | None",
        load_tables: LoadTables,
        explain_unknown: ExplainUnknown | None = None,
    ) -> None:
        """Wrap ``connection``, or a new database in memory. Raises EngineError without DuckDB."""
        library = import_engine("duckdb")
        _check_connection(connection)
        self.connection: DuckDBPyConnection = library.connect() if connection is None else connection
        self._load_tables = load_tables
        self._explain_unknown = explain_unknown
        self._no_such_view: type[Exception] = library.CatalogException
        self._views: dict[str, dict[_Version, _View]] = {}
        # Statements may name variables of the caller, whose frame is behind those of this class.
        self.connection.execute("SET python_scan_all_frames = true")

    def __repr__(self) -> str:
        return f"DuckDBConnection({self.connection!r})"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    # DuckDB looks for variables in the frames of these methods first, hence the names of their arguments.
    def sql(self, *_cm_delta_arguments: Any, **_cm_delta_options: Any) -> "DuckDBPyRelation | None":
        """Return the rows of a query as a relation; arguments as of DuckDB's ``sql``."""
        _cm_delta_rows: DuckDBPyRelation | None = self._run("sql", _cm_delta_arguments, _cm_delta_options)
        return _cm_delta_rows

    def query(self, *_cm_delta_arguments: Any, **_cm_delta_options: Any) -> "DuckDBPyRelation | None":
        """Return the rows of a query as a relation; arguments as of DuckDB's ``query``."""
        _cm_delta_rows: DuckDBPyRelation | None = self._run("query", _cm_delta_arguments, _cm_delta_options)
        return _cm_delta_rows

    def from_query(self, *_cm_delta_arguments: Any, **_cm_delta_options: Any) -> "DuckDBPyRelation | None":
        """Return the rows of a query as a relation; arguments as of DuckDB's ``from_query``."""
        _cm_delta_rows: DuckDBPyRelation | None = self._run("from_query", _cm_delta_arguments, _cm_delta_options)
        return _cm_delta_rows

    def execute(self, *_cm_delta_arguments: Any, **_cm_delta_options: Any) -> Self:
        """Run statements; arguments as of DuckDB's ``execute``. Fetch the rows from the result."""
        self._run("execute", _cm_delta_arguments, _cm_delta_options)
        return self

    def executemany(self, *_cm_delta_arguments: Any, **_cm_delta_options: Any) -> Self:
        """Run a statement for several sets of parameters; arguments as of DuckDB's ``executemany``."""
        self._run("executemany", _cm_delta_arguments, _cm_delta_options)
        return self

    def table(self, name: str) -> "DuckDBPyRelation":
        """Return a table of the catalog, or one of DuckDB, by its name."""
        views = self._registered_names([TableIdentifier.parse(name)]) if name.count(".") == _PARTS - 1 else {}
        if not views:
            return self.connection.table(name)
        (registered,) = views.values()
        return self.connection.from_query(f"FROM {_quoted(registered)}")

    def cursor(self) -> "DuckDBConnection":
        """Return another connection to the same database, for another thread."""
        return DuckDBConnection(self.connection.cursor(), self._load_tables, self._explain_unknown)

    duplicate = cursor

    def _run(
        self, _cm_delta_method: str, _cm_delta_arguments: tuple[Any, ...], _cm_delta_options: dict[str, Any]
    ) -> Any:
        _cm_delta_given = (*_cm_delta_arguments, _cm_delta_options.get("query"))[0]
        if _cm_delta_arguments and isinstance(_cm_delta_arguments[0], str):
            _cm_delta_arguments = (self._prepared(_cm_delta_arguments[0]), *_cm_delta_arguments[1:])
        elif isinstance(_cm_delta_options.get("query"), str):
            _cm_delta_options = {**_cm_delta_options, "query": self._prepared(_cm_delta_options["query"])}
        try:
            return getattr(self.connection, _cm_delta_method)(*_cm_delta_arguments, **_cm_delta_options)
        except self._no_such_view as _cm_delta_error:
            _cm_delta_hint = self._hint(_cm_delta_given, _cm_delta_error)
            if _cm_delta_hint is None:
                raise
            raise self._no_such_view(_cm_delta_hint) from _cm_delta_error

    def _hint(self, text: object, error: Exception) -> str | None:
        """What to report of the name of a table in ``text`` that DuckDB's error is about; None for another error."""
        if self._explain_unknown is None or not isinstance(text, str):
            return None
        named = (name.identifier for name in _names_in(_tokens_of(text)) if str(name.identifier) in str(error))
        unknown = next(filter(self._is_unknown, named), None)
        return None if unknown is None else self._explain_unknown(unknown)

    def _is_unknown(self, identifier: TableIdentifier) -> bool:
        """Whether it can be a name of the catalog, and the catalog has no such table."""
        return all(map(_PART.fullmatch, astuple(identifier))) and not self._load_tables([identifier])

    def _prepared(self, text: str) -> str:
        """The statement with the names that tables of the catalog have in DuckDB; these tables are registered."""
        tokens = _tokens_of(text)
        names = list(_names_in(tokens))
        registered = self._registered_names([name.identifier for name in names])
        names = [name for name in names if name.identifier in registered]
        aliases = _aliases(names, registered, tokens)
        written: list[str] = []
        position = 0
        for name in names:
            view = _quoted(registered[name.identifier])
            alias = aliases.get(registered[name.identifier])
            if alias is not None and name.place is _NamePosition.COLUMN:
                view = alias
            elif alias is not None and name.place is _NamePosition.TABLE:
                view = f"{view} AS {alias}"
            written += (text[position : name.start], view)
            position = name.end
        return "".join((*written, text[position:]))

    def _registered_names(self, identifiers: Iterable[TableIdentifier]) -> Mapping[TableIdentifier, str]:
        """Register the tables that the catalog has of these, at versions of one moment. Returns their names in DuckDB."""
        # Only names that the catalog can have.
        possible = [name for name in dict.fromkeys(identifiers) if all(map(_PART.fullmatch, astuple(name)))]
        tables = self._load_tables(possible) if possible else {}
        for identifier in possible:
            if identifier not in tables and self._views.pop(str(identifier), {}):
                self.connection.unregister(str(identifier))  # The table was dropped or renamed.
        return {identifier: self._view_of(latest) for identifier, latest in tables.items()}

    def _view_of(self, latest: ReadableVersion) -> str:
        """The name in DuckDB of the view of a version, which exists."""
        name, snapshot = str(latest.identifier), latest.snapshot()
        views = self._views.setdefault(name, {})
        version = (snapshot.table_id, snapshot.version, _zone_of(snapshot.time_zone))
        view = views.pop(version, None)
        if view is None:
            # Unique, because several catalogs may use one connection.
            unique = f"{name}@v{snapshot.version}-{uuid.uuid4().hex[:8]}"
            view = _View(unique, read_dataset(SnapshotScan(snapshot=snapshot, store=latest.table.store)))
        views[version] = view
        while len(views) > _KEPT_VERSIONS:
            self.connection.unregister(views.pop(next(iter(views))).name)
        # A rollback of DuckDB may have removed a view, or restored an earlier one of the same name.
        if not self._exists(view.name):
            self.connection.register(view.name, view.dataset)
        self.connection.register(name, view.dataset)
        return view.name

    def _exists(self, view: str) -> bool:
        try:
            self.connection.view(view)
        except self._no_such_view:
            return False
        return True


def _zone_of(zone: tzinfo | None) -> tzinfo | None:
    """The time zone itself: that of a Spark session is another object in each snapshot."""
    if not isinstance(zone, DeferredZone):
        return zone
    try:
        return zone.zone
    except InvalidArgumentError:
        return None  # Python does not know it. A read that needs it says so.


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _NamePosition(Enum):
    """Where a name stands: after FROM or JOIN without an alias, or with one; before a column; elsewhere."""

    TABLE = auto()
    ALIASED_TABLE = auto()
    COLUMN = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class _Name:
    """Three parts of a name in the text of a statement, from ``start`` to ``end``."""

    identifier: TableIdentifier
    start: int
    end: int
    place: _NamePosition


def _aliases(
    names: Sequence[_Name], views: Mapping[TableIdentifier, str], tokens: Sequence["_Token"]
) -> Mapping[str, str]:
    """By view, the last part of the name as an alias that qualifies columns, as it does for tables of DuckDB.

    A view has none if a place of it is not known to take one, or if the statement has the last part as a name of its own.
    """
    dots = {position for position, token in enumerate(tokens) if token.token_type is TokenType.DOT}
    alone = {token.text.lower() for at, token in enumerate(tokens) if not dots & {at - 1, at + 1}}
    places: dict[str, set[_NamePosition]] = {}
    unnamed: dict[str, set[str]] = {}
    for name in names:
        view = views[name.identifier]
        places.setdefault(view, set()).add(name.place)
        if name.place in (_NamePosition.TABLE, _NamePosition.OTHER):
            unnamed.setdefault(name.identifier.table.lower(), set()).add(view)
    return {
        next(iter(same)): _quoted(last)
        for last, same in unnamed.items()
        if len(same) == 1 and last not in alone and _NamePosition.OTHER not in places[next(iter(same))]
    }


def _names_in(tokens: Sequence["_Token"]) -> Iterator[_Name]:
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
            place = _NamePosition.COLUMN if len(parts) > _PARTS else _place(before, after)
            yield _Name(TableIdentifier(*parts[:_PARTS]), tokens[position].start, last.end, place)
        position += max(length, 1)


def _place(before: "_Token | None", after: "_Token | None") -> _NamePosition:
    """The place of the name of a table between two tokens."""
    if before is None or before.token_type not in (TokenType.FROM, TokenType.JOIN):
        return _NamePosition.OTHER
    if after is None or after.token_type in _ENDS or after.text.upper().split()[0] in _CLAUSES:
        return _NamePosition.TABLE
    return (
        _NamePosition.ALIASED_TABLE if after.token_type is TokenType.ALIAS or _is_word(after) else _NamePosition.OTHER
    )


@dataclass(frozen=True, slots=True)
class _Token:
    """A token from ``start`` up to ``end``, exclusive."""

    token_type: TokenType
    text: str
    start: int
    end: int


def _tokens_of(text: str) -> Sequence[_Token]:
    """The tokens; none of a text that has an unclosed quote, of which DuckDB says what is wrong."""
    try:
        return list(_tokens(text))
    except SqlglotError:
        return ()


def _tokens(text: str) -> Iterator[_Token]:
    done = 0
    while True:
        for token in _DUCKDB.tokenize(text[done:]):
            end = done + token.end + 1
            yield _Token(token.token_type, token.text, done + token.start, end)
            if token.token_type in _COMMANDS:
                done = end
                break
        else:
            return


def _length_of_name(tokens: Sequence[_Token], start: int) -> int:
    """The number of tokens of the name that begins at ``start``, dots included; 0 if none begins there."""
    if not _is_word(tokens[start]):
        return 0
    length = 1
    while start + length + 1 < len(tokens) and tokens[start + length].token_type is TokenType.DOT:
        if not _is_word(tokens[start + length + 1]):
            break
        length += 2
    return length


def _is_word(token: _Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or (
        token.token_type is not TokenType.STRING and token.text.isidentifier()
    )
