"""Rows and columns of one version of a table, in the form that the caller asks for."""

import typing
from functools import cached_property
from typing import Any

import pyarrow as pa

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.reading.duckdb.connection import (
    DuckDBConnection,
    DuckDBPyConnection,
    DuckDBPyRelation,
    to_relation,
)
from cm_delta_dagster.operations.reading.metadata_query import aggregate
from cm_delta_dagster.operations.reading.polars.lazy_frame import PolarsDataFrame, PolarsLazyFrame, scan_polars
from cm_delta_dagster.operations.reading.read import ReadPlan, plan_read, read
from cm_delta_dagster.operations.reading.read_arrow import count_rows, read_arrow, read_batches
from cm_delta_dagster.operations.reading.read_dataset import read_dataset
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates
from cm_delta_dagster.spark.library import DataFrame

__all__ = ["PandasDataFrame", "TableScan"]

if typing.TYPE_CHECKING:
    from pandas import DataFrame as PandasDataFrame
else:
    PandasDataFrame = Any  # So that the hint can be evaluated without importing the package, which takes long.


class TableScan(AbsentMethods):
    """Rows and columns of one version of a table: ``table.scan(...)``. The methods read them.

    The scan is bound to the version that was the latest one when it was made, or that its call named: all methods read that
    version, also after later commits. Make a new scan for later versions. Data files are opened when the rows are read; after a
    VACUUM those of an old version may be gone.

    Only :meth:`to_df` uses Spark. All forms have the columns, types and rows of the table.
    """

    _absent: typing.ClassVar[str] = (
        "a scan returns rows with to_df(), to_arrow(), to_batches(), to_polars(), lazy(), to_pandas(), dataset() or duckdb()"
    )

    def __init__(self, connection: ClientSession, scan: SnapshotScan) -> None:
        self._connection = connection
        self._scan = scan

    def __repr__(self) -> str:
        scan = self._scan
        columns = "" if scan.columns is None else f", columns={list(scan.columns)!r}"
        where = "" if scan.where is None else f", where={scan.where!r}"
        return f"{type(self).__name__}({scan.identifier!r}, version={scan.snapshot.version}{columns}{where})"

    @property
    def snapshot(self) -> Snapshot:
        """The version that is read."""
        return self._scan.snapshot

    @property
    def version(self) -> int:
        """The number of the version that is read."""
        return self._scan.snapshot.version

    @cached_property
    def _zoned(self) -> SnapshotScan:
        """The scan for reads without Spark: its time zone is that of the running session unless one was given."""
        scan = self._scan
        return scan if scan.snapshot.time_zone is not None else scan.in_time_zone(self._connection.running_time_zone)

    def to_df(self) -> DataFrame:
        """The rows as a Spark DataFrame, with the types, nullability and comments of the table.

        Raises:
            InvalidArgumentError: Spark would evaluate a part of the condition in another time zone.
            ObjectNotFoundError: a data file is missing; raised here or when the rows are computed.
        """
        return read(self._scan, spark=self._connection.spark)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table.

        Raises:
            InvalidArgumentError: the condition is SQL that only Spark can evaluate, or a column is requested twice.
            ObjectNotFoundError: a data file is missing.
        """
        return read_arrow(self._zoned)

    def to_batches(self) -> pa.RecordBatchReader:
        """Like :meth:`to_arrow`, in batches, for tables larger than memory. Close the reader to stop early."""
        return read_batches(self._zoned)

    def to_pandas(self, **options: Any) -> "PandasDataFrame":
        """The rows as a pandas DataFrame. Raises as :meth:`to_arrow`.

        Args:
            options: those of ``pyarrow.Table.to_pandas``, e.g. ``types_mapper``.
        """
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> PolarsDataFrame:
        """The rows as a ``polars.DataFrame``. Raises as :meth:`lazy`."""
        return self.lazy().collect()

    def lazy(self) -> PolarsLazyFrame:
        """The rows as a ``polars.LazyFrame``, read when it is collected.

        Raises:
            EngineError: polars is not installed.
            InvalidArgumentError: as :meth:`to_arrow`.
            UnsupportedFeatureError: a column has a type that polars does not have.
        """
        return scan_polars(self._zoned)

    def dataset(self) -> DeltaDataset:
        """The rows as a ``pyarrow.dataset.Dataset``, for engines that scan datasets. Raises as :meth:`to_arrow`.

        A scanner of it reads the columns that it names, and skips files by its filter.
        """
        return read_dataset(self._zoned)

    def duckdb(self, connection: "DuckDBConnection | DuckDBPyConnection | None" = None) -> "DuckDBPyRelation":
        """The rows as a DuckDB relation.

        Args:
            connection: the connection of the relation; None for DuckDB's default connection.

        Raises:
            EngineError: DuckDB is not installed.
        """
        return to_relation(self._zoned, connection)

    def count(self) -> int:
        """Count the rows, from statistics in the log if they are exact, else by reading one column."""
        return count_rows(self._zoned)

    def aggregates(self) -> MetadataAggregates:
        """Return row count, and minima and maxima of the columns, as far as the log gives them exactly; reads no rows.

        Raises:
            InvalidArgumentError: ``_row_id`` or ``_row_commit_version`` is among the columns.
        """
        return aggregate(self._zoned)

    def files(self) -> pa.Table:
        """Return the data files that may hold a row of the scan, one row each."""
        return self._zoned.files

    def plan(self) -> ReadPlan:
        """Return the files that are read, and how many files and bytes are skipped."""
        return plan_read(self._zoned)
