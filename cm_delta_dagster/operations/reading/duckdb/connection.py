"""Reading tables with DuckDB: as a relation, and by their names in SQL.

DuckDB reads a table through :class:`~cm_delta_dagster.arrow.dataset.DeltaDataset`. It cannot look up names in a catalog written in
Python, and reserves the catalog name ``main``. So :class:`DuckDBConnection` finds the names of tables in a statement before DuckDB
parses it, and registers these tables and no others, all at versions that were the latest ones at one moment.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.consistent_snapshots import ReadableVersion
from cm_delta_dagster.operations.reading.duckdb.conditions import (
    NO_CONDITIONS,
    StatementConditions,
    statement_conditions,
)
from cm_delta_dagster.operations.reading.duckdb.names import (
    NameInText,
    NamePosition,
    TextToken,
    names_in,
    quoted_name,
    tokens_of,
    with_views,
)
from cm_delta_dagster.operations.reading.duckdb.relation import raise_missing_file, read_duckdb
from cm_delta_dagster.operations.reading.duckdb.views import VersionViews
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.predicates.predicates import Predicate
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
_PARSED_FROM_FILES = 64
"""To parse a statement takes some milliseconds, as long as DuckDB needs to open as many files."""
_PARTS = 3
_PART = re.compile(r"[\w-]+")


def to_relation(
    rows: DeltaDataset | SnapshotScan, connection: "DuckDBConnection | DuckDBPyConnection | None"
) -> "DuckDBPyRelation":
    """The rows as a relation of ``connection``, or of DuckDB's default connection. Raises EngineError without DuckDB."""
    library = import_engine("duckdb")
    _check_connection(connection)
    raw = connection.connection if isinstance(connection, DuckDBConnection) else connection
    if isinstance(rows, SnapshotScan):
        return read_duckdb(rows, raw)
    relation: DuckDBPyRelation = library.from_arrow(rows) if raw is None else raw.from_arrow(rows)
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
        self._io_error: type[Exception] = library.IOException
        self._versions: dict[str, dict[_Version, VersionViews]] = {}
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
        tables = self._tables([TableIdentifier.parse(name)]) if name.count(".") == _PARTS - 1 else {}
        if not tables:
            return self.connection.table(name)
        (table,) = tables.values()
        return self.connection.from_query(f"FROM {quoted_name(self._view_of(table))}")

    def cursor(self) -> "DuckDBConnection":
        """Return another connection to the same database, for another thread."""
        return DuckDBConnection(self.connection.cursor(), self._load_tables, self._explain_unknown)

    duplicate = cursor

    def _run(
        self, _cm_delta_method: str, _cm_delta_arguments: tuple[Any, ...], _cm_delta_options: dict[str, Any]
    ) -> Any:
        _cm_delta_is_relation = _cm_delta_method not in ("execute", "executemany")
        _cm_delta_given = (*_cm_delta_arguments, _cm_delta_options.get("query"))[0]
        if _cm_delta_arguments and isinstance(_cm_delta_arguments[0], str):
            _cm_delta_text = self._prepared(_cm_delta_arguments[0], may_be_filtered=_cm_delta_is_relation)
            _cm_delta_arguments = (_cm_delta_text, *_cm_delta_arguments[1:])
        elif isinstance(_cm_delta_options.get("query"), str):
            _cm_delta_text = self._prepared(_cm_delta_options["query"], may_be_filtered=_cm_delta_is_relation)
            _cm_delta_options = {**_cm_delta_options, "query": _cm_delta_text}
        try:
            return getattr(self.connection, _cm_delta_method)(*_cm_delta_arguments, **_cm_delta_options)
        except self._no_such_view as _cm_delta_error:
            _cm_delta_hint = self._hint(_cm_delta_given, _cm_delta_error)
            if _cm_delta_hint is None:
                raise
            raise self._no_such_view(_cm_delta_hint) from _cm_delta_error
        except self._io_error as _cm_delta_error:
            raise_missing_file(_cm_delta_error)
            raise

    def _hint(self, text: object, error: Exception) -> str | None:
        """What to report of the name of a table in ``text`` that DuckDB's error is about; None for another error."""
        if self._explain_unknown is None or not isinstance(text, str):
            return None
        named = (name.identifier for name in names_in(tokens_of(text)) if str(name.identifier) in str(error))
        unknown = next(filter(self._is_unknown, named), None)
        return None if unknown is None else self._explain_unknown(unknown)

    def _is_unknown(self, identifier: TableIdentifier) -> bool:
        """Whether it can be a name of the catalog, and the catalog has no such table."""
        return all(map(_PART.fullmatch, astuple(identifier))) and not self._load_tables([identifier])

    def _prepared(self, text: str, *, may_be_filtered: bool) -> str:
        """The statement with the names that tables of the catalog have in DuckDB; these tables are registered.

        Args:
            may_be_filtered: whether a condition may be added to the rows of the statement before DuckDB runs it.
        """
        tokens = tokens_of(text)
        names = list(names_in(tokens))
        tables = self._tables(name.identifier for name in names)
        names = [name for name in names if name.identifier in tables]
        conditions: StatementConditions | None = None
        if any(table.scan.snapshot.num_files > _PARSED_FROM_FILES for table in tables.values()):
            conditions = NO_CONDITIONS if self._has_collation() else _conditions(text, tokens, names, tables)
        views = {
            identifier: self._view_of(
                table,
                condition=None if conditions is None else conditions.by_table.get(table.place_holder),
                is_final=not may_be_filtered and conditions is not None and not conditions.has_parameters,
            )
            for identifier, table in tables.items()
        }
        return with_views(text, tokens, names, views)

    def _has_collation(self) -> bool:
        """Whether texts that differ may be equal in a condition."""
        ((collation,),) = self.connection.from_query("SELECT current_setting('default_collation')").fetchall()
        return bool(collation)

    def _tables(self, identifiers: Iterable[TableIdentifier]) -> Mapping[TableIdentifier, "_NamedScan"]:
        """The tables that the catalog has of these, at versions of one moment."""
        # Only names that the catalog can have.
        possible = [name for name in dict.fromkeys(identifiers) if all(map(_PART.fullmatch, astuple(name)))]
        tables = self._load_tables(possible) if possible else {}
        for identifier in possible:
            if identifier not in tables and self._versions.pop(str(identifier), {}):
                self.connection.unregister(str(identifier))  # The table was dropped or renamed.
        return {
            name: _NamedScan(str(latest.identifier), SnapshotScan(snapshot=latest.snapshot(), store=latest.table.store))
            for name, latest in tables.items()
        }

    def _view_of(self, table: "_NamedScan", *, condition: Predicate | None = None, is_final: bool = False) -> str:
        """The name in DuckDB of the view of a version, which exists.

        Args:
            condition: on the rows that are needed.
            is_final: whether no further condition can be added.
        """
        name, snapshot = table.name, table.scan.snapshot
        versions = self._versions.setdefault(name, {})
        key = (snapshot.table_id, snapshot.version, _zone_of(snapshot.time_zone))
        views = versions.pop(key, None)
        if views is None:
            views = VersionViews(name, table.scan)
        versions[key] = views
        while len(versions) > _KEPT_VERSIONS:
            versions.pop(next(iter(versions))).unregister(self.connection)
        view = views.view(self.connection, condition=condition, is_final=is_final)
        # A rollback of DuckDB may have removed a view, or restored an earlier one of the same name.
        if not self._exists(view.name):
            self.connection.register(view.name, view.rows)
        self.connection.register(name, views.dataset)
        return view.name

    def _exists(self, view: str) -> bool:
        try:
            self.connection.view(quoted_name(view))
        except self._no_such_view:
            return False
        except self._io_error:
            return True  # A file of it is missing, of which the statement informs.
        return True


def _zone_of(zone: tzinfo | None) -> tzinfo | None:
    """The time zone itself: that of a Spark session is another object in each snapshot."""
    if not isinstance(zone, DeferredZone):
        return zone
    try:
        return zone.zone
    except InvalidArgumentError:
        return None  # Python does not know it. A read that needs it says so.


@dataclass(frozen=True, slots=True)
class _NamedScan:
    """The version of a table that a statement reads, and the name of the table in the spelling of the catalog."""

    name: str
    scan: SnapshotScan

    @property
    def place_holder(self) -> str:
        """What stands for the name while the statement is parsed; no other table has such a name."""
        return f"{self.name}@"


def _conditions(
    text: str, tokens: Sequence[TextToken], names: Sequence[NameInText], tables: Mapping[TableIdentifier, _NamedScan]
) -> StatementConditions:
    """The conditions of the statement, by the place holders of the tables."""
    holders = {identifier: table.place_holder for identifier, table in tables.items()}
    places = Counter(holders[name.identifier] for name in names if name.place is not NamePosition.COLUMN)
    known = {table.place_holder: (table.scan.snapshot.schema, places[table.place_holder]) for table in tables.values()}
    return statement_conditions(with_views(text, tokens, names, holders), known)
