"""Rows in the form in which the table will have them, so that they are compared with its rows as readers will see them.

A value can change on its way: it is cast to the type of its column, a ``char`` string is filled with blanks, and a partition
column stores the empty text as NULL. Whatever compares new rows with rows of the table (the keys of a merge, the slice that an
overwrite replaces) compares the rows of :func:`as_read`.
"""

from collections.abc import Sequence
from dataclasses import replace

from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.align import align
from cm_delta_dagster.spark.expressions.partition_text import with_empty_text_as_null
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted
from cm_delta_dagster.spark.library import DataFrame, F
from cm_delta_dagster.spark.read.file_values import OWN_PREFIX
from cm_delta_dagster.spark.rules.char_lengths import padded, with_declared_types, without_declared_types
from cm_delta_dagster.spark.rules.guards import guarded_columns

_GIVEN = f"{OWN_PREFIX}given"


def cast_and_padded(frame: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the columns of ``schema``, with blanks in ``char`` columns; ``frame`` itself if they are so already.

    Raises:
        SchemaMismatchError: two columns of the frame differ only in case, or a type that Delta does not have.
    """
    return padded(align(frame, schema), schema)


def as_read(frame: DataFrame, schema: StructType, *, partition_columns: Sequence[str]) -> DataFrame:
    """The rows with the columns of ``schema``, as they will be read from the table.

    Args:
        schema: of the table, or some of its columns.
        partition_columns: of these, the empty text is NULL.

    Raises:
        SchemaMismatchError: as :func:`cast_and_padded`.
    """
    rows = with_empty_text_as_null(cast_and_padded(frame, schema), schema, partition_columns)
    return with_declared_types(rows, schema)


def guarded(rows: DataFrame, schema: StructType, guard: Predicate) -> DataFrame:
    """Stored rows, whose evaluation fails for a row for which ``guard`` is not true.

    Args:
        rows: with the columns of ``schema`` and perhaps others, with the values that will be read.
    """
    checked = with_declared_types(rows, schema).withColumns(guarded_columns(schema, guard))
    return without_declared_types(checked, schema)


def guarded_source(
    frame: DataFrame, schema: StructType, guard: Predicate, *, partition_columns: Sequence[str]
) -> DataFrame:
    """``frame``, whose values stay as they are, with the check of :func:`guarded` on the values that the table will store."""
    offered = from_spark(frame.schema)
    hidden_schema = StructType(
        tuple(replace(item, name=f"{_GIVEN}{number}") for number, item in enumerate(offered.fields))
    )
    copies = {
        hidden.name: F.col(quoted(name)) for hidden, name in zip(hidden_schema.fields, offered.names, strict=True)
    }
    stored = tuple(item for item in schema.fields if offered.field(item.name) is not None)
    # The first column carries the check, so it must be one that is selected below.
    carried = StructType((*hidden_schema.fields, *stored))
    rows = as_read(frame.withColumns(copies), carried, partition_columns=partition_columns)
    checked = guarded(rows, carried, guard)
    return checked.select(
        *[
            F.col(hidden.name).alias(item.name, metadata=dict(item.metadata))
            for hidden, item in zip(hidden_schema.fields, offered.fields, strict=True)
        ]
    )
