"""Rules for rows, as conditions inside the Spark job that writes them, and the message for a row that breaks one."""

from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.protocol.features.row_messages import shown_columns
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, F
from cm_delta_dagster.spark.session.errors import Violation, violation_suffix


@dataclass(frozen=True, slots=True)
class RowRule:
    """``broken`` is true for an offending row; ``message`` describes it and shows the row."""

    broken: Column
    message: Column


def row_message(kind: Violation, text: str, shown: Sequence[ColumnPath], schema: StructType) -> Column:
    """The message for a row that breaks a rule.

    Args:
        text: begins the message; the values of the row follow.
        shown: columns and nested fields to show; without a simple one among them, the simple columns of the schema.
    """
    parts: list[Column] = [F.lit(text)]
    for position, path in enumerate(shown_columns(shown, schema)):
        value = F.coalesce(_value(path).cast("string"), F.lit("NULL"))
        parts += [F.lit(f"{', ' if position else ''}{'.'.join(path)} = "), value]
    return F.concat(*parts, F.lit("." + violation_suffix(kind)))


def _value(path: ColumnPath) -> Column:
    value = F.col(quoted(path[0]))
    for name in path[1:]:
        value = value.getField(name)
    return value
