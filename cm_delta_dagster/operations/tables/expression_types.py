"""Checks the defaults and generation expressions of a schema, by Spark where their types do not follow from their texts."""

from collections.abc import Callable
from datetime import UTC

from cm_delta_dagster.arrow.write.missing_values import default_needs_spark
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.generated_columns import generation_expression
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.rules.constraints import check_expression_types


def check_expressions(schema: StructType, spark: Callable[[], SparkSession]) -> None:
    """Check that the defaults and generation expressions of ``schema`` have types that their columns can store.

    Args:
        spark: returns the session for expressions that only Spark understands; called only if there are some.

    Raises:
        InvalidArgumentError, InvalidDataError: as
            :func:`~cm_delta_dagster.spark.rules.constraints.check_expression_types`.
    """
    uncertain = frozenset(item.name for item in schema.fields if not _is_certain(item, schema))
    if uncertain:
        check_expression_types(spark(), schema, only=uncertain)


def _is_certain(item: StructField, schema: StructType) -> bool:
    """Whether the expressions of a column have its type."""
    text = generation_expression(item)
    scalar = None if text is None else scalar_expression(text, schema, zone=UTC)
    if text is not None and (scalar is None or scalar.type != item.type):
        return False
    return default_of(item) is None or not default_needs_spark(item)
