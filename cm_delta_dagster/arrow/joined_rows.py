"""Rows of a table beside rows of a source, and the values that expressions compute from both."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.keyed_rows import KeyedRows
from cm_delta_dagster.arrow.scalar_values import scalar_values
from cm_delta_dagster.protocol.predicates.join_expressions import SOURCE, TARGET
from cm_delta_dagster.protocol.predicates.scalars import Scalar, paths_of_scalar

RowNumbers = npt.NDArray[np.int64]

STORED = "stored"
"""The side of the columns of the source as the table stores them, in the paths of columns."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinSource:
    """The rows of a source. Its tables have equal numbers of rows, and columns that are not chunked.

    Attributes:
        keys: the key columns, under the names of the columns of the table that they equal.
        offered: the columns as expressions name them.
        stored: the columns as readers of the table will see them.
    """

    keys: KeyedRows
    offered: pa.Table
    stored: pa.Table

    @property
    def num_rows(self) -> int:
        num_rows: int = self.keys.rows.num_rows
        return num_rows


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

    def values(self, scalar: Scalar) -> pa.Array:
        """The value for each pair. Raises pa.ArrowInvalid if a number is too large, or divided by zero."""
        return scalar_values(scalar, self.columns_for(paths_of_scalar(scalar)), self.num_rows)

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
        table = self.source.offered if side == SOURCE else self.source.stored
        return table[name].combine_chunks().take(pa.array(self.rows))


def true_rows(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value is true; not for NULL."""
    flags: npt.NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return flags
