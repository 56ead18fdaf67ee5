"""The row changes of a range of versions, in the form that the caller asks for."""

import typing
from functools import cached_property
from typing import Any

import pyarrow as pa

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.table_scan import PandasDataFrame
from cm_delta_dagster.operations.reading.change_query import ChangeScan
from cm_delta_dagster.operations.reading.polars.lazy_frame import PolarsDataFrame, polars_frame
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_change_batches, read_changes_arrow
from cm_delta_dagster.spark.library import DataFrame


class TableChanges(AbsentMethods):
    """Row changes of a range of versions: ``table.changes(...)``. The methods read them.

    The files that hold the changes are listed when the value is made, so that all methods return the same changes, also after later
    commits. Rows have the columns of the table, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``. Only :meth:`to_df`
    uses Spark.
    """

    _absent: typing.ClassVar[str] = (
        "changes are returned by to_df(), to_arrow(), to_batches(), to_polars() or to_pandas()"
    )

    def __init__(self, connection: ClientSession, scan: ChangeScan) -> None:
        self._connection = connection
        self._scan = scan

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._scan.identifier)!r})"

    @cached_property
    def _zoned(self) -> ChangeScan:
        """The scan for reads without Spark: its time zone is that of the running session unless one was given."""
        scan = self._scan
        return scan if scan.changes.time_zone is not None else scan.in_time_zone(self._connection.running_time_zone)

    def to_df(self) -> DataFrame:
        """The changes as a Spark DataFrame.

        Raises:
            InvalidArgumentError: Spark would evaluate a part of the condition in another time zone.
            CorruptLogError, ObjectNotFoundError: a file is damaged or missing; also when the rows are computed.
        """
        return read_changes(self._scan, spark=self._connection.spark)

    def to_arrow(self) -> pa.Table:
        """The changes as an Arrow table, oldest version first.

        Raises:
            InvalidArgumentError: the condition is SQL that only Spark can evaluate.
            CorruptLogError, ObjectNotFoundError: a file is damaged or missing.
        """
        return read_changes_arrow(self._zoned)

    def to_batches(self) -> pa.RecordBatchReader:
        """Like :meth:`to_arrow`, in batches. Close the reader to stop early."""
        return read_change_batches(self._zoned)

    def to_pandas(self, **options: Any) -> PandasDataFrame:
        """The changes as a pandas DataFrame. Raises as :meth:`to_arrow`.

        Args:
            options: those of ``pyarrow.Table.to_pandas``, e.g. ``types_mapper``.
        """
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> PolarsDataFrame:
        """The changes as a ``polars.DataFrame``. Raises as :meth:`to_arrow`.

        Raises:
            EngineError: polars is not installed.
            UnsupportedFeatureError: a column has a type that polars does not have.
        """
        return polars_frame(self.to_arrow())
