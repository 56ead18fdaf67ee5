"""Reading a table as a DataFrame.

A query reads one snapshot; files that cannot hold a requested row are not opened. The table may be managed by a catalog or
not. ``read_arrow`` reads without Spark.
"""

import logging
from dataclasses import dataclass

import pyarrow as pa

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import names_table, names_version
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.spark.expressions.conditions import check_time_zone
from cm_delta_dagster.spark.expressions.predicates import to_column
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import default_zone
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The files, columns and rows that a read returns. No file has been opened.

    Attributes:
        files: the files that may hold a requested row, columns of ``file_columns.ADD_SCHEMA``.
        columns: columns to return, in this order, spelled as in the schema; None for all.
        predicate: condition on the rows.
        row_ids: names of the row tracking columns, if row ids are requested.
    """

    snapshot: Snapshot
    store: Store
    files: pa.Table
    columns: tuple[str, ...] | None
    predicate: Predicate | None
    row_ids: RowIdColumns | None

    @property
    def files_total(self) -> int:
        """Files of the table at this version."""
        return self.snapshot.num_files

    @property
    def files_read(self) -> int:
        return int(self.files.num_rows)

    @property
    def files_skipped(self) -> int:
        """Files that are not read because of partition values or statistics."""
        return self.files_total - self.files_read

    @property
    def bytes_total(self) -> int:
        """Size of all files of the table at this version."""
        return self.snapshot.size_bytes

    @property
    def bytes_read(self) -> int:
        """Size of the files that are opened; Spark reads only the needed columns of them."""
        return size_of(self.files)

    def __repr__(self) -> str:
        return f"<ReadPlan {self}>"

    def __str__(self) -> str:
        return (
            f"{self.snapshot.identifier} version {self.snapshot.version}: {self.files_read} of {self.files_total} files, "
            f"{self.bytes_read} of {self.bytes_total} bytes, {self.files_skipped} files skipped"
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows. No Spark job runs before an action on the DataFrame.

        Raises:
            CorruptLogError: a path, partition value or deletion vector is damaged.
            ObjectNotFoundError: a data file or deletion vector is missing.
            StorageError: a data file was cut short.
        """
        _log.info("Reading %s", self)
        snapshot = self.snapshot
        with (
            names_version(snapshot, store=self.store),
            spark_errors(f"reading {snapshot.identifier} version {snapshot.version}"),
        ):
            frame = scan(
                spark,
                store=self.store,
                layout=snapshot.layout,
                request=ScanRequest(files=self.files, predicate=self.predicate, row_tracking=self.row_ids),
            )
            if self.predicate is not None:
                frame = frame.where(to_column(self.predicate, snapshot.schema))
            if self.columns is not None:
                frame = frame.select(*[F.col(quoted(name)) for name in self.columns])
            return frame


def read(scan: SnapshotScan, *, spark: SparkSession) -> DataFrame:
    """The rows of a scan; its condition may also be what ``conditions.column_predicate`` makes of a Column.

    Raises:
        InvalidArgumentError: row ids of a table without them, or ``where`` is not a condition.
        ObjectNotFoundError: a data file is missing; raised here or when the rows are computed.
    """
    return plan_read(scan, spark=spark).frame(spark)


@names_table
def plan_read(scan: SnapshotScan, *, spark: SparkSession | None = None) -> ReadPlan:
    """The plan of :func:`read`, with the files read and skipped. Errors as there.

    Without ``spark``, ``timestamp`` partition values that state no time zone are those of the scan's zone only; if it has none,
    they exclude no file.
    """
    snapshot, predicate = scan.snapshot, scan.predicate
    with names_version(snapshot):
        if spark is not None:
            check_time_zone(predicate, snapshot.schema, zone=snapshot.time_zone, session=spark)
            snapshot = snapshot.in_time_zone(default_zone(snapshot.time_zone, spark))
        return ReadPlan(
            snapshot=snapshot,
            store=scan.store,
            files=snapshot.matching_files(predicate),
            columns=None if scan.columns is None else tuple(scan.columns),
            predicate=predicate,
            row_ids=scan.row_ids,
        )
