"""The Python API for scripts and notebooks: one connection to a catalog.

Each method calls one operation of ``operations``; Dagster is not needed.

    with connect("sqlite:///cm_delta/catalog.db") as lake:
        orders = lake.create_table_as("main.sales.orders", frame, partition_by=["day"])
        orders.append(more)
        orders.to_df(where="day = DATE '2026-01-01'").show()
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from datetime import timedelta, tzinfo
from types import TracebackType
from typing import Any, Self

from pyspark.sql import SparkSession

from cm_delta_dagster.api.access_methods import ConnectionAccess
from cm_delta_dagster.api.creation_methods import CreationMethods
from cm_delta_dagster.api.delta_table import DeltaTable
from cm_delta_dagster.api.event_methods import EventMethods
from cm_delta_dagster.api.multi_table_transaction import MultiTableTransaction
from cm_delta_dagster.api.namespace_methods import NamespaceMethods
from cm_delta_dagster.api.onboarding_methods import OnboardingMethods
from cm_delta_dagster.api.path_delta_table import PathDeltaTable
from cm_delta_dagster.api.policy_methods import ConnectionPolicies
from cm_delta_dagster.api.recovery_methods import RecoveryMethods
from cm_delta_dagster.api.rule_methods import ConnectionRules
from cm_delta_dagster.api.sql_methods import SqlMethods
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.engines import DEFAULT_DIRECTORY
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.arguments import duration_ms, listed
from cm_delta_dagster.operations.onboarding.register import registered_location
from cm_delta_dagster.operations.reading.consistent_snapshots import LatestVersion, ReadableVersion, load_snapshots
from cm_delta_dagster.operations.reading.duckdb_connection import DuckDBConnection, DuckDBPyConnection
from cm_delta_dagster.operations.sql.names import readable_versions, unknown_name
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.purge import (
    ABANDONED_AFTER_MS,
    DROPPED_RETENTION_MS,
    PurgePlan,
    PurgeResult,
    plan_purge,
    purge,
)
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.scopes import check_scope, unknown_table
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores

DEFAULT_CATALOG_URL = f"sqlite:///{DEFAULT_DIRECTORY}/catalog.db"
DEFAULT_WAREHOUSE = f"{DEFAULT_DIRECTORY}/warehouse"


def connect(
    catalog_url: str = DEFAULT_CATALOG_URL,
    *,
    warehouse: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    settings: ClientSettings | None = None,
    time_zone: tzinfo | str | None = None,
    principal: str | None = None,
    context: CommitContext = NO_CONTEXT,
) -> "Connection":
    """Open a catalog; the first use creates its database. Use the result in a ``with`` block, or close it.

    Args:
        catalog_url: SQLAlchemy URL: ``sqlite:///path.db`` for one machine, ``postgresql+psycopg://host/db`` to share
            it between machines. The directory of a SQLite file must exist, unless it is the one of the default.
        warehouse: directory or URI under which new tables get their location; a relative path starts at the working
            directory. By default ``cm_delta/warehouse`` for the default catalog; a connection to another catalog creates and
            purges no tables without it.
        storage_options: how object stores are reached: options of the warehouse's store, e.g. ``{"key": ..., "secret": ...}``,
            or options by prefix of the location, ``{"s3://bucket": {...}, "gs://": {...}}``. They are not stored. Without
            credentials the environment's apply.
        spark: session for rows; by default the running session, or a local session that is started when rows are first
            needed.
        settings: retries, waits, cache sizes and post-commit work of the Delta client, e.g.
            ``ClientSettings(max_commit_attempts=50)``.
        time_zone: time zone of times that state none, in partition values of ``timestamp`` columns, in conditions and as
            ``timestamp``: a region such as ``"Europe/Berlin"``, an offset or a ``tzinfo``. By default that of the Spark session.
        principal: who uses the connection, for grants and the audit: the name of a user or a pipeline. By default that of the
            environment variable CM_DELTA_PRINCIPAL; without it on PostgreSQL the role that logs in.
        context: tags and user metadata that every commit of the connection records, unless an operation is given its own, e.g.
            ``CommitContext(tags={"owner": "etl"})``. SQL statements, maintenance and creations have them, too.

    Raises:
        InvalidArgumentError: an unusable URL or warehouse, contradicting storage options, or an argument of another type.
    """
    if not isinstance(settings, ClientSettings | None):
        raise InvalidArgumentError(
            f"settings is of type {type(settings).__name__}; give ClientSettings, e.g. "
            "connect(..., settings=ClientSettings(max_commit_attempts=50))."
        )
    if not isinstance(context, CommitContext):
        raise InvalidArgumentError(
            f"context is of type {type(context).__name__}; give CommitContext, e.g. "
            'connect(..., context=CommitContext(tags={"owner": "etl"})).'
        )
    if warehouse is None and catalog_url == DEFAULT_CATALOG_URL:
        warehouse = DEFAULT_WAREHOUSE
    if not isinstance(warehouse, str | None):
        raise InvalidArgumentError(
            f"warehouse is of type {type(warehouse).__name__}; give the directory or URI of new tables as text, e.g. "
            'connect(..., warehouse="s3://bucket/warehouse").'
        )
    if time_zone is not None:
        settings = replace(settings or ClientSettings(), time_zone=time_zone)
    options = StorageOptions.of(storage_options, warehouse=warehouse)
    catalog = SqlCatalog(catalog_url, warehouse=warehouse, principal=principal)
    client = DeltaClient(catalog, stores=Stores(storage_options=options), settings=settings, context=context)
    return Connection(client, spark=spark)


class Connection(
    ConnectionAccess,
    CreationMethods,
    EventMethods,
    NamespaceMethods,
    OnboardingMethods,
    ConnectionPolicies,
    RecoveryMethods,
    ConnectionRules,
    SqlMethods,
):
    """One open catalog. Threads can share it; do not use it after :meth:`close`.

    Attributes:
        client: the Delta client, for calls that the connection does not offer.
    """

    def __repr__(self) -> str:
        return f"Connection({self.client.registry!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def table(self, name: TableIdentifier | str) -> "DeltaTable":
        """Open the table ``catalog.schema.table``. Raises TableNotFoundError, InvalidArgumentError."""
        try:
            return DeltaTable(self, self.client.table(name))
        except TableNotFoundError as error:
            identifier = TableIdentifier.of(name)
            location = self.client.registry.registered_path(identifier)
            if location is None:
                raise unknown_table(self.client.registry, identifier, error) from error
            raise TableNotFoundError(
                f"{name} is registered for reading only: no catalog manages the table at {location}. Open it with "
                f"lake.path_table({str(name)!r}), or adopt it."
            ) from error

    def transaction(self) -> MultiTableTransaction:
        """Begin a transaction over several tables: ``with lake.transaction() as tx: tx.table("main.sales.orders").append(frame)``.

        At the end of the block all writes are committed, or none. An exception in the block leaves nothing.
        """
        return MultiTableTransaction(self)

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

    def path_table(self, location: str, *, time_zone: tzinfo | str | None = None) -> PathDeltaTable:
        """Open a Delta table of another writer by its path, read-only: to read, compare or import it.

        Args:
            location: directory, or URI with its scheme; a relative path starts at the working directory. Or the name of a path
                that was registered with :meth:`register`.
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
        return PathDeltaTable(self, table)

    def duckdb(
        self, connection: "DuckDBPyConnection | None" = None, *, time_zone: tzinfo | str | None = None
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
                return replace(latest, table=DeltaTable(self, latest.table)._in_known_zone(time_zone))
            return replace(latest, table=PathDeltaTable(self, latest.table)._in_known_zone(time_zone))

        def load(names: Iterable[TableIdentifier]) -> Mapping[TableIdentifier, ReadableVersion]:
            return {name: in_zone(latest) for name, latest in readable_versions(self.client, names).items()}

        def explain(name: TableIdentifier) -> str:
            return str(unknown_name(self.client, astuple(name), engine="DuckDB"))

        return DuckDBConnection(connection, load, explain)

    def drop(self, name: TableIdentifier | str) -> None:
        """Remove the name from the catalog; log and data files stay until :meth:`purge`. Raises TableNotFoundError."""
        drop_table(self.client, identifier=name)

    def undrop(self, name: TableIdentifier | str, *, table_id: str | None = None) -> "DeltaTable":
        """Restore a dropped table; ``table_id`` selects it where several tables of that name were dropped.

        Raises:
            TableNotFoundError: no dropped table had that name, or it was purged.
            TableAlreadyExistsError: another table has the name now.
            InvalidArgumentError: several dropped tables had that name; the message lists their ids.
        """
        return DeltaTable(self, undrop_table(self.client, identifier=name, table_id=table_id))

    def rename(self, name: TableIdentifier | str, to: TableIdentifier | str) -> "DeltaTable":
        """Rename a table. The rules of the new name apply to it; rules that denied maintenance move along.

        Raises:
            TableNotFoundError, TableAlreadyExistsError, InvalidArgumentError: no such table, or the new name is taken or
                unusable.
        """
        return DeltaTable(self, rename_table(self.client, identifier=name, to=to))

    def plan_purge(
        self,
        scope: str = "",
        *,
        retention: timedelta = timedelta(milliseconds=DROPPED_RETENTION_MS),
        abandoned_after: timedelta = timedelta(milliseconds=ABANDONED_AFTER_MS),
    ) -> PurgePlan:
        """List the dropped tables and abandoned creations that :meth:`purge` would delete; deletes nothing.

        Args:
            scope: ``catalog``, ``catalog.schema``, a table's former name, or everything.
            retention: tables dropped more recently are kept.
            abandoned_after: creations that began more recently are kept, since they may still be in progress.
        """
        return plan_purge(
            self.client,
            scope=scope,
            retention_ms=duration_ms(retention, name="retention"),
            abandoned_after_ms=duration_ms(abandoned_after, name="abandoned_after"),
        )

    def purge(self, plan: PurgePlan) -> PurgeResult:
        """Delete the files of the tables in ``plan`` permanently.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow TABLE_PURGE, or denies CREATION_PURGE.
            PurgeRefusedError: a table is outside this connection's warehouse.
        """
        return purge(self.client, plan)

    def close(self) -> None:
        """Wait for asynchronous post-commit work and close the catalog. The Spark session keeps running."""
        self.client.close()
