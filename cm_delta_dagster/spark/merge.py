"""Queries of a merge by key.

Source and target are joined under positional column names, so that names with dots, and a source that was computed from the
target, cause no ambiguity. NULL keys match no row.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
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
    StructType,
)
from cm_delta_dagster.spark.align import align
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.fill import computed_columns, fill
from cm_delta_dagster.spark.partition_text import with_empty_text_as_null
from cm_delta_dagster.spark.predicates import holds
from cm_delta_dagster.spark.scan import FILE_COLUMN, spark_file_key
from cm_delta_dagster.spark.schema import from_spark, quoted

_AS_THEY_ARE = (BYTE, SHORT, INTEGER, LONG, STRING)
_MOST_PARTITIONS = 100
"""Up to this many partition values, the condition of a merge lists them; beyond, it has their range."""
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """The rows of the source, cast to the types of the table.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Results of one pass over the source.

    Attributes:
        duplicate: text of a key that several rows have, or None.
        outside: text of the keys of a row that does not satisfy the declared condition, or None.
        key_range: predicate that every target row with a key of the source satisfies.
        empty_key: text of the keys of a row that holds the empty text in a partition column, or None.
    """

    num_rows: int
    duplicate: str | None
    outside: str | None
    key_range: Predicate
    empty_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Numbers of rows of target files with and without a matching source row."""

    matched: int = 0
    unmatched: int = 0


def merge_source(
    frame: DataFrame, schema: StructType, keys: Sequence[str], *, partition_columns: Sequence[str] = ()
) -> MergeSource:
    """The source cast to the types of the table; ``keys`` are names of the table's columns.

    An empty text becomes NULL in partition columns, as it will be stored, except in keys, where :func:`source_facts` reports it.
    """
    given = from_spark(frame.schema)
    offered = StructType(tuple(item for item in schema.fields if given.field(item.name) is not None))
    lowered = {key.lower() for key in keys}
    values = [name for name in partition_columns if name.lower() not in lowered]
    rows = with_empty_text_as_null(align(frame, offered), offered, values)
    return MergeSource(frame=rows, offered=offered, keys=tuple(keys), schema=schema)


def source_facts(
    source: MergeSource, within: Predicate | None, *, partition_columns: Sequence[str] = ()
) -> SourceFacts:
    """Count rows, find duplicate keys, rows outside of ``within`` and the range of each key; one Spark job.

    For keys that are ``partition_columns`` the values themselves are collected, so that partitions in between are not read.
    """
    keys = [F.col(quoted(name)) for name in source.keys]
    complete = reduce(and_, [key.isNotNull() for key in keys])
    text = F.concat_ws(", ", *[F.concat(F.lit(f"{n} = "), _shown(k)) for n, k in zip(source.keys, keys, strict=True)])
    aggregates = [F.count(F.lit(1)).alias("n")]
    if within is not None:
        aggregates.append(F.max(F.when(~holds(within, source.schema), text)).alias("outside"))
    empty = _empty_text(source, partition_columns)
    if empty is not None:
        aggregates.append(F.max(F.when(empty, text)).alias("empty"))
    groups = source.frame.groupBy(*[key.alias(f"k{i}") for i, key in enumerate(keys)]).agg(
        *aggregates, F.max(F.when(complete, text)).alias("key")
    )
    bounds = [
        _bounds(f"k{i}", _type_of(source, name), values=name in partition_columns) for i, name in enumerate(source.keys)
    ]
    totals = groups.agg(
        F.sum("n").alias("rows"),
        F.max(F.when(F.col("n") > 1, F.col("key"))).alias("duplicate"),
        *([F.max("outside").alias("outside")] if within is not None else []),
        *([F.max("empty").alias("empty")] if empty is not None else []),
        *[column for columns in bounds for column in columns],
    )
    with spark_errors("looking at the source of a merge"):
        (row,) = totals.collect()
    return SourceFacts(
        num_rows=int(row["rows"] or 0),
        duplicate=row["duplicate"],
        outside=row["outside"] if within is not None else None,
        key_range=_key_range(source, row),
        empty_key=row["empty"] if empty is not None else None,
    )


