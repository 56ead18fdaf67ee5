"""Predicates as Spark columns. Room: spark. The SQL text itself is made by
:mod:`cm_delta_dagster.protocol.predicates`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates import Predicate, column_path, columns_of, to_sql
from cm_delta_dagster.protocol.schema import StructType


def to_column(predicate: Predicate, schema: StructType) -> Column:
    """The predicate as a boolean column, NULL where SQL says NULL.

    Raises:
        InvalidArgumentError: a column that ``schema`` does not have.
    """
    for column in sorted(columns_of(predicate)):
        if schema.field(column_path(column)[0]) is None:
            names = ", ".join(schema.names)
            raise InvalidArgumentError(
                f"The condition names column {column!r}, which the table does not have; its columns are {names}."
            )
    return F.expr(to_sql(predicate))


def holds(predicate: Predicate, schema: StructType) -> Column:
    """True where the predicate is true, false where it is false or NULL."""
    return F.coalesce(to_column(predicate, schema), F.lit(False))
