"""Space-filling curves (protocol heading "Clustered Table"): the place of a row on a curve through the ranges of several columns.

A row has one range number for each column. Rows that are near each other on the curve are near each other in every column, so that
a file with a part of the curve has narrow bounds. The Hilbert curve visits only neighbouring cells one after another; the Z-order
interleaves the bits of the range numbers.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

STATE_BITS = 8
"""Bits of a step that say the orientation within its cell."""
STATE_MASK = (1 << STATE_BITS) - 1

_BITS = 10
_BITS_OF_ONE_COLUMN = 13
_CURVE_BITS = 52

MAX_Z_ORDER_COLUMNS = _CURVE_BITS


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve through a cube of ``2**bits`` ranges of each of ``dimensions`` columns.

    Attributes:
        steps: for each orientation of a sub-cube and each of its cells, the place of the cell on the curve, shifted left by 8 bits,
            plus the orientation within the cell; empty for the Z-order, whose cells are in order.
    """

    dimensions: int
    bits: int
    steps: tuple[int, ...] = ()

    def places(self, ranges: Sequence[Integers]) -> Integers:
        """Places of many rows; ``ranges`` has one array for each column."""
        place = np.zeros(len(ranges[0]), dtype=np.int64)
        state = np.zeros(len(ranges[0]), dtype=np.int64)
        steps = np.array(self.steps, dtype=np.int64)
        for bit in reversed(range(self.bits)):
            cell = sum(
                ((numbers >> bit) & 1) << (self.dimensions - 1 - number) for number, numbers in enumerate(ranges)
            )
            if self.steps:
                step = steps[(state << self.dimensions) + cell]
                cell, state = step >> STATE_BITS, step & STATE_MASK
            place = (place << self.dimensions) | cell
        return place


def curve_for(num_columns: int, *, hilbert: bool) -> Curve:
    """The curve through the ranges of that many columns."""
    if num_columns == 1:
        return hilbert_curve(1, _BITS_OF_ONE_COLUMN)
    bits = min(_BITS, _CURVE_BITS // num_columns)
    return hilbert_curve(num_columns, bits) if hilbert else z_order(num_columns, bits)


@cache
def hilbert_curve(dimensions: int, bits: int) -> Curve:
    """The Hilbert curve. For one column it is the order of the ranges."""
    return Curve(dimensions, bits, () if dimensions == 1 else _hilbert_steps(dimensions))


def z_order(dimensions: int, bits: int) -> Curve:
    """The Z-order."""
    return Curve(dimensions, bits)


def _hilbert_steps(n: int) -> tuple[int, ...]:
    """The steps of the Hilbert curve, by the algorithm of Hamilton and Rau-Chaplin (2008).

    An orientation is the corner where the curve enters a cube, and the axis along which it leaves it.
    """
    numbers = {(0, 0): 0}
    waiting = deque(numbers)
    steps: list[int] = []
    while waiting:
        entry, axis = waiting.popleft()
        for cell in range(1 << n):
            place = _gray_inverse(_rotated(cell ^ entry, n - axis - 1, n))
            inner = (entry ^ _rotated(_entry(place), axis + 1, n), (axis + _axis(place, n) + 1) % n)
            if inner not in numbers:
                numbers[inner] = len(numbers)
                waiting.append(inner)
            steps.append((place << STATE_BITS) | numbers[inner])
    return tuple(steps)


def _rotated(value: int, by: int, n: int) -> int:
    """``value`` of ``n`` bits, rotated left."""
    by %= n
    return ((value << by) | (value >> (n - by))) & ((1 << n) - 1)


def _gray(value: int) -> int:
    return value ^ (value >> 1)


def _gray_inverse(value: int) -> int:
    inverse = 0
    while value:
        inverse ^= value
        value >>= 1
    return inverse


def _entry(place: int) -> int:
    return 0 if place == 0 else _gray(2 * ((place - 1) // 2))


def _axis(place: int, n: int) -> int:
    if place == 0:
        return 0
    odd = place if place % 2 else place - 1
    return _trailing_ones(odd) % n


def _trailing_ones(value: int) -> int:
    return ((value + 1) & ~value).bit_length() - 1
