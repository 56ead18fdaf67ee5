"""The directory names of :mod:`cm_delta_dagster.protocol.actions.partition_directories` as Spark columns.

Spark takes the partition values of a file from its directory. A long value is written under its digest, in the same job; a second
job looks up the long values only if such a directory is listed afterwards.
"""

from collections.abc import Collection, Mapping

from cm_delta_dagster.errors import EngineError
from cm_delta_dagster.protocol.actions.partition_directories import (
    DIGEST_BYTES,
    DIGEST_PREFIX,
    MAX_NAME_BYTES,
    digest_of,
    name_bytes,
)
from cm_delta_dagster.protocol.schema.types import BINARY, STRING, StructField
from cm_delta_dagster.spark.expressions.partition_text import text_column
from cm_delta_dagster.spark.library import Column, DataFrame, F

_ESCAPED_LENGTH = 3
_ESCAPED = r"[\\x00-\\x1f\\x7f\"#%\'*/:=?\\\\{\\[\\]^]"
"""Characters that Spark writes as ``%XX`` in a directory name, as a pattern in a SQL literal."""


def directory_column(field: StructField) -> Column:
    """Delta's text of a partition column, or its digest if the name of its directory would be too long.

    Raises:
        UnsupportedFeatureError: the column is nested or an interval.
    """
    text = text_column(field)
    if field.type == BINARY:
        keeps_bytes = text.isNull() | (F.length(text) <= DIGEST_BYTES) & text.rlike("^[0-9A-Za-z]+$")
        return F.when(keeps_bytes, text).otherwise(_digest_column(text)).alias(field.name)
    if field.type != STRING:
        return text
    limit = MAX_NAME_BYTES - name_bytes(field.name)
    escapes = F.octet_length(text) - F.octet_length(F.regexp_replace(text, F.expr(f"'{_ESCAPED}'"), F.lit("")))
    is_short = (F.octet_length(text) <= limit // _ESCAPED_LENGTH) | (
        F.octet_length(text) + escapes * (_ESCAPED_LENGTH - 1) <= limit
    )
    keeps = is_short & ~F.startswith(
        text, F.lit(DIGEST_PREFIX)
    )  # A value that looks like a digest is replaced by its digest too.
    return F.when(text.isNull() | keeps, text).otherwise(_digest_column(text)).alias(field.name)


def _digest_column(text: Column) -> Column:
    return F.concat(F.lit(DIGEST_PREFIX), F.sha2(text, 256))


def values_of_digests(frame: DataFrame, field: StructField, digests: Collection[str]) -> Mapping[str, str]:
    """The value of each digest.

    Args:
        frame: the rows that were written, with the partition column itself.

    Raises:
        EngineError: the second evaluation returned other rows, without one of the values.
    """
    long_ones = frame.where(F.startswith(directory_column(field), F.lit(DIGEST_PREFIX)))
    rows = long_ones.select(text_column(field).alias("text")).distinct().toLocalIterator()
    values = {digest_of(row["text"]): row["text"] for row in rows}
    missing = set(digests) - values.keys()
    if missing:
        raise EngineError(
            f"The partition column {field.name!r} has values that are longer than the names of directories may be "
            f"({MAX_NAME_BYTES} bytes), and the rows were others when those values were looked up. Nothing was committed. "
            "Write rows that are the same each time, e.g. frame.localCheckpoint(), or use shorter values."
        )
    return values
