"""What every verb that writes rows shares: schema changes, idempotency, the commit and its result.

Nothing here decides which rows change. New files exist before the commit and are deleted again only after an answer
that proves that no commit names them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.commits.context import CommitContext, Idempotency, IdempotencyRule
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.history import find_transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    NOT_COMMITTED,
    CommitConflictError,
    IllegalCommitError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.features.table_features import check_writable, required_features, with_features
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    check_column_names,
    data_type_text,
    schema_text,
    schema_to_json,
)
from cm_delta_dagster.protocol.schema.void_columns import check_void_places
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count, statistics_columns
from cm_delta_dagster.spark.rewrite import count_rows
from cm_delta_dagster.spark.scan import scan, scan_with_files
from cm_delta_dagster.spark.schema import schema_of
from cm_delta_dagster.spark.write import WrittenFiles, write_files
from cm_delta_dagster.storage.discard import discard_below


class WriteOutcome(StrEnum):
    """How a write ended; a failure is an exception."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"
    """The table's ``txn`` says that this work was done before; nothing was written."""
    NOTHING_TO_DO = "nothing_to_do"
    """No row would change; no version was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What a write did.

    Attributes:
        version: the version committed; for ALREADY_COMMITTED the one that did the work where it can still be told, else,
            as for NOTHING_TO_DO, the version that was looked at.
        data_version: newest version at or before ``snapshot.version`` that changed data.
        num_output_rows: rows in the files that were added, rewritten ones included.
        metrics: as in ``commitInfo.operationMetrics``.
        snapshot: the table right after the commit, or as it was looked at.
        rows_by_partition: rows of the added files by partition texts, in the order of the partition columns.
    """

    table_id: str
    version: int
    data_version: int
    outcome: WriteOutcome
    num_output_rows: int = 0
    num_added_files: int = 0
    num_removed_files: int = 0
    added_bytes: int = 0
    removed_bytes: int = 0
    retries: int = 0
    metrics: Mapping[str, str] = field(default_factory=dict)
    snapshot: Snapshot = field(repr=False)
    rows_by_partition: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """Metadata and protocol that a write leaves behind; equal to the snapshot's unless the schema changes."""

    schema: StructType
    metadata: Metadata
    protocol: Protocol


def check_not_append_only(snapshot: Snapshot, doing: str) -> None:
    """Raises IllegalCommitError for a table that keeps every row (APPEND-2); nothing has been written then."""
    if snapshot.properties.append_only:
        raise IllegalCommitError(
            f"Table {snapshot.identifier} is append-only (delta.appendOnly=true) and {doing} removes rows; nothing was "
            "written. Append instead, or unset the property first."
        )


def target_shape(snapshot: Snapshot, frame: DataFrame, mode: SchemaMode) -> TargetShape:
    """The table's shape after a write of ``frame``, checked against what this client can write.

    Raises:
        SchemaMismatchError: the columns do not fit, there are none, or a partition column would be lost.
        UnsupportedFeatureError: the table or a new column needs a feature that this client does not keep.
    """
    check_writable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
    present = snapshot.schema
    offered = schema_of(frame)
    if not offered.fields:
        raise SchemaMismatchError(
            f"The rows for {snapshot.identifier} have no columns; nothing was written. Select at least one of the "
            f"table's columns: {', '.join(present.names)}."
        )
    schema = reconcile_schemas(present, offered, mode=mode)
    if mode is SchemaMode.OVERWRITE:
        schema = _overwriting(schema, snapshot)
    if schema == present:
        return TargetShape(schema=present, metadata=snapshot.metadata, protocol=snapshot.protocol)
    check_column_names(schema)
    check_void_places(schema)
    metadata = replace(snapshot.metadata, schema_string=schema_to_json(schema))
    protocol = with_features(snapshot.protocol, required_features(schema, metadata.configuration))
    try:
        check_writable(protocol, snapshot.identifier, metadata=metadata)
    except UnsupportedFeatureError as error:
        changed = [item for item in schema.fields if present.field(item.name) != item]
        columns = ", ".join(f"{item.name!r} ({data_type_text(item.type)})" for item in changed)
        raise UnsupportedFeatureError(
            f"With the new or changed columns {columns}, {snapshot.identifier} would need a feature that this client "
            f"does not have; nothing was written. Leave them out or cast them, e.g. to a string. ({error})"
        ) from error
    return TargetShape(schema=schema, metadata=metadata, protocol=protocol)


