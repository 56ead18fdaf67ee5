"""Reading a table as a DataFrame.

A query reads one snapshot; files that cannot hold a requested row are not opened. The table may be managed by a catalog or
not. ``read_arrow`` reads without Spark.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table, names_version
from cm_delta_dagster.operations.writing.conditions import Condition, read_condition
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns, row_id_columns
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.spark.expressions.conditions import check_time_zone
from cm_delta_dagster.spark.expressions.predicates import to_column
from cm_delta_dagster.spark.expressions.schema import quoted
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


def read(
    table: ReadableTable,
    *,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: Condition | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
) -> DataFrame:
    """The rows of the table: at its latest version, at ``version``, or as of ``timestamp_ms``.

    Args:
        columns: columns to return, in this order; all of them for None. ``_row_id`` and ``_row_commit_version`` may be
            among them if the table has row tracking enabled.
        where: condition on the rows, SQL text, a predicate value or a Column; also decides which files are opened.
        timestamp_ms: epoch milliseconds.

    Raises:
        VersionNotFoundError: no such version or time.
        InvalidArgumentError: an unknown column, row ids of a table without them, or ``where`` is not a condition.
        ObjectNotFoundError: a data file is missing; raised here or when the rows are computed.
    """
    return plan_read(
        table, columns=columns, where=where, version=version, timestamp_ms=timestamp_ms, spark=spark
    ).frame(spark)


@names_table
def plan_read(
    table: ReadableTable,
    *,
    columns: Sequence[str] | None = None,
    where: Condition | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
    spark: SparkSession | None = None,
) -> ReadPlan:
    """The plan of :func:`read`, with the files read and skipped. Arguments and errors as there.

    Without ``spark``, ``timestamp`` partition values that state no time zone are those of the table's zone only; if it has none,
    they exclude no file.
    """
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidArgumentError(f"{table.identifier}: version is {version!r}; give a whole number.")
    snapshot = table.snapshot(version=version, timestamp_ms=timestamp_ms)
    return plan_snapshot_read(snapshot, store=table.store, columns=columns, where=where, spark=spark)


def read_snapshot(
    snapshot: Snapshot,
    *,
    spark: SparkSession,
    store: Store,
    columns: Sequence[str] | None = None,
    where: Condition | None = None,
) -> DataFrame:
    """:func:`read` for a given snapshot."""
    return plan_snapshot_read(snapshot, store=store, columns=columns, where=where, spark=spark).frame(spark)


def plan_snapshot_read(
    snapshot: Snapshot,
    *,
    store: Store,
    columns: Sequence[str] | None = None,
    where: Condition | None = None,
    spark: SparkSession | None = None,
) -> ReadPlan:
    """:func:`plan_read` for a given snapshot."""
    with names_version(snapshot):
        names = None if columns is None else _column_names(snapshot, columns)
        predicate = read_condition(where, snapshot.schema, zone=snapshot.time_zone)
        if spark is not None:
            check_time_zone(predicate, snapshot.schema, zone=snapshot.time_zone, session=spark)
            snapshot = snapshot.in_time_zone(default_zone(snapshot.time_zone, spark))
        wants_ids = names is not None and any(_is_row_id(snapshot, name) for name in names)
        return ReadPlan(
            snapshot=snapshot,
            store=store,
            files=snapshot.matching_files(predicate),
            columns=names,
            predicate=predicate,
            row_ids=row_id_columns(snapshot.protocol, snapshot.metadata, str(snapshot.identifier))
            if wants_ids
            else None,
        )


def _column_names(snapshot: Snapshot, columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns is the text {columns!r}; give a list of names, e.g. [{columns!r}].")
    names = []
    for name in columns:
        field = snapshot.schema.field(name)
        if field is None and not _is_row_id(snapshot, name):
            known = ", ".join(snapshot.schema.names)
            raise InvalidArgumentError(f"{snapshot.identifier} has no column {name!r}; its columns are {known}.")
        names.append(name if field is None else field.name)
    return tuple(names)


def _is_row_id(snapshot: Snapshot, name: str) -> bool:
    return name in (ROW_ID, ROW_COMMIT_VERSION) and snapshot.schema.field(name) is None
