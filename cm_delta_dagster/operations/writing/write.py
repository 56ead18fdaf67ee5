"""Append and overwrite, in one commit each."""

import logging

from pyspark.sql import DataFrame

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.conditions import Condition, write_condition
from cm_delta_dagster.operations.writing.copy_on_write import CopyOnWritePlan, plan_copy_on_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    TargetShape,
    WriteOutcome,
    WriteResult,
    WriteTransaction,
    check_not_append_only,
    earlier_write,
    json_text,
    size_of,
    start_write,
    target_shape,
)
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, to_sql
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.fill import computed_columns
from cm_delta_dagster.spark.schema import schema_of
from cm_delta_dagster.spark.session import check_frame

__all__ = ["WriteOutcome", "WriteResult", "append", "overwrite"]

_log = logging.getLogger(__name__)

OPERATION = "WRITE"
_MAX_RENUMBERINGS = 10


@names_table
def append(
    table: WriteTarget,
    *,
    frame: DataFrame,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Add the rows of ``frame``. A blind append: it reads no row and does not conflict with other appends.

    Args:
        frame: columns are matched by name, ignoring case; missing nullable columns become NULL.
        schema_mode: STRICT, or MERGE to add columns to the table in the same commit.

    Raises:
        SchemaMismatchError: the columns do not fit; the message shows both schemas.
        InvalidDataError: a row violates NOT NULL or a constraint, or has a partition value that cannot be stored.
        InvalidArgumentError: ``frame`` has an identity column that is always generated, or ``schema_mode`` is OVERWRITE.
        CommitConflictError: a concurrent commit changed what an append depends on, e.g. the schema. If it only numbered rows of
            an identity column, the rows of this append are numbered and written again.
        CommitStateUnknownError: it is unknown whether the commit succeeded.
    """
    check_frame(frame)
    if schema_mode is SchemaMode.OVERWRITE:
        raise InvalidArgumentError(
            "An append cannot replace the schema, because old rows stay. Use overwrite, or merge."
        )
    for _ in range(_MAX_RENUMBERINGS):
        try:
            return _append(table, frame, schema_mode, options)
        except _RenumberedError as error:
            _log.info("Another writer numbered rows of %s; these rows are numbered and written again", table.identifier)
            conflict = error.conflict
    raise conflict


class _RenumberedError(Exception):
    """The values of identity columns were taken by another writer. The files were deleted."""

    def __init__(self, conflict: CommitConflictError) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


def _append(table: WriteTarget, frame: DataFrame, schema_mode: SchemaMode, options: CommitOptions) -> WriteResult:
    """One attempt of an append. Raises _RenumberedError after a conflict if the rows have generated identity values."""
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    shape = target_shape(snapshot, frame, schema_mode)
    _check_partition_columns(snapshot, frame)
    with _start(table, snapshot, shape, _parameters("Append", snapshot), options) as write:
        written = write.add_new_rows(frame)
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
    frame: DataFrame,
    where: Condition | None = None,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Replace all rows, or exactly the rows that satisfy ``where``, by the rows of ``frame``, in one commit.

    Args:
        where: the slice to replace; an empty frame clears it. A condition on partition columns alone removes whole files
            and reads nothing. Another condition rewrites the files that hold matching and other rows. Rows for which it is
            NULL stay.
        schema_mode: OVERWRITE also replaces the schema and excludes ``where``.

    Raises:
        InvalidArgumentError: ``where`` is not a condition over the table's columns, or a write cannot evaluate it.
        PartitionMismatchError: a row of ``frame`` does not satisfy ``where``; nothing was committed.
        SchemaMismatchError, InvalidDataError, CommitConflictError, CommitStateUnknownError: as for :func:`append`.
        IllegalCommitError: the table is append-only.
    """
    check_frame(frame)
    if schema_mode is SchemaMode.OVERWRITE and where is not None:
        raise InvalidArgumentError(
            "The schema can be replaced only together with all rows; a slice leaves old rows. Leave out `where`, or "
            "merge the schema."
        )
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    predicate = write_condition(where, snapshot, session=frame.sparkSession, now_ms=table.services.now_ms())
    if isinstance(predicate, AlwaysTrue):
        predicate = None
    if snapshot.num_files:
        check_not_append_only(snapshot, "an overwrite")
    shape = target_shape(snapshot, frame, schema_mode)
    _check_partition_columns(snapshot, frame)
    with _start(table, snapshot, shape, _parameters("Overwrite", snapshot, predicate), options) as write:
        return _replace(write, frame, predicate)


def _replace(write: WriteTransaction, frame: DataFrame, predicate: Predicate | None) -> WriteResult:
    """Remove the rows that satisfy ``predicate``, or all rows, add those of ``frame``, and commit."""
    snapshot = write.transaction.snapshot
    if predicate is None:
        write.transaction.read_whole_table()
        plan = CopyOnWritePlan(removed_files=snapshot.files, copied_rows=None, num_deleted_rows=snapshot.num_rows)
    else:
        write.transaction.read(predicate)
        plan = plan_copy_on_write(write.table, snapshot, frame.sparkSession, predicate)
    write.add_new_rows(frame, predicate)
    copied = 0 if plan.copied_rows is None else write.move_rows(plan.copied_rows).num_rows
    metrics = {
        "numFiles": sum(len(files.adds) for files in write.written),
        "numOutputRows": sum(files.num_rows for files in write.written),
        "numOutputBytes": sum(files.size_bytes for files in write.written),
        "numCopiedRows": copied,
        "numRemovedFiles": plan.removed_files.num_rows,
        "numRemovedBytes": size_of(plan.removed_files),
    }
    return write.commit(plan.removed_files, metrics)


def _start(
    table: WriteTarget, snapshot: Snapshot, shape: TargetShape, parameters: dict[str, str], options: CommitOptions
) -> WriteTransaction:
    return start_write(table, snapshot, shape=shape, operation=OPERATION, parameters=parameters, options=options)


def _parameters(mode: str, snapshot: Snapshot, predicate: Predicate | None = None) -> dict[str, str]:
    parameters = {"mode": mode, "partitionBy": json_text(snapshot.partition_columns)}
    if predicate is not None:
        parameters["predicate"] = to_sql(predicate)
    return parameters


def _check_partition_columns(snapshot: Snapshot, frame: DataFrame) -> None:
    """Refuse rows without a partition column: all of them would go to the partition of NULL."""
    offered = schema_of(frame)
    computed = computed_columns(snapshot.schema)
    missing = [name for name in snapshot.partition_columns if offered.field(name) is None and name not in computed]
    if missing:
        raise SchemaMismatchError(
            f"The rows lack the partition column {missing[0]!r} of {snapshot.identifier}; they have the columns "
            f"{', '.join(offered.names)}. Nothing was written. Add the column, with NULL for the partition of NULL."
        )
