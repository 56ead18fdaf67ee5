"""MERGE INTO with clauses, in one commit: by Arrow if the source is Arrow data and nothing needs Spark, else by Spark.

By Spark the source is evaluated once and cached until the merge ends. The keys of the table are read to find the rows that have a
partner, and the files that change are read to write them. If the source is small, no row of the table is shuffled. Otherwise its
keys are shuffled at most once, and of the rows that are written only those that change.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.engines.arrow_plan import ArrowPlan, arrow_plan
from cm_delta_dagster.operations.writing.engines.change_engine import ChangeEngine
from cm_delta_dagster.operations.writing.engines.spark_changes import SparkChanges
from cm_delta_dagster.operations.writing.resolve_change import ResolvedChange, resolve_change
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause, check_clauses
from cm_delta_dagster.operations.writing.rows import WriteRows
from cm_delta_dagster.operations.writing.table_files import (
    kept_row_ids,
)
from cm_delta_dagster.operations.writing.target_conditions import read_predicate
from cm_delta_dagster.operations.writing.target_shape import TargetShape, shape_with_schema
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
from cm_delta_dagster.protocol.changes.row_changes import ClauseKind
from cm_delta_dagster.protocol.features.enablement import without_own_metadata
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.type_widening import widening_in_writes
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, column_path, conjunction, to_sql
from cm_delta_dagster.protocol.predicates.references import KeyPair
from cm_delta_dagster.protocol.schema.char_types import char_widths
from cm_delta_dagster.protocol.schema.evolution import assigned_fields, evolved_by_merge
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.spark.changes.key_ranges import SourceRange, source_range
from cm_delta_dagster.spark.changes.row_changes import ChangeSource, RowChangeQuery
from cm_delta_dagster.spark.expressions.conditions import column_text
from cm_delta_dagster.spark.expressions.schema import schema_of
from cm_delta_dagster.spark.library import DataFrame, is_column
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import temporary_settings
from cm_delta_dagster.spark.stores.object_stores import spark_storage

SMALL_SOURCE = 100_000
"""Up to this many rows, every task gets the whole source, so that the rows of the table are not shuffled."""
_JOIN_CACHED_TASKS: Mapping[str, str] = {"spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true"}
"""Without it, adaptive execution keeps all tasks of the last shuffle of a plan that is cached: 200, however few rows there are."""
_READ_ALL_CACHED_ROWS: Mapping[str, str] = {"spark.sql.inMemoryColumnarStorage.partitionPruning": "false"}
"""The bounds that Spark keeps of cached rows omit NaN, which it sorts above every other number: with them, a filter such as
``c > 1`` skips rows in which ``c`` is NaN (SPARK-58482)."""


@names_table
def merge_rows(
    table: WriteTarget,
    *,
    change: RowChange,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Carry out the clauses of ``change``, which has a source and a condition.

    Arrow carries them out if the source is Arrow data and nothing needs Spark.

    The first clause of its kind whose condition is true applies to a row; for the other rows nothing happens.

    Raises:
        InvalidArgumentError: an expression is not valid or not deterministic, or a clause can never apply.
        InvalidDataError: several rows of the source match the same row of the table, unless the only clause for matches is an
            unconditional delete, or there are only inserts; or a value that its column cannot hold.
        SchemaMismatchError: a value of a type that its column cannot store, or a column that the source lacks.
        IllegalCommitError: the table is append-only and a clause changes rows.
        CommitConflictError: a concurrent commit changed rows that this merge read.
        StoreNotSupportedError: the session has no file system for the location of the table.
    """
    check_clauses(change)
    if change.source is None or change.on is None:
        raise InvalidArgumentError("A merge needs a source and a condition.")
    rows = WriteRows.of(change.source)
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    check_writable(snapshot.protocol, snapshot.identifier)
    if change.removes_rows:
        check_not_append_only(snapshot, "a merge that updates or deletes")
    shape = _evolved_shape(change, snapshot, rows.schema)
    reason = rows.reason_for_engine
    if reason is None:
        plan = arrow_plan(table, snapshot, shape, change, rows)
        if not isinstance(plan, str):
            return _merge_by_arrow(table, snapshot, shape, plan, rows.arrow_rows, options)
        reason = plan
    return _merge_by_spark(table, snapshot, shape, change, rows.spark(reason), options)


