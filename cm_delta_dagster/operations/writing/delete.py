"""DELETE FROM ... WHERE, by deletion vectors or copy-on-write, in one commit."""

from cm_delta_dagster.arrow.write.stored_columns import files_need_spark
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts
from cm_delta_dagster.operations.writing.conditions import Condition, change_condition
from cm_delta_dagster.operations.writing.delete_rows import delete_rows, matching_files
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice, SessionSource, no_session
from cm_delta_dagster.operations.writing.target_shape import TargetShape
from cm_delta_dagster.operations.writing.write_result import WriteResult, earlier_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    WriteTransaction,
    check_not_append_only,
    json_text,
    start_write,
)
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.predicates.predicates import to_sql
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.session.errors import spark_errors


@names_table
def delete(
    table: WriteTarget,
    *,
    where: Condition,
    spark: SparkSession | SessionSource = no_session,
    engine: WriteEngine | None = None,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Delete the rows for which ``where`` is true. Rows for which it is NULL stay.

    Files whose partition values prove that all rows match are removed without being read. If no row matches, nothing is
    committed, unless the delete is idempotent.

    Args:
        spark: the session for what Arrow cannot do, or a function that returns it.
        engine: that finds the rows and writes files; None for Arrow, unless only Spark can, or the files are large.

    Raises:
        InvalidArgumentError: ``where`` is not a condition over the table's columns, or a write cannot evaluate it.
        IllegalCommitError: the table is append-only.
        CommitConflictError: a concurrent commit changed rows that this delete read.
    """
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    choice = EngineChoice.of(spark, engine)
    predicate, session = change_condition(where, snapshot, choice, now_ms=table.services.now_ms())
    if predicate is None:
        raise InvalidArgumentError(
            "A delete needs a condition: SQL text, a predicate value or a Column. To delete every row, write TRUE."
        )
    check_writable(snapshot.protocol, snapshot.identifier)
    check_not_append_only(snapshot, "a delete")
    files = matching_files(snapshot, predicate)
    reason = choice.reason_for_spark(files.mixed) or files_need_spark(snapshot.layout)
    if session is None and reason is not None and files.mixed.num_rows:
        session = choice.needed_session(reason, "This delete needs")
    shape = TargetShape(schema=snapshot.schema, metadata=snapshot.metadata, protocol=snapshot.protocol)
    parameters = {"predicate": json_text([to_sql(predicate)])}
    with (
        spark_errors(f"deleting from {snapshot.identifier}"),
        start_write(table, snapshot, shape=shape, operation="DELETE", parameters=parameters, options=options) as write,
    ):
        write.transaction.read(predicate)
        counts = delete_rows(write, session, files)
        metrics = {**file_metrics(write, counts), "numCopiedRows": counts.num_copied_rows}
        if counts.num_deleted_rows is not None:
            metrics["numDeletedRows"] = sum(counts.num_deleted_rows.values())
        return write.commit(counts.removed_files, metrics)


def file_metrics(write: WriteTransaction, counts: ChangeCounts) -> dict[str, int]:
    """The metrics of files and deletion vectors that DELETE and UPDATE report."""
    return {
        "numRemovedFiles": counts.removed_files.num_rows,
        "numRemovedBytes": size_of(counts.removed_files),
        "numAddedFiles": sum(len(files.adds) for files in write.written),
        "numAddedBytes": sum(files.size_bytes for files in write.written),
        "numAddedChangeFiles": sum(len(files.adds) for files in write.changes),
        **counts.vectors.metrics("numDeletionVectors"),
    }
