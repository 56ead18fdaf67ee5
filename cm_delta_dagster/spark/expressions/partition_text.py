"""Partition values between Delta's text form and Spark columns (protocol heading "Partition Value Serialization").

The results do not depend on the session's time zone or ANSI setting. Texts are cast back only in the form that
``protocol.actions.partition_values`` writes.
"""

from collections.abc import Sequence

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION
from cm_delta_dagster.protocol.schema.interval_types import DAY_TIME_NAMES, YEAR_MONTH_NAMES
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    STRING,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    data_type_text,
)
from cm_delta_dagster.spark.expressions.schema import quoted, sql_type
from cm_delta_dagster.spark.library import Column, DataFrame, F

_DAY_MICROS = 86_400_000_000
_WRITABLE = frozenset(
    (
        "string",
        "binary",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "boolean",
        "date",
        "timestamp",
        "timestamp_ntz",
    )
)
"""Names of the types, beside decimals, that can be written as partition columns."""


def text_column(field: StructField) -> Column:
    """Delta's text of a partition column, null for NULL, for the empty string and for the name that directories give to NULL.

    Raises:
        UnsupportedFeatureError: the column is nested or an interval.
    """
    return F.expr(_text_sql(field)).alias(field.name)


def with_empty_text_as_null(frame: DataFrame, schema: StructType, partition_columns: Sequence[str]) -> DataFrame:
    """An aligned frame with NULL for texts in partition columns that are stored as NULL; the same frame if unaffected."""
    names = stored_as_null(schema, partition_columns)
    columns = {name: F.expr(_stored_field(item)) for name in names if (item := schema.field(name)) is not None}
    return frame.withColumns(columns) if columns else frame


def loses_text(field: StructField) -> Column:
    """Whether a string or binary partition column holds a value that is stored as NULL."""
    return F.expr(f"{quoted(field.name)} IS NOT NULL AND ({_stored_field(field)}) IS NULL")


def stored_sql(expression: str, data_type: DataType) -> str:
    """SQL of a value of a string or binary partition column as it will be read.

    Args:
        expression: SQL of the value that is written.
    """
    if data_type == BINARY:
        return f"nullif({expression}, X'')"
    return f"CASE WHEN {expression} NOT IN ('', '{HIVE_DEFAULT_PARTITION}') THEN {expression} END"


def _stored_field(field: StructField) -> str:
    return stored_sql(quoted(field.name), field.type)


def typed_column(text: Column, data_type: DataType) -> Column:
    """The value of a text in the form that ``partition_values.serialize_partition_value`` writes."""
    if data_type == STRING:
        return text
    if isinstance(data_type, PrimitiveType) and data_type.name in DAY_TIME_NAMES | YEAR_MONTH_NAMES:
        # The text is that of the widest type of the family; a narrower type has another text.
        text = text.cast(f"interval {'year to month' if data_type.name in YEAR_MONTH_NAMES else 'day to second'}")
    return text.cast(sql_type(data_type))


def _text_sql(field: StructField) -> str:
    column = quoted(field.name)
    if isinstance(field.type, DecimalType):
        return _decimal_sql(column, field.type.scale)
    if not isinstance(field.type, PrimitiveType) or field.type.name not in _WRITABLE:
        raise UnsupportedFeatureError(
            f"Column {field.name!r} of type {data_type_text(field.type)} cannot be written as a partition column: its "
            "values have no safe directory name. Partition by a column of a simple type, e.g. a string or a date."
        )
    match field.type.name:
        case "string":
            return _stored_field(field)
        case "binary":
            return f"decode({_stored_field(field)}, 'ISO-8859-1')"
        case "timestamp":
            return _timestamp_sql(column)
        case _:
            return f"CAST({column} AS STRING)"


def _timestamp_sql(column: str) -> str:
    """ISO-8601 in UTC with microseconds, by arithmetic on the instant, because Spark's formatter uses the session's
    zone.
    """
    micros = f"unix_micros({column})"
    rest = f"pmod({micros}, {_DAY_MICROS}L)"
    day = f"date_add(DATE'1970-01-01', CAST(({micros} - {rest}) div {_DAY_MICROS}L AS INT))"

    def part(divisor: int, modulus: int, width: int) -> str:
        return f"lpad(CAST(({rest} div {divisor}L) % {modulus}L AS STRING), {width}, '0')"

    hour, minute, second = part(3_600_000_000, 24, 2), part(60_000_000, 60, 2), part(1_000_000, 60, 2)
    return (
        f"concat(CAST({day} AS STRING), 'T', {hour}, ':', {minute}, ':', {second}, '.', {part(1, 1_000_000, 6)}, 'Z')"
    )


def _decimal_sql(column: str, scale: int) -> str:
    """Plain digits. Without ANSI mode Spark writes numbers below 1E-6 with an exponent, which is expanded here."""
    text = f"CAST({column} AS STRING)"
    if scale <= 6:
        return text
    digits = f"regexp_replace(regexp_replace({text}, 'E.*$', ''), '[-.]', '')"
    sign = f"CASE WHEN {text} LIKE '-%' THEN '-' ELSE '' END"
    plain = f"concat({sign}, '0.', lpad({digits}, {scale}, '0'))"
    return f"CASE WHEN {text} LIKE '%E%' THEN {plain} ELSE {text} END"
