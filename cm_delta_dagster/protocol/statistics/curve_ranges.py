"""Ranges of the columns by which rows are ordered, and where files begin on a curve through them (protocol heading
"Clustered Table").

The ranges of a column hold about equally many rows of a sample. Both engines order rows by these ranges.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType
from cm_delta_dagster.protocol.statistics.curves import Curve, Integers

SAMPLE_ROWS = 100_000
"""About so many rows decide where ranges end."""
SEED = 42
TEXT_LENGTH = 64
"""Texts with the same first bytes are in the same range."""
TIE_BITS = 10
"""Bits of a place below those of the curve: rows in one cell of the curve may be in several files."""

_SLACK = 0.2
"""The end of a file may move by this share of the rows of a file to the edge of a larger part of the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutColumn:
    """A column by which rows are ordered: its path and its type."""

    path: ColumnPath
    type: DataType


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyValues:
    """Sort keys of rows for one column: those that are not NULL, and which rows have them."""

    values: npt.NDArray[np.generic]
    is_valid: npt.NDArray[np.bool_]

    @staticmethod
    def of(array: pa.Array) -> "KeyValues":
        """The keys of an array of texts or numbers."""
        valid = array.drop_null()
        is_text = pat.is_string(valid.type) or pat.is_large_string(valid.type)
        values = _leading_bytes(valid) if is_text else valid.to_numpy(zero_copy_only=False)
        return KeyValues(values=values, is_valid=pc.is_valid(array).to_numpy(zero_copy_only=False))


def _leading_bytes(texts: pa.Array) -> npt.NDArray[np.generic]:
    """The first bytes of UTF-8 of each text. Spark compares these bytes."""
    if not len(texts):
        return np.zeros(0, "S1")
    texts = texts.cast(pa.large_string())
    _, offsets, stored = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(b"" if stored is None else stored, np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    width = max(1, min(int(lengths.max(initial=0)), TEXT_LENGTH))
    leading = np.zeros((len(texts), width), np.uint8)
    for place in range(width):
        rows = np.flatnonzero(lengths > place)
        leading[rows, place] = content[starts[rows] + place]
    return np.asarray(leading.view(f"S{width}").ravel())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeBounds:
    """The ends of ranges: first those of NULL, then ``values`` in order."""

    num_null: int
    values: npt.NDArray[np.generic]

    @staticmethod
    def of(sample: KeyValues, num_ranges: int) -> "RangeBounds":
        """The ends of ranges with equally many rows; NULL comes first, NaN last. A frequent value ends several ranges."""
        ordered = np.sort(sample.values)
        num_null = len(sample.is_valid) - len(ordered)
        places = np.arange(1, num_ranges) * len(sample.is_valid) // num_ranges
        valid = places[places >= num_null] - num_null
        return RangeBounds(num_null=int((places < num_null).sum()), values=ordered[valid] if len(ordered) else ordered)

    def ranges(self, keys: KeyValues) -> Integers:
        """The range number of each row: how many ranges end before its value."""
        numbers = np.zeros(len(keys.is_valid), dtype=np.int64)
        numbers[keys.is_valid] = self.num_null + np.searchsorted(self.values, keys.values, side="left")
        return numbers


def places_of(keys: Sequence[KeyValues], bounds: Sequence[RangeBounds], curve: Curve, ties: Integers) -> Integers:
    """The place of each row: that of its cell on the curve, and then its tie, of :data:`TIE_BITS`."""
    ranges = [ends.ranges(values) for values, ends in zip(keys, bounds, strict=True)]
    return (curve.places(ranges) << TIE_BITS) | ties


def file_starts(ordered: Integers, num_files: int) -> list[int]:
    """The places at which files 1, 2, ... begin.

    A file that ends at the edge of a large part of the curve has narrower bounds in all columns, so an edge near the end that gives
    files of equal size is taken.

    Args:
        ordered: places of the rows, or of a sample, in order.
    """
    if not len(ordered):
        return []
    per_file = len(ordered) / num_files
    starts = []
    for number in range(1, num_files):
        low, high = ((number + side * _SLACK) * per_file for side in (-1, 1))
        first, last = int(max(low, 0)), min(math.ceil(high), len(ordered) - 1)
        starts.append(_roundest(int(ordered[first]), int(ordered[last])))
    return starts


def _roundest(low: int, high: int) -> int:
    """The number above ``low`` and up to ``high`` that is divisible by the highest power of 2; ``high`` if there is none."""
    if low >= high:
        return high
    bit = (low ^ high).bit_length() - 1
    return (high >> bit) << bit
