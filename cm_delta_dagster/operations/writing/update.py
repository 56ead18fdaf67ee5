"""UPDATE ... SET ... WHERE, by deletion vectors or copy-on-write, in one commit."""

from collections.abc import Mapping

from cm_delta_dagster.arrow.write.assigned_values import AssignedValues
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.conditions import Condition, change_condition
from cm_delta_dagster.operations.writing.delete import file_metrics
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice, SessionSource, no_session
from cm_delta_dagster.operations.writing.engines.arrow_assignments import arrow_assignments
from cm_delta_dagster.operations.writing.engines.arrow_changes import ArrowChanges
from cm_delta_dagster.operations.writing.engines.change_engine import ChangeEngine
from cm_delta_dagster.operations.writing.engines.spark_changes import SparkChanges
from cm_delta_dagster.operations.writing.file_writes import layout_for_arrow
from cm_delta_dagster.operations.writing.resolve_change import resolve_change
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange, RowClause
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
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
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, to_sql
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.spark.changes.row_changes import RowChangeQuery
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.stores.object_stores import spark_storage

_TABLE = "target"
"""The table in names of columns."""


@names_table
def update(
    table: WriteTarget,
    *,
    assignments: Mapping[str, Expression],
    where: Condition | None = None,
    spark: SparkSession | SessionSource = no_session,
    engine: WriteEngine | None = None,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Set columns of the rows for which ``where`` is true, of all rows without it. Rows for which it is NULL stay.

    Args:
        assignments: values by column; ``a.b`` names the field of a struct. Values may refer to all columns of the row as they were
            before. The text ``DEFAULT`` is the column's default.
        spark: the session for what Arrow cannot do, or a function that returns it.
        engine: that finds the rows and writes files; None for Arrow, unless only Spark can, or the files are large.

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
    choice = EngineChoice.of(spark, engine)
    condition, session = change_condition(where, snapshot, choice, now_ms=now_ms)
    predicate = condition or AlwaysTrue()
    check_writable(snapshot.protocol, snapshot.identifier)
    check_not_append_only(snapshot, "an update")
    candidates = snapshot.matching_files(predicate)
    layout = layout_for_arrow(table, snapshot.layout)
    values = arrow_assignments(assignments, layout, alias=_TABLE, now_ms=now_ms)
    reason = choice.reason_for_spark(candidates) or (values if isinstance(values, str) else None)
    if session is None and reason is not None:
        session = choice.needed_session(reason, "This update needs")
    shape = TargetShape(schema=snapshot.schema, metadata=snapshot.metadata, protocol=snapshot.protocol)
    query = None
    if session is not None:
        query = _query(snapshot, shape, assignments, predicate, session=session, now_ms=now_ms)
        spark_storage(session, table.store, snapshot.location)
    parameters = {"predicate": json_text([to_sql(predicate)])}
    with (
        spark_errors(f"updating {snapshot.identifier}"),
        start_write(table, snapshot, shape=shape, operation="UPDATE", parameters=parameters, options=options) as write,
    ):
        write.transaction.read(predicate)
        changes = _engine(write, session, predicate, values if query is None else query)
        counts = RowChangeRun(write=write, engine=changes, candidates=candidates).run()
        metrics = {
            **file_metrics(write, counts),
            "numUpdatedRows": sum(counts.num_updated_rows.values()),
            "numCopiedRows": counts.num_copied_rows,
        }
        return write.commit(counts.removed_files, metrics)


def _engine(
    write: WriteTransaction,
    session: SparkSession | None,
    predicate: Predicate,
    values: RowChangeQuery | AssignedValues | str,
) -> ChangeEngine:
    if session is not None and isinstance(values, RowChangeQuery):
        return SparkChanges(transaction=write, session=session, query=values, where=predicate)
    assert isinstance(values, AssignedValues), "there is a reason for Spark otherwise"
    row_ids = kept_row_ids(write.transaction.snapshot)
    return ArrowChanges(transaction=write, where=predicate, values=values, row_ids=row_ids)


def _query(
    snapshot: Snapshot,
    shape: TargetShape,
    assignments: Mapping[str, Expression],
    predicate: Predicate,
    *,
    session: SparkSession,
    now_ms: int,
) -> RowChangeQuery:
    """The change for Spark."""
    clause = RowClause(
        kind=ClauseKind.NOT_MATCHED_BY_SOURCE,
        action=ClauseAction.UPDATE,
        condition=None if isinstance(predicate, AlwaysTrue) else predicate,
        assignments=assignments,
    )
    change = RowChange(clauses=(clause,), target_alias=_TABLE)
    resolved = resolve_change(change, snapshot, shape=shape, offered=StructType(()), session=session, now_ms=now_ms)
    return RowChangeQuery(
        schema=shape.schema,
        target_alias=change.target_alias,
        clauses=resolved.clauses,
        row_ids=kept_row_ids(snapshot),
    )


def _check_assignments(assignments: object) -> None:
    if not isinstance(assignments, Mapping) or not assignments:
        raise InvalidArgumentError(
            'An update needs values to set. Give a mapping of columns to SQL text or Columns, e.g. {"price": "price * 2"}.'
        )
