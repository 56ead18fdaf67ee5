"""Append and overwrite, in one commit each."""

import logging
from collections.abc import Sequence
from enum import StrEnum

import pyarrow as pa

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.arguments import names_table, one_of, partitioning_text
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts
from cm_delta_dagster.operations.writing.conditions import Condition, slice_condition, slice_without_spark
from cm_delta_dagster.operations.writing.merge import key_names
from cm_delta_dagster.operations.writing.replace_rows import replace_keys, replace_partitions, replace_where
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.operations.writing.target_shape import TargetShape, target_shape
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult, earlier_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    WriteTransaction,
    check_not_append_only,
    json_text,
    start_write,
)
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.computed_columns import computed_columns
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, to_sql
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.remedies import OverwriteWithSchema
from cm_delta_dagster.spark.session.errors import spark_errors

__all__ = ["WriteOutcome", "WriteResult", "append", "overwrite"]

_log = logging.getLogger(__name__)

OPERATION = "WRITE"


class PartitionOverwrite(StrEnum):
    """Which partitions an overwrite replaces, as Spark's partitionOverwriteMode."""

    STATIC = "static"
    """All of them."""
    DYNAMIC = "dynamic"
    """Those in which the new rows are."""


_MAX_RENUMBERINGS = 10
_MAX_REPLACED_WINNERS = 10


