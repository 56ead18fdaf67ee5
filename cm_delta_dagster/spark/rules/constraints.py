"""CHECK constraints, invariants and generated columns, as rules for the rows of a write."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.features.constraints import Constraint, check_constraints, invariants
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.expressions import check_deterministic, known_columns
from cm_delta_dagster.protocol.features.generated_columns import generated_columns, generation_expression
from cm_delta_dagster.protocol.features.row_messages import constraint_text, generated_text
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.evolution import fits
from cm_delta_dagster.protocol.schema.evolution import without_table_metadata as plain
from cm_delta_dagster.protocol.schema.types import (
    VOID,
    DataType,
    DecimalType,
    PrimitiveType,
    StructType,
    data_type_text,
)
from cm_delta_dagster.spark.expressions.align import converted
from cm_delta_dagster.spark.expressions.partition_text import stored_sql
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted, same_shape, sql_type, to_spark
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession, T, pyspark_errors
from cm_delta_dagster.spark.rules.row_rules import RowRule, row_message
from cm_delta_dagster.spark.session.errors import Violation, root_cause, spark_errors
from cm_delta_dagster.spark.session.query_logs import without_query_logs


def constraint_rules(layout: TableLayout) -> Iterator[RowRule]:
    """The CHECK constraints and invariants of the table. NULL is a violation.

    Raises:
        InvalidArgumentError: an expression contains a query, or calls a function that is not built into Spark or not deterministic.
        CorruptLogError: an invariant cannot be read.
    """
    schema = layout.schema
    for constraint in (*invariants(schema), *check_constraints(layout.properties.configuration)):
        shown = known_columns(constraint.expression, schema)
        yield RowRule(
            ~is_true(constraint), row_message(Violation.CONSTRAINT, constraint_text(constraint), shown, schema)
        )


def generated_rules(layout: TableLayout) -> Iterator[RowRule]:
    """A value of a generated column must equal its expression, and NULL equals NULL.

    Partition columns store some texts as NULL, so NULL equals these too.
    """
    schema = layout.schema
    stored_otherwise = stored_as_null(schema, layout.partition_columns)
    for name, expression in generated_columns(schema).items():
        check_deterministic(expression, what=f"the generated column {name!r}")
        text = generated_text(name, expression)
        shown = ((name,), *known_columns(expression, schema))
        item = schema.field(name)
        if item is not None and name in stored_otherwise:
            # Line breaks, because the expression of another writer may end with a comment.
            expression = stored_sql(f"(\n{expression}\n)", item.type)
        broken = ~F.col(quoted(name)).eqNullSafe(parsed(expression, f"the generated column {name!r}"))
        yield RowRule(broken, row_message(Violation.CONSTRAINT, text, shown, schema))


def is_true(constraint: Constraint) -> Column:
    """Whether the constraint is true for a row; never NULL."""
    check_deterministic(constraint.expression, what=constraint.description, allows_clock=True)
    return F.coalesce(parsed(constraint.expression, constraint.description), F.lit(False))


def parsed(text: str, what: str) -> Column:
    """The expression as a Column.

    Raises:
        InvalidArgumentError: Spark cannot parse it.
    """
    try:
        return F.expr(text)
    except pyspark_errors.ParseException as error:
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
        with without_query_logs():
            assert frame.where(condition).schema is not None
    except pyspark_errors.AnalysisException as error:
        raise not_evaluable(what, error) from error


def check_boolean(session: SparkSession, schema: StructType, constraint: Constraint) -> None:
    """Have Spark analyse a new constraint.

    Raises:
        InvalidArgumentError: it uses a column that is missing, or is not boolean.
    """
    data_type = _type_of(session, schema, constraint.expression, constraint.description)
    if not isinstance(data_type, T.BooleanType):
        raise InvalidArgumentError(
            f"{constraint.description[0].upper()}{constraint.description[1:]} is of type {data_type.simpleString()}, not boolean. "
            "Nothing was changed. Write a condition, such as `x > 0`."
        )


def check_expression_types(session: SparkSession, schema: StructType, *, only: Collection[str]) -> None:
    """Have Spark analyse the defaults and generation expressions of some columns of a schema.

    Args:
        only: names of these columns.

    Raises:
        InvalidArgumentError: Spark does not accept an expression, the type of a generation expression is not that of its column,
            or the type of a default cannot be stored in its column.
        InvalidDataError: the value of a default cannot be.
    """
    for item in schema.fields:
        name = item.name
        if name not in only:
            continue
        if (text := generation_expression(item)) is not None:
            data_type = _type_of(session, schema, text, f"the generated column {name!r} ({text})")
            if not same_shape(_delta_type(data_type), item.type):
                raise InvalidArgumentError(
                    f"The expression {text!r} of the generated column {name!r} is of type {data_type.simpleString()}, and the "
                    f"column of type {data_type_text(item.type)}. Nothing was written. Cast the expression to the type of the "
                    "column."
                )
        if (text := default_of(item)) is not None:
            what = f"the default {text!r} of column {name!r}"
            data_type = _type_of(session, StructType(()), text, what)
            cast = f"CAST({text} AS {sql_type(item.type)})"
            _type_of(session, StructType(()), cast, what)
            if not _may_store(_delta_type(data_type), item.type):
                raise InvalidArgumentError(
                    f"The default {text!r} of column {name!r} is of type {data_type.simpleString()}, which cannot be stored as "
                    f"{data_type_text(item.type)}. Nothing was written. Cast the default."
                )
            with spark_errors(f"evaluating {what}"):
                value = converted(parsed(text, what), _delta_type(data_type), item.type, name)
                session.sql("SELECT 1 FROM VALUES (1)").select(value).collect()


def expression_type(session: SparkSession, schema: StructType, text: str, what: str) -> DataType:
    """The type of an expression over the columns of ``schema``. Raises InvalidArgumentError if Spark does not accept it.

    Args:
        what: the expression, for the message.
    """
    return _delta_type(_type_of(session, schema, text, what))


def _type_of(session: SparkSession, schema: StructType, text: str, what: str) -> T.DataType:
    try:
        with without_query_logs():
            frame = session.createDataFrame([], to_spark(plain(schema)))
            return frame.select(parsed(text, what).alias("value")).schema["value"].dataType
    except (pyspark_errors.AnalysisException, pyspark_errors.ParseException) as error:
        raise not_evaluable(what, error) from error


def _delta_type(data_type: T.DataType) -> DataType:
    return from_spark(T.StructType([T.StructField("value", data_type)])).fields[0].type


def _may_store(have: DataType, want: DataType) -> bool:
    """Whether ANSI store assignment allows the types; values are checked when they are stored."""
    numbers = ("byte", "short", "integer", "long", "float", "double")
    times = ("date", "timestamp", "timestamp_ntz")
    if have in (want, VOID):
        return True
    if isinstance(have, PrimitiveType) and isinstance(want, PrimitiveType):
        return (have.name in numbers and want.name in numbers) or (have.name in times and want.name in times)
    decimals = isinstance(have, DecimalType) or isinstance(want, DecimalType)
    others = [kind for kind in (have, want) if not isinstance(kind, DecimalType)]
    if decimals:
        return all(isinstance(kind, PrimitiveType) and kind.name in numbers for kind in others)
    return fits(have, want)
