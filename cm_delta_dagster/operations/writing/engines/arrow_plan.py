"""A merge with clauses that Arrow carries out: what it reads, and the engine that changes rows."""

from dataclasses import dataclass
from datetime import UTC, datetime

from cm_delta_dagster.arrow.joined_rows import STORED, JoinSource
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark, guard_rule
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.writing.engines.arrow_clauses import ArrowClauses, arrow_clauses
from cm_delta_dagster.operations.writing.engines.arrow_join import ArrowJoin
from cm_delta_dagster.operations.writing.engines.arrow_merge import ArrowMerge
from cm_delta_dagster.operations.writing.engines.arrow_source import arrow_key_range, join_source
from cm_delta_dagster.operations.writing.file_writes import layout_for_arrow
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.operations.writing.rows import WriteRows, zone_of_expressions
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.operations.writing.target_conditions import TargetConditions, read_predicate
from cm_delta_dagster.operations.writing.target_shape import TargetShape
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction, layout_of
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.join_expressions import SOURCE
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    Predicate,
    column_path,
    columns_of,
    conjunction,
)
from cm_delta_dagster.protocol.predicates.sql_checks import Clock
from cm_delta_dagster.protocol.schema.types import check_unique_names
from cm_delta_dagster.spark.library import is_column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowPlan:
    """A merge that Arrow carries out.

    Attributes:
        matched: what all rows of the table with a partner satisfy.
        by_source: what the rows satisfy that change without a partner, for each clause.
        guard: what the rows of the source must satisfy; None for nothing.
        layout: of the table after the merge.
    """

    change: RowChange
    clauses: ArrowClauses
    matched: Predicate
    by_source: tuple[Predicate, ...]
    guard: Predicate | None
    layout: TableLayout

    def source(self, rows: ArrowRows) -> JoinSource:
        """The rows of the source.

        Raises:
            PartitionMismatchError: a row does not satisfy the guard.
            InvalidDataError: the stream of the rows failed, or a value cannot be stored.
        """
        stored = {*self.clauses.columns(STORED), *_columns(self.guard, self.layout)}
        offered = self.clauses.columns(SOURCE)
        source = join_source(rows, self.layout, self.clauses.keys, stored=stored, offered=offered)
        if self.guard is not None:
            for batch in source.stored.to_batches():
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                guard_rule(self.guard, self.layout.schema).check(columns, batch.num_rows)
        return source

    def read(self, source: JoinSource) -> Predicate:
        """What every row of the table satisfies on which the outcome depends."""
        return read_predicate(self.by_source, conjunction([self.matched, arrow_key_range(source.keys, self.layout)]))

    def engine(self, write: WriteTransaction, source: JoinSource, read: Predicate) -> ArrowMerge:
        """The engine for one transaction."""
        snapshot = write.transaction.snapshot
        is_filter = not isinstance(read, AlwaysTrue) and guard_needs_spark(read, snapshot.schema) is None
        clauses = self.clauses.clauses
        return ArrowMerge(
            transaction=write,
            join=ArrowJoin(
                source=source,
                schema=self.layout.schema,
                clauses=[clause for clause in clauses if clause.action is not ClauseAction.INSERT],
                on=self.clauses.on,
                where=self.change.where,
            ),
            inserted=[clause for clause in clauses if clause.action is ClauseAction.INSERT],
            read=read if is_filter else None,
            row_ids=kept_row_ids(snapshot),
        )


def arrow_plan(
    table: WriteTarget, snapshot: Snapshot, shape: TargetShape, change: RowChange, rows: WriteRows
) -> ArrowPlan | str:
    """The merge by Arrow; or why only Spark can carry it out, for a message. Raises as ``arrow_clauses``."""
    if any(is_column(expression) for expression in change.expressions):
        return "an expression is a Column"
    check_unique_names(rows.schema)
    now_ms, zone = table.services.now_ms(), snapshot.time_zone
    clock = Clock(now=datetime.fromtimestamp(now_ms / 1000, UTC), zone=zone_of_expressions(zone))
    conditions = TargetConditions.of(
        change, snapshot, schema=shape.schema, offered=rows.schema, clock=lambda: clock, zone=zone
    )
    layout, join, guard = layout_for_arrow(table, layout_of(table, shape)), conditions.join(), rows.guard
    if guard is not None:
        if (reason := guard_needs_spark(guard, layout.schema)) is not None:
            return reason
        if any(rows.schema.field(name) is None for name in _columns(guard, layout)):
            return "the source lacks a column of the condition that its rows must satisfy"
    clauses = arrow_clauses(conditions, join, layout, now_ms=now_ms)
    if isinstance(clauses, str):
        return clauses
    return ArrowPlan(
        change=change,
        clauses=clauses,
        matched=conditions.matched(join),
        by_source=conditions.by_source(),
        guard=guard,
        layout=layout,
    )


def _columns(condition: Predicate | None, layout: TableLayout) -> frozenset[str]:
    """The columns of the table that a condition names."""
    names = [] if condition is None else [column_path(column)[0] for column in columns_of(condition)]
    return frozenset(item.name for name in names if (item := layout.schema.field(name)) is not None)
