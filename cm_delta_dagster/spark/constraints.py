"""CHECK constraints, invariants and generated columns, as rules for the rows of a write."""

from collections.abc import Iterator

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.constraints import Constraint, check_constraints, invariants
from cm_delta_dagster.protocol.features.expressions import check_deterministic, known_columns
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.errors import Violation, root_cause
from cm_delta_dagster.spark.row_rules import Rule, row_message
from cm_delta_dagster.spark.schema import quoted


def constraint_rules(layout: TableLayout) -> Iterator[Rule]:
    """The CHECK constraints and invariants of the table. NULL is a violation.

    Raises:
        InvalidArgumentError: an expression contains a query, or calls a function that is not built into Spark or not deterministic.
        CorruptLogError: an invariant cannot be read.
    """
    schema = layout.schema
    for constraint in (*invariants(schema), *check_constraints(layout.properties.configuration)):
        text = (
            f"A row violates {constraint.description}, which is not true for it; nothing was committed. Correct the row, or drop "
            "the constraint. The row has "
        )
        shown = known_columns(constraint.expression, schema)
        yield Rule(~is_true(constraint), row_message(Violation.CONSTRAINT, text, shown, schema))


def generated_rules(layout: TableLayout) -> Iterator[Rule]:
    """A value of a generated column must equal its expression, and NULL equals NULL."""
    schema = layout.schema
    for name, expression in generated_columns(schema).items():
        check_deterministic(expression, what=f"the generated column {name!r}")
        text = (
            f"A row has a value of the generated column {name!r} that is not that of its expression {expression}; nothing was "
            "committed. Leave the column out, or correct the value. The row has "
        )
        shown = ((name,), *known_columns(expression, schema))
        broken = ~F.col(quoted(name)).eqNullSafe(parsed(expression, f"the generated column {name!r}"))
        yield Rule(broken, row_message(Violation.CONSTRAINT, text, shown, schema))


def is_true(constraint: Constraint) -> Column:
    """Whether the constraint is true for a row; never NULL."""
    check_deterministic(constraint.expression, what=constraint.description)
    return F.coalesce(parsed(constraint.expression, constraint.description), F.lit(False))


def parsed(text: str, what: str) -> Column:
    """The expression as a Column.

    Raises:
        InvalidArgumentError: Spark cannot parse it.
    """
    try:
        return F.expr(text)
    except ParseException as error:
        raise not_evaluable(what, error) from error


def not_evaluable(what: str, error: Exception) -> InvalidArgumentError:
    """The error for an expression that Spark does not accept."""
    return InvalidArgumentError(
        f"Spark cannot evaluate {what}: {root_cause(str(error))} Nothing was written. Correct the expression, or drop it."
    )


def check_evaluable(frame: DataFrame, layout: TableLayout) -> None:
    """Name the constraint or generated column that Spark cannot evaluate over ``frame``.

    Raises:
        InvalidArgumentError: an expression uses a column that is missing, or is not boolean.
    """
    schema: StructType = layout.schema
    for constraint in (*invariants(schema), *check_constraints(layout.properties.configuration)):
        _try(frame, is_true(constraint), constraint.description)
    for name, text in generated_columns(schema).items():
        what = f"the generated column {name!r} ({text})"
        _try(frame, F.col(quoted(name)).eqNullSafe(parsed(text, what)), what)


def _try(frame: DataFrame, condition: Column, what: str) -> None:
    try:
        assert frame.where(condition).schema is not None
    except AnalysisException as error:
        raise not_evaluable(what, error) from error
