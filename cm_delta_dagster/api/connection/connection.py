"""The Python API for scripts and notebooks: one connection to a catalog.

Each method calls one operation of ``operations``; Dagster is not needed.

    with connect("sqlite:///cm_delta/catalog.db") as lake:
        orders = lake.create_table_as("main.sales.orders", frame, partition_by=["day"])
        orders.append(more)
        orders.to_df(where="day = DATE '2026-01-01'").show()
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import timedelta, tzinfo
from types import TracebackType
from typing import Any, Self

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.connection.access import ConnectionAccess
from cm_delta_dagster.api.connection.events import ConnectionEvents
from cm_delta_dagster.api.connection.maintenance import ConnectionMaintenance
from cm_delta_dagster.api.connection.onboarding import ConnectionOnboarding
from cm_delta_dagster.api.connection.recovery import ConnectionRecovery
from cm_delta_dagster.api.connection.rules import ConnectionRules
from cm_delta_dagster.api.connection.settings import ConnectionSettings
from cm_delta_dagster.api.connection.sql import run_sql
from cm_delta_dagster.api.connection.table_designs import AnySchema, empty_design, first_design, open_design
from cm_delta_dagster.api.multi_table_transaction import MultiTableTransaction
from cm_delta_dagster.api.peer_names import CONNECTION_NAMES
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.api.table.path_delta_table import PathDeltaTable
from cm_delta_dagster.api.table.write_options import write_engine
from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties, Idempotency
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.operations.arguments import listed, one_of
from cm_delta_dagster.operations.onboarding.register import registered_location
from cm_delta_dagster.operations.reading.consistent_snapshots import LatestVersion, ReadableVersion, load_snapshots
from cm_delta_dagster.operations.reading.duckdb.connection import DuckDBConnection, DuckDBPyConnection
from cm_delta_dagster.operations.sql.names import readable_versions, unknown_name
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.namespaces import create_namespace, drop_namespace, schemas_of
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.replace import CreationMode, create_or_replace
from cm_delta_dagster.operations.tables.scopes import check_scope, unknown_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.operations.tables.write_attempts import open_or_create
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.spark.library import DataFrame, SparkSession


class Connection(AbsentMethods):
    """One open catalog. Threads can share it; do not use it after :meth:`close`.

    What concerns tables and their rows is here; the rest is in seven namespaces: :attr:`access`, :attr:`rules`,
    :attr:`maintenance`, :attr:`settings`, :attr:`events`, :attr:`recovery` and :attr:`onboarding`.
    """

    _peer_names = CONNECTION_NAMES

    def __init__(self, client: DeltaClient, *, spark: SparkSession | Callable[[], SparkSession] | None = None) -> None:
        self._session = ClientSession(client, spark=spark)

    @property
    def client(self) -> DeltaClient:
        """The Delta client, for calls that the connection does not offer."""
        return self._session.client

    @property
    def spark(self) -> SparkSession:
        """The session for rows: found or started on first use. ``close`` leaves it running.

        It is a plain session, which does not know the tables of the catalog: in place of ``spark.table(name)`` and ``spark.sql``
        write ``lake.table(name).to_df()`` and :meth:`sql`, and in place of ``spark.readStream.table(name)``
        ``lake.table(name).stream().to_df()``.

        If the session has ended and this connection started it, a new session is started.

        Raises:
            JavaNotFoundError: no session runs and no Java was found to start one.
            EngineStoppedError: the session has ended, and this connection did not start it.
        """
        return self._session.spark

    @property
    def access(self) -> ConnectionAccess:
        """Grants, roles, owners of tables, application ids and the audit."""
        return ConnectionAccess(self._session)

    @property
    def rules(self) -> ConnectionRules:
        """Commit rules, and commits that wait for an approval."""
        return ConnectionRules(self._session)

    @property
    def maintenance(self) -> ConnectionMaintenance:
        """Which maintenance is permitted, its leases, and the deletion of dropped tables."""
        return ConnectionMaintenance(self._session)

    @property
    def settings(self) -> ConnectionSettings:
        """How clients commit, and the catalogs."""
        return ConnectionSettings(self._session)

    @property
    def events(self) -> ConnectionEvents:
        """The feed of the catalog's events."""
        return ConnectionEvents(self._session)

    @property
    def recovery(self) -> ConnectionRecovery:
        """Reconciliation of catalog and storage, relocation, and the backup of the catalog."""
        return ConnectionRecovery(self._session)

    @property
    def onboarding(self) -> ConnectionOnboarding:
        """Adoption, release, export and copies of tables, and names for tables of other writers."""
        return ConnectionOnboarding(self._session)

    def __repr__(self) -> str:
        return f"Connection({self.client.registry!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def table(self, name: TableIdentifier | str) -> DeltaTable:
        """Open the table ``catalog.schema.table``. Raises TableNotFoundError, InvalidArgumentError."""
        try:
            return self._opened(self.client.table(name))
        except TableNotFoundError as error:
            identifier = TableIdentifier.of(name)
            location = self.client.registry.registered_path(identifier)
            if location is None:
                raise unknown_table(self.client.registry, identifier, error) from error
            raise TableNotFoundError(
                f"{name} is registered for reading only: no catalog manages the table at {location}. Open it with "
                f"lake.path_table({str(name)!r}), or adopt it."
            ) from error

    def transaction(self, *, hold: bool | timedelta = False) -> MultiTableTransaction:
        """Begin a transaction over several tables: ``with lake.transaction() as tx: tx.table("main.sales.orders").append(frame)``.

        At the end of the block all writes are committed, or none. An exception in the block leaves nothing. With ``hold`` they are
        held, for seven days or the time that is given: ``tx.held`` reads, ratifies or discards them.
        """
        return MultiTableTransaction(self._session, hold=hold)

    def snapshots(self, names: Iterable[TableIdentifier | str]) -> Mapping[str, Snapshot]:
        """Return snapshots of several tables, of versions that were the latest ones at one moment.

        Commits of one transaction over several tables are in all of the snapshots or in none.

        Returns:
            The snapshots by ``catalog.schema.table``, in the order of ``names``.

        Raises:
            InvalidArgumentError: ``names`` is a text and not a list.
            TableNotFoundError: one of the tables does not exist.
            VersionNotFoundError: commits of a table in put-if-absent mode came too fast to find such a moment.
        """
        return load_snapshots(self.client, [TableIdentifier.of(name) for name in listed(names, name="names")])

    def tables(self, scope: str = "") -> tuple[str, ...]:
        """Return the sorted names of all tables, or of the tables in ``catalog`` or ``catalog.schema``.

        Raises InvalidArgumentError for a catalog or a schema that never had a table, while others have one.
        """
        names = self.client.registry.list_tables(scope)
        if scope and not names:
            check_scope(self.client.registry, self.client.namespaces, scope)
        return tuple(map(str, names))

    def schemas(self, catalog: str = "") -> tuple[Namespace, ...]:
        """Return the schemas of a catalog, or of all catalogs, sorted by name.

        Raises NamespaceNotFoundError for a catalog that does not exist.
        """
        return schemas_of(self.client, catalog)

    def create_schema(
        self,
        name: str,
        *,
        comment: str = "",
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Create the schema ``catalog.schema`` without tables. The creation of a table creates its schema, too.

        Args:
            name: ``catalog.schema``; a missing catalog is created.
            comment: a description.
            properties: texts by name, which this package stores and does not interpret.
            if_not_exists: do nothing if the schema exists.

        Raises:
            NamespaceAlreadyExistsError: the schema exists.
            InvalidArgumentError: an unusable name, or a comment or property that is no text.
        """
        create_namespace(
            self.client, name, levels=2, comment=comment, properties=properties, if_not_exists=if_not_exists
        )

    def drop_schema(self, name: str, *, if_exists: bool = False) -> None:
        """Drop the schema ``catalog.schema``, which must have no tables and no registered paths.

        Dropped tables of the schema can still be restored, which creates it again. Grants and rules of the name stay. With
        ``if_exists`` a schema that does not exist is no error.

        Raises NamespaceNotFoundError, NamespaceNotEmptyError.
        """
        drop_namespace(self.client, name, levels=2, if_exists=if_exists)

    def path_table(self, location: str, *, time_zone: tzinfo | str | None = None) -> PathDeltaTable:
        """Open a Delta table of another writer by its path, read-only: to read, compare or import it.

        Args:
            location: directory, or URI with its scheme; a relative path starts at the working directory. Or the name of a path
                that was registered with ``lake.onboarding.register``.
            time_zone: of times that state none, as for :func:`connect`, whose setting is the default.

        Raises:
            InvalidArgumentError: ``location`` is empty, or cannot be meant as it is written.
            TableNotFoundError: there is no Delta log at ``location``.
            CatalogManagedAccessError: a catalog ratifies the commits of the table; open it by name through that catalog.
        """
        written = absolute_location(location)
        absolute = registered_location(self.client, location) or written
        zone = as_zone(self.client.settings.time_zone if time_zone is None else time_zone)
        table = open_path_table(self.client.stores, absolute, time_zone=zone)
        table.check_readable_by_path()
        return PathDeltaTable(self._session, table)

    def duckdb(
        self, connection: DuckDBPyConnection | None = None, *, time_zone: tzinfo | str | None = None
    ) -> DuckDBConnection:
        """Return a DuckDB connection whose statements can name the tables of the catalog: ``select * from main.sales.orders``.

        A statement reads the tables that it names at versions that were the latest ones at one moment; other tables are not
        loaded.

        Args:
            connection: the DuckDB connection to use; None for a new database in memory.
            time_zone: of times that state none in partition values, as for :func:`connect`.

        Raises:
            EngineError: DuckDB is not installed.
        """

        def in_zone(latest: ReadableVersion) -> ReadableVersion:
            if isinstance(latest, LatestVersion):
                return replace(latest, table=DeltaTable(self._session, latest.table)._in_known_zone(time_zone))
            return replace(latest, table=PathDeltaTable(self._session, latest.table)._in_known_zone(time_zone))

        def load(names: Iterable[TableIdentifier]) -> Mapping[TableIdentifier, ReadableVersion]:
            return {name: in_zone(latest) for name, latest in readable_versions(self.client, names).items()}

        def explain(name: TableIdentifier) -> str:
            return str(unknown_name(self.client, astuple(name), engine="DuckDB"))

        return DuckDBConnection(connection, load, explain)

    def create_table(
        self,
        name: TableIdentifier | str,
        schema: AnySchema,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        mode: CreationMode | str = CreationMode.CREATE,
        location: str | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> DeltaTable:
        """Create an empty table, or replace a table by an empty one.

        Args:
            name: ``catalog.schema.table``.
            schema: columns: a text as in CREATE TABLE, such as ``id bigint NOT NULL, name string``; a schema of pyspark, pyarrow or
                this package; or a list of ``Column`` values. Text and Columns can have defaults, generation expressions and
                identities. Spark analyses such expressions.
            partition_by: column or columns of ``schema``, in partition order.
            properties: table properties such as ``{"delta.appendOnly": "true"}``.
            cluster_by: up to four columns or fields that ``optimize`` clusters rows by, in place of partition columns.
            mode: ``"replace"`` gives an existing table this definition and removes its rows; ``"create_or_replace"`` also creates
                it if there is none. The table keeps its id and its history.
            location: an empty directory, or URI with its scheme, outside of the warehouse. A purge never deletes files there. None:
                the catalog chooses a location in the warehouse.
            commit_properties: provenance, recorded in the table history.

        Raises:
            TableAlreadyExistsError: the name is taken, or another table is at, above or below ``location``.
            TableNotFoundError: the table to replace does not exist.
            InvalidArgumentError: an invalid name, partition or clustering column, property, default, generation expression or
                identity.
            SchemaMismatchError: a column name that Delta cannot store.
            UnsupportedFeatureError: schema or properties need a feature that this client does not have.
        """
        design = empty_design(self._session, schema, partition_by, properties, description, cluster_by, location)
        checked, options = one_of(CreationMode, mode, name="mode"), CommitOptions(context=commit_properties)
        table = create_or_replace(self.client, identifier=name, design=design, mode=checked, options=options)
        return self._opened(table)

    def open_or_create(
        self,
        name: TableIdentifier | str,
        schema: AnySchema | None = None,
        partition_by: str | Sequence[str] | None = None,
        *,
        like: AnyRows | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> DeltaTable:
        """Open the table of that name; create it if it does not exist.

        For a first write: ``lake.open_or_create("main.sales.orders", like=frame).append(frame)``.

        Args:
            schema: columns as in :meth:`create_table`; an existing table must have these columns and the partition columns.
            partition_by: partition columns; with ``like`` and None, an existing table may have any.
            like: in place of ``schema``, rows whose columns a new table gets. The columns of an existing table are not compared.
            properties, description, cluster_by, commit_properties: of a new table, as in :meth:`create_table`.

        Raises:
            SchemaMismatchError: the table exists, and its columns or partition columns differ from the arguments.
            InvalidArgumentError: neither or both of ``schema`` and ``like``; and as :meth:`create_table`.
        """
        design = open_design(self._session, schema, like, partition_by or (), properties, description, cluster_by)
        table = open_or_create(
            self.client,
            identifier=name,
            design=design,
            same_columns=like is None,
            same_partitions=like is None or partition_by is not None,
            context=commit_properties,
        )
        return self._opened(table)

    def create_table_as(
        self,
        name: TableIdentifier | str,
        frame: AnyRows,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        mode: CreationMode | str = CreationMode.CREATE,
        engine: str | None = None,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> DeltaTable:
        """Create a table with the columns and the rows of ``frame``, or replace a table by them, in one commit.

        Args:
            frame: a DataFrame of Spark, or Arrow data: of pyarrow, polars, pandas or DuckDB, or a list of dictionaries.
            partition_by: columns of ``frame``, in partition order. ``cluster_by``: up to four columns or fields of it.
            mode: as in :meth:`create_table`. ``frame`` may be read from the table that is replaced. ``engine``: as in ``append``.
            idempotency: recorded in the commit, so that an ``append`` with the same value is skipped.

        Raises:
            TableAlreadyExistsError: the name is taken. Rows that were written before this was found are deleted.
            InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError, InvalidDataError: as of ``append``.
        """
        rows = WriteRows.of(frame, self._session.available, engine=write_engine(engine))
        table = create_or_replace(
            self.client,
            identifier=name,
            design=first_design(rows, partition_by, properties, description, cluster_by),
            frame=rows,
            mode=one_of(CreationMode, mode, name="mode"),
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
        )
        return self._opened(table)

    def sql(
        self,
        statement: str,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> DataFrame:
        """Run a statement of Spark SQL in which tables of the catalog have three-part names.

        Queries, EXPLAIN, DESCRIBE and SHOW read. INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, ALTER TABLE, DROP TABLE, OPTIMIZE,
        VACUUM, RESTORE and others write; they run at this call, by the operation of the method of that name, and return the rows
        that delta-spark returns.

        All tables of a statement are read at versions that were the latest ones at one moment, unless the statement names a
        version or time. Other names are those of tables and views of the Spark session; a name that both have is the catalog's.

        Args:
            statement: one statement, e.g. ``SELECT * FROM main.sales.orders VERSION AS OF 3 WHERE amount > :least``.
            args: values of parameters, as in ``SparkSession.sql``: a mapping for ``:name``, a sequence for ``?``.
            commit_properties: provenance of the commits of a statement that writes.

        Raises:
            TableNotFoundError: neither the catalog nor the session has the name; the message has similar names.
            VersionNotFoundError: the table has no such version, or none at that time.
            InvalidArgumentError: the text cannot be parsed or resolved, or the statement is not supported; the message has the
                place, or what to use.
            CmDeltaError: a statement that writes raises what the method raises.
        """
        return run_sql(self._session.recording(commit_properties), statement, args)

    def drop(self, name: TableIdentifier | str) -> None:
        """Remove the name from the catalog; all files stay until ``lake.maintenance.purge``. Raises TableNotFoundError."""
        drop_table(self.client, identifier=name)

    def undrop(self, name: TableIdentifier | str, *, table_id: str | None = None) -> DeltaTable:
        """Restore a dropped table; ``table_id`` selects it where several tables of that name were dropped.

        Raises:
            TableNotFoundError: no dropped table had that name, or it was purged.
            TableAlreadyExistsError: another table has the name now.
            InvalidArgumentError: several dropped tables had that name; the message lists their ids.
        """
        return self._opened(undrop_table(self.client, identifier=name, table_id=table_id))

    def rename(self, name: TableIdentifier | str, to: TableIdentifier | str) -> DeltaTable:
        """Rename a table. The rules of the new name apply to it; rules that denied maintenance move along.

        Raises:
            TableNotFoundError, TableAlreadyExistsError, InvalidArgumentError: no such table, or the new name is taken or
                unusable.
        """
        return self._opened(rename_table(self.client, identifier=name, to=to))

    def close(self) -> None:
        """Wait for asynchronous post-commit work and close the catalog. The Spark session keeps running."""
        self.client.close()

    def _opened(self, table: Table) -> DeltaTable:
        return DeltaTable(self._session, table)
