"""Distributing rows over files along a space-filling curve through several columns.

One Spark job reads a sample of the columns. The driver derives from it the ranges of each column, which hold about equally many
rows, and the places on the curve where one file ends and the next begins. The job that writes the rows computes the place of each
row by Spark's own expressions and shuffles the rows once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.session.cancellation import collected_table
from cm_delta_dagster.spark.write.bins import task_keys
from cm_delta_dagster.spark.write.curves import Curve, Integers, hilbert_curve, literal_array, z_order

SAMPLE_ROWS = 100_000

_BITS = 10
_BITS_OF_ONE_COLUMN = 13
_CURVE_BITS = 52
_TIE_BITS = 10
_TEXT_LENGTH = 64
_SEED = 42
_SLACK = 0.2
"""The end of a file may move by this share of the rows of a file to the edge of a larger part of the curve."""

_KEY = "__cm_delta_key_"
_RANGE = "__cm_delta_range_"
_PLACE = "__cm_delta_place"

MAX_Z_ORDER_COLUMNS = _CURVE_BITS
_LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutColumn:
    """A column by which rows are clustered: its path and its type."""

    path: ColumnPath
    type: DataType

    @property
    def kind(self) -> str:
        """The Spark type of its sort key."""
        if isinstance(self.type, DecimalType):
            return "double"
        assert isinstance(self.type, PrimitiveType)
        return {"string": "string", "float": "double", "double": "double"}.get(self.type.name, "bigint")

    def sort_key(self) -> Column:
        """A value in the same order as those of the column, of the type :attr:`kind`; NULL for NULL."""
        column = F.col(".".join(map(quoted, self.path)))
        match self.type:
            case PrimitiveType("date"):
                return F.unix_date(column).cast("bigint")
            case PrimitiveType("timestamp" | "timestamp_ntz"):
                return F.unix_micros(column.cast("timestamp"))
            case _:
                return column.cast(self.kind)


def curve_for(num_columns: int, *, hilbert: bool) -> Curve:
    """The curve through the ranges of that many columns."""
    if num_columns == 1:
        return hilbert_curve(1, _BITS_OF_ONE_COLUMN)
    bits = min(_BITS, _CURVE_BITS // num_columns)
    return hilbert_curve(num_columns, bits) if hilbert else z_order(num_columns, bits)


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
    bounds = [_bounds(values, 1 << curve.bits) for values in sample]
    cuts = _cuts(sample, bounds, curve, num_files)
    names = rows.columns
    keyed = rows.withColumns({f"{_KEY}{number}": column.sort_key() for number, column in enumerate(columns)})
    ranged = keyed.withColumns(
        {
            f"{_RANGE}{number}": _range(F.col(f"{_KEY}{number}"), bounds[number], column.kind)
            for number, column in enumerate(columns)
        }
    )
    place = curve.place_column([F.col(f"{_RANGE}{number}") for number in range(len(columns))])
    ties = F.xxhash64(F.monotonically_increasing_id()).bitwiseAND(F.lit((1 << _TIE_BITS) - 1).cast("bigint"))
    placed = ranged.select(*map(_column, names), (F.shiftleft(place, _TIE_BITS) + ties).alias(_PLACE))
    task = F.element_at(literal_array(task_keys(num_files).tolist(), "int"), _file(F.col(_PLACE), cuts) + F.lit(1))
    return placed.repartition(num_files, task).sortWithinPartitions(_PLACE).select(*map(_column, names))


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _sample(rows: DataFrame, columns: Sequence[LayoutColumn], num_rows: int | None) -> list["_ColumnValues"]:
    """Sort keys of about :data:`SAMPLE_ROWS` rows, one array for each column."""
    keys = [
        (F.substring(key, 1, _TEXT_LENGTH) if column.kind == "string" else key).alias(f"{_KEY}{number}")
        for number, column in enumerate(columns)
        for key in (column.sort_key(),)
    ]
    chosen = rows.select(*keys)
    if num_rows is None:
        chosen = chosen.limit(SAMPLE_ROWS)
    elif num_rows > SAMPLE_ROWS:
        chosen = chosen.sample(fraction=SAMPLE_ROWS / num_rows, seed=_SEED)
    sample = collected_table(chosen)
    return [_ColumnValues.of(sample.column(number).combine_chunks()) for number in range(len(columns))]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ColumnValues:
    """Values of one column: those that are not NULL, and which rows have them."""

    values: npt.NDArray[np.generic]
    is_valid: npt.NDArray[np.bool_]

    @staticmethod
    def of(array: pa.Array) -> "_ColumnValues":
        valid = array.drop_null()
        if pa.types.is_string(valid.type) or pa.types.is_large_string(valid.type):
            # Spark compares the bytes of UTF-8.
            values = np.array([text.encode() for text in valid.to_pylist()], dtype=object)
        else:
            values = valid.to_numpy(zero_copy_only=False)
        return _ColumnValues(values=values, is_valid=np.asarray(pc.is_valid(array).to_pylist(), dtype=bool))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RangeBounds:
    """The ends of ranges: first those of NULL, then ``values`` in order."""

    num_null: int
    values: npt.NDArray[np.generic]

    def listed(self) -> list[object]:
        plain = [value.decode() if isinstance(value, bytes) else value for value in self.values.tolist()]
        return [*[None] * self.num_null, *plain]


def _bounds(sample: _ColumnValues, num_ranges: int) -> _RangeBounds:
    """The ends of ``num_ranges`` ranges with equally many rows; NULL comes first. A frequent value ends several ranges."""
    ordered = np.sort(sample.values)
    num_null = len(sample.is_valid) - len(ordered)
    places = np.arange(1, num_ranges) * len(sample.is_valid) // num_ranges
    valid = places[places >= num_null] - num_null
    return _RangeBounds(num_null=int((places < num_null).sum()), values=ordered[valid] if len(ordered) else ordered)


def _ranges(sample: _ColumnValues, bounds: _RangeBounds) -> Integers:
    """The range number of each row: how many ranges end before its value."""
    numbers = np.zeros(len(sample.is_valid), dtype=np.int64)
    numbers[sample.is_valid] = bounds.num_null + np.searchsorted(bounds.values, sample.values, side="left")
    return numbers


def _range(key: Column, bounds: _RangeBounds, kind: str) -> Column:
    """:func:`_ranges` as a Spark expression."""
    listed = bounds.listed()
    if not listed:
        return F.lit(0)
    return _count_of(literal_array(listed, kind), len(listed), lambda bound: F.coalesce(bound < key, key.isNotNull()))


def _cuts(sample: Sequence[_ColumnValues], bounds: Sequence[_RangeBounds], curve: Curve, num_files: int) -> list[int]:
    """The places at which files 1, 2, ... begin.

    A file that ends at the edge of a large part of the curve has narrower bounds in all columns, so an edge near the wanted end is
    taken.
    """
    places = curve.places([_ranges(values, ends) for values, ends in zip(sample, bounds, strict=True)])
    ties = np.random.default_rng(_SEED).integers(0, 1 << _TIE_BITS, len(places))
    ordered = np.sort((places << _TIE_BITS) + ties)
    if not len(ordered):
        return []
    per_file = len(ordered) / num_files
    cuts = []
    for number in range(1, num_files):
        low, high = ((number + side * _SLACK) * per_file for side in (-1, 1))
        first, last = int(max(low, 0)), min(math.ceil(high), len(ordered) - 1)
        cuts.append(_roundest(int(ordered[first]), int(ordered[last])))
    return cuts


def _roundest(low: int, high: int) -> int:
    """The number above ``low`` and up to ``high`` that is divisible by the highest power of 2; ``high`` if there is none."""
    if low >= high:
        return high
    bit = (low ^ high).bit_length() - 1
    return (high >> bit) << bit


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
