"""The front door for scripts and notebooks: one connection, and tables with one method for each verb.

A top beside ``orchestration``: every method calls one verb of ``operations`` and adds nothing to it. Dagster is not
needed here.

    with connect("sqlite:///cm_delta/catalog.db") as lake:
        orders = lake.create_table("main.sales.orders", schema=frame.schema, partition_by=["day"])
        orders.append(frame)
        orders.to_df(where="day = DATE '2026-01-01'").show()
"""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cm_delta_dagster.catalog.catalog import MaintenanceKind, MaintenanceRule, TableIdentifier
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.checkpoint import CheckpointResult, checkpoint
from cm_delta_dagster.operations.clean_log import CleanLogPlan, CleanLogResult, clean_log, plan_clean_log
from cm_delta_dagster.operations.clean_staged_commits import CleanStagedCommitsResult, clean_staged_commits
from cm_delta_dagster.operations.compact_log import CompactLogResult, compact_log
from cm_delta_dagster.operations.create import create_table, open_or_create
from cm_delta_dagster.operations.delete import delete
from cm_delta_dagster.operations.drop import drop_table
from cm_delta_dagster.operations.history import HistoryEntry, history
from cm_delta_dagster.operations.merge import MergeMode, merge
from cm_delta_dagster.operations.optimize import OptimizePlan, OptimizeResult, optimize, plan_optimize
from cm_delta_dagster.operations.publish import PublishResult, publish
from cm_delta_dagster.operations.read import read
from cm_delta_dagster.operations.row_commit import WriteResult, as_predicate
from cm_delta_dagster.operations.vacuum import RetentionCheck, VacuumPlan, VacuumResult, plan_vacuum, vacuum
from cm_delta_dagster.operations.write import append, overwrite
from cm_delta_dagster.protocol.predicates import Predicate
from cm_delta_dagster.protocol.schema import StructType, from_arrow_schema
from cm_delta_dagster.protocol.schema_evolution import SchemaMode
from cm_delta_dagster.spark.java import ensure_java
from cm_delta_dagster.spark.schema import from_spark
from cm_delta_dagster.storage.stores import Stores, scheme_of

DEFAULT_CATALOG_URL = "sqlite:///cm_delta/catalog.db"
DEFAULT_WAREHOUSE = "cm_delta/warehouse"


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


class Connection:
    """One open catalog. Safe to share between threads; not to be used after :meth:`close`.

    Attributes:
        client: the Delta client below, for what this front door does not offer.
    """

    def __init__(self, client: DeltaClient, *, spark: SparkSession | None = None) -> None:
        self.client = client
        self._spark = spark
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

        Raises:
            JavaNotFoundError: a session has to be started and there is no Java.
        """
        with self._lock:
            if self._spark is None:
                running = SparkSession.getActiveSession()
                if running is None:
                    ensure_java()
                    running = SparkSession.builder.appName("cm_delta_dagster").getOrCreate()
                self._spark = running
            return self._spark

    def table(self, name: TableIdentifier | str) -> "DeltaTable":
        """The table ``catalog.schema.table``. Raises TableNotFoundError, InvalidArgumentError."""
        return DeltaTable(self, self.client.table(name))

    def tables(self, scope: str = "") -> tuple[str, ...]:
        """Names of all tables, or of those of ``catalog`` or ``catalog.schema``, sorted."""
        return tuple(str(identifier) for identifier in self.client.catalog.list_tables(scope))

    def create_table(
        self,
        name: TableIdentifier | str,
        schema: StructType | T.StructType | pa.Schema,
        partition_by: Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
    ) -> "DeltaTable":
        """Make an empty table.

        Args:
            name: ``catalog.schema.table``.
            schema: columns, as pyspark's or pyarrow's schema or as this package's own.
            partition_by: columns of ``schema``, in partition order.
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
            partition_columns=partition_by,
            properties=properties,
            description=description,
        )
        return DeltaTable(self, table)

    def open_or_create(
        self,
        name: TableIdentifier | str,
        schema: StructType | T.StructType | pa.Schema,
        partition_by: Sequence[str] = (),
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
            partition_columns=partition_by,
            properties=properties,
            description=description,
        )
        return DeltaTable(self, table)

    def drop(self, name: TableIdentifier | str) -> None:
        """Free the name; log and data files stay. Raises TableNotFoundError."""
        drop_table(self.client, identifier=name)

    def allow(self, scope: str, kind: MaintenanceKind | str, reason: str = "") -> None:
        """Allow a kind of maintenance for ``catalog``, ``catalog.schema`` or ``catalog.schema.table``.

        Raises:
            InvalidArgumentError: an unknown kind or a malformed scope.
        """
        self._set_rule(scope, kind, reason, allowed=True)

    def deny(self, scope: str, kind: MaintenanceKind | str, reason: str = "") -> None:
        """Deny a kind of maintenance; arguments and errors as in :meth:`allow`. The longest scope decides."""
        self._set_rule(scope, kind, reason, allowed=False)

    def policy(self) -> tuple[MaintenanceRule, ...]:
        """Every rule. Without one, checkpoint, log compaction and checksum are allowed, everything else is denied."""
        return self.client.catalog.maintenance_rules()

    def close(self) -> None:
        """Wait for checksums and checkpoints under way and release the catalog. A Spark session goes on running."""
        self.client.close()

    def _set_rule(self, scope: str, kind: MaintenanceKind | str, reason: str, *, allowed: bool) -> None:
        rule = MaintenanceRule(scope=scope, kind=_kind(kind), allowed=allowed, reason=reason)
        self.client.catalog.set_maintenance_rule(rule)


