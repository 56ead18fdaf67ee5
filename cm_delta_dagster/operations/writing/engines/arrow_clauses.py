"""The clauses of a merge as values that Arrow computes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from cm_delta_dagster.arrow.joined_rows import STORED, JoinedRows
from cm_delta_dagster.arrow.write.assigned_values import (
    AssignedValue,
    NewValue,
    UpdatedRows,
    assigned_value,
    new_values,
)
from cm_delta_dagster.arrow.write.generated_values import certain_zone
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.arrow.write.stored_columns import files_need_spark, needs_spark
from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError
from cm_delta_dagster.operations.writing.clause_columns import (
    assigned_paths,
    check_identity,
    columns_of_source,
    default_columns,
)
from cm_delta_dagster.operations.writing.engines.arrow_source import (
    ids_need_spark,
    key_needs_spark,
    lacks_generated_source,
)
from cm_delta_dagster.operations.writing.row_change import RowChange, RowClause, is_default
from cm_delta_dagster.operations.writing.stored_comparisons import StoredComparisons
from cm_delta_dagster.operations.writing.target_conditions import TargetConditions
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.row_messages import failed_text
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.assigned_paths import assigned_field
from cm_delta_dagster.protocol.predicates.join_expressions import SOURCE, TARGET, join_expression, wrong_name
from cm_delta_dagster.protocol.predicates.references import JoinCondition, KeyPair, Side
from cm_delta_dagster.protocol.predicates.scalars import ColumnValue, Scalar, can_fail, paths_of_scalar
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.evolution import fits, holds_same
from cm_delta_dagster.protocol.schema.types import (
    BOOLEAN,
    INTEGERS,
    ArrayType,
    MapType,
    StructField,
    StructType,
)


@dataclass(frozen=True, slots=True)
class ArrowCondition:
    """A condition over pairs of rows, with its text for messages."""

    text: str
    scalar: Scalar

    def answers(self, rows: JoinedRows) -> pa.Array:
        """Whether it is true for each pair; NULL if that is not known.

        Raises:
            InvalidDataError: a value cannot be computed.
        """
        try:
            return rows.answers(self.scalar)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(failed_text(f"the condition {self.text!r}", str(error))) from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrowClause:
    """One clause.

    Attributes:
        condition: None for all rows of its kind.
        values: new values of columns of the table.
        updated: how rows of the table become those after an update; None for other actions.
    """

    kind: ClauseKind
    action: ClauseAction
    condition: ArrowCondition | None = None
    values: Sequence[NewValue] = ()
    updated: UpdatedRows | None = None

    @classmethod
    def of_columns(
        cls, kind: ClauseKind, action: ClauseAction, columns: Sequence[StructField], layout: TableLayout
    ) -> "ArrowClause":
        """A clause without a condition that takes ``columns`` from the source, as the table stores them."""
        return cls(kind=kind, action=action, values=[_stored_value(item) for item in columns]).for_table(layout)

    def for_table(self, layout: TableLayout) -> "ArrowClause":
        """The clause for a table that is ``layout`` after the change."""
        if self.action is not ClauseAction.UPDATE:
            return self
        updated = UpdatedRows.of({value.item.name for value in self.values}, layout)
        return ArrowClause(
            kind=self.kind, action=self.action, condition=self.condition, values=self.values, updated=updated
        )

    @property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The columns from which the values are computed."""
        return frozenset(path for value in self.values for path in value.paths)

    def new_values(self, rows: JoinedRows) -> dict[str, pa.Array]:
        """The new values of columns for each pair. Raises InvalidDataError if a value cannot be computed or stored."""
        columns = rows.columns_for(self.paths)
        return {value.item.name: value.values(columns, rows.num_rows) for value in self.values}

    def applied(self, rows: JoinedRows) -> Iterator[pa.RecordBatch]:
        """Rows of the table after an update; ``rows`` are pairs of all rows of a batch. Raises as :meth:`new_values`."""
        assert self.updated is not None, "the clause updates rows"
        for part in rows.parts(self.paths):
            yield self.updated.changed(part.target, self.new_values(part))


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrowClauses:
    """The clauses and the condition of a merge.

    Attributes:
        keys: columns that are equal in pairs of rows.
        on: what the condition of the join says besides that; None for nothing.
    """

    keys: Sequence[KeyPair]
    on: ArrowCondition | None
    clauses: Sequence[ArrowClause]

    @cached_property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The columns from which conditions and values are computed."""
        return frozenset(self._paths())

    def columns(self, side: str) -> list[str]:
        """The names of the columns of a side that are used."""
        return sorted({path[1] for path in self.paths if path[0] == side})

    def _paths(self) -> Iterator[tuple[str, ...]]:
        for condition in (self.on, *(clause.condition for clause in self.clauses)):
            if condition is not None:
                yield from paths_of_scalar(condition.scalar)
        for clause in self.clauses:
            yield from clause.paths


def _all_keys(join: JoinCondition) -> tuple[KeyPair, ...]:
    return (*join.keys, *join.null_safe_keys)


class _NeedsSparkError(Exception):
    """Only Spark can carry out the merge. The text says why, for a message."""


def _raise_if(reason: str | None) -> None:
    if reason is not None:
        raise _NeedsSparkError(reason)


def arrow_clauses(
    conditions: TargetConditions, join: JoinCondition, layout: TableLayout, *, now_ms: int
) -> ArrowClauses | str:
    """The clauses by Arrow; or why only Spark can carry out the merge, for a message.

    Args:
        join: what follows from the condition of the join.
        layout: of the table after the merge, with the time zone of its expressions.
        now_ms: value of ``current_timestamp()``, in epoch milliseconds.

    Raises:
        InvalidArgumentError: the table has no such column, a column is assigned twice or cannot be assigned, or a value is none.
        SchemaMismatchError: the source lacks a column that a clause takes.
    """
    try:
        return _Resolver(conditions, layout, now_ms).resolved(join)
    except _NeedsSparkError as reason:
        return str(reason)


@dataclass(frozen=True)
class _Resolver:
    conditions: TargetConditions
    layout: TableLayout
    now_ms: int

    @property
    def change(self) -> RowChange:
        return self.conditions.change

    def resolved(self, join: JoinCondition) -> ArrowClauses:
        clauses = tuple(map(self._clause, self.change.clauses))
        keys = self._keys(join)
        others = [*join.others, *(pair.text for pair in _all_keys(join) if pair not in keys)]
        on = self._condition(" AND ".join(f"({text})" for text in others) or None, None)
        if on is not None and can_fail(on.scalar):
            raise _NeedsSparkError(f"only Spark evaluates the condition {self.change.on!r}")
        where = self.change.where
        _raise_if(None if where is None else guard_needs_spark(where, self.conditions.snapshot.schema))
        _raise_if(files_need_spark(self.layout) or ids_need_spark(self.layout.schema))
        return ArrowClauses(keys=keys, on=on, clauses=[clause.for_table(self.layout) for clause in clauses])

    def _keys(self, join: JoinCondition) -> list[KeyPair]:
        """The keys by which partners are looked up, at most one for each column of the table."""
        keys: dict[str, KeyPair] = {}
        reasons = []
        for pair in _all_keys(join):
            reason = key_needs_spark(pair, self.layout, self.conditions.source.schema)
            if reason is None:
                keys.setdefault(pair.target, pair)
            else:
                reasons.append(reason)
        if not keys:
            reasons.append("the condition compares no column of the table with a column of the source by =")
            raise _NeedsSparkError(reasons[0])
        return list(keys.values())

    def _condition(self, condition: object, kind: ClauseKind | None) -> ArrowCondition | None:
        if condition is None:
            return None
        if not isinstance(condition, str):
            raise _NeedsSparkError("a condition is no SQL text")
        stored = StoredComparisons(
            self.change, self.conditions.target, self.conditions.source, self.layout.partition_columns
        )
        self._check_names(condition, kind)
        is_stored = kind in (None, ClauseKind.MATCHED) and stored.condition(condition) != condition
        scalar = None if is_stored else self._scalar(condition, kind)
        if scalar is None or scalar.type != BOOLEAN:
            raise _NeedsSparkError(
                f"only Spark evaluates the condition {condition!r}, or it names a column that is not there"
            )
        return ArrowCondition(condition, scalar)

    def _check_names(self, text: str, kind: ClauseKind | None) -> None:
        """Refuse a text that names a column which is not there, or which both sides have, where that is certain."""
        wrong = wrong_name(text, **self._sides(kind))
        if wrong is not None:
            raise InvalidArgumentError(f"{text!r} names {wrong}. Nothing was written. Correct the name.")

    def _sides(self, kind: ClauseKind | None) -> dict[str, Side | None]:
        """The sides whose columns an expression of a clause can name."""
        return {
            TARGET: None if kind is ClauseKind.NOT_MATCHED else self.conditions.target,
            SOURCE: None if kind is ClauseKind.NOT_MATCHED_BY_SOURCE else self.conditions.source,
        }

    def _scalar(self, text: str, kind: ClauseKind | None) -> Scalar | None:
        return join_expression(text, **self._sides(kind), zone=certain_zone(self.layout))

    def _clause(self, clause: RowClause) -> ArrowClause:
        condition = self._condition(clause.condition, clause.kind)
        values: Sequence[NewValue] = ()
        if clause.action is not ClauseAction.DELETE:
            values = self._from_source(clause) if clause.assignments is None else self._assigned(clause)
            self._check_rules(clause, [value.item.name for value in values])
        return ArrowClause(kind=clause.kind, action=clause.action, condition=condition, values=values)

    def _check_rules(self, clause: RowClause, columns: Collection[str]) -> None:
        schema = self.layout.schema
        defaults = default_columns(clause, schema, alias=self.conditions.target.alias)
        check_identity(clause, schema, columns, defaults, name=f"The clause {clause.name}")
        offered = schema
        if clause.action is ClauseAction.INSERT:
            offered = StructType(tuple(item for item in schema.fields if item.name in columns))
        _raise_if(needs_spark(offered, self.layout) or lacks_generated_source(schema, offered))

    def _from_source(self, clause: RowClause) -> list[AssignedValue]:
        evolves = self.change.evolves
        columns = columns_of_source(clause, self.layout.schema, self.conditions.source.schema, evolves=evolves)
        return [self._taken(item, taken) for item, taken in columns]

    def _taken(self, item: StructField, taken: StructField) -> AssignedValue:
        """The column ``taken`` of the source as the value of the column ``item``."""
        is_nested = isinstance(item.type, StructType | ArrayType | MapType)
        if holds_same(item.type, taken.type) or (not is_nested and fits(taken.type, item.type)):
            return _stored_value(item)
        if item.type in INTEGERS and taken.type in INTEGERS:
            return AssignedValue(item, taken.name, ColumnValue((SOURCE, taken.name), taken.type))
        raise _NeedsSparkError(f"only Spark converts the column {taken.name!r} of the source")

    def _assigned(self, clause: RowClause) -> list[NewValue]:
        schema, alias = self.layout.schema, self.conditions.target.alias
        paths = assigned_paths(clause, schema, name=f"The clause {clause.name}", alias=alias)
        assigned = [
            (path, self._value(clause, expression, path))
            for path, expression in zip(paths.values(), (clause.assignments or {}).values(), strict=True)
        ]
        return new_values(assigned, schema, prefix=(TARGET,))

    def _value(self, clause: RowClause, expression: object, path: ColumnPath) -> AssignedValue:
        value, item = None, assigned_field(path, self.layout.schema)
        if isinstance(expression, str) and is_default(expression):
            value = assigned_value(default_of(item) or "NULL", item, None, now_ms=self.now_ms)
        elif isinstance(expression, str):
            self._check_names(expression, clause.kind)
            scalar = self._scalar(expression, clause.kind)
            taken = self.conditions.source.schema.field(item.name)
            if taken is not None and scalar == ColumnValue((SOURCE, taken.name), taken.type) and len(path) == 1:
                return self._taken(item, taken)
            value = assigned_value(expression, item, scalar, now_ms=self.now_ms)
        if value is None:
            raise _NeedsSparkError(
                f"only Spark evaluates the value {expression!s} of the column {'.'.join(path)!r}, or it names a column that is not "
                "there"
            )
        return value


def _stored_value(item: StructField) -> AssignedValue:
    """The column of the source as the table stores it."""
    return AssignedValue(item, item.name, ColumnValue((STORED, item.name), item.type))
