"""Rows of some files of a table, as DataFrames, and their numbers."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.rewrite import count_frame_rows
from cm_delta_dagster.spark.scan import scan, scan_with_files


def scan_files(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table, schema: StructType
) -> DataFrame:
    """Read some files of the table."""
    layout = replace(snapshot.layout, schema=schema)
    return scan(session, store=table.store, layout=layout, request=ScanRequest(files=files))


def scan_files_by_name(
    table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table, schema: StructType
) -> DataFrame:
    """Read some files of the table, with the file of each row."""
    layout = replace(snapshot.layout, schema=schema)
    return scan_with_files(session, store=table.store, layout=layout, files=files)


def rows_of_files(table: WriteTarget, snapshot: Snapshot, session: SparkSession, files: pa.Table) -> int:
    """Count the rows of the files: from the statistics in the log if all files have them, otherwise by a Spark job."""
    known = logical_row_count(files)
    return (
        known if known is not None else count_frame_rows(scan_files(table, snapshot, session, files, snapshot.schema))
    )


def size_of(files: pa.Table) -> int:
    """Return the total size of the files in bytes."""
    return int(pc.sum(files["size"]).as_py() or 0)
