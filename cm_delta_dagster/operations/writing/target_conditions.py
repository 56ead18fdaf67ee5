"""What the texts of a change say about rows of the table alone, by which files are chosen and concurrent commits are compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange
from cm_delta_dagster.protocol.changes.row_changes import ClauseKind
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Or, Predicate, conjunction
from cm_delta_dagster.protocol.predicates.references import JoinCondition, Side, join_condition, own_text
from cm_delta_dagster.protocol.predicates.sql_checks import Clock
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.conditions import column_text
from cm_delta_dagster.spark.library import is_column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetConditions:
    """Reads the texts of one change.

    Attributes:
        zone: in which the engine evaluates texts.
    """

    change: RowChange
    snapshot: Snapshot
    target: Side
    source: Side
    clock: Callable[[], Clock]
    zone: tzinfo | None

    @classmethod
    def of(
        cls,
        change: RowChange,
        snapshot: Snapshot,
        *,
        schema: StructType,
        offered: StructType,
        clock: Callable[[], Clock],
        zone: tzinfo | None,
    ) -> "TargetConditions":
        """For a table that has ``schema`` after the change, and a source with the columns ``offered``."""
        target = Side(alias=change.target_alias, schema=schema)
        source = Side(alias=change.source_alias, schema=offered)
        return cls(change=change, snapshot=snapshot, target=target, source=source, clock=clock, zone=zone)

    def join(self) -> JoinCondition:
        """What follows from the condition of the join; nothing if only Spark understands it."""
        text = None if self.change.on is None else _text(self.change.on)
        if text is None:
            return JoinCondition()
        try:
            return join_condition(text, target=self.target, source=self.source)
        except InvalidArgumentError:
            return JoinCondition()

    def matched(self, join: JoinCondition) -> Predicate:
        """What all rows of the table with a partner satisfy."""
        parts = [self._parsed(text) for text in join.on_target]
        return conjunction([*parts, *([] if self.change.where is None else [self.change.where])])

    def by_source(self) -> tuple[Predicate, ...]:
        """What the rows satisfy that change without a partner, for each clause."""
        kind = ClauseKind.NOT_MATCHED_BY_SOURCE
        return tuple(self._implied(clause.condition) for clause in self.change.clauses if clause.kind is kind)

    def _implied(self, condition: Condition | None) -> Predicate:
        if condition is None:
            return AlwaysTrue()
        if not (isinstance(condition, str) or is_column(condition)):
            return condition
        text = _text(condition)
        own = None if text is None else own_text(text, self.target, self.source)
        return AlwaysTrue() if own is None else self._parsed(own)

    def _parsed(self, text: str) -> Predicate:
        try:
            return parse_predicate(text, self.snapshot.schema, clock=self.clock, zone=self.zone)
        except CmDeltaError:
            return AlwaysTrue()  # It names a new column, or only Spark understands it.


def read_predicate(by_source: Sequence[Predicate], matched: Predicate) -> Predicate:
    """A predicate that every row of the table satisfies on which the outcome depends.

    Args:
        by_source: as :meth:`TargetConditions.by_source` has them.
        matched: what all rows with a partner satisfy.
    """
    parts = [*by_source, matched]
    if any(isinstance(part, AlwaysTrue) for part in parts):
        return AlwaysTrue()
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _text(expression: Expression) -> str | None:
    return expression if isinstance(expression, str) else column_text(expression)
