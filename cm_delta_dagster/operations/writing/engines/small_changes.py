"""Finding and reading the rows of a change in this process, without a Spark job, where the files are few and small.

Arrow has read such files before a Spark job has started. The rows that it reads become a DataFrame, because Spark computes their
new values.
"""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cm_delta_dagster.arrow.scan import row_positions, scan_batches
from cm_delta_dagster.errors import InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.operations.writing.conditions import compares_as_spark
from cm_delta_dagster.protocol.features.row_tracking import ROW_TRACKING_FIELDS, row_id_namesake
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.schema.types import VARIANT, VOID, StructType, walk_types
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.expressions.schema import to_spark
from cm_delta_dagster.spark.library import DataFrame, SparkSession
from cm_delta_dagster.spark.session.session import default_zone
from cm_delta_dagster.storage.store import Store

_MOST_FILES = 32
_MOST_BYTES = 128 * 2**20
_MOST_ROWS = 500_000
MOST_ROWS_READ = 1_000
"""More rows or bytes are left to Spark: rows that this process reads are a part of the plan, and one task writes them."""
_MOST_BYTES_READ = 4 * 2**20
_NOT_HANDED_OVER = (VARIANT, VOID)
"""Types whose values Spark does not accept from Arrow."""


def find_rows(
    session: SparkSession, *, store: Store, layout: TableLayout, request: ScanRequest
) -> dict[str, BitMap64] | None:
    """The positions of the requested rows of each file that has some, by its path in the log.

    None if Spark has to look for them: the files are too many or too large, or only Spark can evaluate the condition.

    Raises:
        CorruptLogError: the log or a data file is damaged. ObjectNotFoundError: a file is missing.
    """
    if not _are_small(request.files) or not compares_as_spark(session, layout.schema, request.predicate):
        return None
    try:
        return row_positions(store=store, layout=_in_zone(layout, session), request=request)
    except (InvalidArgumentError, UnsupportedFeatureError):
        return None


def read_rows(session: SparkSession, *, store: Store, layout: TableLayout, request: ScanRequest) -> DataFrame | None:
    """The rows of ``spark.scan.scan``, in one partition; None if Spark has to read them.

    Raises:
        CorruptLogError: the log or a data file is damaged. ObjectNotFoundError: a file is missing.
    """
    schema = layout.schema
    if not is_small(request) or not _may_hand_over(schema):
        return None
    if request.row_tracking is not None:
        if row_id_namesake(schema) is not None:
            return None
        schema = StructType((*schema.fields, *ROW_TRACKING_FIELDS))
    try:
        batches = scan_batches(store=store, layout=_in_zone(layout, session), request=request)
        rows = _few_bytes(batches)
    except UnsupportedFeatureError:
        return None
    return None if rows is None else session.createDataFrame(rows, to_spark(schema)).coalesce(1)


def is_small(request: ScanRequest) -> bool:
    """Whether few rows of few small files are requested, which :func:`read_rows` reads if nothing else speaks against it."""
    return _are_few(request) and _are_small(request.files)


def _few_bytes(batches: pa.RecordBatchReader) -> pa.Table | None:
    """All rows; None if they are too wide, in which case the rest of them is not read."""
    taken: list[pa.RecordBatch] = []
    num_bytes = 0
    for batch in batches:
        num_bytes += batch.nbytes
        if num_bytes > _MOST_BYTES_READ:
            return None
        taken.append(batch)
    return pa.Table.from_batches(taken, batches.schema)


def _are_small(files: pa.Table) -> bool:
    if not 0 < files.num_rows <= _MOST_FILES or (pc.sum(files["size"]).as_py() or 0) > _MOST_BYTES:
        return False
    rows = logical_row_count(files)
    return rows is not None and rows <= _MOST_ROWS


def _are_few(request: ScanRequest) -> bool:
    """Whether the request names few rows."""
    rows = logical_row_count(request.files)
    if request.positions is not None and request.positions.are_returned:
        rows = sum(len(positions) for positions in request.positions.by_path.values())
    return rows is not None and rows <= MOST_ROWS_READ


def _may_hand_over(schema: StructType) -> bool:
    return not any(kind in _NOT_HANDED_OVER for kind in walk_types(schema))


def _in_zone(layout: TableLayout, session: SparkSession) -> TableLayout:
    return replace(layout, time_zone=default_zone(layout.time_zone, session))
