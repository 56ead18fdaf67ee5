"""Append and overwrite (headings "Add File and Remove File", "DML": DML-7). One commit each."""

from pyspark.sql import DataFrame

from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.conditions import Condition, write_condition
from cm_delta_dagster.operations.writing.copy_on_write import Removal, plan_removal
from cm_delta_dagster.operations.writing.write_transaction import (
    WriteOutcome,
    WriteResult,
    already_done,
    begin,
    check_not_append_only,
    json_text,
    size_of,
    target_shape,
)
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, to_sql
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.schema import schema_of
from cm_delta_dagster.spark.session import check_frame

__all__ = ["WriteOutcome", "WriteResult", "append", "overwrite"]

OPERATION = "WRITE"


@names_table
def append(
    table: WriteTarget,
    *,
    frame: DataFrame,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    idempotency: Idempotency | None = None,
    context: CommitContext = NO_CONTEXT,
) -> WriteResult:
    """Add the rows of ``frame``. A blind append: it reads nothing and conflicts with no other append (OCC-12).

    Args:
        frame: columns are matched by name ignoring case; missing nullable ones become NULL.
        schema_mode: STRICT, or MERGE to add columns to the table in the same commit.
        idempotency: the write happens once for this application and version (TXN-4).

    Raises:
        SchemaMismatchError: the columns do not fit; the message shows both schemas.
        InvalidDataError: a row breaks NOT NULL or has a partition value that cannot be stored.
        CommitConflictError: the table changed in a way that an append depends on, e.g. its schema.
        CommitStateUnknownError: it is not known whether the rows are in the table.
    """
    check_frame(frame)
    if schema_mode is SchemaMode.OVERWRITE:
        raise InvalidArgumentError(
            "An append cannot replace the schema, because old rows stay. Use overwrite, or merge."
        )
    snapshot = table.snapshot()
    done = already_done(table, snapshot, idempotency)
    if done is not None:
        return done
    shape = target_shape(snapshot, frame, schema_mode)
    _check_partition_columns(snapshot, frame)
    parameters = {"mode": "Append", "partitionBy": json_text(snapshot.partition_columns)}
    with begin(
        table,
        snapshot,
        shape=shape,
        operation=OPERATION,
        parameters=parameters,
        idempotency=idempotency,
        context=context,
    ) as commit:
        written = commit.write(frame)
        metrics = {
            "numFiles": len(written.adds),
            "numOutputRows": written.num_rows,
            "numOutputBytes": written.size_bytes,
        }
        return commit.finish(snapshot.files.slice(0, 0), metrics)


@names_table
def overwrite(
    table: WriteTarget,
    *,
    frame: DataFrame,
    where: Condition | None = None,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    idempotency: Idempotency | None = None,
    context: CommitContext = NO_CONTEXT,
) -> WriteResult:
    """Replace all rows, or exactly the rows that satisfy ``where``, by the rows of ``frame``, in one commit (DML-7).

    Args:
        where: the slice that is replaced; an empty frame clears it. A condition on partition columns alone removes
            whole files and reads nothing; another one rewrites the files that hold rows of both kinds. NULL does not satisfy.
        schema_mode: OVERWRITE replaces the schema too, only without ``where``.
        idempotency: the write happens once for this application and version (TXN-4).

    Raises:
        InvalidArgumentError: ``where`` is not a condition over the table's columns, or one that a write cannot evaluate.
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
    done = already_done(table, snapshot, idempotency)
    if done is not None:
        return done
    predicate = write_condition(where, snapshot, session=frame.sparkSession, now_ms=table.services.now_ms())
    if isinstance(predicate, AlwaysTrue):
        predicate = None
    if snapshot.num_files:
        check_not_append_only(snapshot, "an overwrite")
    shape = target_shape(snapshot, frame, schema_mode)
    _check_partition_columns(snapshot, frame)
    parameters = {"mode": "Overwrite", "partitionBy": json_text(snapshot.partition_columns)}
    if predicate is not None:
        parameters["predicate"] = to_sql(predicate)
    with begin(
        table,
        snapshot,
        shape=shape,
        operation=OPERATION,
        parameters=parameters,
        idempotency=idempotency,
        context=context,
    ) as commit:
        if predicate is None:
            commit.transaction.read_whole_table()
            removal = Removal(removed=snapshot.files, stays=None, num_removed_rows=snapshot.num_rows)
        else:
            commit.transaction.read(predicate)
            removal = plan_removal(table, snapshot, frame.sparkSession, predicate)
        commit.write(frame, predicate)
        copied = 0 if removal.stays is None else commit.write(removal.stays).num_rows
        metrics = {
            "numFiles": sum(len(files.adds) for files in commit.written),
            "numOutputRows": sum(files.num_rows for files in commit.written),
            "numOutputBytes": sum(files.size_bytes for files in commit.written),
            "numCopiedRows": copied,
            "numRemovedFiles": removal.removed.num_rows,
            "numRemovedBytes": size_of(removal.removed),
        }
        return commit.finish(removal.removed, metrics)


def _check_partition_columns(snapshot: Snapshot, frame: DataFrame) -> None:
    """Rows without a partition column would all go to the partition of NULL, which nobody means."""
    offered = schema_of(frame)
    missing = [name for name in snapshot.partition_columns if offered.field(name) is None]
    if missing:
        raise SchemaMismatchError(
            f"The rows lack the partition column {missing[0]!r} of {snapshot.identifier}; they have the columns "
            f"{', '.join(offered.names)}. Nothing was written. Add the column, with NULL for the partition of NULL."
        )