class DeltaTable:
    """One catalog-managed table: reads, writes and maintenance.

    Every read sees the latest version at its call unless a version or timestamp is given. After the table was dropped
    and its name used again, this object gives errors instead of the other table's rows.

    Attributes:
        table: the handle of the Delta client below.
    """

    def __init__(self, connection: Connection, table: Table) -> None:
        self.table = table
        self._connection = connection

    def __repr__(self) -> str:
        return f"DeltaTable({self.name!r}, location={self.location!r})"

    @property
    def name(self) -> str:
        """``catalog.schema.table``."""
        return str(self.table.identifier)

    @property
    def location(self) -> str:
        """Absolute URI of the table root."""
        return self.table.location

    def snapshot(self, *, version: int | None = None, timestamp: datetime | int | None = None) -> Snapshot:
        """The table at its latest version, at ``version``, or as of ``timestamp``.

        Args:
            timestamp: a datetime with time zone, or epoch milliseconds.

        Raises:
            VersionNotFoundError: there is no such version or none that old.
        """
        return self.table.snapshot(version=version, timestamp_ms=_milliseconds(timestamp))

    def version(self) -> int:
        """The latest version."""
        return self.snapshot().version

    def schema(self) -> StructType:
        """Columns at the latest version."""
        return self.snapshot().schema

    def files(self, where: Predicate | str | None = None) -> pa.Table:
        """Live data files at the latest version, one row each; with ``where``, those that may hold a matching row."""
        snapshot = self.snapshot()
        return snapshot.matching_files(as_predicate(where, snapshot.schema))

    def to_df(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: datetime | int | None = None,
    ) -> DataFrame:
        """Rows of one version as a Spark DataFrame.

        Args:
            columns: top-level columns to return; all for None.
            where: condition on rows, as SQL text; files that cannot match are not read.
            version: version to read; the latest for None.
            timestamp: read the version as of then: a datetime with time zone, or epoch milliseconds.

        Raises:
            InvalidArgumentError: an unknown column, or both ``version`` and ``timestamp``.
            VersionNotFoundError: there is no such version.
        """
        return read(
            self.table,
            spark=self._connection.spark,
            columns=columns,
            where=where,
            version=version,
            timestamp_ms=_milliseconds(timestamp),
        )

    def append(
        self,
        frame: DataFrame,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Add the rows of ``frame`` in one commit.

        Args:
            schema_mode: whether new columns may be added to the table.
            idempotency: makes the write happen at most once.
            context: provenance for the table's history.

        Raises:
            SchemaMismatchError: the columns do not fit the table.
            InvalidDataError: a row breaks a rule of the table.
        """
        return append(self.table, frame=frame, schema_mode=schema_mode, idempotency=idempotency, context=context)

    def overwrite(
        self,
        frame: DataFrame,
        *,
        where: Predicate | str | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Replace all rows, or exactly those that satisfy ``where``, by the rows of ``frame``, in one commit.

        Raises:
            PartitionMismatchError: a row of ``frame`` does not satisfy ``where``.
            CommitConflictError: a concurrent commit changed what is replaced.
        """
        return overwrite(
            self.table, frame=frame, where=where, schema_mode=schema_mode, idempotency=idempotency, context=context
        )

    def merge(
        self,
        frame: DataFrame,
        on: str | Sequence[str],
        *,
        mode: MergeMode = MergeMode.UPSERT,
        within: Predicate | str | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Update, insert or delete rows by key, in one commit.

        Args:
            on: key column or columns; unique among the rows of ``frame``.
            mode: what happens to rows that match and to those that do not.
            within: condition that limits the rows of the table that are looked at.

        Raises:
            InvalidDataError: several rows of ``frame`` have one key.
            CommitConflictError: a concurrent commit changed the rows in question.
        """
        return merge(
            self.table,
            frame=frame,
            keys=(on,) if isinstance(on, str) else tuple(on),
            mode=mode,
            within=within,
            schema_mode=schema_mode,
            idempotency=idempotency,
            context=context,
        )

    def delete(self, where: Predicate | str, *, context: CommitContext = NO_CONTEXT) -> WriteResult:
        """Delete the rows that satisfy ``where``, in one commit. Raises CommitConflictError."""
        return delete(self.table, spark=self._connection.spark, where=where, context=context)

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Commits, newest first, at most ``limit``."""
        return history(self.table, limit=limit)

    def publish(self) -> PublishResult:
        """Copy ratified commits that are not yet in ``_delta_log`` to it. Writers do that by themselves."""
        return publish(self.table)

    def checkpoint(self) -> CheckpointResult:
        """Write a checkpoint of the latest version. Raises MaintenanceNotPermittedError if the policy denies it."""
        return checkpoint(self.table)

    def compact_log(self, start: int, end: int) -> CompactLogResult:
        """Write a log compaction of versions ``start`` to ``end``, both included. Raises UnpublishedVersionError."""
        return compact_log(self.table, start=start, end=end)

    def plan_optimize(
        self,
        *,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        min_size: int | None = None,
    ) -> OptimizePlan:
        """What :meth:`optimize` would rewrite; changes nothing."""
        return plan_optimize(self.table, where=where, target_size=target_size, min_size=min_size)

    def optimize(
        self,
        *,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        min_size: int | None = None,
    ) -> OptimizeResult:
        """Rewrite many small files into few large ones; no row changes.

        Args:
            where: condition on partition columns that limits the files.
            target_size: bytes of a rewritten file; by default the table's setting, or 1 GiB.
            min_size: larger files are left alone; by default ``target_size``.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION.
            MaintenanceInProgressError: another maintenance run holds the table.
        """
        return optimize(
            self.table, spark=self._connection.spark, where=where, target_size=target_size, min_size=min_size
        )

    def plan_vacuum(
        self, retention: timedelta | None = None, *, retention_check: RetentionCheck = RetentionCheck.ENFORCED
    ) -> VacuumPlan:
        """What :meth:`vacuum` would delete; deletes nothing."""
        return plan_vacuum(self.table, retention_ms=_duration(retention), retention_check=retention_check)

    def vacuum(
        self, retention: timedelta | None = None, *, retention_check: RetentionCheck = RetentionCheck.ENFORCED
    ) -> VacuumResult:
        """Delete the data files that no version within ``retention`` needs.

        Args:
            retention: by default the table's own, 7 days unless set otherwise.
            retention_check: whether less than the table's own is refused.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow DATA_CLEANUP.
            RetentionTooShortError: less than the table's own retention, and the check is on.
        """
        return vacuum(self.table, retention_ms=_duration(retention), retention_check=retention_check)

    def plan_clean_log(self) -> CleanLogPlan:
        """What :meth:`clean_log` would delete; deletes nothing."""
        return plan_clean_log(self.table)

    def clean_log(self) -> CleanLogResult:
        """Delete the part of the log that has outlived ``delta.logRetentionDuration``.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow METADATA_CLEANUP.
        """
        return clean_log(self.table)

    def clean_staged_commits(self) -> CleanStagedCommitsResult:
        """Delete staged commits of published versions, a day old or more. Raises MaintenanceNotPermittedError."""
        return clean_staged_commits(self.table)


def _schema(schema: StructType | T.StructType | pa.Schema) -> StructType:
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


def _kind(kind: MaintenanceKind | str) -> MaintenanceKind:
    try:
        return MaintenanceKind(kind.upper())
    except ValueError as error:
        kinds = ", ".join(known.value for known in MaintenanceKind)
        raise InvalidArgumentError(f"{kind!r} is no kind of maintenance; there are {kinds}.") from error


def _milliseconds(timestamp: datetime | int | None) -> int | None:
    if timestamp is None or (isinstance(timestamp, int) and not isinstance(timestamp, bool)):
        return timestamp
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        raise InvalidArgumentError(
            f"timestamp is {timestamp!r}; give a datetime with a time zone, e.g. datetime.now(UTC), or epoch "
            "milliseconds."
        )
    return (timestamp - _EPOCH) // timedelta(milliseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _duration(retention: timedelta | None) -> int | None:
    return None if retention is None else retention // timedelta(milliseconds=1)
