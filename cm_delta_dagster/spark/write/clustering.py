"""Distributing rows over files along a space-filling curve through several columns.

One Spark job reads a sample of the columns. The driver derives from it the ranges of each column, which hold about equally many
rows, and the places on the curve where one file ends and the next begins. The job that writes the rows computes the place of each
row by Spark's own expressions and shuffles the rows once.
"""

from collections.abc import Callable, Sequence

import numpy as np

from cm_delta_dagster.protocol.schema.types import DecimalType, PrimitiveType
from cm_delta_dagster.protocol.statistics.curve_ranges import (
    SAMPLE_ROWS,
    SEED,
    TEXT_LENGTH,
    TIE_BITS,
    KeyValues,
    LayoutColumn,
    RangeBounds,
    file_starts,
    places_of,
)
from cm_delta_dagster.protocol.statistics.curves import Curve
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.session.cancellation import collected_table
from cm_delta_dagster.spark.write.bins import task_keys
from cm_delta_dagster.spark.write.curve_expressions import literal_array, place_column

_KEY = "__cm_delta_key_"
_RANGE = "__cm_delta_range_"
_PLACE = "__cm_delta_place"
_LAST = (1 << 63) - 1


def along_curve(
    rows: DataFrame, columns: Sequence[LayoutColumn], curve: Curve, *, num_files: int, num_rows: int | None
) -> DataFrame:
    """``rows`` in ``num_files`` partitions, each with the rows of one part of the curve, in its order.

    Reads a sample of the rows at once.

    Args:
        num_files: at least 1. Some partitions are empty if the columns have few values.
        num_rows: number of rows; None if it is not known.
    """
    sample = _sample(rows, columns, num_rows)
    bounds = [RangeBounds.of(values, 1 << curve.bits) for values in sample]
    ties_of_sample = np.random.default_rng(SEED).integers(0, 1 << TIE_BITS, len(sample[0].is_valid))
    cuts = file_starts(np.sort(places_of(sample, bounds, curve, ties_of_sample)), num_files)
    names = rows.columns
    keyed = rows.withColumns({f"{_KEY}{number}": _sort_key(column) for number, column in enumerate(columns)})
    ranged = keyed.withColumns(
        {
            f"{_RANGE}{number}": _range(F.col(f"{_KEY}{number}"), bounds[number], _kind(column))
            for number, column in enumerate(columns)
        }
    )
    place = place_column(curve, [F.col(f"{_RANGE}{number}") for number in range(len(columns))])
    ties = F.xxhash64(F.monotonically_increasing_id()).bitwiseAND(F.lit((1 << TIE_BITS) - 1).cast("bigint"))
    placed = ranged.select(*map(_column, names), (F.shiftleft(place, TIE_BITS) + ties).alias(_PLACE))
    task = F.element_at(literal_array(task_keys(num_files).tolist(), "int"), _file(F.col(_PLACE), cuts) + F.lit(1))
    return placed.repartition(num_files, task).sortWithinPartitions(_PLACE).select(*map(_column, names))


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _sample(rows: DataFrame, columns: Sequence[LayoutColumn], num_rows: int | None) -> list[KeyValues]:
    """Sort keys of about :data:`SAMPLE_ROWS` rows, one array for each column."""
    keys = [
        (F.substring(key, 1, TEXT_LENGTH) if _kind(column) == "string" else key).alias(f"{_KEY}{number}")
        for number, column in enumerate(columns)
        for key in (_sort_key(column),)
    ]
    chosen = rows.select(*keys)
    if num_rows is None:
        chosen = chosen.limit(SAMPLE_ROWS)
    elif num_rows > SAMPLE_ROWS:
        chosen = chosen.sample(fraction=SAMPLE_ROWS / num_rows, seed=SEED)
    sample = collected_table(chosen)
    return [KeyValues.of(sample.column(number).combine_chunks()) for number in range(len(columns))]


def _kind(column: LayoutColumn) -> str:
    """The Spark type of the sort key of a column."""
    if isinstance(column.type, DecimalType):
        return "double"
    assert isinstance(column.type, PrimitiveType)
    return {"string": "string", "float": "double", "double": "double"}.get(column.type.name, "bigint")


def _sort_key(column: LayoutColumn) -> Column:
    """A value in the same order as those of the column, of the type :func:`_kind`; NULL for NULL."""
    values = F.col(".".join(map(quoted, column.path)))
    match column.type:
        case PrimitiveType("date"):
            return F.unix_date(values).cast("bigint")
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return F.unix_micros(values.cast("timestamp"))
        case _:
            return values.cast(_kind(column))


def _range(key: Column, bounds: RangeBounds, kind: str) -> Column:
    """:meth:`RangeBounds.ranges` as a Spark expression."""
    # The first bytes of a text may end within a character.
    values = [value.decode(errors="ignore") if isinstance(value, bytes) else value for value in bounds.values.tolist()]
    listed = [*[None] * bounds.num_null, *values]
    if not listed:
        return F.lit(0)
    return _count_of(literal_array(listed, kind), len(listed), lambda bound: F.coalesce(bound < key, key.isNotNull()))


def _file(place: Column, cuts: Sequence[int]) -> Column:
    """The number of the file of a place."""
    if not cuts:
        return F.lit(0)
    size = (1 << len(cuts).bit_length()) - 1
    padded = [*cuts, *[_LAST] * (size - len(cuts))]
    return _count_of(literal_array(padded, "bigint"), size, lambda cut: cut <= place)


def _count_of(ordered: Column, size: int, holds: Callable[[Column], Column]) -> Column:
    """How many elements of an array, of which only the first ones satisfy ``holds``, satisfy it: a binary search.

    Args:
        size: of the array; one less than a power of 2.
    """
    steps = [1 << bit for bit in reversed(range(size.bit_length()))]
    return F.aggregate(
        F.lit(steps),
        F.lit(0),
        lambda position, step: (
            position + F.when(holds(F.element_at(ordered, position + step)), step).otherwise(F.lit(0))
        ),
    )
