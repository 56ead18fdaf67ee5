"""MERGE with clauses in the Python API: ``table.merge(source, on)`` returns a builder."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.peer_names import MERGE_NAMES
from cm_delta_dagster.api.table.held_commit import HeldCommit
from cm_delta_dagster.api.table.write_options import Holds
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.merge_rows import merge_rows
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange, RowClause
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_transaction import DEFAULT_OPTIONS, CommitOptions
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind


class HoldsWrite(typing.Protocol):
    """What holds the write that ``write`` makes, in place of its commit."""

    def __call__(self, write: Callable[[WriteTarget], WriteResult], *, hold: bool | timedelta) -> HeldCommit: ...


class MergeBuilder(AbsentMethods):
    """A merge whose clauses are added one by one; :meth:`execute` commits it. Each method returns a new builder.

    For each row the first clause of its kind applies whose condition is true. Conditions and values are SQL text or Columns;
    they name columns by the aliases of source and table, and in clauses that see only one of the two also without alias. The
    methods are those of ``DeltaMergeBuilder`` of delta-spark and ``TableMerger`` of deltalake.
    """

    _peer_names = MERGE_NAMES

    def __init__(
        self,
        table: WriteTarget,
        *,
        change: RowChange,
        options: CommitOptions = DEFAULT_OPTIONS,
        on_execute: Callable[[], None] = lambda: None,
        hold: HoldsWrite | None = None,
    ) -> None:
        self._table = table
        self._change = change
        self._options = options
        self._on_execute = on_execute
        self._hold = hold

    def when_matched_update(
        self, assignments: Mapping[str, Expression], condition: Condition | None = None
    ) -> "MergeBuilder":
        """Set columns of matched rows of the table; ``a.b`` names the field of a struct."""
        return self._with(ClauseKind.MATCHED, ClauseAction.UPDATE, condition, assignments)

    def when_matched_update_all(self, condition: Condition | None = None) -> "MergeBuilder":
        """Set every column of matched rows to the column of the source with its name."""
        return self._with(ClauseKind.MATCHED, ClauseAction.UPDATE, condition, None)

    def when_matched_delete(self, condition: Condition | None = None) -> "MergeBuilder":
        """Delete matched rows of the table."""
        return self._with(ClauseKind.MATCHED, ClauseAction.DELETE, condition, {})

    def when_not_matched_insert(
        self, values: Mapping[str, Expression], condition: Condition | None = None
    ) -> "MergeBuilder":
        """Insert rows of the source that match no row. Columns without a value get their default or NULL."""
        return self._with(ClauseKind.NOT_MATCHED, ClauseAction.INSERT, condition, values)

    def when_not_matched_insert_all(self, condition: Condition | None = None) -> "MergeBuilder":
        """Insert rows of the source that match no row, with every column by its name."""
        return self._with(ClauseKind.NOT_MATCHED, ClauseAction.INSERT, condition, None)

    def when_not_matched_by_source_update(
        self, assignments: Mapping[str, Expression], condition: Condition | None = None
    ) -> "MergeBuilder":
        """Set columns of the rows of the table that no row of the source matches."""
        return self._with(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.UPDATE, condition, assignments)

    def when_not_matched_by_source_delete(self, condition: Condition | None = None) -> "MergeBuilder":
        """Delete the rows of the table that no row of the source matches."""
        return self._with(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.DELETE, condition, {})

    def with_schema_evolution(self) -> "MergeBuilder":
        """Add columns and nested fields of the source that the table lacks, as far as the clauses use them."""
        return self._changed(replace(self._change, evolves=True))

    @typing.overload
    def execute(self, *, hold: typing.Literal[False] = False) -> WriteResult: ...

    @typing.overload
    def execute(self, *, hold: Holds) -> HeldCommit: ...

    def execute(self, *, hold: bool | timedelta = False) -> WriteResult | HeldCommit:
        """Carry out the merge in one commit.

        Args:
            hold: hold the commit, for seven days or this long; the result is a HeldCommit, and readers do not see the rows.

        Raises:
            InvalidArgumentError: an expression is not valid, or a clause can never apply.
            InvalidDataError: several rows of the source match the same row of the table.
            SchemaMismatchError: a value that its column cannot store, or a column that the source lacks.
            CommitConflictError: a concurrent commit changed rows that the merge read.
        """
        self._on_execute()

        def merge(target: WriteTarget) -> WriteResult:
            return merge_rows(target, change=self._change, options=self._options)

        if hold is False:
            return merge(self._table)
        if self._hold is None:
            raise InvalidArgumentError(f"A merge into {self._table.identifier} cannot be held. Nothing was written.")
        return self._hold(merge, hold=hold)

    def _with(
        self,
        kind: ClauseKind,
        action: ClauseAction,
        condition: Condition | None,
        assignments: Mapping[str, Expression] | None,
    ) -> "MergeBuilder":
        clause = RowClause(kind=kind, action=action, condition=condition, assignments=assignments)
        return self._changed(replace(self._change, clauses=(*self._change.clauses, clause)))

    def _changed(self, change: RowChange) -> "MergeBuilder":
        return MergeBuilder(
            self._table, change=change, options=self._options, on_execute=self._on_execute, hold=self._hold
        )