def _merge_by_arrow(
    table: WriteTarget,
    snapshot: Snapshot,
    shape: TargetShape,
    plan: ArrowPlan,
    rows: ArrowRows,
    options: CommitOptions,
) -> WriteResult:
    change = plan.change
    parameters = merge_parameters(change)
    with start_write(table, snapshot, shape=shape, operation="MERGE", parameters=parameters, options=options) as write:
        source = plan.source(rows)
        read = plan.read(source)
        declare_read(write, read)
        engine = plan.engine(write, source, read)
        return _run(write, change, engine, read if source.num_rows or plan.by_source else None)


def _merge_by_spark(
    table: WriteTarget,
    snapshot: Snapshot,
    shape: TargetShape,
    change: RowChange,
    frame: DataFrame,
    options: CommitOptions,
) -> WriteResult:
    offered = schema_of(frame)
    resolved = resolve_change(
        replace(change, source=frame),
        snapshot,
        shape=shape,
        offered=offered,
        session=frame.sparkSession,
        now_ms=table.services.now_ms(),
    )
    spark_storage(frame.sparkSession, table.store, snapshot.location)
    with (
        spark_errors(f"merging into {snapshot.identifier}"),
        start_write(
            table, snapshot, shape=shape, operation="MERGE", parameters=merge_parameters(change), options=options
        ) as write,
        cached(frame) as source,
    ):
        keys = _usable_keys(resolved.keys, target=snapshot.schema, source=offered)
        facts = source_range(source, keys, partition_columns=snapshot.partition_columns)
        return run_merge(write, change, resolved, source, facts)


def _evolved_shape(change: RowChange, snapshot: Snapshot, offered: StructType) -> TargetShape:
    """The table after the schema evolution that the clauses ask for; ``offered`` are the columns of the source.

    Raises:
        SchemaMismatchError, UnsupportedFeatureError: as ``shape_with_schema``.
    """
    if not change.evolves:
        return TargetShape(schema=snapshot.schema, metadata=snapshot.metadata, protocol=snapshot.protocol)
    # Clauses for rows without a partner do not see the source.
    clauses = [clause for clause in change.clauses if clause.kind is not ClauseKind.NOT_MATCHED_BY_SOURCE]
    offered = without_own_metadata(offered)
    if all(clause.assignments is not None for clause in clauses):
        paths = [column_path(name) for clause in clauses for name in clause.assignments or ()]
        alias = change.target_alias.lower()
        offered = assigned_fields(
            offered, [path[1:] if len(path) > 1 and path[0].lower() == alias else path for path in paths]
        )
    widens = widening_in_writes(snapshot.properties)
    return shape_with_schema(snapshot, evolved_by_merge(snapshot.schema, offered, widens=widens))


def _usable_keys(keys: Iterable[KeyPair], *, target: StructType, source: StructType) -> list[tuple[str, StructField]]:
    """The keys whose range in the source limits the files of the table: of the same type, which Spark compares as they are."""
    usable = []
    for pair in keys:
        have, want = source.field(pair.source), target.field(pair.target)
        if have is not None and want is not None and have.type == want.type and char_widths(want) is None:
            usable.append((have.name, want))
    return usable


def run_merge(
    write: WriteTransaction, change: RowChange, resolved: ResolvedChange, source: DataFrame, facts: SourceRange
) -> WriteResult:
    """Change the rows and commit.

    Args:
        source: the cached source.
    """
    snapshot = write.transaction.snapshot
    assert resolved.on is not None
    read = read_predicate(resolved.by_source, conjunction([resolved.on_target, facts.key_range]))
    declare_read(write, read)
    by_source = any(clause.kind is ClauseKind.NOT_MATCHED_BY_SOURCE for clause in change.clauses)
    may_match = facts.num_rows > 0 or by_source
    query = RowChangeQuery(
        schema=resolved.shape.schema,
        target_alias=change.target_alias,
        clauses=resolved.clauses,
        source=ChangeSource(
            frame=source, alias=change.source_alias, on=resolved.on, is_small=facts.num_rows <= SMALL_SOURCE
        ),
        computed=resolved.computed,
        row_ids=kept_row_ids(snapshot),
    )
    engine = SparkChanges(
        transaction=write,
        session=source.sparkSession,
        query=query,
        may_match_twice=change.may_match_twice,
        num_source_rows=facts.num_rows,
    )
    return _run(write, change, engine, read if may_match else None)


