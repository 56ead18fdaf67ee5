"""Values that the table gives to columns for which a write gives none: defaults, identity values, generated columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cm_delta_dagster.protocol.features.computed_columns import check_sources, computed_columns
from cm_delta_dagster.protocol.features.default_columns import default_of
from cm_delta_dagster.protocol.features.expressions import check_deterministic, checked_text
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.identity_columns import IdentityColumn, check_not_given, identity_columns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.align import align, converted
from cm_delta_dagster.spark.expressions.partition_text import with_empty_text_as_null
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F, py4j_errors, pyspark_errors
from cm_delta_dagster.spark.rules.char_lengths import padded
from cm_delta_dagster.spark.rules.constraints import parsed
from cm_delta_dagster.spark.session.errors import Violation, violation_text
from cm_delta_dagster.spark.session.session import is_connect

_ROW_NUMBER = "__cm_delta_row_number"
_ROW_BITS = 33
"""``monotonically_increasing_id`` has the number of the row within its partition in the lower bits, that of the partition above."""
_ADAPTIVE = "AdaptiveSparkPlanExec"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledRows:
    """Rows with a value in every column of the table.

    Attributes:
        numbered: identity columns for which values were generated.
    """

    frame: DataFrame
    numbered: frozenset[str] = frozenset()


def fill_missing(frame: DataFrame, layout: TableLayout) -> FilledRows:
    """The rows of a write that gives values for the columns of ``frame``, with the values of columns that it lacks.

    The frame is returned unchanged if the table computes none of the columns that it lacks.

    Raises:
        InvalidArgumentError: the frame has an identity column that is always generated, or an expression cannot be evaluated.
        SchemaMismatchError: a column that a missing generated column is computed from is missing too.
        InvalidDataError: an identity column has used all its values.
    """
    schema = layout.schema
    computed = computed_columns(schema)
    if not computed:
        return FilledRows(frame=frame)
    offered = from_spark(frame.schema)
    check_not_given(schema, offered.names, action="gives")
    missing = [name for name in computed if offered.field(name) is None]
    if not missing:
        return FilledRows(frame=frame)
    check_sources(schema, offered)
    is_given_by_name = {name: F.lit(False) for name in missing}
    return FilledRows(
        frame=fill(align(frame, schema), layout, is_given_by_name), numbered=numbered_columns(schema, missing)
    )


def fill(frame: DataFrame, layout: TableLayout, is_given_by_name: Mapping[str, Column]) -> DataFrame:
    """``frame`` with the values of columns that were not given: the default, the identity value or the generated value, else NULL.

    Args:
        frame: has every column of the schema, with its type, and any further columns.
        is_given_by_name: by name of the column, whether the write gave the value of a row;
            the write gave every value of the other columns.

    Raises:
        InvalidArgumentError: an expression cannot be evaluated.
        InvalidDataError: an identity column has used all its values.
    """
    schema = layout.schema
    first = _defaults(frame, schema, is_given_by_name)
    identities = [column for name, column in identity_columns(schema).items() if name in is_given_by_name]
    if identities:
        most = _most_partitions(frame)
        # The number of partitions must not exceed what the numbering assumes, however Spark plans the query.
        frame = frame.coalesce(most).withColumn(_ROW_NUMBER, F.monotonically_increasing_id())
        for column in identities:
            value = F.col(quoted(column.name))
            first[column.name] = F.when(is_given_by_name[column.name], value).otherwise(_identity_value(column, most))
    if first:
        frame = frame.withColumns(first)
    if identities:
        frame = frame.drop(_ROW_NUMBER)
    generated = {
        item: F.when(is_given_by_name[item], F.col(quoted(item))).otherwise(_generated(item, text))
        for item, text in generated_columns(schema).items()
        if item in is_given_by_name
    }
    if not generated:
        return frame
    # The expressions see the defaults and the identity values, all as they will be read.
    as_stored = with_empty_text_as_null(padded(frame, schema), schema, layout.partition_columns)
    return as_stored.withColumns(generated)


def numbered_columns(schema: StructType, missing: Sequence[str]) -> frozenset[str]:
    """The identity columns among ``missing``."""
    return frozenset(identity_columns(schema)) & frozenset(missing)


def _defaults(frame: DataFrame, schema: StructType, is_given_by_name: Mapping[str, Column]) -> dict[str, Column]:
    default_texts = {
        item.name: text
        for item in schema.fields
        if (text := default_of(item)) is not None and item.name in is_given_by_name
    }
    if not default_texts:
        return {}
    values = {
        name: parsed(checked_text(text), f"the default {text!r} of column {name!r}")
        for name, text in default_texts.items()
    }
    offered = from_spark(frame.select(*[value.alias(name) for name, value in values.items()]).schema)
    columns: dict[str, Column] = {}
    for have in offered.fields:
        want = schema.field(have.name)
        assert want is not None
        default = converted(values[have.name], have.type, want.type, want.name)
        columns[have.name] = F.when(is_given_by_name[have.name], F.col(quoted(have.name))).otherwise(default)
    return columns


def _generated(name: str, text: str) -> Column:
    check_deterministic(text, what=f"the generated column {name!r}")
    return parsed(text, f"the generated column {name!r} ({text})")


def _identity_value(column: IdentityColumn, most_partitions: int) -> Column:
    """Successive values for the rows of one partition; the values of the partitions alternate."""
    number = F.col(_ROW_NUMBER)
    row = number.bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    position = row * F.lit(most_partitions) + F.shiftright(number, _ROW_BITS)
    step = F.lit(column.identity.step).cast("bigint")
    value = F.try_add(F.lit(column.next_value).cast("bigint"), F.try_multiply(step, position))
    overflow = (
        f"The identity column {column.name!r} has used all 64-bit values of its sequence; nothing was committed. Rows need another "
        "key."
    )
    return F.coalesce(value, F.raise_error(F.lit(violation_text(Violation.IDENTITY, overflow))))


def _most_partitions(frame: DataFrame) -> int:
    """A number of partitions that suffices for the rows; runs no Spark job."""
    session = frame.sparkSession
    setting = int(str(session.conf.get("spark.sql.shuffle.partitions", "200")))
    if is_connect(session):
        return setting
    try:
        execution = frame._jdf.queryExecution()
        if str(execution.executedPlan().getClass().getSimpleName()) == _ADAPTIVE:
            return setting  # The number is known only when the stages before have run.
        return max(1, int(execution.toRdd().getNumPartitions()))
    except (py4j_errors.Py4JError, pyspark_errors.PySparkException):
        return setting  # A value that cannot be computed is an error of the write.