@names_table
def append(
    table: WriteTarget,
    *,
    frame: AnyRows | WriteRows,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    partition_by: Sequence[str] | None = None,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Add the rows of ``frame``. A blind append: it reads no row and does not conflict with other appends.

    Args:
        frame: columns are matched by name, ignoring case; missing nullable columns become NULL. Arrow data is written without
            Spark, unless a rule of the table needs it.
        schema_mode: STRICT, or MERGE to add columns to the table in the same commit.
        partition_by: the partition columns that the table is expected to have; None for any.

    Raises:
        SchemaMismatchError: the columns do not fit; the message shows both schemas.
        InvalidDataError: a row violates NOT NULL or a constraint, or has a partition value that cannot be stored.
        InvalidArgumentError: ``frame`` has an identity column that is always generated, ``schema_mode`` is OVERWRITE, or the table
            has other partition columns than ``partition_by``.
        CommitConflictError: a concurrent commit changed what an append depends on, e.g. the schema. If it only numbered rows of
            an identity column, the rows of this append are numbered and written again.
        CommitStateUnknownError: it is unknown whether the commit succeeded.
    """
    rows = WriteRows.of(frame)
    if schema_mode is SchemaMode.OVERWRITE:
        raise InvalidArgumentError(
            "An append cannot replace the schema, because old rows stay. Use overwrite, or merge."
        )
    for _ in range(_MAX_RENUMBERINGS):
        try:
            return _append(table, rows, schema_mode, partition_by, options)
        except _RenumberedError as error:
            _log.info("Another writer numbered rows of %s; these rows are numbered and written again", table.identifier)
            conflict = error.conflict
    raise conflict


class _RenumberedError(Exception):
    """The values of identity columns were taken by another writer. The files were deleted."""

    def __init__(self, conflict: CommitConflictError) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


def _append(
    table: WriteTarget,
    rows: WriteRows,
    schema_mode: SchemaMode,
    partition_by: Sequence[str] | None,
    options: CommitOptions,
) -> WriteResult:
    """One attempt of an append. Raises _RenumberedError after a conflict if the rows have generated identity values."""
    snapshot = table.snapshot()
    check_partitions(snapshot, partition_by)
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    rows.fit(snapshot.schema)
    shape = target_shape(snapshot, rows.schema, schema_mode)
    _check_partition_columns(snapshot, rows.schema)
    with _start(table, snapshot, shape, _parameters("Append", snapshot.partition_columns), options) as write:
        written = write.add_new_rows(rows)
        metrics = {
            "numFiles": len(written.adds),
            "numOutputRows": written.num_rows,
            "numOutputBytes": written.size_bytes,
        }
        try:
            return write.commit(snapshot.files.slice(0, 0), metrics)
        except CommitConflictError as error:
            if not write.numbers_rows:
                raise
            write.discard()
            raise _RenumberedError(error) from error


@names_table
def overwrite(
    table: WriteTarget,
    *,
    frame: AnyRows | WriteRows,
    where: Condition | None = None,
    partitions: PartitionOverwrite | str = PartitionOverwrite.STATIC,
    keys: Sequence[str] = (),
    schema_mode: SchemaMode = SchemaMode.STRICT,
    partition_by: Sequence[str] | None = None,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Replace all rows by the rows of ``frame``, in one commit; or the rows of a condition, of partitions or of keys.

    Args:
        where: the slice to replace; an empty frame clears it. A condition on partition columns alone removes whole files
            and reads nothing. Another condition rewrites the files that hold matching and other rows. Rows for which it is
            NULL stay.
        partitions: DYNAMIC replaces only the partitions in which ``frame`` has rows; all rows of a table without partitions.
        keys: replaces only the rows that have the keys of a row of ``frame``; all rows of ``frame`` are added.
        schema_mode: OVERWRITE also replaces the schema and excludes the others.
        partition_by: with OVERWRITE, the partition columns afterwards, none if it is empty; None keeps those of the table.

    Raises:
        InvalidArgumentError: ``where`` is not a condition over the table's columns, or a write cannot evaluate it; two ways to
            select rows are given; or the table has no partitions or no such key.
        PartitionMismatchError: a row of ``frame`` does not satisfy ``where``; nothing was committed.
        SchemaMismatchError, InvalidDataError, CommitConflictError, CommitStateUnknownError: as for :func:`append`.
        IllegalCommitError: the table is append-only.
    """
    rows = WriteRows.of(frame)
    dynamic = _is_dynamic(partitions)
    snapshot = table.snapshot()
    after = snapshot.partition_columns if partition_by is None else partition_by
    if schema_mode is SchemaMode.OVERWRITE and not after:
        dynamic = False
    _check_one_slice(where, keys, schema_mode, dynamic=dynamic)
    if schema_mode is not SchemaMode.OVERWRITE:
        check_partitions(snapshot, partition_by)
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    if schema_mode is not SchemaMode.OVERWRITE:
        rows.fit(snapshot.schema)
    predicate = None if where is None else _slice(where, rows, snapshot, now_ms=table.services.now_ms())
    if snapshot.num_files:
        check_not_append_only(snapshot, "an overwrite")
    shape = target_shape(snapshot, rows.schema, schema_mode, partition_by)
    if schema_mode is not SchemaMode.OVERWRITE:
        _check_partition_columns(snapshot, rows.schema)
    names = key_names(keys, snapshot.schema, rows.schema) if keys else ()
    parameters = _parameters("Overwrite", shape.metadata.partition_columns, predicate)
    if dynamic:
        parameters["isDynamicPartitionOverwrite"] = "true"
    with (
        spark_errors(f"overwriting {snapshot.identifier}"),
        _start(table, snapshot, shape, parameters, options) as write,
    ):
        if dynamic and snapshot.partition_columns:
            counts = replace_partitions(write, rows)
        elif names:
            counts = replace_keys(write, rows, names)
        elif predicate is not None:
            counts = replace_where(write, rows, predicate)
        else:
            return _replace_all(write, rows, options)
        return _commit_replaced(write, counts)


def _slice(where: Condition, rows: WriteRows, snapshot: Snapshot, *, now_ms: int) -> Predicate | None:
    """The condition of the slice; None if it is the whole table."""
    predicate = slice_without_spark(where, snapshot, now_ms=now_ms) if rows.needs_no_spark else None
    if predicate is None:
        text = f" {where}" if isinstance(where, str) else ""
        session = rows.spark(f"only Spark evaluates the condition{text} of the rows that they replace").sparkSession
        predicate = slice_condition(where, snapshot, session=session, now_ms=now_ms)
    return None if isinstance(predicate, AlwaysTrue) else predicate


def _is_dynamic(partitions: PartitionOverwrite | str) -> bool:
    return one_of(PartitionOverwrite, partitions, name="partitions") is PartitionOverwrite.DYNAMIC


def _check_one_slice(where: Condition | None, keys: Sequence[str], schema_mode: SchemaMode, *, dynamic: bool) -> None:
    ways = [
        name
        for name, is_given in (("where", where is not None), ("keys", bool(keys)), ("partitions", dynamic))
        if is_given
    ]
    if schema_mode is SchemaMode.OVERWRITE and ways:
        raise InvalidArgumentError(
            f"The schema can be replaced only together with all rows; a slice leaves old rows. Leave out `{ways[0]}`, or "
            "merge the schema."
        )
    if len(ways) > 1:
        raise InvalidArgumentError(
            f"An overwrite selects the rows to replace in one way, and {' and '.join(ways)} are given. Nothing was written. Leave "
            "one out."
        )


def check_partitions(snapshot: Snapshot, partition_by: Sequence[str] | None) -> None:
    """Refuse other partition columns than those of the table, whose other rows stay."""
    if partition_by is None:
        return
    if [name.lower() for name in partition_by] != [name.lower() for name in snapshot.partition_columns]:
        raise InvalidArgumentError(
            f"{snapshot.identifier} is {partitioning_text(snapshot.partition_columns)}; the call says "
            f"{partitioning_text(partition_by)}. This write does not change that. Nothing was written. Leave out `partition_by`."
        ).with_remedy(OverwriteWithSchema())


def _replace_all(write: WriteTransaction, rows: WriteRows, options: CommitOptions) -> WriteResult:
    """Remove all rows, add ``rows``, and commit.

    With ``replaces_winners``, the same files are committed again after a conflict, and the rows of the winner are removed too.
    """
    write.transaction.keeps_row_ids = True  # No row is copied.
    write.add_new_rows(rows)
    for attempt in range(_MAX_REPLACED_WINNERS):
        try:
            return _commit_all(write)
        except CommitConflictError as error:
            is_last = attempt == _MAX_REPLACED_WINNERS - 1
            if not options.replaces_winners or is_last or not write.restart():
                raise
            options.check_replaced(write.transaction.snapshot)
            _log.info(
                "%s was overwritten concurrently; this overwrite replaces that version: %s",
                write.table.identifier,
                error,
            )
    raise AssertionError("unreachable")


def _commit_all(write: WriteTransaction) -> WriteResult:
    files = write.transaction.snapshot.files
    write.transaction.read_whole_table()
    return write.commit(files, {**_output_metrics(write), "numCopiedRows": 0, **_removed_metrics(files)})


def _commit_replaced(write: WriteTransaction, counts: ChangeCounts) -> WriteResult:
    metrics = {
        **_output_metrics(write),
        "numCopiedRows": counts.num_copied_rows,
        **_removed_metrics(counts.removed_files),
        "numAddedChangeFiles": sum(len(files.adds) for files in write.changes),
        **counts.vectors.metrics("numDeletionVectors"),
    }
    if counts.num_deleted_rows is not None:
        metrics["numDeletedRows"] = sum(counts.num_deleted_rows.values())
    return write.commit(counts.removed_files, metrics)


def _output_metrics(write: WriteTransaction) -> dict[str, int]:
    return {
        "numFiles": sum(len(files.adds) for files in write.written),
        "numOutputRows": sum(files.num_rows for files in write.written),
        "numOutputBytes": sum(files.size_bytes for files in write.written),
    }


def _removed_metrics(files: pa.Table) -> dict[str, int]:
    return {"numRemovedFiles": files.num_rows, "numRemovedBytes": size_of(files)}


def _start(
    table: WriteTarget, snapshot: Snapshot, shape: TargetShape, parameters: dict[str, str], options: CommitOptions
) -> WriteTransaction:
    return start_write(table, snapshot, shape=shape, operation=OPERATION, parameters=parameters, options=options)


def _parameters(mode: str, partition_columns: Sequence[str], predicate: Predicate | None = None) -> dict[str, str]:
    parameters = {"mode": mode, "partitionBy": json_text(partition_columns)}
    if predicate is not None:
        parameters["predicate"] = to_sql(predicate)
    return parameters


def _check_partition_columns(snapshot: Snapshot, offered: StructType) -> None:
    """Refuse rows without a partition column: all of them would go to the partition of NULL."""
    computed = computed_columns(snapshot.schema)
    missing = [name for name in snapshot.partition_columns if offered.field(name) is None and name not in computed]
    if missing:
        raise SchemaMismatchError(
            f"The rows lack the partition column {missing[0]!r} of {snapshot.identifier}; they have the columns "
            f"{', '.join(offered.names)}. Nothing was written. Add the column, with NULL for the partition of NULL."
        )
