"""The write transaction that append, overwrite, delete and merge share: schema changes, idempotency, commit and result.

The operations decide which rows change. Data files are written before the commit. They are deleted only if it is certain
that no commit names them.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.client.commits.context import (
    NO_PROPERTIES,
    CommitProperties,
    Idempotency,
    IdempotencyRule,
    Progress,
)
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    CommitConflictError,
    IllegalCommitError,
    needs_no_files,
)
from cm_delta_dagster.operations.writing.file_writes import DEFAULT_SPEC, layout_for_arrow, write_rows
from cm_delta_dagster.operations.writing.rows import RowsForArrow, WriteRows
from cm_delta_dagster.operations.writing.target_shape import TargetShape
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult, earlier_write, nothing_to_do
from cm_delta_dagster.protocol.actions.actions import AddCdcFile, AddFile, SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, removes_of, size_of, table_to_new_adds
from cm_delta_dagster.protocol.changes.change_data_feed import CHANGE_TYPE, ChangeType
from cm_delta_dagster.protocol.changes.change_data_feed import FEATURE as CHANGE_DATA_FEED
from cm_delta_dagster.protocol.features.column_mapping import column_mapping_mode
from cm_delta_dagster.protocol.features.identity_columns import with_high_water_marks
from cm_delta_dagster.protocol.features.table_features import is_active
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.features.vector_writing import with_vector
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import (
    STRING,
    StructField,
    StructType,
    schema_to_json,
)
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles
from cm_delta_dagster.protocol.statistics.layout_columns import check_keeps_columns
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.spark.rules.fill import fill_missing
from cm_delta_dagster.spark.write.optimized_write import AS_THEY_ARE, RowGathering
from cm_delta_dagster.storage.deletion_vector_writer import write_deletion_vectors
from cm_delta_dagster.storage.discard import discard, discard_below


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingUpdate:
    """The batch of a streaming query that a write commits, as delta-spark records it in ``commitInfo``.

    ``output_mode`` is as Spark names it, e.g. ``Append``.
    """

    OPERATION: ClassVar[str] = "STREAMING UPDATE"

    output_mode: str
    query_id: str
    batch: int

    @property
    def parameters(self) -> dict[str, str]:
        return {"outputMode": self.output_mode, "queryId": self.query_id, "epochId": str(self.batch)}

    @staticmethod
    def metrics(written: Sequence[WrittenFiles], removed: pa.Table) -> dict[str, int]:
        return {
            "numRemovedFiles": removed.num_rows,
            "numAddedFiles": sum(len(files.adds) for files in written),
            "numOutputRows": sum(files.num_rows for files in written),
            "numOutputBytes": sum(files.size_bytes for files in written),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """What the caller of a write says about its commit, besides the rows.

    Attributes:
        idempotency: the write commits at most once for this application and version.
        context: provenance for ``commitInfo`` and the commit feed of the catalog.
        progress: what the commit records of the progress of other applications.
        replaces_winners: an overwrite of all rows that conflicts with another commit also replaces the rows of that one.
        check_replaced: called before that with the version that is replaced; an exception ends the write.
        streaming: the batch of a query that is written, if it is one.
    """

    idempotency: Idempotency | None = None
    context: CommitProperties = NO_PROPERTIES
    progress: Sequence[Progress] = ()
    replaces_winners: bool = False
    check_replaced: Callable[[Snapshot], None] = lambda snapshot: None
    streaming: StreamingUpdate | None = None


DEFAULT_OPTIONS = CommitOptions()


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


def layout_of(table: WriteTarget, shape: TargetShape, clustering: Sequence[ColumnPath] = ()) -> TableLayout:
    """What a write needs to know of the table after the commit, with these clustering columns."""
    return TableLayout(
        location=table.location,
        schema=shape.schema,
        partition_columns=shape.metadata.partition_columns,
        mapping=column_mapping_mode(shape.protocol, shape.metadata),
        properties=TableProperties(shape.metadata.configuration),
        clustering_columns=clustering,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VectorFiles:
    """Live ``files``, and the same files with new deletion vectors as ``adds``; ``location`` is that of the vectors."""

    files: pa.Table
    adds: tuple[AddFile, ...]
    location: str | None


@dataclass(slots=True, kw_only=True)
class WriteTransaction:
    """A transaction of one operation, and the data files written for it.

    If the ``with`` block ends by an exception, the files are deleted. Once the commit was attempted, they are deleted only
    if the exception proves that nothing was committed.

    Attributes:
        clustering: the clustering columns after the commit; None if they stay.
    """

    table: WriteTarget
    transaction: Transaction
    shape: TargetShape
    idempotency: Idempotency | None = None
    progress: Sequence[Progress] = ()
    streaming: StreamingUpdate | None = None
    written: list[WrittenFiles] = field(default_factory=list)
    vectors: list[VectorFiles] = field(default_factory=list)
    changes: list[WrittenFiles] = field(default_factory=list)
    clustering: tuple[ColumnPath, ...] | None = None
    commit_attempted: bool = False
    restarts: int = 0
    removed: pa.Table | None = None

    def __enter__(self) -> "WriteTransaction":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and (not self.commit_attempted or needs_no_files(error)):
            self.discard()

    def discard(self) -> None:
        """Delete the data files, change files and deletion vectors."""
        for files in (*self.written, *self.changes):
            discard_below(self.table.store, files.directory)
        for marked in self.vectors:
            if marked.location is not None:
                discard(self.table.store, marked.location)

    @property
    def layout(self) -> TableLayout:
        """What a write needs to know of the table after the commit."""
        return layout_of(self.table, self.shape, self._clustering)

    @property
    def _clustering(self) -> tuple[ColumnPath, ...]:
        """The clustering columns. Raises SchemaMismatchError if the schema after the commit lacks one."""
        if self.clustering is not None:
            return self.clustering
        snapshot = self.transaction.snapshot
        columns = snapshot.clustering_columns
        if columns and self.shape.schema != snapshot.schema:
            check_keeps_columns(snapshot.identifier, self.shape.schema, columns)
        return columns

    def add_rows(
        self,
        frame: DataFrame | ArrowRows,
        guard: Predicate | None = None,
        *,
        spec: WriteSpec = DEFAULT_SPEC,
        gathering: RowGathering = AS_THEY_ARE,
    ) -> WrittenFiles:
        """Write the rows of ``frame`` to data files, which :meth:`commit` adds to the table.

        Args:
            frame: rows with the values of all columns that the table computes; see :meth:`add_new_rows`.
            guard: every row must satisfy it.
            spec: how they are written; statistics, compression and time come from the table.
            gathering: whether they are shuffled first.
        """
        spec = spec if guard is None else replace(spec, guard=guard)
        written = write_rows(self.table, frame, self.layout, spec, gathering)
        self.written.append(written)
        if written.high_water_marks:
            # The next rows of this transaction continue after these.
            schema = with_high_water_marks(self.shape.schema, written.high_water_marks)
            metadata = replace(self.shape.metadata, schema_string=schema_to_json(schema))
            self.shape = replace(self.shape, schema=schema, metadata=metadata)
        return written

    def add_new_rows(
        self, frame: DataFrame | WriteRows, guard: Predicate | None = None, *, gathering: RowGathering = AS_THEY_ARE
    ) -> WrittenFiles:
        """As :meth:`add_rows`, for new rows: columns that ``frame`` lacks get their default, identity or generated value.

        Arrow writes Arrow data, if nothing needs Spark.
        """
        if isinstance(frame, WriteRows):
            rows = frame.written_to(layout_for_arrow(self.table, self.layout), guard)
            if isinstance(rows, RowsForArrow):
                return self.add_rows(rows.rows, rows.guard)
            frame = rows
        filled = fill_missing(frame, self.layout)
        return self.add_rows(filled.frame, guard, spec=WriteSpec(numbered=filled.numbered), gathering=gathering)

    @property
    def records_changes(self) -> bool:
        """Whether the change feed of the table is enabled."""
        return is_active(CHANGE_DATA_FEED, self.shape.protocol, self.shape.metadata)

    def add_changes(self, frame: DataFrame | ArrowRows, gathering: RowGathering = AS_THEY_ARE) -> int:
        """Write change files, which :meth:`commit` records. Returns the number of their rows.

        Args:
            frame: columns of the table and ``_change_type``.
        """
        spec = WriteSpec(hidden_columns=(StructField(CHANGE_TYPE, STRING),), root="_change_data/", is_filled=True)
        self.changes.append(write_rows(self.table, frame, self.layout, spec, gathering))
        return self.changes[-1].num_rows

    def inserted_changes(self, session: SparkSession, written: WrittenFiles) -> DataFrame:
        """The rows of files of this transaction as rows of change files."""
        request = ScanRequest(files=adds_to_table(written.adds))
        rows = scan(session, store=self.table.store, layout=self.layout, request=request)
        return rows.withColumn(CHANGE_TYPE, F.lit(ChangeType.INSERT.value))

    @property
    def numbers_rows(self) -> bool:
        """Whether the written rows have new values of identity columns."""
        return any(files.high_water_marks for files in self.written)

    def mark_rows(self, files: pa.Table, bitmaps: Sequence[BitMap64]) -> None:
        """Write a new deletion vector for each of ``files``, which :meth:`commit` attaches.

        Args:
            files: live files as add actions.
            bitmaps: all deleted positions of each file, old and new.
        """
        vectors = write_deletion_vectors(self.table.store, location=self.table.location, bitmaps=bitmaps)
        marked = zip(table_to_new_adds(files), vectors.descriptors, bitmaps, strict=True)
        self.vectors.append(VectorFiles(files=files, adds=(), location=vectors.file))
        adds = tuple(with_vector(add, vector, bitmap) for add, vector, bitmap in marked)
        self.vectors[-1] = VectorFiles(files=files, adds=adds, location=vectors.file)

    def commit(self, removed: pa.Table, metrics: Mapping[str, int]) -> WriteResult:
        """Commit the written files and the removal of ``removed``; commit nothing if nothing changes.

        Args:
            removed: add actions of the files to remove.
            metrics: ``commitInfo.operationMetrics``; a streaming update has its own.

        Raises:
            CommitConflictError, CommitRejectedError, CommitRetriesExceededError, CommitStateUnknownError: as
            :meth:`Transaction.commit`.
        """
        self._fill(removed, metrics if self.streaming is None else self.streaming.metrics(self.written, removed))
        if self.transaction.is_empty:
            return nothing_to_do(self.table, self.transaction.snapshot)
        self.commit_attempted, self.removed = True, removed
        try:
            committed = self.table.commit_write(self.transaction, self)
        except CommitConflictError:
            # The winner may be another attempt of the same write.
            earlier = earlier_write(self.table, self.table.snapshot(), self.idempotency)
            if earlier is None:
                raise
            self.discard()
            return earlier
        return self.result(committed)

    def restart(self) -> bool:
        """Start this write again on the latest snapshot, with the files that it has written, after a conflict.

        Returns:
            False if the files do not fit the table any more; then nothing is changed.
        """
        old, snapshot = self.transaction, self.table.snapshot()
        same = (snapshot.metadata, snapshot.protocol) == (old.snapshot.metadata, old.snapshot.protocol)
        if (
            not same
            or self.numbers_rows
            or any(_recorded(snapshot, progress) != progress.after for progress in self.progress)
        ):
            return False
        self.transaction = self.table.start_transaction(
            snapshot, operation=old.operation, parameters=old.parameters, context=old.context
        )
        self.transaction.keeps_row_ids = old.keeps_row_ids
        self.restarts += 1
        return True

    def result(self, committed: Committed) -> WriteResult:
        """The result of the write that :meth:`commit` committed."""
        adds = [add for files in self.written for add in files.adds]
        rows: Counter[tuple[str | None, ...]] = Counter()
        for files in self.written:
            rows.update(files.rows_by_partition)
        return WriteResult(
            table_id=self.table.table_id,
            version=committed.version,
            data_version=committed.snapshot.data_version,
            outcome=WriteOutcome.STAGED if committed.is_deferred else WriteOutcome.COMMITTED,
            num_output_rows=sum(files.num_rows for files in self.written),
            num_added_files=len(adds),
            num_removed_files=0 if self.removed is None else self.removed.num_rows,
            added_bytes=sum(add.size for add in adds),
            removed_bytes=0 if self.removed is None else size_of(self.removed),
            retries=self.restarts + committed.retries,
            metrics=dict(self.transaction.metrics),
            snapshot=committed.snapshot,
            rows_by_partition=dict(rows),
            replaced_schema=self._replaced_schema(),
        )

    def _replaced_schema(self) -> StructType | None:
        before = self.transaction.snapshot
        return None if before.version < 0 or self.shape.metadata == before.metadata else before.schema

    def _fill(self, removed: pa.Table, metrics: Mapping[str, int]) -> None:
        transaction = self.transaction
        for files in self.written:
            transaction.add_files(files.adds)
        for files in self.changes:
            transaction.add_change_files(
                AddCdcFile(path=add.path, partition_values=add.partition_values, size=add.size) for add in files.adds
            )
        if removed.num_rows:
            transaction.remove_files(removes_of(removed, data_change=True))
        for marked in self.vectors:
            transaction.remove_files(removes_of(marked.files, data_change=True))
            transaction.add_files(marked.adds)
        if self.shape.metadata != transaction.snapshot.metadata:
            transaction.set_metadata(self.shape.metadata)
        if self.shape.protocol != transaction.snapshot.protocol:
            transaction.set_protocol(self.shape.protocol)
        now = self.table.services.now_ms()
        if self.idempotency is not None:
            app_id, version = self.idempotency.app_id, self.idempotency.version
            done = SetTransaction(app_id=app_id, version=version, last_updated=now)
            transaction.note_transaction(done, is_ordered=self.idempotency.rule is IdempotencyRule.MONOTONIC)
        for progress in self.progress:
            transaction.set_transaction(
                SetTransaction(app_id=progress.app_id, version=progress.version, last_updated=now)
            )
        transaction.engine = " and ".join(sorted({files.engine for files in self.written})) or None
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
    """Start the transaction of an operation.

    Raises:
        UnsupportedFeatureError: this client must not write to the table.
        CommitConflictError: another writer recorded progress of an application of ``options.progress`` meanwhile.
    """
    for progress in options.progress:
        _check_progress(snapshot, progress)
    if options.streaming is not None:
        operation, parameters = StreamingUpdate.OPERATION, options.streaming.parameters
    transaction = table.start_transaction(snapshot, operation=operation, parameters=parameters, context=options.context)
    return WriteTransaction(
        table=table,
        transaction=transaction,
        shape=shape,
        idempotency=options.idempotency,
        progress=options.progress,
        streaming=options.streaming,
    )


def _check_progress(snapshot: Snapshot, progress: Progress) -> None:
    recorded = _recorded(snapshot, progress)
    if recorded != progress.after:
        raise CommitConflictError(
            f"{snapshot.identifier} has recorded version {recorded} for {progress.app_id}, and this write continues after "
            f"{progress.after}: another writer has processed the same input meanwhile. Nothing was written. Run it again; it then "
            "continues after that version."
        )


def _recorded(snapshot: Snapshot, progress: Progress) -> int | None:
    recorded = snapshot.transactions.get(progress.app_id)
    return None if recorded is None else recorded.version


def json_text(names: Sequence[object]) -> str:
    """Serialize a nested operation parameter: values of ``operationParameters`` are strings."""
    return json.dumps(names, separators=(",", ":"), ensure_ascii=False)
