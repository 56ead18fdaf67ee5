"""Reading a table with polars, lazily and without a JVM, as far as possible by polars' own Parquet reader."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.optional_packages import import_engine
from cm_delta_dagster.operations.reading.polars.batch_source import BatchSource
from cm_delta_dagster.operations.reading.polars.file_resolver import resolved_frame
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.remedies import ReadWithoutSpark

if TYPE_CHECKING:
    from polars import DataFrame as PolarsDataFrame
    from polars import LazyFrame as PolarsLazyFrame
else:
    PolarsDataFrame = PolarsLazyFrame = Any  # So that the hints can be evaluated without the package.

__all__ = ["PolarsDataFrame", "PolarsLazyFrame", "polars_frame", "scan_polars"]


@names_table
def scan_polars(scan: SnapshotScan) -> PolarsLazyFrame:
    """The rows of a scan as a ``polars.LazyFrame``; errors are those of ``read_arrow``.

    Data files are selected and read when polars collects the frame, which raises their errors; the footers of few files are read
    before. The rows of the files that polars reads itself come first.

    Raises:
        EngineError: polars is not installed.
        UnsupportedFeatureError: a column has a type that polars does not have (an interval of months).
    """
    library = import_engine("polars")
    schema = read_batches(scan).schema
    _check_types(schema)
    rows = BatchSource(polars=library, scan=scan, dtypes=library.from_arrow(schema.empty_table()).schema)
    if scan.predicate is None and scan.row_ids is None:
        frame = resolved_frame(rows)
        if frame is not None:
            return frame
    return rows.lazy()


def polars_frame(rows: pa.Table) -> PolarsDataFrame:
    """The rows as a ``polars.DataFrame``. Raises EngineError, UnsupportedFeatureError as :func:`scan_polars`."""
    library = import_engine("polars")
    _check_types(rows.schema)
    frame: PolarsDataFrame = library.from_arrow(rows)
    return frame


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