def _empty_text(source: MergeSource, partition_columns: Sequence[str]) -> Column | None:
    """Whether a key that is a partition column holds the empty text; None if no key can."""
    names = [name for name in stored_as_null(source.schema, partition_columns) if name in source.keys]
    return reduce(or_, [F.length(quoted(name)) == 0 for name in names]) if names else None


def check_unique(facts: SourceFacts) -> None:
    """Raises InvalidDataError if several rows of the source have the same key."""
    if facts.duplicate is not None:
        raise InvalidDataError(
            f"Several rows of the source have the key {facts.duplicate}; which of them should win is not known. "
            "Nothing was committed. Make the keys unique, e.g. keep the newest row of each key."
        )


def check_keys_are_stored(facts: SourceFacts) -> None:
    """Raises InvalidDataError if a key is the empty text in a partition column, which would be stored as NULL."""
    if facts.empty_key is not None:
        raise InvalidDataError(
            f"A row of the source has the key {facts.empty_key}, with the empty text in a partition column. A partition column "
            "stores it as NULL, and a NULL key matches no row, so each run would insert the row again. Nothing was "
            "committed. Replace the empty text by another value, or leave the row out."
        )


def find_hits(target: DataFrame, source: MergeSource, within: Predicate | None) -> dict[str, Hits]:
    """Rows of each target file that match a source row, by file key; one Spark job.

    Args:
        target: of :func:`~cm_delta_dagster.spark.scan.scan_with_files`.
    """
    return _hits(_in_scope(target, source, within), source, how="inner")


def find_scope(target: DataFrame, source: MergeSource, within: Predicate | None) -> dict[str, Hits]:
    """As :func:`find_hits`, for every file that has a row for which ``within`` is true; rows without a match are
    counted too.
    """
    return _hits(_in_scope(target, source, within).where("scope"), source, how="left")


def _in_scope(target: DataFrame, source: MergeSource, within: Predicate | None) -> DataFrame:
    scope = F.lit(True) if within is None else holds(within, source.schema)
    keys = [F.col(quoted(name)).alias(f"t{i}") for i, name in enumerate(source.keys)]
    return target.select(*keys, scope.alias("scope"), F.col(FILE_COLUMN))


def _hits(target: DataFrame, source: MergeSource, *, how: str) -> dict[str, Hits]:
    wanted = source.frame.select(
        *[F.col(quoted(name)).alias(f"s{i}") for i, name in enumerate(source.keys)], F.lit(True).alias("found")
    )
    partner = reduce(and_, [F.col(f"t{i}") == F.col(f"s{i}") for i in range(len(source.keys))]) & F.col("scope")
    counted = (
        target.join(wanted, partner, how)
        .groupBy(FILE_COLUMN)
        .agg(F.count("found").alias("matched"), F.count(F.lit(1)).alias("rows"))
    )
    with spark_errors("looking for the rows that a merge changes"):
        found = counted.collect()
    return {
        spark_file_key(row[FILE_COLUMN]): Hits(matched=int(row["matched"]), unmatched=int(row["rows"] - row["matched"]))
        for row in found
    }


ORIGIN = "__cm_delta_origin"
"""Column of merged rows: what the merge does to the row, a value of :class:`RowOrigin`."""


class RowOrigin(IntEnum):
    """What a merge does to a row that it writes."""

    COPIED = 0
    UPDATED = 1
    INSERTED = 2


def filled(rows: DataFrame, source: MergeSource, layout: TableLayout) -> DataFrame:
    """Merged rows with the values that the table computes.

    Columns that the source lacks keep their value in updated rows, but generated columns are computed again; inserted rows get
    defaults, identity values and generated values.

    Args:
        rows: merged rows with the column :data:`ORIGIN`, which the result does not have.
    """
    schema, generated = source.schema, generated_columns(source.schema)
    missing = [name for name in computed_columns(schema) if source.offered.field(name) is None]
    origin = F.col(ORIGIN)
    given = {
        name: origin == RowOrigin.COPIED if name in generated else origin != RowOrigin.INSERTED for name in missing
    }
    return fill(rows, layout, given).drop(ORIGIN)


def upserted(target: DataFrame, source: MergeSource, within: Predicate | None) -> DataFrame:
    """Target rows with the source's values where the key matches, and the source's other rows."""
    return _joined(target, source, within, how="full_outer")


