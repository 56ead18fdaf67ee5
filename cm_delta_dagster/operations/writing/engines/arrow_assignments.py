"""The assignments of an UPDATE as values that Arrow computes."""

from collections.abc import Mapping

from cm_delta_dagster.arrow.write.assigned_values import AssignedValue, AssignedValues, assigned_value
from cm_delta_dagster.arrow.write.generated_values import certain_zone
from cm_delta_dagster.arrow.write.stored_columns import needs_spark
from cm_delta_dagster.operations.writing.row_change import Expression, check_value, is_default
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.generated_columns import check_no_default
from cm_delta_dagster.protocol.features.identity_columns import identity_columns, updated_identity
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.assigned_paths import assigned_twice, target_path
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
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
    values: dict[str, AssignedValue] = {}
    for name, expression in assignments.items():
        check_value(name, expression)
        path = target_path(name, layout.schema, alias)
        item = layout.schema.field(path[0])
        assert item is not None
        if len(path) > 1:
            return f"{name!r} is a field of a struct"
        if item.name in values:
            raise assigned_twice(path)
        if item.name in identity_columns(layout.schema):
            raise updated_identity("UPDATE", item.name)
        value = _value(expression, item, layout, now_ms=now_ms)
        if value is None:
            return f"only Spark evaluates the value {expression!s} of the column {item.name!r}"
        values[item.name] = value
    return needs_spark(layout.schema, layout) or AssignedValues.of(tuple(values.values()), layout)


def _value(expression: Expression, item: StructField, layout: TableLayout, *, now_ms: int) -> AssignedValue | None:
    if not isinstance(expression, str):
        return None
    if is_default(expression):
        check_no_default(layout.schema, item.name)
        return assigned_value(default_of(item) or "NULL", item, None, now_ms=now_ms)
    scalar = scalar_expression(expression, layout.schema, zone=certain_zone(layout))
    return assigned_value(expression, item, scalar, now_ms=now_ms)