def _overwriting(offered: StructType, snapshot: Snapshot) -> StructType:
    """The offered schema, nullable throughout: a DataFrame's NOT NULL is an accident of how it was computed."""
    missing = [name for name in snapshot.partition_columns if offered.field(name) is None]
    if missing:
        raise SchemaMismatchError(
            f"The new schema lacks the partition column {missing[0]!r} of {snapshot.identifier}; nothing was written. "
            f"Keep it, or create another table. Offered schema:\n{schema_text(offered)}"
        )
    partitions = {name.lower(): name for name in snapshot.partition_columns}
    # The partition columns keep the spelling that the metadata has for them.
    return StructType(
        tuple(
            StructField(partitions.get(item.name.lower(), item.name), _relaxed(item.type), True, item.metadata)
            for item in offered.fields
        )
    )


def _relaxed(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            fields = (StructField(item.name, _relaxed(item.type), True, item.metadata) for item in data_type.fields)
            return StructType(tuple(fields))
        case ArrayType():
            return ArrayType(_relaxed(data_type.element_type), True)
        case MapType():
            return MapType(_relaxed(data_type.key_type), _relaxed(data_type.value_type), True)
        case _:
            return data_type


def write_rows(
    table: WriteTarget, frame: DataFrame, shape: TargetShape, guard: Predicate | None = None
) -> WrittenFiles:
    """Data files for ``frame`` in the shape of the table. Raises as
    :func:`~cm_delta_dagster.spark.write.write_files`."""
    properties = TableProperties(shape.metadata.configuration)
    partition_columns = shape.metadata.partition_columns
    return write_files(
        frame,
        store=table.store,
        location=table.location,
        schema=shape.schema,
        partition_columns=partition_columns,
        statistics_columns=statistics_columns(shape.schema, partition_columns, properties),
        compression=properties.parquet_compression,
        guard=guard,
        now_ms=table.services.now_ms(),
    )


def scan_files(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table, schema: StructType
) -> DataFrame:
    """Rows of some of the table's files."""
    return scan(
        session,
        store=table.store,
        location=table.location,
        schema=schema,
        partition_columns=snapshot.partition_columns,
        files=files,
    )


def scan_files_by_name(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table, schema: StructType
) -> DataFrame:
    """Rows of some of the table's files, each with its file."""
    return scan_with_files(
        session,
        store=table.store,
        location=table.location,
        schema=schema,
        partition_columns=snapshot.partition_columns,
        files=files,
    )


def rows_of_files(table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table) -> int:
    """Rows of the files: from the log where every file tells, else by a Spark job."""
    known = logical_row_count(files)
    return known if known is not None else count_rows(scan_files(table, snapshot, session, files, snapshot.schema))


@dataclass(slots=True, kw_only=True)
class RowCommit:
    """A transaction of one verb with the files it has written so far.

    Leaving the ``with`` block by an exception deletes those files, unless the commit had begun: then only an answer
    that proves that nothing was committed makes them garbage.
    """

    table: WriteTarget
    transaction: Transaction
    shape: TargetShape
    idempotency: Idempotency | None = None
    written: list[WrittenFiles] = field(default_factory=list)
    committing: bool = False

    def __enter__(self) -> "RowCommit":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and (not self.committing or isinstance(error, NOT_COMMITTED)):
            self.discard()

    def discard(self) -> None:
        """Delete the files written so far."""
        for files in self.written:
            discard_below(self.table.store, files.directory)

    def write(self, frame: DataFrame, guard: Predicate | None = None) -> WrittenFiles:
        """Write rows that the commit will add."""
        written = write_rows(self.table, frame, self.shape, guard)
        self.written.append(written)
        return written

    def finish(self, removed: pa.Table, metrics: Mapping[str, int]) -> WriteResult:
        """Commit the written files and the removal of ``removed``, or nothing if nothing changes.

        Raises:
            CommitConflictError, CommitRejectedError, CommitRetriesExceededError, CommitStateUnknownError: as
            ``commit``.
        """
        self._fill(removed, metrics)
        if self.transaction.is_empty:
            return nothing_to_do(self.table, self.transaction.snapshot)
        self.committing = True
        try:
            committed = self.transaction.commit()
        except CommitConflictError:
            done = self._done_by_another()
            if done is None:
                raise
            self.discard()
            return done
        adds = [add for files in self.written for add in files.adds]
        rows: Counter[tuple[str | None, ...]] = Counter()
        for files in self.written:
            rows.update(files.rows_by_partition)
        return WriteResult(
            table_id=self.table.table_id,
            version=committed.version,
            data_version=committed.snapshot.data_version,
            outcome=WriteOutcome.COMMITTED,
            num_output_rows=sum(files.num_rows for files in self.written),
            num_added_files=len(adds),
            num_removed_files=removed.num_rows,
            added_bytes=sum(add.size for add in adds),
            removed_bytes=size_of(removed),
            retries=committed.retries,
            metrics=dict(self.transaction.metrics),
            snapshot=committed.snapshot,
            rows_by_partition=dict(rows),
        )

    def _fill(self, removed: pa.Table, metrics: Mapping[str, int]) -> None:
        transaction, now = self.transaction, self.table.services.now_ms()
        for files in self.written:
            transaction.add_files(files.adds)
        if removed.num_rows:
            transaction.remove_files(removes_of(removed, deletion_timestamp=now, data_change=True))
        if self.shape.metadata != transaction.snapshot.metadata:
            transaction.set_metadata(self.shape.metadata)
        if self.shape.protocol != transaction.snapshot.protocol:
            transaction.set_protocol(self.shape.protocol)
        if self.idempotency is not None:
            app_id, version = self.idempotency.app_id, self.idempotency.version
            done = SetTransaction(app_id=app_id, version=version, last_updated=now)
            if self.idempotency.rule is IdempotencyRule.EXACT:
                transaction.note_transaction(done)
            else:
                transaction.set_transaction(done)
        transaction.metrics.update({name: str(value) for name, value in metrics.items()})

    def _done_by_another(self) -> WriteResult | None:
        """The result of a run of the same idempotency that won, if that is why this one lost."""
        return None if self.idempotency is None else already_done(self.table, self.table.snapshot(), self.idempotency)


def begin(
    table: WriteTarget,
    snapshot: Snapshot,
    *,
    shape: TargetShape,
    operation: str,
    parameters: Mapping[str, str],
    idempotency: Idempotency | None,
    context: CommitContext,
) -> RowCommit:
    """Start the transaction of a verb; refuses tables that cannot be written before anything is written (PROT-7)."""
    transaction = table.start_transaction(snapshot, operation=operation, parameters=parameters, context=context)
    return RowCommit(table=table, transaction=transaction, shape=shape, idempotency=idempotency)


def already_done(table: WriteTarget, snapshot: Snapshot, idempotency: Idempotency | None) -> WriteResult | None:
    """The result to give back when the table's ``txn`` says that the work was done before (TXN-4), else None."""
    if idempotency is None:
        return None
    current = snapshot.transactions.get(idempotency.app_id)
    if not idempotency.is_done(None if current is None else current.version):
        return None
    version = find_transaction(table, app_id=idempotency.app_id, version=idempotency.version)
    return WriteResult(
        table_id=table.table_id,
        version=snapshot.version if version is None else version,
        data_version=snapshot.data_version,
        outcome=WriteOutcome.ALREADY_COMMITTED,
        snapshot=snapshot,
    )


def nothing_to_do(table: WriteTarget, snapshot: Snapshot) -> WriteResult:
    """The result of a write that changes no row."""
    return WriteResult(
        table_id=table.table_id,
        version=snapshot.version,
        data_version=snapshot.data_version,
        outcome=WriteOutcome.NOTHING_TO_DO,
        snapshot=snapshot,
    )


def size_of(files: pa.Table) -> int:
    """Bytes of the files."""
    return int(pc.sum(files["size"]).as_py() or 0)


def json_text(names: Sequence[object]) -> str:
    """Operation parameters are strings; nested values are JSON in them (CINFO-3)."""
    return json.dumps(names, separators=(",", ":"), ensure_ascii=False)
