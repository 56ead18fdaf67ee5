"""Reading a set of data files as a DataFrame (protocol headings "Data Files", "Deletion Vectors", "Column Mapping",
"Row Tracking").

Spark's Parquet reader reads the rows; no Spark job runs and no setting stays changed before the query itself. This module
uses neither the log nor the catalog.
"""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, check_row_ids
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.columns import (
    non_null_paths,
)
from cm_delta_dagster.spark.expressions.nullability import proven
from cm_delta_dagster.spark.expressions.schema import quoted, to_spark
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession, T, pyspark
from cm_delta_dagster.spark.read.file_index import NoFileIndexError, file_indexes, report_fallback
from cm_delta_dagster.spark.read.file_values import (
    FILE_COLUMN,
    POSITION_COLUMN,
    spark_file_key,
    spark_file_path,
)
from cm_delta_dagster.spark.read.indexed_scan import indexed_parts
from cm_delta_dagster.spark.read.listed_scan import listed_parts
from cm_delta_dagster.spark.read.scan_parts import Scan
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import LISTING_SETTINGS, temporary_settings
from cm_delta_dagster.spark.stores.object_stores import spark_storage
from cm_delta_dagster.storage.store import Store

__all__ = ["FILE_COLUMN", "POSITION_COLUMN", "scan", "scan_with_files", "spark_file_key", "spark_file_path"]

_SMALL_LISTING = 32


def scan(session: SparkSession, *, store: Store, layout: TableLayout, request: ScanRequest) -> DataFrame:
    """The logical rows of ``request.files``: partition values from the log, deletion vectors applied, absent columns null.

    Types, nullability and metadata of the columns are those of the schema. The caller applies ``request.predicate`` to the
    result: here it only lets Spark skip parts of files, and every row for which it is true is returned. Row ids and commit
    versions, if they are requested, are the last columns.

    Raises:
        InvalidArgumentError: an unknown column.
        CorruptLogError: a path, partition value or deletion vector of the log is damaged.
        ObjectNotFoundError: a file is missing; the message names it.
        StorageError: a file was cut short; the message names it.
        StoreNotSupportedError: the session has no file system for the location of the table.
    """
    frame = _frame(_new_scan(session, store, layout, request, with_files=False), request.files)
    if request.columns is None:
        return frame
    extra = [ROW_ID, ROW_COMMIT_VERSION] if request.row_tracking else []
    return frame.select(*[F.col(quoted(name)) for name in (*_known(request.columns, layout.schema), *extra)])


def scan_with_files(session: SparkSession, *, store: Store, layout: TableLayout, request: ScanRequest) -> DataFrame:
    """All columns as :func:`scan`, and :data:`FILE_COLUMN` and :data:`POSITION_COLUMN` last; :func:`spark_file_key` makes the
    values of the first comparable with file keys.
    """
    return _frame(_new_scan(session, store, layout, request, with_files=True), request.files)


def _known(columns: Sequence[str], schema: StructType) -> list[str]:
    names = []
    for name in columns:
        field = schema.field(name)
        if field is None:
            raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(schema.names)}.")
        names.append(field.name)
    return names


def _new_scan(
    session: SparkSession, store: Store, layout: TableLayout, request: ScanRequest, *, with_files: bool
) -> Scan:
    schema, partitions = layout.schema, layout.partition_fields
    names = tuple(item.name for item in partitions)
    indexes = file_indexes(session)
    # Without an index Spark's reader makes every column nullable.
    declared = () if indexes is None else (path for path in non_null_paths(schema) if path[0] not in names)
    if request.row_tracking is not None:
        check_row_ids(schema, request.files)
    return Scan(
        session=session,
        store=store,
        storage=spark_storage(session, store, layout.location),
        indexes=indexes,
        layout=layout,
        never_null=proven(
            request.files, iter(declared), schema=schema, partition_columns=names, mapping=layout.mapping
        ),
        predicate=request.predicate,
        row_tracking=request.row_tracking,
        with_files=with_files,
        positions=request.positions,
    )


def _frame(scan: Scan, files: pa.Table) -> DataFrame:
    with spark_errors(f"reading data files of {scan.layout.location}"):
        parts = _parts(scan, files)
        if not parts:
            return _empty(scan)
        return reduce(pyspark.sql.DataFrame.union, parts)


def _parts(scan: Scan, files: pa.Table) -> list[DataFrame]:
    if scan.indexes is not None:
        try:
            return list(indexed_parts(scan, scan.indexes, files))
        except NoFileIndexError as error:
            report_fallback(error)
    # Spark lists the files when the DataFrame is made.
    with temporary_settings(scan.session, LISTING_SETTINGS if files.num_rows > _SMALL_LISTING else {}):
        return list(listed_parts(scan, files))


def _empty(scan: Scan) -> DataFrame:
    schema = to_spark(scan.schema)
    extra = [name for name in scan.result_columns if name not in scan.schema.names]
    for name in extra:
        schema = schema.add(name, T.StringType() if name == FILE_COLUMN else T.LongType())
    return scan.session.createDataFrame([], schema)
