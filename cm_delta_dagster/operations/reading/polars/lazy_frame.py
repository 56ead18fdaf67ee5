"""Reading a table with polars, lazily and without a JVM.

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
from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.polars.expressions import PolarsPredicate
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.remedies import ReadWithoutSpark

if TYPE_CHECKING:
    from polars import DataFrame as PolarsDataFrame
    from polars import Expr
    from polars import LazyFrame as PolarsLazyFrame
else:
    PolarsDataFrame = PolarsLazyFrame = Expr = Any  # So that the hints can be evaluated without the package.

__all__ = ["PolarsDataFrame", "PolarsLazyFrame", "polars_frame", "scan_polars"]


@names_table
def scan_polars(scan: SnapshotScan) -> PolarsLazyFrame:
    """The rows of a scan as a ``polars.LazyFrame``; errors are those of ``read_arrow``.

    Data files are read when polars collects the frame, which raises their errors.

    Raises:
        EngineError: polars is not installed.
        UnsupportedFeatureError: a column has a type that polars does not have (an interval of months).
    """
    library = import_engine("polars")
    plugins = import_engine("polars", module="polars.io.plugins")
    schema = read_batches(scan).schema
    _check_types(schema)
    source = _PolarsScan(polars=library, scan=scan, schema=schema)
    frame: PolarsLazyFrame = plugins.register_io_source(
        source.frames, schema=library.from_arrow(schema.empty_table()).schema, is_pure=True
    )
    return frame


def polars_frame(rows: pa.Table) -> PolarsDataFrame:
    """The rows as a ``polars.DataFrame``. Raises EngineError, UnsupportedFeatureError as :func:`scan_polars`."""
    library = import_engine("polars")
    _check_types(rows.schema)
    frame: PolarsDataFrame = library.from_arrow(rows)
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolarsScan:
    """The rows of a scan, and the columns that it returns."""

    polars: ModuleType
    scan: SnapshotScan
    schema: pa.Schema

    def frames(
        self,
        with_columns: list[str] | None,
        predicate: "Expr | None",
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[PolarsDataFrame]:
        """The frames that polars asks for.

        Args:
            with_columns: the columns to return; None for all.
            predicate: the rows to return, out of the first ``n_rows``.
            n_rows: rows to read; None for all.
            batch_size: a hint, which is ignored: batches have the size of row groups, within limits.
        """
        parsed = None if predicate is None else PolarsPredicate(predicate, polars=self.polars)
        expression = None if parsed is None else parsed.expression
        used = set(with_columns or self.schema.names) | set(() if expression is None else expression.meta.root_names())
        implied = (
            None if parsed is None or n_rows is not None else implied_predicate(parsed.parts, self.scan.snapshot.schema)
        )
        # Rows are counted by a column.
        names = [name for name in self.schema.names if name in used] or self.schema.names[:1]
        scan = replace(self.scan, columns=names, where=both(self.scan.predicate, implied))
        with read_batches(scan) as batches:
            for batch in _first_rows(batches, n_rows):
                frame: PolarsDataFrame = self.polars.from_arrow(batch)
                if expression is not None:
                    frame = frame.filter(expression)
                yield frame if with_columns is None else frame.select(with_columns)


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


def _check_types(schema: pa.Schema) -> None:
    for item in schema:
        pending = [item.type]
        while pending:
            kind = pending.pop()
            pending.extend(kind.field(position).type for position in range(kind.num_fields))
            if kind == pa.month_day_nano_interval():
                raise UnsupportedFeatureError(
                    f"Column {item.name!r} has an interval of years and months, for which polars has no type. Leave the column "
                    "out, or read the table without polars."
                ).with_remedy(ReadWithoutSpark())
