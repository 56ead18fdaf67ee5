"""MERGE by key: upsert, insert, update, replace a slice, in one commit. A shorthand for the clauses of :mod:`.merge_rows`."""

from collections.abc import Sequence
from enum import StrEnum
from functools import reduce
from operator import and_

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError, PartitionMismatchError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.conditions import Condition, slice_condition
from cm_delta_dagster.operations.writing.merge_rows import cached, merge_parameters, run_merge
from cm_delta_dagster.operations.writing.resolve_change import resolve_change
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause
from cm_delta_dagster.operations.writing.target_shape import target_shape
from cm_delta_dagster.operations.writing.write_result import WriteResult, earlier_write
from cm_delta_dagster.operations.writing.write_transaction import (
    DEFAULT_OPTIONS,
    CommitOptions,
    check_not_append_only,
    start_write,
)
from cm_delta_dagster.protocol.features.identity_columns import check_not_given, identity_columns
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    Predicate,
    short_sql,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType, data_type_text
from cm_delta_dagster.remedies import MergeOnCondition
from cm_delta_dagster.spark.changes.change_clauses import ClauseAction, ClauseKind
from cm_delta_dagster.spark.changes.key_ranges import SourceRange
from cm_delta_dagster.spark.changes.merge import (
    MergeSource,
    SourceFacts,
    check_keys_are_stored,
    check_unique,
    merge_source,
    source_facts,
)
from cm_delta_dagster.spark.expressions.schema import quoted, schema_of
from cm_delta_dagster.spark.library import DataFrame, F
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import check_frame
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
    frame: DataFrame,
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
    check_frame(frame)
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
    scope = slice_condition(where, snapshot, session=frame.sparkSession, now_ms=table.services.now_ms())
    scope = None if isinstance(scope, AlwaysTrue) else scope
    offered = schema_of(frame)
    names = key_names(keys, snapshot.schema, offered)
    _check_identity(snapshot.schema, offered, names, mode)
    shape = target_shape(snapshot, offered, schema_mode)
    spark_storage(
        frame.sparkSession, table.store, snapshot.location
    )  # Jars that are missing are found before rows are computed.
    source = merge_source(frame, shape.schema, names, partition_columns=snapshot.partition_columns)
    change = _row_change(source, mode, scope)
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
        facts = _checked_facts(source, scope, snapshot)
        return run_merge(write, change, resolved, rows, SourceRange(num_rows=facts.num_rows, key_range=facts.key_range))


def _checked_facts(source: MergeSource, scope: Predicate | None, snapshot: Snapshot) -> SourceFacts:
    facts = source_facts(source, scope, partition_columns=snapshot.partition_columns)
    check_keys_are_stored(facts)
    check_unique(facts)
    _check_inside(facts, scope)
    return facts


def _row_change(source: MergeSource, mode: MergeMode, scope: Predicate | None) -> RowChange:
    """The clauses of ``mode``. Target rows that the keys do not match stay as they are, unless the mode deletes them."""
    update = RowClause(kind=ClauseKind.MATCHED, action=ClauseAction.UPDATE, assignments=None, lenient=True)
    insert = RowClause(kind=ClauseKind.NOT_MATCHED, action=ClauseAction.INSERT, assignments=None, lenient=True)
    remove = RowClause(kind=ClauseKind.NOT_MATCHED_BY_SOURCE, action=ClauseAction.DELETE, condition=scope)
    clauses = {
        MergeMode.UPSERT: (update, insert),
        MergeMode.INSERT_ONLY: (insert,),
        MergeMode.UPDATE_ONLY: (update,),
        MergeMode.DELETE_UNMATCHED: (update, insert, remove),
    }[mode]
    on = reduce(and_, [F.col(f"target.{quoted(key)}") == F.col(f"source.{quoted(key)}") for key in source.keys])
    return RowChange(clauses=clauses, source=source.frame, on=on, where=scope)


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


def _check_inside(facts: SourceFacts, scope: Predicate | None) -> None:
    if facts.outside is not None and scope is not None:
        raise PartitionMismatchError(
            f"The row with the key {facts.outside} lies outside of {short_sql(scope)}, the slice that this merge "
            "declared. Nothing was committed. Leave such rows out, or widen the slice."
        )
