"""Reading tables with DuckDB: as a relation, and by their names in SQL.

DuckDB reads a table through :class:`~cm_delta_dagster.arrow.dataset.DeltaDataset`. It cannot look up names in a catalog written in
Python, and reserves the catalog name ``main``. So :class:`DuckDBConnection` finds the names of tables in a statement before DuckDB
parses it, and registers these tables and no others, all at versions that were the latest ones at one moment.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.reading.consistent_snapshots import LatestVersion
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.read_dataset import snapshot_dataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
else:
    DuckDBPyConnection = DuckDBPyRelation = Any  # So that the hints can be evaluated without the package.

__all__ = ["DuckDBConnection", "DuckDBPyConnection", "DuckDBPyRelation", "to_relation"]

LoadTables: TypeAlias = Callable[[Iterable[TableIdentifier]], Mapping[TableIdentifier, LatestVersion]]
"""The tables of these names that exist, as ``load_together`` returns them."""

_PARTS = 3
_PART = re.compile(r"[\w-]+")


def to_relation(
    dataset: DeltaDataset, connection: "DuckDBConnection | DuckDBPyConnection | None"
) -> "DuckDBPyRelation":
    """The dataset as a relation of ``connection``, or of DuckDB's default connection. Raises EngineError without DuckDB."""
    library = import_engine("duckdb")
    raw = connection.connection if isinstance(connection, DuckDBConnection) else connection
    relation: DuckDBPyRelation = library.from_arrow(dataset) if raw is None else raw.from_arrow(dataset)
    return relation


class DuckDBConnection:
    """A DuckDB connection in which statements can name tables of the catalog: ``select * from main.sales.orders``.

    ``sql``, ``query``, ``execute``, ``executemany`` and ``from_query`` read the tables that their text names at versions that were
    the latest ones at one moment. Other tables are not loaded. All other attributes are those of ``duckdb.DuckDBPyConnection``.
    Tables can be read only.

    In DuckDB a table has the name ``"main.sales.orders"``, with quotes, which other DuckDB clients of ``connection`` can use after
    the first statement. A view that is made from it reads the version that a statement last named.

    Attributes:
        connection: the connection of DuckDB.
    """

    def __init__(self, connection: "DuckDBPyConnection | None", load_tables: LoadTables) -> None:
        """Wrap ``connection``, or a new database in memory. Raises EngineError without DuckDB."""
        library = import_engine("duckdb")
        self.connection: DuckDBPyConnection = library.connect() if connection is None else connection
        self._load_tables = load_tables
        self._registered: dict[str, tuple[str, int, object]] = {}
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
        found = self._registered_names([TableIdentifier.parse(name)]) if name.count(".") == _PARTS - 1 else {}
        if not found:
            return self.connection.table(name)
        (registered,) = found.values()
        return self.connection.from_query(f"FROM {_quoted(registered)}")

    def cursor(self) -> "DuckDBConnection":
        """Return another connection to the same database, for another thread."""
        return DuckDBConnection(self.connection.cursor(), self._load_tables)

    duplicate = cursor

    def _run(
        self, _cm_delta_method: str, _cm_delta_arguments: tuple[Any, ...], _cm_delta_options: dict[str, Any]
    ) -> Any:
        if _cm_delta_arguments and isinstance(_cm_delta_arguments[0], str):
            _cm_delta_arguments = (self._prepared(_cm_delta_arguments[0]), *_cm_delta_arguments[1:])
        elif isinstance(_cm_delta_options.get("query"), str):
            _cm_delta_options = {**_cm_delta_options, "query": self._prepared(_cm_delta_options["query"])}
        return getattr(self.connection, _cm_delta_method)(*_cm_delta_arguments, **_cm_delta_options)

    def _prepared(self, text: str) -> str:
        """The statement with the names that tables of the catalog have in DuckDB; these tables are registered."""
        written: list[str] = []
        position = 0
        names = list(_names_in(text))
        registered = self._registered_names([name.identifier for name in names])
        for name in names:
            if name.identifier in registered:
                written += (text[position : name.start], _quoted(registered[name.identifier]))
                position = name.end
        return "".join((*written, text[position:]))

    def _registered_names(self, identifiers: Iterable[TableIdentifier]) -> Mapping[TableIdentifier, str]:
        """Register the tables that the catalog has of these, at versions of one moment. Returns their names in DuckDB."""
        # Only names that the catalog can have.
        possible = [name for name in dict.fromkeys(identifiers) if all(map(_PART.fullmatch, astuple(name)))]
        found = {}
        for identifier, latest in (self._load_tables(possible) if possible else {}).items():
            name, snapshot = str(latest.table.identifier), latest.snapshot()
            known = (snapshot.table_id, snapshot.version, snapshot.time_zone)
            if self._registered.get(name) != known:
                self.connection.register(name, snapshot_dataset(snapshot, store=latest.table.store))
                self._registered[name] = known
            found[identifier] = name
        return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class _Name:
    """Three parts of a name in the text of a statement, from ``start`` to ``end``."""

    identifier: TableIdentifier
    start: int
    end: int


def _names_in(text: str) -> Iterator[_Name]:
    """What may be names of tables: ``a.b.c``, each part with or without quotes, and ``"a.b.c"``."""
    try:
        tokens = list(sqlglot.tokenize(text, read="duckdb"))
    except SqlglotError:
        return  # DuckDB says what is wrong.
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
            yield _Name(TableIdentifier(*parts[:_PARTS]), tokens[position].start, last.end + 1)
        position += max(length, 1)


def _length_of_name(tokens: list[Any], start: int) -> int:
    """The number of tokens of the name that begins at ``start``, dots included; 0 if none begins there."""
    if not _is_word(tokens[start]):
        return 0
    length = 1
    while start + length + 1 < len(tokens) and tokens[start + length].token_type is TokenType.DOT:
        if not _is_word(tokens[start + length + 1]):
            break
        length += 2
    return length


def _is_word(token: Any) -> bool:
    return token.token_type is TokenType.IDENTIFIER or (
        token.token_type is not TokenType.STRING and token.text.isidentifier()
    )
