"""The write transaction that append, overwrite, delete and merge share: schema changes, idempotency, commit and result.

The operations decide which rows change. Data files are written before the commit. They are deleted only if it is certain
that no commit names them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency, IdempotencyRule
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    NOT_COMMITTED,
    CommitConflictError,
    IllegalCommitError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.operations.writing.column_names import unique_name
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol, SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.features.column_ids import with_ids_of
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, column_mapping_mode
from cm_delta_dagster.protocol.features.enablement import TableDefinition, changed_definition, without_own_metadata
from cm_delta_dagster.protocol.features.identity_columns import with_high_water_marks
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.features.type_widening import widening_in_writes, with_type_changes
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.types import (
    StructType,
    check_column_names,
    data_type_text,
    schema_text,
    schema_to_json,
)
from cm_delta_dagster.protocol.schema.void_columns import check_void_places
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.fill import fill_missing
from cm_delta_dagster.spark.rewrite import count_frame_rows
from cm_delta_dagster.spark.scan import scan, scan_with_files
from cm_delta_dagster.spark.schema import schema_of
from cm_delta_dagster.spark.write import WriteSpec, WrittenFiles, write_files, write_spec
from cm_delta_dagster.storage.discard import discard_below


class WriteOutcome(StrEnum):
    """How a write ended. A failure is an exception."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"
    """A ``txn`` action of the table shows that an earlier attempt committed; nothing was written."""
    NOTHING_TO_DO = "nothing_to_do"
    """No row would change; no version was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write.

    Attributes:
        version: the committed version. For ALREADY_COMMITTED the version that the earlier attempt committed, if the log still
            holds it; otherwise, and for NOTHING_TO_DO, the version that was read.
        data_version: newest version at or before ``snapshot.version`` that changed data.
        num_output_rows: rows in the added files, including rows copied from rewritten files.
        metrics: as in ``commitInfo.operationMetrics``.
        snapshot: the table after the commit; without a commit, the snapshot that was read.
        rows_by_partition: rows of the added files for each tuple of serialized partition values, in the order of the partition
            columns.
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
class CommitOptions:
    """What the caller of a write says about its commit, besides the rows.

    Attributes:
        idempotency: the write commits at most once for this application and version.
        context: provenance for ``commitInfo`` and the commit feed of the catalog.
    """

    idempotency: Idempotency | None = None
    context: CommitContext = NO_CONTEXT


DEFAULT_OPTIONS = CommitOptions()
DEFAULT_SPEC = WriteSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """Schema, metadata and protocol of the table after a write; those of the snapshot unless the schema changes."""

    schema: StructType
    metadata: Metadata
    protocol: Protocol


def check_not_append_only(snapshot: Snapshot, operation: str) -> None:
    """Refuse an operation that removes rows from an append-only table (protocol heading "Append-only Tables").

    Args:
        operation: the operation with its article, for the message.

    Raises:
        IllegalCommitError: the table is append-only.
    """
    if snapshot.properties.append_only:
        raise IllegalCommitError(
            f"Table {snapshot.identifier} is append-only (delta.appendOnly=true) and {operation} removes rows; nothing was "
            "written. Append instead, or unset the property first."
        )


def target_shape(snapshot: Snapshot, frame: DataFrame, mode: SchemaMode) -> TargetShape:
    """Return schema, metadata and protocol of the table after a write of ``frame``.

    Raises:
        SchemaMismatchError: the columns do not fit, the frame has no columns, or a partition column is missing.
        UnsupportedFeatureError: the table or a new column needs a table feature that this client does not support.
    """
    check_writable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
    present = snapshot.schema
    offered = without_own_metadata(schema_of(frame))
    if not offered.fields:
        raise SchemaMismatchError(
            f"The rows for {snapshot.identifier} have no columns; nothing was written. Select at least one of the "
            f"table's columns: {', '.join(present.names)}."
        )
    before = TableDefinition(protocol=snapshot.protocol, metadata=snapshot.metadata)
    schema = reconcile_schemas(present, offered, mode=mode, widens=widening_in_writes(before.properties))
    if mode is SchemaMode.OVERWRITE:
        schema = with_ids_of(_replacement_schema(schema, snapshot), present)
    else:
        schema = with_type_changes(present, schema)
    if schema == present:
        return TargetShape(schema=present, metadata=snapshot.metadata, protocol=snapshot.protocol)
    check_column_names(schema, any_characters=snapshot.column_mapping is not ColumnMappingMode.NONE)
    check_void_places(schema)
    after = changed_definition(before, before.with_schema(schema), new_name=unique_name)
    try:
        check_writable(after.protocol, snapshot.identifier, metadata=after.metadata)
    except UnsupportedFeatureError as error:
        changed = [item for item in schema.fields if present.field(item.name) != item]
        columns = ", ".join(f"{item.name!r} ({data_type_text(item.type)})" for item in changed)
        raise UnsupportedFeatureError(
            f"With the new or changed columns {columns}, {snapshot.identifier} would need a feature that this client "
            f"does not have; nothing was written. Leave them out or cast them, e.g. to a string. ({error})"
        ) from error
    return TargetShape(schema=after.schema, metadata=after.metadata, protocol=after.protocol)


def _replacement_schema(offered: StructType, snapshot: Snapshot) -> StructType:
    """Return the offered schema with every field nullable: NOT NULL in a DataFrame depends on how Spark computed it."""
    missing = [name for name in snapshot.partition_columns if offered.field(name) is None]
    if missing:
        raise SchemaMismatchError(
            f"The new schema lacks the partition column {missing[0]!r} of {snapshot.identifier}; nothing was written. "
            f"Keep it, or create another table. Offered schema:\n{schema_text(offered)}"
        )
    partitions = {name.lower(): name for name in snapshot.partition_columns}
    nullable = reconcile_schemas(StructType(()), offered, mode=SchemaMode.MERGE)
    # The partition columns keep the spelling that the metadata has for them.
    return StructType(
        tuple(replace(item, name=partitions.get(item.name.lower(), item.name)) for item in nullable.fields)
    )


def layout_of(table: WriteTarget, shape: TargetShape) -> TableLayout:
    """What a write needs to know of the table after the commit."""
    return TableLayout(
        location=table.location,
        schema=shape.schema,
        partition_columns=shape.metadata.partition_columns,
        mapping=column_mapping_mode(shape.protocol, shape.metadata),
        properties=TableProperties(shape.metadata.configuration),
    )


def write_rows(
    table: WriteTarget, frame: DataFrame, shape: TargetShape, spec: WriteSpec = DEFAULT_SPEC
) -> WrittenFiles:
    """Write ``frame`` to data files. Raises as :func:`~cm_delta_dagster.spark.write.write_files`."""
    layout = layout_of(table, shape)
    spec = write_spec(layout, replace(spec, now_ms=table.services.now_ms()))
    return write_files(frame, store=table.store, layout=layout, spec=spec)


def scan_files(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table, schema: StructType
) -> DataFrame:
    """Read some files of the table."""
    layout = replace(snapshot.layout, schema=schema)
    return scan(session, store=table.store, layout=layout, request=ScanRequest(files=files))


def scan_files_by_name(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table, schema: StructType
) -> DataFrame:
    """Read some files of the table, with the file of each row."""
    layout = replace(snapshot.layout, schema=schema)
    return scan_with_files(session, store=table.store, layout=layout, files=files)


def rows_of_files(table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table) -> int:
    """Count the rows of the files: from the statistics in the log if all files have them, otherwise by a Spark job."""
    known = logical_row_count(files)
    return (
        known if known is not None else count_frame_rows(scan_files(table, snapshot, session, files, snapshot.schema))
    )


@dataclass(slots=True, kw_only=True)
class WriteTransaction:
    """A transaction of one operation, and the data files written for it.

    If the ``with`` block ends by an exception, the files are deleted. Once the commit was attempted, they are deleted only
    if the exception proves that nothing was committed.
    """

    table: WriteTarget
    transaction: Transaction
    shape: TargetShape
    idempotency: Idempotency | None = None
    written: list[WrittenFiles] = field(default_factory=list)
    commit_attempted: bool = False

    def __enter__(self) -> "WriteTransaction":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and (not self.commit_attempted or isinstance(error, NOT_COMMITTED)):
            self.discard()

    def discard(self) -> None:
        """Delete the data files."""
        for files in self.written:
            discard_below(self.table.store, files.directory)

    @property
    def layout(self) -> TableLayout:
        """What a write needs to know of the table after the commit."""
        return layout_of(self.table, self.shape)

    def add_rows(
        self, frame: DataFrame, guard: Predicate | None = None, *, spec: WriteSpec = DEFAULT_SPEC
    ) -> WrittenFiles:
        """Write the rows of ``frame`` to data files, which :meth:`commit` adds to the table.

        Args:
            frame: rows with the values of all columns that the table computes; see :meth:`add_new_rows`.
            guard: every row must satisfy it.
            spec: how they are written; statistics, compression and time come from the table.
        """
        spec = spec if guard is None else replace(spec, guard=guard)
        written = write_rows(self.table, frame, self.shape, spec)
        self.written.append(written)
        if written.high_water_marks:
            # The next rows of this transaction continue after these.
            schema = with_high_water_marks(self.shape.schema, written.high_water_marks)
            metadata = replace(self.shape.metadata, schema_string=schema_to_json(schema))
            self.shape = replace(self.shape, schema=schema, metadata=metadata)
        return written

    def add_new_rows(self, frame: DataFrame, guard: Predicate | None = None) -> WrittenFiles:
        """As :meth:`add_rows`, for new rows: columns that ``frame`` lacks get their default, identity or generated value."""
        filled = fill_missing(frame, self.layout)
        return self.add_rows(filled.frame, guard, spec=WriteSpec(numbered=filled.numbered))

    def move_rows(self, frame: DataFrame) -> WrittenFiles:
        """As :meth:`add_rows`, for rows of the table that stay as they are."""
        return self.add_rows(frame, spec=WriteSpec(checked=False))

    @property
    def numbers_rows(self) -> bool:
        """Whether the written rows have new values of identity columns."""
        return any(files.high_water_marks for files in self.written)

    def commit(self, removed: pa.Table, metrics: Mapping[str, int]) -> WriteResult:
        """Commit the written files and the removal of ``removed``; commit nothing if nothing changes.

        Args:
            removed: add actions of the files to remove.
            metrics: ``commitInfo.operationMetrics``.

        Raises:
            CommitConflictError, CommitRejectedError, CommitRetriesExceededError, CommitStateUnknownError: as
            :meth:`Transaction.commit`.
        """
        self._fill(removed, metrics)
        if self.transaction.is_empty:
            return nothing_to_do(self.table, self.transaction.snapshot)
        self.commit_attempted = True
        try:
            committed = self.transaction.commit()
        except CommitConflictError:
            # The winner may be another attempt of the same write.
            earlier = earlier_write(self.table, self.table.snapshot(), self.idempotency)
            if earlier is None:
                raise
            self.discard()
            return earlier
        return self._result(committed, removed)

    def _result(self, committed: Committed, removed: pa.Table) -> WriteResult:
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


def start_write(
    table: WriteTarget,
    snapshot: Snapshot,
    *,
    shape: TargetShape,
    operation: str,
    parameters: Mapping[str, str],
    options: CommitOptions,
) -> WriteTransaction:
    """Start the transaction of an operation. Raises UnsupportedFeatureError if this client must not write to the table."""
    transaction = table.start_transaction(snapshot, operation=operation, parameters=parameters, context=options.context)
    return WriteTransaction(table=table, transaction=transaction, shape=shape, idempotency=options.idempotency)


def is_already_committed(snapshot: Snapshot, idempotency: Idempotency | None) -> bool:
    """Whether the ``txn`` actions of the snapshot show that an earlier attempt of the write committed."""
    if idempotency is None:
        return False
    current = snapshot.transactions.get(idempotency.app_id)
    return idempotency.is_done(None if current is None else current.version)


def earlier_write(table: WriteTarget, snapshot: Snapshot, idempotency: Idempotency | None) -> WriteResult | None:
    """Return the result of a write whose earlier attempt committed; None if no attempt did."""
    if idempotency is None or not is_already_committed(snapshot, idempotency):
        return None
    version = table.find_transaction(app_id=idempotency.app_id, version=idempotency.version)
    return already_committed(table, snapshot, version=snapshot.version if version is None else version)


def already_committed(
    table: WriteTarget, snapshot: Snapshot, *, version: int, data_version: int | None = None
) -> WriteResult:
    """Return the result of a write that an earlier attempt committed as ``version``.

    Args:
        data_version: by default that of ``snapshot``.
    """
    return WriteResult(
        table_id=table.table_id,
        version=version,
        data_version=snapshot.data_version if data_version is None else data_version,
        outcome=WriteOutcome.ALREADY_COMMITTED,
        snapshot=snapshot,
    )


def nothing_to_do(table: WriteTarget, snapshot: Snapshot) -> WriteResult:
    """Return the result of a write that changes no row."""
    return WriteResult(
        table_id=table.table_id,
        version=snapshot.version,
        data_version=snapshot.data_version,
        outcome=WriteOutcome.NOTHING_TO_DO,
        snapshot=snapshot,
    )


def size_of(files: pa.Table) -> int:
    """Return the total size of the files in bytes."""
    return int(pc.sum(files["size"]).as_py() or 0)


def json_text(names: Sequence[object]) -> str:
    """Serialize a nested operation parameter: values of ``operationParameters`` are strings."""
    return json.dumps(names, separators=(",", ":"), ensure_ascii=False)
