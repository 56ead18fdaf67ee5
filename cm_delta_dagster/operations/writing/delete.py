"""DELETE FROM ... WHERE (heading "DML": DML-1 to DML-3). Copy-on-write, one commit."""

from pyspark.sql import SparkSession

from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.conditions import Condition, write_condition
from cm_delta_dagster.operations.writing.copy_on_write import plan_removal
from cm_delta_dagster.operations.writing.write_transaction import (
    TargetShape,
    WriteResult,
    begin,
    check_not_append_only,
    json_text,
    size_of,
)
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.predicates.predicates import to_sql


@names_table
def delete(
    table: WriteTarget, *, spark: SparkSession, where: Condition, context: CommitContext = NO_CONTEXT
) -> WriteResult:
    """Remove the rows for which ``where`` is true; rows for which it is NULL stay.

    Files whose partition values prove that all rows go are removed without being read; a delete that finds no row
    commits nothing.

    Raises:
        InvalidArgumentError: ``where`` is not a condition over the table's columns, or one that a write cannot evaluate.
        IllegalCommitError: the table is append-only.
        CommitConflictError: a concurrent commit changed rows that this delete looked at.
    """
    snapshot = table.snapshot()
    predicate = write_condition(where, snapshot, session=spark, now_ms=table.services.now_ms())
    if predicate is None:
        raise InvalidArgumentError(
            "A delete needs a condition: SQL text, a predicate value or a Column. To delete every row, write TRUE."
        )
    check_writable(snapshot.protocol, snapshot.identifier, metadata=snapshot.metadata)
    check_not_append_only(snapshot, "a delete")
    shape = TargetShape(schema=snapshot.schema, metadata=snapshot.metadata, protocol=snapshot.protocol)
    parameters = {"predicate": json_text([to_sql(predicate)])}
    with begin(
        table, snapshot, shape=shape, operation="DELETE", parameters=parameters, idempotency=None, context=context
    ) as commit:
        commit.transaction.read(predicate)
        removal = plan_removal(table, snapshot, spark, predicate)
        copied = commit.write(removal.stays) if removal.stays is not None else None
        metrics = {
            "numRemovedFiles": removal.removed.num_rows,
            "numRemovedBytes": size_of(removal.removed),
            "numAddedFiles": len(copied.adds) if copied is not None else 0,
            "numAddedBytes": copied.size_bytes if copied is not None else 0,
            "numCopiedRows": copied.num_rows if copied is not None else 0,
        }
        if removal.num_removed_rows is not None:
            metrics["numDeletedRows"] = removal.num_removed_rows
        return commit.finish(removal.removed, metrics)
