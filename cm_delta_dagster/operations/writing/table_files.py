"""Rows of some files of a table, as DataFrames, and their numbers."""

from dataclasses import replace

import pyarrow as pa

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.deletion_vectors import check_row_count
from cm_delta_dagster.protocol.features.row_tracking import (
    ROW_COMMIT_VERSION,
    ROW_ID,
    RowIdColumns,
    is_enabled,
    row_id_columns,
)
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.protocol.statistics.statistics import num_records
from cm_delta_dagster.spark.library import DataFrame, SparkSession
from cm_delta_dagster.spark.read.footers import iter_footers
from cm_delta_dagster.spark.read.scan import scan, scan_with_files
from cm_delta_dagster.storage.store import ObjectStatus


def scan_files(
    table: WriteTarget,
    snapshot: Snapshot,
    session: SparkSession,
    files: pa.Table,
    schema: StructType,
    *,
    row_ids: RowIdColumns | None = None,
    with_files: bool = False,
) -> DataFrame:
    """Read some files of the table.

    Args:
        row_ids: adds the ids and commit versions of rows, last.
        with_files: adds the file of each row and its position there.
    """
    layout = replace(snapshot.layout, schema=schema)
    request = ScanRequest(files=files, row_tracking=row_ids)
    read = scan_with_files if with_files else scan
    return read(session, store=table.store, layout=layout, request=request)


def kept_row_ids(snapshot: Snapshot) -> RowIdColumns | None:
    """The columns of files in which rows that move keep their ids; None if the table has no stable row ids.

    Raises:
        CorruptLogError: row tracking is enabled, and the metadata does not name the columns.
    """
    if not is_enabled(snapshot.protocol, snapshot.metadata):
        return None
    return row_id_columns(snapshot.protocol, snapshot.metadata, str(snapshot.identifier))


def hidden_columns(row_ids: RowIdColumns | None) -> tuple[StructField, ...]:
    """``row_ids`` as columns of files that are not in the schema."""
    return () if row_ids is None else (StructField(row_ids.row_id, LONG), StructField(row_ids.row_commit_version, LONG))


def named_row_ids(rows: DataFrame, row_ids: RowIdColumns | None) -> DataFrame:
    """Rows of :func:`scan_files` with their ids under the names that files have."""
    if row_ids is None:
        return rows
    return rows.withColumnsRenamed({ROW_ID: row_ids.row_id, ROW_COMMIT_VERSION: row_ids.row_commit_version})


def check_row_counts(table: WriteTarget, snapshot: Snapshot, files: pa.Table) -> None:
    """Require that ``files`` have the numbers of rows that the log says, by their footers.

    Raises:
        CorruptLogError: a file has another number of rows. StorageError: a file is no Parquet file, or not as long as the log says.
    """
    statuses = [
        ObjectStatus(location=resolve_path(snapshot.location, path), size=size, modification_time=0)
        for path, size in zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True)
    ]
    recorded = num_records(files["stats"]).to_pylist()
    for file, footer, rows in zip(statuses, iter_footers(table.store, statuses), recorded, strict=True):
        check_row_count(file.location, recorded=rows, actual=footer.num_rows)
