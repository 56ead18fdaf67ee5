"""The front door for scripts and notebooks: one connection to a catalog, and tables with one method for each verb.

A top beside ``orchestration``: every method calls one verb of ``operations`` and adds nothing to it. Dagster is not
needed here.

    with connect("sqlite:///cm_delta/catalog.db") as lake:
        orders = lake.create_table_as("main.sales.orders", frame, partition_by=["day"])
        orders.append(more)
        orders.to_df(where="day = DATE '2026-01-01'").show()
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cm_delta_dagster.api.delta_table import DeltaTable, maintenance_kind
from cm_delta_dagster.api.recovery_methods import RecoveryMethods
from cm_delta_dagster.api.table_reads import PathDeltaTable
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms
from cm_delta_dagster.operations.tables.create import (
    TableDesign,
    check_partitioning,
    create_table,
    create_table_as,
    first_schema,
    open_or_create,
    write_or_create,
)
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
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.operations.writing.write_transaction import WriteResult
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType, from_arrow_schema
from cm_delta_dagster.spark.java import ensure_java
from cm_delta_dagster.spark.schema import from_spark, schema_of
from cm_delta_dagster.spark.session import check_frame, is_gone, running_session, session_time_zone, stopped_error
from cm_delta_dagster.storage.stores import Stores, scheme_of

DEFAULT_CATALOG_URL = "sqlite:///cm_delta/catalog.db"
DEFAULT_WAREHOUSE = "cm_delta/warehouse"

AnySchema: TypeAlias = StructType | T.StructType | pa.Schema
"""Columns as this package, pyspark or pyarrow describes them."""


def connect(
    catalog_url: str = DEFAULT_CATALOG_URL,
    *,
    warehouse: str = DEFAULT_WAREHOUSE,
    storage_options: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
) -> "Connection":
    """Open a catalog; its database is made on first use. Use the result in a ``with`` block, or close it.

    Args:
        catalog_url: SQLAlchemy URL: ``sqlite:///path.db`` for one machine, ``postgresql+psycopg://host/db`` to share
            it.
        warehouse: directory or URI under which new tables get their location; a relative path is one of the working
            directory.
        storage_options: options of the file system that holds the warehouse, e.g. keys and endpoint.
        spark: session for rows; by default the running one, or a local one that is started when rows are first needed.

    Raises:
        InvalidArgumentError: an unusable URL or warehouse.
    """
    catalog = SqlCatalog(catalog_url, warehouse=warehouse)
    options = None
    if storage_options:
        scheme = scheme_of(warehouse) if "://" in warehouse else "file"
        options = {scheme: dict(storage_options)}
    return Connection(DeltaClient(catalog, stores=Stores(storage_options=options)), spark=spark)


class _Origin(StrEnum):
    """Where the session of a connection comes from."""

    GIVEN = "given"
    TAKEN = "taken"
    STARTED = "started"


class Connection(RecoveryMethods):
    """One open catalog. Safe to share between threads; not to be used after :meth:`close`.

    Attributes:
        client: the Delta client below, for what this front door does not offer.
    """

    def __init__(self, client: DeltaClient, *, spark: SparkSession | None = None) -> None:
        self.client = client
        self._spark = spark
        self._origin = None if spark is None else _Origin.GIVEN
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Connection({self.client.catalog!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def spark(self) -> SparkSession:
        """The session for rows, taken or started on first use and left running by :meth:`close`.

        One that this connection started and that is gone is replaced by a new one.

        Raises:
            JavaNotFoundError: a session has to be started and there is no Java.
            EngineStoppedError: the session is gone, and was not started here.
        """
        with self._lock:
            if self._spark is not None and not is_gone(self._spark):
                return self._spark
            running = None if self._origin is _Origin.GIVEN else running_session()
            if running is not None:
                self._origin = _Origin.TAKEN
            elif self._origin in (None, _Origin.STARTED):
                ensure_java()
                running = SparkSession.builder.appName("cm_delta_dagster").getOrCreate()
                self._origin = _Origin.STARTED
            else:
                raise stopped_error("a session is needed")
            self._spark = running
            return running

    @property
    def time_zone(self) -> tzinfo:
        """The Spark session's, of moments that name none.

        Raises:
            InvalidArgumentError: there is no session yet, or Python does not know its time zone. None is started for the
                question: reading through Arrow needs no Java.
        """
        with self._lock:
            running = self._spark or running_session()
        if running is None or is_gone(running):
            raise InvalidArgumentError(
                "The timestamp names no time zone, and there is no Spark session yet whose zone it could be of. Give one, as in "
                "'2026-01-31T12:00:00Z' or datetime(2026, 1, 31, tzinfo=UTC), or connect with spark=..."
            )
        return session_time_zone(running)

    def table(self, name: TableIdentifier | str) -> "DeltaTable":
        """The table ``catalog.schema.table``. Raises TableNotFoundError, InvalidArgumentError."""
        return DeltaTable(self, self.client.table(name))

    def tables(self, scope: str = "") -> tuple[str, ...]:
        """Names of all tables, or of those of ``catalog`` or ``catalog.schema``, sorted."""
        return tuple(str(identifier) for identifier in self.client.catalog.list_tables(scope))

    def path_table(self, location: str) -> PathDeltaTable:
        """A Delta table of another writer, opened by its path, to read, compare or import; it is never written.

        Args:
            location: directory, or URI with its scheme; a relative path is one of the working directory.

        Raises:
            TableNotFoundError: there is no Delta log at ``location``.
            CatalogManagedAccessError: a catalog ratifies its commits; open it by name through that catalog.
            UnsupportedFeatureError: the table needs a reader feature that this client does not have.
        """
        absolute = location if "://" in location else os.path.abspath(location)
        table = open_path_table(self.client.stores, absolute)
        table.snapshot()
        return PathDeltaTable(self, table)

    def create_table(
        self,
        name: TableIdentifier | str,
        schema: AnySchema,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> "DeltaTable":
        """Make an empty table.

        Args:
            name: ``catalog.schema.table``.
            schema: columns, as pyspark's or pyarrow's schema or as this package's own.
            partition_by: column or columns of ``schema``, in partition order.
            properties: table properties such as ``{"delta.appendOnly": "true"}``.

        Raises:
            TableAlreadyExistsError: the name is taken.
            InvalidArgumentError: an unusable name, partition column or property.
            SchemaMismatchError: column names that cannot be stored.
            UnsupportedFeatureError: schema or properties need a feature that this client does not have.
        """
        table = create_table(
            self.client,
            identifier=name,
            schema=_schema(schema),
            partition_columns=_columns(partition_by),
            properties=properties,
            description=description,
        )
        return DeltaTable(self, table)

    def open_or_create(
        self,
        name: TableIdentifier | str,
        schema: AnySchema,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> "DeltaTable":
        """The table of that name, made if it does not exist. Arguments as in :meth:`create_table`.

        Raises:
            SchemaMismatchError: it exists, and rows of ``schema`` do not fit it or it is partitioned otherwise.
        """
        table = open_or_create(
            self.client,
            identifier=name,
            schema=_schema(schema),
            partition_columns=_columns(partition_by),
            properties=properties,
            description=description,
        )
        return DeltaTable(self, table)

    def create_table_as(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> "DeltaTable":
        """Make a table with the columns and the rows of ``frame``, in one commit; nobody sees it without them.

        Args:
            partition_by: column or columns of ``frame``, in partition order.
            idempotency: remembered in the commit, for an :meth:`append` that repeats this.

        Raises:
            TableAlreadyExistsError: the name is taken, found before or after the rows were written; the rows are deleted.
            InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError: as :meth:`create_table`.
            InvalidDataError: a row breaks a rule of the table; no table was made.
        """
        table, _ = create_table_as(
            self.client,
            identifier=name,
            design=_Design(
                frame=frame, partition_by=partition_by, properties=properties, description=description
            ).of_table(),
            write=lambda table: append(table, frame=frame, idempotency=idempotency, context=context),
        )
        return DeltaTable(self, table)

    def append(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        partition_by: str | Sequence[str] | None = None,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Add the rows of ``frame`` to the table of that name, which the same commit makes if it does not exist.

        Args:
            partition_by: partitioning of a table that is made; one that exists must have the same, unless None.
            properties, description: of a table that is made.

        Raises:
            SchemaMismatchError: the table exists and is partitioned otherwise.
            CmDeltaError: as :meth:`create_table_as` and :meth:`DeltaTable.append`.
        """
        return self._write(
            name,
            _Design(frame=frame, partition_by=partition_by, properties=properties, description=description),
            lambda table: append(table, frame=frame, schema_mode=schema_mode, idempotency=idempotency, context=context),
        )

    def overwrite(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        partition_by: str | Sequence[str] | None = None,
        *,
        where: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Replace the rows of the table of that name, or those that satisfy ``where``; makes it if it does not exist.

        Arguments and errors as in :meth:`append` and :meth:`DeltaTable.overwrite`.
        """
        return self._write(
            name,
            _Design(frame=frame, partition_by=partition_by, properties=properties, description=description),
            lambda table: overwrite(
                table, frame=frame, where=where, schema_mode=schema_mode, idempotency=idempotency, context=context
            ),
        )

    def merge(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        on: str | Sequence[str],
        partition_by: str | Sequence[str] | None = None,
        *,
        mode: MergeMode = MergeMode.UPSERT,
        within: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Merge ``frame`` by key into the table of that name, which the same commit makes if it does not exist.

        Arguments and errors as in :meth:`append` and :meth:`DeltaTable.merge`.
        """
        return self._write(
            name,
            _Design(frame=frame, partition_by=partition_by, properties=properties, description=description),
            lambda table: merge(
                table,
                frame=frame,
                keys=_columns(on),
                mode=mode,
                within=within,
                schema_mode=schema_mode,
                idempotency=idempotency,
                context=context,
            ),
        )

    def drop(self, name: TableIdentifier | str) -> None:
        """Free the name; log and data files stay, until :meth:`purge`. Raises TableNotFoundError."""
        drop_table(self.client, identifier=name)

    def undrop(self, name: TableIdentifier | str, *, table_id: str | None = None) -> "DeltaTable":
        """Bring back a dropped table; ``table_id`` says which one, where several of that name were dropped.

        Raises:
            TableNotFoundError: no dropped table had that name, or it was purged.
            TableAlreadyExistsError: another table has the name by now.
            InvalidArgumentError: several had that name; the message lists their ids.
        """
        return DeltaTable(self, undrop_table(self.client, identifier=name, table_id=table_id))

    def rename(self, name: TableIdentifier | str, to: TableIdentifier | str) -> "DeltaTable":
        """Give a table another name, under whose policy it is from now on; what was denied to it stays denied.

        Raises:
            TableNotFoundError, TableAlreadyExistsError, InvalidArgumentError: no such table, a name that is taken or unusable.
        """
        return DeltaTable(self, rename_table(self.client, identifier=name, to=to))

    def plan_purge(
        self,
        scope: str = "",
        *,
        retention: timedelta = timedelta(milliseconds=DROPPED_RETENTION_MS),
        abandoned_after: timedelta = timedelta(milliseconds=ABANDONED_AFTER_MS),
    ) -> PurgePlan:
        """Which tables without a name :meth:`purge` would delete for good; deletes nothing.

        Args:
            scope: ``catalog``, ``catalog.schema``, a table's former name, or everything.
            retention: tables dropped more recently are kept.
            abandoned_after: creations begun more recently are taken for ones under way.
        """
        return plan_purge(
            self.client,
            scope=scope,
            retention_ms=duration_ms(retention, name="retention"),
            abandoned_after_ms=duration_ms(abandoned_after, name="abandoned_after"),
        )

    def purge(self, plan: PurgePlan) -> PurgeResult:
        """Delete the files of the tables of ``plan``; they cannot be brought back.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow TABLE_PURGE, or denies CREATION_PURGE.
            PurgeRefusedError: a table does not lie inside this connection's warehouse.
        """
        return purge(self.client, plan)

    def set_commit_mode(self, scope: str, mode: CommitPolicyKind | str, *, inline_max_bytes: int | None = None) -> None:
        """Choose how commits are made to ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. The longest scope decides.

        Choosing again after a failure continues. ``put_if_absent`` of a catalog or schema is for tables made afterwards.

        Args:
            mode: ``staged``, ``inline``, ``auto`` or ``put_if_absent``.
            inline_max_bytes: of ``auto``: size of the largest commit that is kept in the catalog until it is published.

        Raises:
            InvalidArgumentError: an unknown mode, a malformed scope, or ``auto`` without a size.
            TableNotFoundError: no table has that name.
            StoreNotSupportedError: ``put_if_absent``, and the table's store cannot create files exclusively.
            CommitRetriesExceededError: other writers were faster each time while the table was switched.
        """
        policy = CommitPolicy(kind=_commit_mode(mode), inline_max_bytes=inline_max_bytes)
        choose_commit_policy(self.client, scope=scope, policy=policy)

    def reset_commit_mode(self, scope: str) -> None:
        """Take the choice of that scope back, so that the wider scope or the default decides. Errors as above."""
        choose_commit_policy(self.client, scope=scope, policy=None)

    def commit_modes(self) -> tuple[CommitPolicyRule, ...]:
        """Every choice, by scope. Without one, commits are staged."""
        return self.client.catalog.commit_policies()

    def allow(self, scope: str, kind: MaintenanceKind | str, reason: str = "") -> None:
        """Allow a kind of maintenance for ``catalog``, ``catalog.schema`` or ``catalog.schema.table``.

        Raises:
            InvalidArgumentError: an unknown kind or a malformed scope.
        """
        self._set_rule(scope, kind, reason, allowed=True)

    def deny(self, scope: str, kind: MaintenanceKind | str, reason: str = "") -> None:
        """Deny a kind of maintenance; arguments and errors as in :meth:`allow`. The longest scope decides."""
        self._set_rule(scope, kind, reason, allowed=False)

    def reset_policy(self, scope: str, kind: MaintenanceKind | str) -> None:
        """Remove the rule of that scope and kind, so that the wider scope or the default decides again.

        An absent rule is no error. Raises InvalidArgumentError for an unknown kind or a malformed scope.
        """
        self.client.catalog.remove_maintenance_rule(scope, maintenance_kind(kind))

    def policy(self) -> tuple[MaintenanceRule, ...]:
        """Every rule. Without one, checkpoint, log compaction and checksum are allowed, everything else is denied."""
        return self.client.catalog.maintenance_rules()

    def close(self) -> None:
        """Wait for checksums and checkpoints under way and release the catalog. A Spark session goes on running."""
        self.client.close()

    def _write(
        self, name: TableIdentifier | str, design: "_Design", verb: Callable[[WriteTarget], WriteResult]
    ) -> WriteResult:
        check_frame(design.frame)

        def write(table: WriteTarget) -> WriteResult:
            if design.partition_by is not None:
                check_partitioning(table, _columns(design.partition_by))
            return verb(table)

        _, result = write_or_create(self.client, identifier=name, design=design.of_table, write=write)
        return result

    def _set_rule(self, scope: str, kind: MaintenanceKind | str, reason: str, *, allowed: bool) -> None:
        rule = MaintenanceRule(scope=scope, kind=maintenance_kind(kind), allowed=allowed, reason=reason)
        self.client.catalog.set_maintenance_rule(rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Design:
    """What a caller says about a table that a write may have to make."""

    frame: DataFrame
    partition_by: str | Sequence[str] | None
    properties: Mapping[str, str] | None
    description: str | None

    def of_table(self) -> TableDesign:
        return TableDesign(
            schema=first_schema(schema_of(check_frame(self.frame))),
            partition_columns=_columns(self.partition_by or ()),
            properties=dict(self.properties or {}),
            description=self.description,
        )


def _columns(names: str | Sequence[str]) -> tuple[str, ...]:
    columns = (names,) if isinstance(names, str) else tuple(names)
    strange = [name for name in columns if not isinstance(name, str)]
    if strange:
        raise InvalidArgumentError(f"{strange[0]!r} is no column name; give names as text.")
    return columns


def _schema(schema: AnySchema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, T.StructType):
        return from_spark(schema)
    if isinstance(schema, pa.Schema):
        return from_arrow_schema(schema)
    raise InvalidArgumentError(
        f"A {type(schema).__name__} is no schema. Give a pyspark StructType (e.g. frame.schema), a pyarrow.Schema, or "
        "a cm_delta_dagster.StructType."
    )


def _commit_mode(mode: CommitPolicyKind | str) -> CommitPolicyKind:
    try:
        return CommitPolicyKind(mode)
    except ValueError as error:
        known = ", ".join(kind.value for kind in CommitPolicyKind if kind is not CommitPolicyKind.SWITCHING)
        raise InvalidArgumentError(f"{mode!r} is no commit mode; there are {known}.") from error
