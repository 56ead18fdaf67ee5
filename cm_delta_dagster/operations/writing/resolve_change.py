"""Resolves a row change: names and types, and which rows of the table it depends on.

Everything that can be refused is refused here, before a Spark job runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.clause_columns import (
    assigned_paths,
    check_identity,
    columns_of_source,
    default_columns,
)
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.row_change import (
    Expression,
    RowChange,
    RowClause,
    is_default,
)
from cm_delta_dagster.operations.writing.stored_comparisons import StoredComparisons
from cm_delta_dagster.operations.writing.target_conditions import TargetConditions
from cm_delta_dagster.operations.writing.target_shape import TargetShape
from cm_delta_dagster.protocol.changes.change_data_feed import FEATURE as CHANGE_DATA_FEED
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.table_features import is_active
from cm_delta_dagster.protocol.predicates.assigned_paths import type_at
from cm_delta_dagster.protocol.predicates.normal_forms import check_predicate
from cm_delta_dagster.protocol.predicates.predicates import (
    Predicate,
)
from cm_delta_dagster.protocol.predicates.references import (
    KeyPair,
    Side,
    qualified,
)
from cm_delta_dagster.protocol.predicates.sql_checks import Clock, at_moment, calls_clock, check_closed_text
from cm_delta_dagster.protocol.predicates.sql_lexer import tokens_of
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType, StructType, data_type_text
from cm_delta_dagster.spark.changes.change_clauses import ChangeClause
from cm_delta_dagster.spark.expressions.assignments import (
    Assignment,
    StoreRules,
    assigned_columns,
    check_constants,
    with_kept_fields,
)
from cm_delta_dagster.spark.expressions.conditions import (
    are_repeatable,
    check_repeatable_column,
    check_repeatable_text,
    check_row_condition,
    check_row_values,
    column_text,
)
from cm_delta_dagster.spark.expressions.predicates import holds
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted, same_shape, to_spark
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession, is_column, is_frame
from cm_delta_dagster.spark.read.file_values import OWN_PREFIX
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import session_time_zone

_MAX_SHOWN_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResolvedChange:
    """A change whose expressions are Columns.

    Attributes:
        on: condition of the join; None without a source.
        keys: columns that are equal in rows of the join.
        on_target: predicate that holds for the rows of the table with a partner.
        by_source: predicates that hold for the rows of the table that change without a partner, one for each clause.
        computed: columns that the expressions use, computed from the rows of the table.
    """

    shape: TargetShape
    clauses: tuple[ChangeClause, ...]
    on: Column | None
    keys: tuple[KeyPair, ...]
    on_target: Predicate
    by_source: tuple[Predicate, ...]
    computed: Mapping[str, Column]


def resolve_change(
    change: RowChange,
    snapshot: Snapshot,
    *,
    shape: TargetShape,
    offered: StructType,
    session: SparkSession,
    now_ms: int,
) -> ResolvedChange:
    """Resolve the expressions of ``change``, whose source is a DataFrame if it has one.

    Args:
        offered: the columns of the source; none without a source.
        now_ms: value of ``current_timestamp()`` and similar functions, in epoch milliseconds.

    Raises:
        InvalidArgumentError: an expression is not valid, not deterministic, or refers to no column.
        SchemaMismatchError: a value of a type that its column cannot store, or a column that the source lacks.
        InvalidDataError: a constant that its column cannot hold.
    """
    return _Resolution(change, snapshot, shape, offered, session, now_ms).run()


class _Resolution:
    """Resolves the expressions of one change against the columns of target and source."""

    def __init__(
        self,
        change: RowChange,
        snapshot: Snapshot,
        shape: TargetShape,
        offered: StructType,
        session: SparkSession,
        now_ms: int,
    ) -> None:
        self.change = change
        self.snapshot = snapshot
        self.shape = shape
        self.session = session
        self.clock: Callable[[], Clock] = lambda: Clock(
            now=datetime.fromtimestamp(now_ms / 1000, UTC), zone=session_time_zone(session)
        )
        zone = snapshot.time_zone
        if zone is not None and not isinstance(zone, DeferredZone):
            zone = session_time_zone(session)  # In which Spark evaluates texts; files are skipped by the same times.
        self.conditions = TargetConditions.of(
            change, snapshot, schema=shape.schema, offered=offered, clock=self.clock, zone=zone
        )
        self.target, self.source = self.conditions.target, self.conditions.source
        self.frame = change.source if is_frame(change.source) else None
        self.computed: dict[str, Column] = {}
        self.names = frozenset(name.lower() for name in (*shape.schema.names, *offered.names))

    def run(self) -> ResolvedChange:
        on, change_where = None, self.change.where
        join = self.conditions.join()
        if self.change.on is not None:
            on = self._column(self.change.on, None)
            self._check_condition(on)
            on = self._compared(self.change.on, on, None)
            if change_where is not None:
                on = on & self._computed(change_where)
        clauses = tuple(self._clause(clause) for clause in self.change.clauses)
        return ResolvedChange(
            shape=self.shape,
            clauses=clauses,
            on=on,
            keys=join.keys,
            on_target=self.conditions.matched(join),
            by_source=self.conditions.by_source(),
            computed=self.computed,
        )

    @cached_property
    def _no_rows(self) -> DataFrame:
        return self.session.createDataFrame([], to_spark(self.shape.schema))

    def _scope(self, kind: ClauseKind = ClauseKind.MATCHED) -> DataFrame:
        """No rows, with the columns to which the expressions of a clause of this kind may refer."""
        source = None if self.frame is None else self.frame.alias(self.source.alias)
        if source is not None and kind is ClauseKind.NOT_MATCHED:
            return source.limit(0)
        rows = self._no_rows
        rows = (rows.withColumns(self.computed) if self.computed else rows).alias(self.target.alias)
        return rows if source is None or kind is ClauseKind.NOT_MATCHED_BY_SOURCE else rows.crossJoin(source)

    def _name(self, clause: RowClause) -> str:
        """The statement or, with a source, the clause of the merge, for messages."""
        return clause.action.value.upper() if self.change.source is None else f"The clause {clause.name}"

    def _described(self, clause: RowClause) -> str:
        """The clause, and which columns its expressions may name, for messages."""
        if self.change.source is None:
            return self._name(clause)
        seen = {
            ClauseKind.NOT_MATCHED: ", which sees only the source",
            ClauseKind.NOT_MATCHED_BY_SOURCE: ", which sees only the table",
        }
        return f"{clause.name}{seen.get(clause.kind, '')}"

    def _check_condition(self, condition: Column, clause: RowClause | None = None) -> None:
        """Check the condition of a clause, or that of the join."""
        if clause is None:
            where = f"the condition{_texts(self.change.on)} of the merge"
            check_row_condition(condition, self._scope(), where=where)
        else:
            where = f"the condition{_texts(clause.condition)} of {self._described(clause)}"
            check_row_condition(condition, self._scope(clause.kind), where=where)
        check_repeatable_column(condition, self._scope())

    def _side(self, kind: ClauseKind) -> Side | None:
        """The side whose columns need no alias in a clause of this kind; None if names are looked up on both sides."""
        if self.change.source is None:
            return None
        return {ClauseKind.NOT_MATCHED: self.source, ClauseKind.NOT_MATCHED_BY_SOURCE: self.target}.get(kind)

    def _column(self, expression: Condition | Expression, side: Side | None, *, may_vary: bool = False) -> Column:
        if is_column(expression):
            return expression
        if isinstance(expression, str):
            return F.expr(self._text(expression, side, may_vary=may_vary))
        check_predicate(expression)
        return holds(expression, self.shape.schema) if self.change.source is None else self._computed(expression)

    def _compared(self, expression: Condition | Expression, plain: Column, side: Side | None) -> Column:
        """``expression``, which is ``plain`` as a Column, with values of the source as the table will store them."""
        if self.change.source is None or side is not None or not (isinstance(expression, str) or is_column(expression)):
            return plain
        text = expression if isinstance(expression, str) else column_text(expression)
        stored = StoredComparisons(self.change, self.target, self.source, self.snapshot.partition_columns)
        written = text if text is None else stored.condition(text)
        return plain if written is None or written == text else self._column(written, side)

    def _computed(self, predicate: Predicate) -> Column:
        """A column of the rows of the table with the value of ``predicate``, whose names have no alias."""
        name = f"{OWN_PREFIX}on{len(self.computed)}"
        self.computed[name] = holds(predicate, self.shape.schema)
        return F.col(name)

    def _text(self, text: str, side: Side | None, *, may_vary: bool) -> str:
        tokens = tokens_of(text)
        check_closed_text(tokens, text)
        if calls_clock(tokens, text, self.names):
            text = at_moment(text, self.clock(), self.names)
        if not may_vary:
            check_repeatable_text(text, self.names)
        return text if side is None else qualified(text, side)

    def _clause(self, clause: RowClause) -> ChangeClause:
        side = self._side(clause.kind)
        condition = None if clause.condition is None else self._column(clause.condition, side)
        if clause.condition is not None and condition is not None:
            self._check_condition(condition, clause)
            condition = self._compared(clause.condition, condition, side)
        if clause.action is ClauseAction.DELETE:
            return ChangeClause(kind=clause.kind, action=clause.action, condition=condition, values={})
        values = self._values(clause, side)
        defaults = default_columns(clause, self.shape.schema, alias=self.target.alias)
        check_identity(clause, self.shape.schema, tuple(values), defaults, name=self._name(clause))
        return ChangeClause(
            kind=clause.kind, action=clause.action, condition=condition, values=values, defaults=defaults
        )

    def _values(self, clause: RowClause, side: Side | None) -> dict[str, Column]:
        values = self._all_columns(clause) if clause.assignments is None else self._assigned_columns(clause, side)
        if clause.assignments is not None:
            where = f"the values{_texts(*clause.assignments.values())} of {self._described(clause)}"
            check_row_values([value for _, value in values], self._scope(clause.kind), where=where)
        assignments = [
            Assignment(path=path, value=value, data_type=data_type)
            for (path, value), data_type in zip(values, self._types(clause, values), strict=True)
        ]
        if clause.assignments is not None and self.change.source is not None:
            self._check_varying(clause, assignments)
        rules = StoreRules(session=self.session, fills=self.change.evolves or clause.lenient)
        columns = assigned_columns(assignments, self.shape.schema, alias=self.target.alias, rules=rules)
        with spark_errors("evaluating the constants of a write"):
            check_constants(assignments, self.shape.schema, self.session)
        return columns

    def _types(self, clause: RowClause, values: Sequence[tuple[ColumnPath, Column]]) -> list[DataType]:
        if clause.assignments is None and clause.lenient:  # The values are columns of the source.
            return [type_at(path, self.source.schema) for path, _ in values]
        with spark_errors("analysing the values of a write"):
            types = from_spark(self._scope().select(*[value.alias(".".join(path)) for path, value in values]).schema)
        return [item.type for item in types.fields]

    def _check_varying(self, clause: RowClause, assignments: Sequence[Assignment]) -> None:
        """Refuse values that are not deterministic where they would be computed twice."""
        repeatable = are_repeatable([assignment.value for assignment in assignments], self._scope())
        for assignment, repeats in zip(assignments, repeatable, strict=True):
            if repeats:
                continue
            name = ".".join(assignment.path)
            want = type_at(assignment.path, self.shape.schema)
            if not same_shape(assignment.data_type, want):
                raise InvalidArgumentError(
                    f"The value of {name!r} in {clause.name} is not deterministic and not of the type {data_type_text(want)}. "
                    f"Nothing was written. Cast it: CAST(... AS {data_type_text(want)})."
                )
            records = is_active(CHANGE_DATA_FEED, self.shape.protocol, self.shape.metadata)
            if clause.action is ClauseAction.UPDATE and records:
                raise InvalidArgumentError(
                    f"The value of {name!r} in {clause.name} is not deterministic, and the change feed of the table would record "
                    "another value. Nothing was written. Compute the value before, e.g. in a column of the source."
                )

    def _assigned_columns(self, clause: RowClause, side: Side | None) -> list[tuple[ColumnPath, Column]]:
        assert clause.assignments is not None
        paths = assigned_paths(clause, self.shape.schema, name=self._name(clause), alias=self.target.alias)
        assigned = []
        for name, expression in clause.assignments.items():
            # The values of a merge are computed once; those of other changes are refused as by delta-spark.
            may_vary = self.change.source is not None
            value = F.lit(None) if is_default(expression) else self._column(expression, side, may_vary=may_vary)
            if is_column(expression) and not may_vary:
                check_repeatable_column(value, self._scope())
            assigned.append((paths[name], value))
        return assigned

    def _all_columns(self, clause: RowClause) -> list[tuple[ColumnPath, Column]]:
        """The columns of ``UPDATE *`` and ``INSERT *``."""
        assigned: list[tuple[ColumnPath, Column]] = []
        columns = columns_of_source(clause, self.shape.schema, self.source.schema, evolves=self.change.evolves)
        for item, taken in columns:
            column = F.col(f"{quoted(self.source.alias)}.{quoted(taken.name)}")
            if clause.action is ClauseAction.UPDATE and self.change.evolves:
                old = F.col(f"{quoted(self.target.alias)}.{quoted(item.name)}")
                column = with_kept_fields(column, taken.type, old, item.type)
            assigned.append(((item.name,), column))
        return assigned


def _texts(*expressions: object) -> str:
    """The expressions that are SQL text, for messages; "" if there are none."""
    listed = ", ".join(repr(expression) for expression in expressions if isinstance(expression, str))
    return f" {listed if len(listed) <= _MAX_SHOWN_TEXT else listed[:_MAX_SHOWN_TEXT] + ' ...'}" if listed else ""
