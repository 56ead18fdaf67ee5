"""Casting the columns of a DataFrame to the schema of the table.

:mod:`cm_delta_dagster.protocol.schema.evolution` decides which schemas are compatible; this module finds the columns by name,
orders and casts them.
"""

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.schema.evolution import fits
from cm_delta_dagster.protocol.schema.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
    check_unique_names,
    data_type_text,
)
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted, same_shape, sql_type
from cm_delta_dagster.spark.library import Column, DataFrame, F, SparkSession, pyspark_errors
from cm_delta_dagster.spark.session.errors import Violation, violation_suffix
from cm_delta_dagster.spark.session.query_logs import without_query_logs


def align(frame: DataFrame, schema: StructType) -> DataFrame:
    """``frame`` with exactly the columns of ``schema``: by name ignoring case, cast; missing ones null, others dropped.

    A frame that already has this schema is returned unchanged, so that a typical append adds nothing to the plan.

    Raises:
        SchemaMismatchError: two columns of the frame differ only in case, or a type that Delta does not have.
    """
    columns = aligned_columns(frame, schema)
    return frame if columns is None else frame.select(*columns)


def aligned_columns(frame: DataFrame, schema: StructType) -> list[Column] | None:
    """The columns :func:`align` selects, or None if the frame already has the schema."""
    offered = from_spark(frame.schema)
    check_unique_names(offered)
    if same_shape(offered, schema):
        return None
    columns: list[Column] = []
    for item in schema.fields:
        have = offered.field(item.name)
        if have is None:
            columns.append(F.lit(None).cast(sql_type(item.type)).alias(item.name))
        else:
            columns.append(converted(F.col(quoted(have.name)), have.type, item.type, item.name).alias(item.name))
    return columns


def converted(column: Column, have: DataType, want: DataType, path: str) -> Column:
    """``column`` of type ``have`` as the type ``want``; a value that does not fit is an error, with and without ANSI mode.

    Args:
        path: the column or field that stores the value, for messages.
    """
    if same_shape(have, want):
        return column
    match have, want:
        case StructType(), StructType():
            return F.when(column.isNotNull(), _struct(column, have, want, path))
        case ArrayType(), ArrayType():
            return F.transform(
                column,
                lambda element: converted(element, have.element_type, want.element_type, f"{path}.element"),
            )
        case MapType(), MapType():
            # Keys first: transform_keys fails on duplicate keys, so that no entry is lost silently.
            keyed = column
            if not same_shape(have.key_type, want.key_type):
                keyed = F.transform_keys(
                    column, lambda key, _: converted(key, have.key_type, want.key_type, f"{path}.key")
                )
            if same_shape(have.value_type, want.value_type):
                return keyed
            return F.transform_values(
                keyed, lambda _, value: converted(value, have.value_type, want.value_type, f"{path}.value")
            )
        case _ if fits(have, want):
            return column.cast(sql_type(want))
        case _:
            return _stored_value(column, have, want, path)


def check_assignable(session: SparkSession, have: DataType, want: DataType, path: str) -> None:
    """Refuse types that INSERT, UPDATE and MERGE do not convert: those for which Spark has no ANSI cast. A cast may fail for some
    values.

    Args:
        path: the column or field that stores the value, for messages.

    Raises:
        SchemaMismatchError: no cast from ``have`` to ``want`` exists.
    """
    if have != VOID and not fits(have, want) and not _has_cast(session, have, want):
        raise SchemaMismatchError(
            f"A value of type {data_type_text(have)} cannot be assigned to the column {path!r} of type {data_type_text(want)}. "
            "Nothing was written. Assign a value of a type that can be cast to it."
        )


def _has_cast(session: SparkSession, have: DataType, want: DataType) -> bool:
    try:
        with without_query_logs():
            null = F.lit(None).cast(sql_type(have)).try_cast(sql_type(want))
            session.range(0).select(null).schema  # noqa: B018 - Spark Connect analyses here.
    except pyspark_errors.AnalysisException:
        return False
    return True


def _stored_value(column: Column, have: DataType, want: DataType, path: str) -> Column:
    """A cast that fails for a value that does not fit, whether or not the session has ANSI mode."""
    text = (
        f"A value of type {data_type_text(have)} cannot be stored as {data_type_text(want)} in the column {path!r}; nothing was "
        "committed. Correct the value, or cast it to a type that holds it. The value is "
    )
    shown = F.coalesce(column.try_cast("string"), F.lit("unknown"))
    message = F.concat(F.lit(text), shown, F.lit("." + violation_suffix(Violation.CAST)))
    return F.when(column.isNotNull(), F.coalesce(column.try_cast(sql_type(want)), F.raise_error(message)))


def _struct(column: Column, have: StructType, want: StructType, path: str) -> Column:
    fields: list[Column] = []
    for item in want.fields:
        offered = have.field(item.name)
        if offered is None:
            value = F.lit(None).cast(sql_type(item.type))
        else:
            value = converted(column.getField(offered.name), offered.type, item.type, f"{path}.{item.name}")
        fields.append(value.alias(item.name))
    return F.struct(*fields)
