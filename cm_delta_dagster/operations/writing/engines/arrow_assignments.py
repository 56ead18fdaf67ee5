"""The assignments of an UPDATE as values that Arrow computes."""

from collections.abc import Mapping

from cm_delta_dagster.arrow.write.assigned_values import AssignedValue, AssignedValues, assigned_value, new_values
from cm_delta_dagster.arrow.write.generated_values import certain_zone
from cm_delta_dagster.arrow.write.stored_columns import needs_spark
from cm_delta_dagster.operations.writing.clause_columns import assigned_paths, check_identity
from cm_delta_dagster.operations.writing.row_change import Expression, RowClause, is_default
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.assigned_paths import assigned_field
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import StructField


def arrow_assignments(
    assignments: Mapping[str, Expression], layout: TableLayout, *, alias: str, now_ms: int
) -> AssignedValues | str:
    """The values by Arrow; or why only Spark can compute them, for a message.

    Args:
        layout: of the table after the change, with the time zone of its expressions.
        alias: of the table in names of columns.
        now_ms: value of ``current_timestamp()``, in epoch milliseconds.

    Raises:
        InvalidArgumentError: the table has no such column, a column is assigned twice or cannot be assigned, or a value is not an
            :data:`~cm_delta_dagster.operations.writing.row_change.Expression`.
    """
    clause = RowClause(kind=ClauseKind.NOT_MATCHED_BY_SOURCE, action=ClauseAction.UPDATE, assignments=assignments)
    values: list[tuple[ColumnPath, AssignedValue]] = []
    paths = assigned_paths(clause, layout.schema, name="UPDATE", alias=alias)
    check_identity(clause, layout.schema, [path[0] for path in paths.values()], frozenset(), name="UPDATE")
    for path, expression in zip(paths.values(), assignments.values(), strict=True):
        value = _value(expression, assigned_field(path, layout.schema), layout, now_ms=now_ms)
        if value is None:
            return f"only Spark evaluates the value {expression!s} of the column {'.'.join(path)!r}"
        values.append((path, value))
    reason = needs_spark(layout.schema, layout)
    return AssignedValues.of(new_values(values, layout.schema), layout) if reason is None else reason


def _value(expression: Expression, item: StructField, layout: TableLayout, *, now_ms: int) -> AssignedValue | None:
    if not isinstance(expression, str):
        return None
    if is_default(expression):
        return assigned_value(default_of(item) or "NULL", item, None, now_ms=now_ms)
    scalar = scalar_expression(expression, layout.schema, zone=certain_zone(layout))
    return assigned_value(expression, item, scalar, now_ms=now_ms)
