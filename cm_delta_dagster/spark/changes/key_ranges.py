"""Ranges of the keys of a merge: which files can hold partners of the rows of a source."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from cm_delta_dagster.protocol.predicates.key_ranges import MOST_PARTITIONS, key_range
from cm_delta_dagster.protocol.predicates.predicates import (
    Predicate,
)
from cm_delta_dagster.protocol.schema.types import (
    BYTE,
    DATE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
)
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.session.cancellation import collected_rows
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.plans import plan_without_adaptive_execution

_AS_THEY_ARE = (BYTE, SHORT, INTEGER, LONG, STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """Results of one pass over the source of a merge.

    Attributes:
        key_range: predicate that every row of the table with a partner satisfies.
        null_keys: the keys, by the columns of the table, that are NULL in a row.
    """

    num_rows: int
    key_range: Predicate
    null_keys: tuple[str, ...] = ()


def source_range(
    frame: DataFrame, keys: Sequence[tuple[str, StructField]], *, partition_columns: Sequence[str]
) -> SourceRange:
    """Count the rows and find the range of each key; one Spark job.

    Args:
        keys: columns of ``frame``, each with the column of the table that it equals and whose type it has.
        partition_columns: of these keys the values are collected, so that partitions in between are not read.
    """
    columns = [F.col(quoted(name)).alias(f"k{i}") for i, (name, _) in enumerate(keys)]
    complete = reduce(and_, [F.col(f"k{i}").isNotNull() for i in range(len(keys))], F.lit(True))
    range_columns = [
        column
        for i, (_, item) in enumerate(keys)
        for column in bounds(f"k{i}", item.type, complete=complete, values=item.name in partition_columns)
    ]
    nulls = [F.max(F.col(f"k{i}").isNull()).alias(f"null_k{i}") for i in range(len(keys))]
    with spark_errors("looking at the source of a merge"):
        totals = frame.select(*columns, F.lit(1).alias("one")).agg(F.count("one").alias("rows"), *nulls, *range_columns)
        plan_without_adaptive_execution(totals)
        (row,) = collected_rows(totals)
    return SourceRange(
        num_rows=int(row["rows"]),
        key_range=key_range([(item.name, item.type) for _, item in keys], row.asDict()),
        null_keys=tuple(item.name for i, (_, item) in enumerate(keys) if row[f"null_k{i}"]),
    )


def bounds(name: str, data_type: DataType, *, complete: Column, values: bool) -> tuple[Column, ...]:
    """Aggregates of the column ``name``: its least and greatest value, in a form without a time zone.

    Args:
        complete: whether a row counts.
        values: also collect the first of its values.
    """
    value = F.col(name)
    if isinstance(data_type, DecimalType) or data_type in _AS_THEY_ARE:
        form = value
    elif data_type == DATE:
        form = F.unix_date(value)
    elif data_type == TIMESTAMP:
        form = F.unix_micros(value)
    elif data_type == TIMESTAMP_NTZ:
        form = value.cast("string")
    else:
        return ()
    counted = F.when(complete, form)
    range_ = F.min(counted).alias(f"min_{name}"), F.max(counted).alias(f"max_{name}")
    first = F.slice(F.array_sort(F.collect_set(counted)), 1, MOST_PARTITIONS + 1).alias(f"all_{name}")
    return (*range_, first) if values else range_
