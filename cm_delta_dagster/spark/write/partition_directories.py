"""Directory names of partition values that are too long for a file system, or that have no safe name.

The partition values of a file are in the log; its directory may have any name. Spark names a directory after the value
(``p=value``), and file systems limit names to 255 bytes. A longer value is written under its SHA-256 instead, in the same job;
a second job looks up the long values only if such a directory is found afterwards. Binary values that are not ASCII letters and
digits have a digest too.
"""

import hashlib
from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.errors import EngineError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.paths import hive_escape
from cm_delta_dagster.protocol.schema.types import BINARY, STRING, StructField
from cm_delta_dagster.spark.expressions.partition_text import text_column

MAX_NAME_BYTES = 255
"""Longest name of a directory on common file systems."""

_DIGEST_PREFIX = "cm-delta-sha256-"
_DIGEST_BYTES = len(_DIGEST_PREFIX) + 64
_ESCAPED_LENGTH = 3
_ESCAPED = r"[\\x00-\\x1f\\x7f\"#%\'*/:=?\\\\{\\[\\]^]"
"""Characters that Spark writes as ``%XX`` in a directory name, as a pattern in a SQL literal."""


def check_column_name(name: str) -> None:
    """Raises InvalidArgumentError if the name is too long for the name of a directory with a value."""
    if MAX_NAME_BYTES - _name_bytes(name) < _DIGEST_BYTES:
        raise InvalidArgumentError(
            f"The partition column {name!r} cannot be written: with {_name_bytes(name) - 1} bytes its name is too long for the "
            f"directories of its values, whose names have at most {MAX_NAME_BYTES} bytes. Rename the column."
        )


def directory_column(field: StructField) -> Column:
    """Delta's text of a partition column, or its digest if the name of its directory would be too long.

    Raises:
        UnsupportedFeatureError: the column is nested or an interval.
    """
    text = text_column(field)
    if field.type == BINARY:
        keeps_bytes = text.isNull() | (F.length(text) <= _DIGEST_BYTES) & text.rlike("^[0-9A-Za-z]+$")
        return F.when(keeps_bytes, text).otherwise(_digest_column(text)).alias(field.name)
    if field.type != STRING:
        return text
    limit = MAX_NAME_BYTES - _name_bytes(field.name)
    escapes = F.octet_length(text) - F.octet_length(F.regexp_replace(text, F.expr(f"'{_ESCAPED}'"), F.lit("")))
    is_short = (F.octet_length(text) <= limit // _ESCAPED_LENGTH) | (
        F.octet_length(text) + escapes * (_ESCAPED_LENGTH - 1) <= limit
    )
    keeps = is_short & ~F.startswith(
        text, F.lit(_DIGEST_PREFIX)
    )  # A value that looks like a digest is replaced by its digest too.
    return F.when(text.isNull() | keeps, text).otherwise(_digest_column(text)).alias(field.name)


def _digest_column(text: Column) -> Column:
    return F.concat(F.lit(_DIGEST_PREFIX), F.sha2(text, 256))


def is_digest(text: str) -> bool:
    """Whether a directory is named after the digest of a value, not the value itself."""
    return text.startswith(_DIGEST_PREFIX)


def values_of_digests(frame: DataFrame, field: StructField, digests: Collection[str]) -> Mapping[str, str]:
    """The value of each digest.

    Args:
        frame: the rows that were written, with the partition column itself.

    Raises:
        EngineError: the second evaluation returned other rows, without one of the values.
    """
    long_ones = frame.where(F.startswith(directory_column(field), F.lit(_DIGEST_PREFIX)))
    rows = long_ones.select(text_column(field).alias("text")).distinct().toLocalIterator()
    values = {_digest(row["text"]): row["text"] for row in rows}
    missing = set(digests) - values.keys()
    if missing:
        raise EngineError(
            f"The partition column {field.name!r} has values that are longer than the names of directories may be "
            f"({MAX_NAME_BYTES} bytes), and the rows were others when those values were looked up. Nothing was committed. "
            "Write rows that are the same each time, e.g. frame.localCheckpoint(), or use shorter values."
        )
    return values


def _digest(text: str) -> str:
    return _DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def _name_bytes(name: str) -> int:
    """Bytes of ``name=`` in a directory name."""
    return len(hive_escape(name).encode()) + 1
