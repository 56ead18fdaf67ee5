"""Queries of a merge by key.

Source and target are joined under positional column names, so that names with dots, and a source that was computed from the
target, cause no ambiguity. NULL keys match no row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.changes.source_facts import SourceFacts
from cm_delta_dagster.protocol.predicates.key_ranges import key_range
from cm_delta_dagster.protocol.predicates.predicates import (
    Predicate,
)
from cm_delta_dagster.protocol.schema.types import (
    DataType,
    StructType,
)
from cm_delta_dagster.spark.changes.key_ranges import bounds
from cm_delta_dagster.spark.expressions.partition_text import loses_text
from cm_delta_dagster.spark.expressions.predicates import holds
from cm_delta_dagster.spark.expressions.schema import from_spark, quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.session.cancellation import collected_rows
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.write.stored_values import as_read


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """The rows of the source as they will be read from the table.

    Attributes:
        frame: the columns ``offered``, in that order.
        offered: the columns of the table that the source has.
        keys: names of the key columns as in the table.
        schema: schema of the table after the merge.
    """

    frame: DataFrame
    offered: StructType
    keys: tuple[str, ...]
    schema: StructType


def merge_source(
    frame: DataFrame, schema: StructType, keys: Sequence[str], *, partition_columns: Sequence[str] = ()
) -> MergeSource:
    """The source as it will be read from the table; ``keys`` are names of the table's columns.

    An empty text becomes NULL in partition columns, as it will be stored, except in keys, where :func:`source_facts` reports it.
    """
    source_schema = from_spark(frame.schema)
    offered = StructType(tuple(item for item in schema.fields if source_schema.field(item.name) is not None))
    lowered = {key.lower() for key in keys}
    values = [name for name in partition_columns if name.lower() not in lowered]
    rows = as_read(frame, offered, partition_columns=values)
    return MergeSource(frame=rows, offered=offered, keys=tuple(keys), schema=schema)


def source_facts(source: MergeSource, where: Predicate | None, *, partition_columns: Sequence[str] = ()) -> SourceFacts:
    """Count rows, find duplicate keys, rows that do not satisfy ``where`` and the range of each key; one Spark job.

    For keys that are ``partition_columns`` the values themselves are collected, so that partitions in between are not read.
    """
    keys = [F.col(quoted(name)) for name in source.keys]
    complete = reduce(and_, [key.isNotNull() for key in keys])
    text = F.concat_ws(", ", *[F.concat(F.lit(f"{n} = "), _shown(k)) for n, k in zip(source.keys, keys, strict=True)])
    aggregates = [F.count(F.lit(1)).alias("n")]
    if where is not None:
        aggregates.append(F.max(F.when(~holds(where, source.schema), text)).alias("outside"))
    empty = _empty_text(source, partition_columns)
    if empty is not None:
        aggregates.append(F.max(F.when(empty, text)).alias("empty"))
    groups = source.frame.groupBy(*[key.alias(f"k{i}") for i, key in enumerate(keys)]).agg(
        *aggregates, F.max(F.when(complete, text)).alias("key")
    )
    ranges = [
        bounds(f"k{i}", _type_of(source, name), complete=F.col("key").isNotNull(), values=name in partition_columns)
        for i, name in enumerate(source.keys)
    ]
    totals = groups.agg(
        F.sum("n").alias("rows"),
        F.max(F.when(F.col("n") > 1, F.col("key"))).alias("duplicate"),
        *([F.max("outside").alias("outside")] if where is not None else []),
        *([F.max("empty").alias("empty")] if empty is not None else []),
        *[column for columns in ranges for column in columns],
    )
    with spark_errors("looking at the source of a merge"):
        (row,) = collected_rows(totals)
    return SourceFacts(
        num_rows=int(row["rows"] or 0),
        duplicate=row["duplicate"],
        outside=row["outside"] if where is not None else None,
        key_range=key_range([(name, _type_of(source, name)) for name in source.keys], row.asDict()),
        empty_key=row["empty"] if empty is not None else None,
    )


def _empty_text(source: MergeSource, partition_columns: Sequence[str]) -> Column | None:
    """Whether a key that is a partition column holds a text that is stored as NULL; None if no key can."""
    names = [name for name in stored_as_null(source.schema, partition_columns) if name in source.keys]
    fields = [item for name in names if (item := source.schema.field(name)) is not None]
    return reduce(or_, [loses_text(item) for item in fields]) if fields else None


def _shown(key: Column) -> Column:
    return F.coalesce(key.cast("string"), F.lit("NULL"))


def _type_of(source: MergeSource, name: str) -> DataType:
    field = source.schema.field(name)
    assert field is not None
    return field.type