def updated(target: DataFrame, source: MergeSource, within: Predicate | None) -> DataFrame:
    """Target rows with the source's values where the key matches."""
    return _joined(target, source, within, how="left")


def replaced(target: DataFrame, source: MergeSource, within: Predicate | None) -> DataFrame:
    """As :func:`upserted`, without the target rows for which ``within`` is true and that have no match."""
    return _joined(target, source, within, how="full_outer", drop_unmatched=True)


def new_rows(target: DataFrame, source: MergeSource, within: Predicate | None) -> DataFrame:
    """Rows of the source whose key no target row has."""
    scope = F.lit(True) if within is None else holds(within, source.schema)
    known = target.where(scope).select(*[F.col(quoted(name)).alias(f"t{i}") for i, name in enumerate(source.keys)])
    named = source.frame.toDF(*[f"s{i}" for i in range(len(source.offered.fields))])
    places = {item.name: i for i, item in enumerate(source.offered.fields)}
    partner = reduce(and_, [F.col(f"s{places[name]}") == F.col(f"t{i}") for i, name in enumerate(source.keys)])
    return named.join(known, partner, "left_anti").toDF(*source.offered.names)


def _joined(
    target: DataFrame, source: MergeSource, within: Predicate | None, *, how: str, drop_unmatched: bool = False
) -> DataFrame:
    fields = source.schema.fields
    scope = F.lit(True) if within is None else holds(within, source.schema)
    left = target.select(
        *[F.col(quoted(item.name)).alias(f"t{i}") for i, item in enumerate(fields)], scope.alias("scope")
    )
    places = {item.name: i for i, item in enumerate(source.offered.fields)}
    right = source.frame.toDF(*[f"s{i}" for i in range(len(places))]).withColumn("found", F.lit(True))
    positions = {item.name: i for i, item in enumerate(fields)}
    partner = reduce(and_, [F.col(f"t{positions[name]}") == F.col(f"s{places[name]}") for name in source.keys])
    joined = left.join(right, partner & F.col("scope"), how)
    if drop_unmatched:
        # Scope is NULL only for source rows without a match.
        joined = joined.where(F.col("found").isNotNull() | ~F.coalesce(F.col("scope"), F.lit(True)))
    found = F.col("found").isNotNull()
    columns: list[Column] = []
    for i, item in enumerate(fields):
        # A column that the source does not have keeps its value in updated rows.
        value = F.col(f"t{i}")
        if item.name in places:
            value = F.when(found, F.col(f"s{places[item.name]}")).otherwise(value)
        columns.append(value.alias(item.name))
    # Scope is NULL only for source rows without a match.
    inserted = F.when(F.col("scope").isNull(), RowOrigin.INSERTED)
    origin = inserted.when(found, RowOrigin.UPDATED).otherwise(RowOrigin.COPIED).alias(ORIGIN)
    return joined.select(*columns, origin)


def _shown(key: Column) -> Column:
    return F.coalesce(key.cast("string"), F.lit("NULL"))


def _type_of(source: MergeSource, name: str) -> DataType:
    field = source.schema.field(name)
    assert field is not None
    return field.type


def _bounds(name: str, data_type: DataType, *, values: bool) -> tuple[Column, ...]:
    """Least and greatest value of a key among complete keys, in a form without a time zone; and the first of its values
    if ``values``.
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
    complete = F.when(F.col("key").isNotNull(), form)
    range_ = F.min(complete).alias(f"min_{name}"), F.max(complete).alias(f"max_{name}")
    first = F.slice(F.array_sort(F.collect_set(complete)), 1, _MOST_PARTITIONS + 1).alias(f"all_{name}")
    return (*range_, first) if values else range_


def _key_range(source: MergeSource, row: Row) -> Predicate:
    parts: list[Predicate] = []
    values: Mapping[str, Any] = row.asDict()
    for i, name in enumerate(source.keys):
        least, greatest = values.get(f"min_k{i}"), values.get(f"max_k{i}")
        if least is None or greatest is None:
            continue
        known: list[Any] = values.get(f"all_k{i}") or []
        try:
            low, high, *named = (_value(bound, _type_of(source, name)) for bound in (least, greatest, *known))
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
