"""The rows of a scan for polars, through Arrow.

polars reads Python sources through ``register_io_source``, which passes columns, condition and limit and takes frames as they come.
``scan_pyarrow_dataset`` would evaluate the condition with pyarrow, to which NaN equals nothing; to polars NaN equals NaN and is
greater than all numbers. Here polars evaluates its own condition on each batch, after the files that cannot match were skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cm_delta_dagster.arrow.implied_predicates import both, implied_predicate
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.polars.expressions import PolarsPredicate
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan

if TYPE_CHECKING:
    from polars import DataFrame, Expr, LazyFrame
else:
    DataFrame = Expr = LazyFrame = Any  # So that the hints can be evaluated without the package.


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSource:
    """The rows of a scan.

    Attributes:
        dtypes: the columns of the scan, with their types in polars.
    """

    polars: ModuleType
    scan: SnapshotScan
    dtypes: Any

    def lazy(self) -> LazyFrame:
        """The rows as a frame; files are read when polars collects it."""
        plugins = import_engine("polars", module="polars.io.plugins")
        frame: LazyFrame = plugins.register_io_source(self.frames, schema=self.dtypes, is_pure=True)
        return frame

    def frames(
        self,
        with_columns: list[str] | None,
        predicate: "Expr | None",
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[DataFrame]:
        """The frames that polars asks for.

        Args:
            with_columns: the columns to return; None for all.
            predicate: the rows to return, out of the first ``n_rows``.
            n_rows: rows to read; None for all.
            batch_size: a hint, which is ignored: batches have the size of row groups, within limits.
        """
        parsed = None if predicate is None else PolarsPredicate(predicate, polars=self.polars)
        expression = None if parsed is None else parsed.expression
        all_names = list(self.dtypes)
        used = set(with_columns or all_names) | set(() if expression is None else expression.meta.root_names())
        implied = (
            None if parsed is None or n_rows is not None else implied_predicate(parsed.parts, self.scan.snapshot.schema)
        )
        # Rows are counted by a column.
        names = [name for name in all_names if name in used] or all_names[:1]
        scan = replace(self.scan, columns=names, where=both(self.scan.predicate, implied))
        with read_batches(scan) as batches:
            for batch in _first_rows(batches, n_rows):
                frame: DataFrame = self.polars.from_arrow(batch)
                if expression is not None:
                    frame = frame.filter(expression)
                if with_columns is not None:
                    # A selection of no column would lose the number of rows.
                    frame = frame.select(with_columns) if with_columns else frame.drop(frame.columns)
                yield frame


def _first_rows(batches: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows, in at least one batch, so that polars gets the columns."""
    yield pa.RecordBatch.from_pylist([], batches.schema)
    left = limit
    while left is None or left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
