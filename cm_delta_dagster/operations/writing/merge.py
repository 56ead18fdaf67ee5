"""MERGE by key: upsert, insert, update, replace a slice, in one commit. A shorthand for the clauses of :mod:`.merge_rows`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.conditions import Condition, slice_condition, slice_without_spark
from cm_delta_dagster.operations.writing.engines.arrow_clauses import ArrowClause
from cm_delta_dagster.operations.writing.engines.arrow_join import ArrowJoin
from cm_delta_dagster.operations.writing.engines.arrow_merge import ArrowMerge
from cm_delta_dagster.operations.writing.engines.arrow_source import (
    arrow_source_facts,
    keyed_source,
    source_needs_spark,
)
from cm_delta_dagster.operations.writing.file_writes import layout_for_arrow
from cm_delta_dagster.operations.writing.merge_rows import (
    cached,
    declare_read,
    merge_metrics,
    merge_parameters,
    run_merge,
)
from cm_delta_dagster.operations.writing.resolve_change import resolve_change
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.operations.writing.target_shape import TargetShape, target_shape
from cm_delta_dagster.operations.writing.write_result import WriteResult, earlier_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    check_not_append_only,
    layout_of,
    start_write,
)
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.changes.source_facts import (
    SourceFacts,
    check_inside,
    check_keys_are_stored,
    check_unique,
)
from cm_delta_dagster.protocol.features.identity_columns import check_not_given, identity_columns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    Predicate,
    conjunction,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructField, StructType, data_type_text
from cm_delta_dagster.remedies import MergeOnCondition
from cm_delta_dagster.spark.changes.key_ranges import SourceRange
from cm_delta_dagster.spark.changes.merge import (
    MergeSource,
    merge_source,
    source_facts,
)
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import DataFrame
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.stores.object_stores import spark_storage


class MergeMode(StrEnum):
    """What a merge does to matched and unmatched rows."""

    UPSERT = "upsert"
    """Update matched target rows; insert unmatched source rows."""
    INSERT_ONLY = "insert_only"
    """Insert unmatched source rows; target rows stay as they are."""
    UPDATE_ONLY = "update_only"
    """Update matched target rows; insert nothing."""
    DELETE_UNMATCHED = "delete_unmatched"
    """As UPSERT, and delete the unmatched target rows that satisfy ``where``."""


@names_table
def merge(
    table: WriteTarget,
    *,
    frame: AnyRows | WriteRows,
    keys: Sequence[str],
    mode: MergeMode = MergeMode.UPSERT,
    where: Condition | None = None,
    schema_mode: SchemaMode = SchemaMode.STRICT,
    options: CommitOptions = DEFAULT_OPTIONS,
) -> WriteResult:
    """Merge the rows of ``frame`` into the table by key. NULL keys match nothing.

    Args:
        frame: at most one row for each key. Columns that it lacks stay unchanged in updated rows, and are NULL in others.
        keys: names of the key columns, ignoring case.
        where: slice of the table to merge into. Rows of the table outside of the slice are neither read nor changed; a row
            of ``frame`` outside of it is an error. Merges into disjoint partitions do not conflict.
        schema_mode: STRICT, or MERGE to add columns to the table.

    Raises:
        InvalidArgumentError: the table or the frame has no such key column, or ``schema_mode`` is OVERWRITE.
        InvalidDataError: several rows of ``frame`` have the same key, or a key in a partition column is the empty text.
        PartitionMismatchError: a row of ``frame`` does not satisfy ``where``.
        SchemaMismatchError: the columns do not fit.
        IllegalCommitError: the table is append-only and the mode changes rows.
        CommitConflictError: a concurrent commit changed rows that this merge read.
        StoreNotSupportedError: the session has no file system for the location of the table.
    """
    rows = WriteRows.of(frame)
    if schema_mode is SchemaMode.OVERWRITE:
        raise InvalidArgumentError(
            "A merge cannot replace the schema, because old rows stay. Use overwrite, or merge the schema."
        )
    snapshot = table.snapshot()
    earlier = earlier_write(table, snapshot, options.idempotency)
    if earlier is not None:
        return earlier
    if mode is not MergeMode.INSERT_ONLY:
        check_not_append_only(snapshot, f"a merge of mode {mode.value}")
    now_ms = table.services.now_ms()
    rows.fit(snapshot.schema)
    scope = _slice(where, rows, snapshot, now_ms=now_ms)
    names = key_names(keys, snapshot.schema, rows.schema)
    _check_identity(snapshot.schema, rows.schema, names, mode)
    shape = target_shape(snapshot, rows.schema, schema_mode)
    layout = layout_for_arrow(table, layout_of(table, shape))
    reason = rows.reason_for_spark(layout) or source_needs_spark(rows.schema, layout, names, scope)
    on = _Merge(keys=names, mode=mode, scope=scope)
    if reason is None:
        return _merge_by_arrow(table, snapshot, shape, on, rows.arrow_rows, options)
    return _merge_by_spark(table, snapshot, shape, on, rows.spark(reason), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    """What a merge does; ``scope`` is its slice."""

    keys: tuple[str, ...]
    mode: MergeMode
    scope: Predicate | None


def _slice(where: Condition | None, rows: WriteRows, snapshot: Snapshot, *, now_ms: int) -> Predicate | None:
    """The condition of the slice; None if it is the whole table."""
    scope = None
    if where is not None and rows.needs_no_spark:
        scope = slice_without_spark(where, snapshot, now_ms=now_ms)
    if where is not None and scope is None:
        session = rows.spark("only Spark evaluates the condition of the slice").sparkSession
        scope = slice_condition(where, snapshot, session=session, now_ms=now_ms)
    return None if isinstance(scope, AlwaysTrue) else scope


def _merge_by_arrow(
    table: WriteTarget,
    snapshot: Snapshot,
    shape: TargetShape,
    merge: _Merge,
    rows: ArrowRows,
    options: CommitOptions,
) -> WriteResult:
    layout = layout_for_arrow(table, layout_of(table, shape))
    parameters = merge_parameters(_row_change(None, merge))
    with start_write(table, snapshot, shape=shape, operation="MERGE", parameters=parameters, options=options) as write:
        source = keyed_source(rows, layout, merge.keys)
        facts = arrow_source_facts(source, layout, merge.scope)
        _check(facts, merge.scope)
        deletes = merge.mode is MergeMode.DELETE_UNMATCHED
        scope = [] if merge.scope is None else [merge.scope]
        read = conjunction(scope if deletes else [facts.key_range, *scope])
        declare_read(write, read)
        columns = [item for item in layout.schema.fields if item.name in source.stored.column_names]
        clauses = [
            ArrowClause.of_columns(clause.kind, clause.action, _given_columns(columns, clause, merge, layout), layout)
            for clause in _row_change(None, merge).clauses
        ]
        engine = ArrowMerge(
            transaction=write,
            join=ArrowJoin(
                source=source,
                schema=layout.schema,
                clauses=[clause for clause in clauses if clause.action is not ClauseAction.INSERT],
            ),
            inserted=[clause for clause in clauses if clause.action is ClauseAction.INSERT],
            read=None if isinstance(read, AlwaysTrue) else read,
            row_ids=kept_row_ids(snapshot),
        )
        may_match = facts.num_rows > 0 or deletes
        candidates = snapshot.matching_files(read) if may_match else snapshot.files.slice(0, 0)
        run = RowChangeRun(write=write, engine=engine, candidates=candidates)
        counts = run.insert() if merge.mode is MergeMode.INSERT_ONLY else run.run()
        return write.commit(counts.removed_files, merge_metrics(write, counts, facts.num_rows))


def _given_columns(
    columns: Sequence[StructField], clause: RowClause, merge: _Merge, layout: TableLayout
) -> Sequence[StructField]:
    """Those of the columns of the source to which a clause gives values."""
    if clause.action is ClauseAction.INSERT:
        return columns
    kept = {*merge.keys, *identity_columns(layout.schema)}
    return [item for item in columns if item.name not in kept] if clause.action is ClauseAction.UPDATE else ()


def _merge_by_spark(
    table: WriteTarget,
    snapshot: Snapshot,
    shape: TargetShape,
    merge: _Merge,
    frame: DataFrame,
    options: CommitOptions,
) -> WriteResult:
    spark_storage(
        frame.sparkSession, table.store, snapshot.location
    )  # Jars that are missing are found before rows are computed.
    source = merge_source(frame, shape.schema, merge.keys, partition_columns=snapshot.partition_columns)
    change = _row_change(source, merge)
    resolved = resolve_change(
        change,
        snapshot,
        shape=shape,
        offered=source.offered,
        session=frame.sparkSession,
        now_ms=table.services.now_ms(),
    )
    parameters = merge_parameters(change)
    with (
        spark_errors(f"merging into {snapshot.identifier}"),
        start_write(table, snapshot, shape=shape, operation="MERGE", parameters=parameters, options=options) as write,
        cached(source.frame) as rows,
    ):
        facts = source_facts(source, merge.scope, partition_columns=snapshot.partition_columns)
        _check(facts, merge.scope)
        return run_merge(write, change, resolved, rows, SourceRange(num_rows=facts.num_rows, key_range=facts.key_range))


def _check(facts: SourceFacts, scope: Predicate | None) -> None:
    check_keys_are_stored(facts)
    check_unique(facts)
    check_inside(facts, scope)


def _row_change(source: MergeSource | None, merge: _Merge) -> RowChange:
    """The clauses of the mode. Target rows that the keys do not match stay as they are, unless the mode deletes them."""
    update = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.UPDATE, assignments=None, lenient=True)
    insert = RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=None, lenient=True)
    remove = RowClause(kind=ClauseKind.NOT_MATCHED_BY_SOURCE, action=ClauseAction.DELETE, condition=merge.scope)
    clauses = {
        MergeMode.UPSERT: (update, insert),
        MergeMode.INSERT_ONLY: (insert,),
        MergeMode.UPDATE_ONLY: (update,),
        MergeMode.DELETE_UNMATCHED: (update, insert, remove),
    }[merge.mode]
    equal = [f"(`target`.{quoted(key)} = `source`.{quoted(key)})" for key in merge.keys]
    on = reduce(lambda left, right: f"({left} and {right})", equal)
    frame = None if source is None else source.frame
    return RowChange(clauses=clauses, source=frame, on=on, where=merge.scope)


def key_names(keys: Sequence[str], table: StructType, offered: StructType) -> tuple[str, ...]:
    """Return the keys as the table spells them."""
    names: list[str] = []
    if not keys:
        raise InvalidArgumentError("A merge needs at least one key column; name the columns that identify a row.")
    if isinstance(keys, str):
        raise InvalidArgumentError(f"keys is the text {keys!r}; give a list of column names, e.g. [{keys!r}].")
    for key in keys:
        in_table, in_source = table.field(key), offered.field(key)
        if in_table is None or in_source is None:
            side, schema = ("table", table) if in_table is None else ("source", offered)
            error = InvalidArgumentError(
                f"The key column {key!r} is not in the {side}, whose columns are {', '.join(schema.names)}."
            )
            raise error if key.isidentifier() else error.with_remedy(MergeOnCondition())
        if in_table.name in names:
            raise InvalidArgumentError(f"The key column {key!r} is named twice.")
        if data_type_text(in_table.type).startswith(("array", "map", "struct", "variant", "void")):
            raise InvalidArgumentError(
                f"The key column {key!r} has the type {data_type_text(in_table.type)}; keys must be simple values."
            )
        names.append(in_table.name)
    return tuple(names)


def _check_identity(table: StructType, offered: StructType, keys: Sequence[str], mode: MergeMode) -> None:
    """Refuse a source that would set an identity column: always in updated rows, and in inserted rows if it is always generated."""
    for name in identity_columns(table):
        if mode is not MergeMode.INSERT_ONLY and name not in keys and offered.field(name) is not None:
            raise InvalidArgumentError(
                f"The source has the identity column {name!r}, and a merge of mode {mode.value} would update it. Nothing was "
                "written. Leave the column out, or use it as a key."
            )
    if mode is not MergeMode.UPDATE_ONLY:
        check_not_given(table, offered.names, action="inserts")