def _run(write: WriteTransaction, change: RowChange, engine: ChangeEngine, read: Predicate | None) -> WriteResult:
    """Change the rows of the files that may have rows for which ``read`` is true, None for no rows, and commit."""
    snapshot = write.transaction.snapshot
    candidates = snapshot.files.slice(0, 0) if read is None else snapshot.matching_files(read)
    run = RowChangeRun(write=write, engine=engine, candidates=candidates, may_match_twice=change.may_match_twice)
    counts = run.insert() if change.is_insert_only else run.run()
    return write.commit(counts.removed_files, merge_metrics(write, counts, engine.num_source_rows))


def declare_read(write: WriteTransaction, read: Predicate) -> None:
    """Declare that the outcome depends on the rows for which ``read`` is true."""
    if isinstance(read, AlwaysTrue):
        write.transaction.read_whole_table()
    else:
        write.transaction.read(read)


def merge_metrics(write: WriteTransaction, counts: ChangeCounts, num_source_rows: int) -> dict[str, int]:
    """The metrics that MERGE reports."""
    matched, other = ClauseKind.MATCHED, ClauseKind.NOT_MATCHED_BY_SOURCE
    updated, deleted = counts.num_updated_rows, counts.num_deleted_rows or {}
    written = write.written
    return {
        "numSourceRows": num_source_rows,
        "numTargetRowsInserted": counts.num_inserted_rows,
        "numTargetRowsUpdated": sum(updated.values()),
        "numTargetRowsMatchedUpdated": updated.get(matched, 0),
        "numTargetRowsNotMatchedBySourceUpdated": updated.get(other, 0),
        "numTargetRowsDeleted": sum(deleted.values()),
        "numTargetRowsMatchedDeleted": deleted.get(matched, 0),
        "numTargetRowsNotMatchedBySourceDeleted": deleted.get(other, 0),
        "numTargetRowsCopied": counts.num_copied_rows,
        "numOutputRows": sum(files.num_rows for files in written),
        "numTargetFilesAdded": sum(len(files.adds) for files in written),
        "numTargetBytesAdded": sum(files.size_bytes for files in written),
        "numTargetFilesRemoved": counts.removed_files.num_rows,
        "numTargetBytesRemoved": size_of(counts.removed_files),
        "numTargetChangeFilesAdded": sum(len(files.adds) for files in write.changes),
        **counts.vectors.metrics("numTargetDeletionVectors"),
    }


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Persist the source for the several passes over it, unless the caller has done so. Queries in the block skip no rows of it."""
    with spark_errors("caching the source of a merge"):
        level = frame.storageLevel
        cached_by_caller = level.useMemory or level.useDisk
        if not cached_by_caller:
            with temporary_settings(frame.sparkSession, _JOIN_CACHED_TASKS):
                frame.persist()
    try:
        with temporary_settings(frame.sparkSession, _READ_ALL_CACHED_ROWS):
            yield frame
    finally:
        if not cached_by_caller:
            frame.unpersist()


def merge_parameters(change: RowChange) -> dict[str, str]:
    """``operationParameters`` of the commit."""
    condition = "" if change.on is None else expression_text(change.on)
    if change.where is not None:
        condition = f"{condition} AND ({to_sql(change.where)})"
    named = {
        "matchedPredicates": ClauseKind.MATCHED,
        "notMatchedPredicates": ClauseKind.NOT_MATCHED,
        "notMatchedBySourcePredicates": ClauseKind.NOT_MATCHED_BY_SOURCE,
    }
    clauses = {
        key: json_text([_clause_parameters(clause) for clause in change.clauses if clause.kind is kind])
        for key, kind in named.items()
    }
    return {"predicate": json_text([condition]), **clauses}


def _clause_parameters(clause: RowClause) -> Mapping[str, str]:
    action = {"actionType": clause.action.value}
    return action if clause.condition is None else {"predicate": expression_text(clause.condition), **action}


def expression_text(expression: Condition) -> str:
    """The text of an expression for the history of the table."""
    if isinstance(expression, str):
        return expression
    if not is_column(expression):
        return to_sql(expression)
    return column_text(expression) or " ".join(str(expression).split())
