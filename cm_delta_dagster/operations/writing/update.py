"""UPDATE ... SET ... WHERE, by deletion vectors or copy-on-write, in one commit."""

from collections.abc import Mapping

from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.conditions import Condition, write_condition
from cm_delta_dagster.operations.writing.delete import file_metrics
from cm_delta_dagster.operations.writing.resolve_change import resolve_change
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange, RowClause
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.operations.writing.target_shape import TargetShape
from cm_delta_dagster.operations.writing.write_result import WriteResult, earlier_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    check_not_append_only,
    json_text,
    start_write,
)
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, to_sql
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.changes.change_clauses import ClauseAction, ClauseKind
from cm_delta_dagster.spark.changes.row_changes import RowChangeQuery
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.stores.object_stores import spark_storage


@names_table
def update(
    table: WriteTarget,
    *,
    spark: SparkSession,
    assignments: Mapping[str, Expression],
    where: Condition | None = None,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Set columns of the rows for which ``where`` is true, of all rows without it. Rows for which it is NULL stay.

    Args:
        assignments: values by column; ``a.b`` names the field of a struct. Values may refer to all columns of the row as they were
            before. The text ``DEFAULT`` is the column's default.

    Raises:
        InvalidArgumentError: a condition or value is not valid or not deterministic, or the table has no such column.
        SchemaMismatchError: a value of a type that its column cannot store.
        InvalidDataError: a value that its column cannot hold.
        IllegalCommitError: the table is append-only.
        CommitConflictError: a concurrent commit changed rows that this update read.
    """
    _check_assignments(assignments)
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    now_ms = table.services.now_ms()
    predicate = write_condition(where, snapshot, session=spark, now_ms=now_ms) or AlwaysTrue()
    check_writable(snapshot.protocol, snapshot.identifier)
    check_not_append_only(snapshot, "an update")
    condition = None if isinstance(predicate, AlwaysTrue) else predicate
    clause = RowClause(
        kind=ClauseKind.NOT_MATCHED_BY_SOURCE,
        action=ClauseAction.UPDATE,
        condition=condition,
        assignments=assignments,
    )
    change = RowChange(clauses=(clause,))
    shape = TargetShape(schema=snapshot.schema, metadata=snapshot.metadata, protocol=snapshot.protocol)
    resolved = resolve_change(change, snapshot, shape=shape, offered=StructType(()), session=spark, now_ms=now_ms)
    query = RowChangeQuery(
        schema=shape.schema,
        target_alias=change.target_alias,
        clauses=resolved.clauses,
        row_ids=kept_row_ids(snapshot),
    )
    parameters = {"predicate": json_text([to_sql(predicate)])}
    spark_storage(spark, table.store, snapshot.location)
    with (
        spark_errors(f"updating {snapshot.identifier}"),
        start_write(table, snapshot, shape=shape, operation="UPDATE", parameters=parameters, options=options) as write,
    ):
        write.transaction.read(predicate)
        candidates = snapshot.matching_files(predicate)
        run = RowChangeRun(write=write, session=spark, query=query, candidates=candidates, where=predicate)
        counts = run.run()
        metrics = {
            **file_metrics(write, counts),
            "numUpdatedRows": sum(counts.num_updated_rows.values()),
            "numCopiedRows": counts.num_copied_rows,
        }
        return write.commit(counts.removed_files, metrics)


def _check_assignments(assignments: object) -> None:
    if not isinstance(assignments, Mapping) or not assignments:
        raise InvalidArgumentError(
            'An update needs values to set. Give a mapping of columns to SQL text or Columns, e.g. {"price": "price * 2"}.'
        )
