"""Row rules that the job which writes the rows enforces: NOT NULL, the constraints of the table, and the predicate that the write
declares.

Each rule becomes a condition. One written column is wrapped so that computing it raises an error for a row that breaks a
rule. If there is no rule to check, no column is wrapped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from cm_delta_dagster.protocol.features.row_messages import guard_text, null_text
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate, column_path, columns_of
from cm_delta_dagster.protocol.schema.types import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
)
from cm_delta_dagster.spark.expressions.predicates import holds
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F, pyspark
from cm_delta_dagster.spark.rules.char_lengths import length_rules
from cm_delta_dagster.spark.rules.constraints import constraint_rules, generated_rules
from cm_delta_dagster.spark.rules.row_rules import RowRule, row_message
from cm_delta_dagster.spark.session.errors import Violation

_TABLE_RULES: Sequence[Callable[[TableLayout], Iterable[RowRule]]] = (length_rules, constraint_rules, generated_rules)
"""What the metadata of a table demands of its rows, besides NOT NULL."""


def checked_columns(frame: DataFrame, layout: TableLayout) -> dict[str, Column]:
    """Columns of an aligned frame, by name, whose evaluation checks what the table demands of rows; empty if that is nothing.

    Args:
        frame: aligned; columns that are not nullable in its schema are not checked for NULL.
        layout: of the table, whose NOT NULL is enforced at every level.
    """
    schema = layout.schema
    rules = [*_null_rules(frame, schema)]
    for table_rules in _TABLE_RULES:
        rules += table_rules(layout)
    return _carried(rules, schema) if rules else {}


def guarded_columns(schema: StructType, guard: Predicate) -> dict[str, Column]:
    """The column of a frame of this schema, by name, whose evaluation fails for a row for which ``guard`` is not true."""
    return _carried([_guard_rule(schema, guard)], schema)


def _carried(rules: Sequence[RowRule], schema: StructType) -> dict[str, Column]:
    # Any column that is written can carry the checks; wrapping keeps its value.
    carrier = next(item.name for item in schema.fields if item.type != VOID)
    wrapped = F.when(rules[0].broken, F.raise_error(rules[0].message))
    for rule in rules[1:]:
        wrapped = wrapped.when(rule.broken, F.raise_error(rule.message))
    return {carrier: wrapped.otherwise(F.col(quoted(carrier)))}


def _guard_rule(schema: StructType, guard: Predicate) -> RowRule:
    named = sorted({column_path(column)[0].lower() for column in columns_of(guard)})
    shown = [(item.name,) for item in schema.fields if item.name.lower() in named]
    return RowRule(~holds(guard, schema), row_message(Violation.OUTSIDE, guard_text(guard), shown, schema))


def _null_rules(frame: DataFrame, schema: StructType) -> Iterator[RowRule]:
    # Spark Connect asks the server for a schema, so only a table with such columns asks for it.
    is_not_null = any(not item.nullable for item in schema.fields)
    offered = {item.name: item.nullable for item in frame.schema.fields} if is_not_null else {}
    for item in schema.fields:
        must_be_given = not item.nullable and offered.get(item.name, True)
        if not must_be_given and isinstance(item.type, PrimitiveType | DecimalType):
            continue
        column = F.col(quoted(item.name))
        conditions: list[tuple[str, Column]] = []
        if must_be_given:
            conditions.append((item.name, column.isNull()))
        conditions += _nested_nulls(column, item.type, item.name)
        for path, broken in conditions:
            yield RowRule(broken, row_message(Violation.NOT_NULL, null_text(path, item), (), schema))


def _nested_nulls(column: Column, data_type: DataType, path: str) -> list[tuple[str, Column]]:
    """Conditions for NULLs below ``column``. A field of a NULL struct is NULL, as in delta-spark; that of a NULL element is not."""
    match data_type:
        case StructType():
            conditions: list[tuple[str, Column]] = []
            for item in data_type.fields:
                child = column.getField(item.name)
                here = f"{path}.{item.name}"
                if not item.nullable:
                    conditions.append((here, child.isNull()))
                conditions += _nested_nulls(child, item.type, here)
            return conditions
        case ArrayType():
            return _element_nulls(column, data_type.element_type, data_type.contains_null, f"{path}.element")
        case MapType():
            values = F.map_values(column)
            return _element_nulls(values, data_type.value_type, data_type.value_contains_null, f"{path}.value")
        case _:
            return []


def _element_nulls(elements: Column, element_type: DataType, nullable: bool, path: str) -> list[tuple[str, Column]]:
    conditions: list[tuple[str, Column]] = []
    if not nullable:
        conditions.append((path, _any_element(elements, pyspark.sql.Column.isNull)))
    # The conditions inside an element are built once to get their paths and once for each use in a lambda.
    names = [name for name, _ in _nested_nulls(F.lit(None), element_type, path)]
    for position, name in enumerate(names):
        conditions.append((name, _any_element(elements, _nested_condition(element_type, path, position))))
    return conditions


def _any_element(elements: Column, condition: Callable[[Column], Column]) -> Column:
    return F.coalesce(F.exists(elements, lambda element: F.coalesce(condition(element), F.lit(False))), F.lit(False))


def _nested_condition(element_type: DataType, path: str, position: int) -> Callable[[Column], Column]:
    return lambda element: element.isNotNull() & _nested_nulls(element, element_type, path)[position][1]
