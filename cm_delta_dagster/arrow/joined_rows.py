"""Rows of a table beside rows of a source, and the values that expressions compute from both."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from cm_delta_dagster.arrow.keyed_rows import KeyedRows
from cm_delta_dagster.arrow.scalar_values import scalar_values
from cm_delta_dagster.arrow.spill.spooled_rows import taken_rows
from cm_delta_dagster.arrow.spilled_keys import SpilledKeys
from cm_delta_dagster.protocol.predicates.join_expressions import SOURCE, TARGET
from cm_delta_dagster.protocol.predicates.scalars import Scalar, paths_of_scalar

RowNumbers = npt.NDArray[np.int64]

_PART_BYTES = 2**28
"""About so many bytes of columns are evaluated at a time: a text column of Arrow holds at most 2 GiB."""
STORED = "stored"
"""The side of the columns of the source as the table stores them, in the paths of columns."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinSource:
    """The rows of a source. Its tables have equal numbers of rows, in memory or in temporary files.

    Attributes:
        keys: the key columns, under the names of the columns of the table that they equal.
        offered: the columns as expressions name them.
        stored: the columns as readers of the table will see them.
    """

    keys: KeyedRows | SpilledKeys
    offered: pa.Table
    stored: pa.Table
    _widths: dict[tuple[str, str], int] = field(default_factory=dict, init=False)

    @property
    def num_rows(self) -> int:
        num_rows: int = self.keys.rows.num_rows
        return num_rows

    def column(self, side: str, name: str) -> pa.ChunkedArray:
        return (self.offered if side == SOURCE else self.stored)[name]

    def width(self, side: str, name: str) -> int:
        """The most bytes that a row has in a column, about."""
        if (side, name) not in self._widths:
            self._widths[side, name] = _width(self.column(side, name))
        return self._widths[side, name]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedRows:
    """Pairs of a row of the table and a row of the source; one of both may be absent from all pairs.

    Attributes:
        target: rows of the table; None if expressions name no column of it.
        places: which of them is in each pair; None for all in order.
        rows: which row of the source is in each pair. Expressions name no column of the source if there is none.
    """

    source: JoinSource
    num_rows: int
    rows: RowNumbers
    target: pa.RecordBatch | None = None
    places: RowNumbers | None = None

    def answers(self, scalar: Scalar) -> pa.Array:
        """Whether a condition is true for each pair; NULL if that is not known.

        Raises pa.ArrowInvalid if a number is too large, or divided by zero.
        """
        paths = frozenset(paths_of_scalar(scalar))
        parts = [scalar_values(scalar, part.columns_for(paths), part.num_rows) for part in self.parts(paths)]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def parts(self, paths: Iterable[tuple[str, ...]]) -> "Iterator[JoinedRows]":
        """The pairs in parts, in order, in which the columns at some paths have a bounded size; at least one part."""
        width = sum(map(self._width, dict.fromkeys(path[:2] for path in paths)))
        step = max(1, _PART_BYTES // max(1, width))
        for first in range(0, max(1, self.num_rows), step):
            yield self._part(slice(first, min(self.num_rows, first + step)))

    def _part(self, part: slice) -> "JoinedRows":
        if part == slice(0, self.num_rows):
            return self
        target, places = self.target, None if self.places is None else self.places[part]
        if target is not None and places is None:
            target = target.slice(part.start, part.stop - part.start)
        return replace(self, num_rows=part.stop - part.start, rows=self.rows[part], target=target, places=places)

    def _width(self, path: tuple[str, ...]) -> int:
        """The most bytes that a pair has in a column, about."""
        side, name = path
        if side != TARGET:
            return self.source.width(side, name)
        assert self.target is not None, "the expression names columns of the table"
        return _width(self.target.column(name))

    def columns_for(self, paths: Iterable[tuple[str, ...]]) -> Callable[[str], pa.Array]:
        """The columns at some paths, by side as structs."""
        names: dict[str, dict[str, None]] = {}
        for side, name, *_ in paths:
            names.setdefault(side, {})[name] = None

        def columns(side: str) -> pa.Array:
            parts = [self._column(side, name) for name in names[side]]
            return pa.StructArray.from_arrays(parts, list(names[side]))

        return columns

    def _column(self, side: str, name: str) -> pa.Array:
        if side == TARGET:
            assert self.target is not None, "the expression names columns of the table"
            column = self.target.column(name)
            return column if self.places is None else column.take(pa.array(self.places))
        return taken_rows(self.source.column(side, name), self.rows)


def _width(column: pa.Array | pa.ChunkedArray) -> int:
    if pat.is_string(column.type) or pat.is_binary(column.type):
        return int(pc.max(pc.binary_length(column)).as_py() or 0)
    return 1 + int(column.nbytes // max(1, len(column)))


def true_rows(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value is true; not for NULL."""
    flags: npt.NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return flags
