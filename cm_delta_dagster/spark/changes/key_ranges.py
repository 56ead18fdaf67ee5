"""Ranges of the keys of a merge: which files can hold partners of the rows of a source."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from cm_delta_dagster.protocol.predicates.predicates import (
    Comparison,
    ComparisonOperator,
    In,
    Predicate,
    conjunction,
    quote_column,
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
_MOST_PARTITIONS = 100
"""Up to this many partition values, the condition of a merge lists them; beyond, it has their range."""
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


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
    first = F.slice(F.array_sort(F.collect_set(counted)), 1, _MOST_PARTITIONS + 1).alias(f"all_{name}")
    return (*range_, first) if values else range_


def key_range(keys: Sequence[tuple[str, DataType]], values: Mapping[str, Any]) -> Predicate:
    """A predicate that follows for the columns ``keys`` from the ``bounds`` of columns ``k0``, ``k1``, ..., which equal them."""
    parts: list[Predicate] = []
    for i, (name, data_type) in enumerate(keys):
        least, greatest = values.get(f"min_k{i}"), values.get(f"max_k{i}")
        if least is None or greatest is None:
            continue
        known: list[Any] = values.get(f"all_k{i}") or []
        try:
            low, high, *named = (_value(bound, data_type) for bound in (least, greatest, *known))
        except (ValueError, OverflowError):
            continue  # Python's dates cannot hold the bound: no condition on this key.
        column = quote_column((name,))
        if 0 < len(named) <= _MOST_PARTITIONS:
            parts.append(In(column, tuple(named)))
            continue
        parts.append(Comparison(column, ComparisonOperator.GE, low))
        parts.append(Comparison(column, ComparisonOperator.LE, high))
    return conjunction(parts)


def _value(bound: Any, data_type: DataType) -> Any:
    if data_type == DATE:
        return _EPOCH_DAY + dt.timedelta(days=bound)
    if data_type == TIMESTAMP:
        return _EPOCH + dt.timedelta(microseconds=bound)
    if data_type == TIMESTAMP_NTZ:
        return dt.datetime.fromisoformat(bound)
    return bound
