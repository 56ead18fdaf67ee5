"""The place of a row on a curve as a Spark expression."""

import json
from collections.abc import Sequence
from functools import reduce

from cm_delta_dagster.protocol.statistics.curves import STATE_BITS, STATE_MASK, Curve
from cm_delta_dagster.spark.library import Column, F


def place_column(curve: Curve, ranges: Sequence[Column]) -> Column:
    """:meth:`Curve.places` as an expression of type ``bigint``; ``ranges`` are columns, since each is used several times."""
    dimensions = curve.dimensions
    cells = F.array(*[_cell(ranges, bit, dimensions) for bit in reversed(range(curve.bits))])
    zero = F.lit(0).cast("bigint")
    if not curve.steps:
        return F.aggregate(cells, zero, lambda place, cell: F.shiftleft(place, dimensions) + cell)
    steps = literal_array(curve.steps, "bigint")

    def follow(walked: Column, cell: Column) -> Column:
        # The low bits of `walked` are the orientation, the others the place.
        orientation = walked.bitwiseAND(F.lit(STATE_MASK).cast("bigint"))
        number = F.shiftleft(orientation, dimensions) + cell + F.lit(1)
        place = F.shiftleft(F.shiftright(walked, STATE_BITS), STATE_BITS + dimensions)
        return place + F.element_at(steps, number.cast("int"))

    return F.shiftright(F.aggregate(cells, zero, follow), STATE_BITS)


def _cell(ranges: Sequence[Column], bit: int, dimensions: int) -> Column:
    lowest_bit = F.lit(1).cast("bigint")
    bits = [
        F.shiftleft(F.shiftright(numbers.cast("bigint"), bit).bitwiseAND(lowest_bit), dimensions - 1 - number)
        for number, numbers in enumerate(ranges)
    ]
    return reduce(lambda total, term: total + term, bits)


def literal_array(values: Sequence[object], kind: str) -> Column:
    """An array of constants as one literal. ``kind`` is a simple Spark type."""
    return F.from_json(F.lit(json.dumps(list(values))), f"array<{kind}>")
