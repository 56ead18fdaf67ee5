"""Rewrites the files of a plan by Arrow, in this process. Rows are read and written in streams, one bin after the other.

Rows that are ordered are sorted in memory, or, if they need much of it, by a temporary file.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa

from cm_delta_dagster.arrow.scan import count_rows, scan_batches
from cm_delta_dagster.arrow.write.curve_order import CurveOrder
from cm_delta_dagster.arrow.write.data_file_writer import write_arrow_parts
from cm_delta_dagster.arrow.write.stored_columns import files_need_spark
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.arrangement import num_parts
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan
from cm_delta_dagster.operations.writing.engines.arrow_files import stored_rows, stored_schema
from cm_delta_dagster.operations.writing.file_writes import zoned_layout
from cm_delta_dagster.operations.writing.table_files import hidden_columns, kept_row_ids
from cm_delta_dagster.protocol.features.row_tracking import row_id_namesake
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles, write_spec
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count

_log = logging.getLogger(__name__)

_MOST_TARGETS = 2
"""A file of ordered rows may be so many times as large as it should be; the number of rows decides where it ends."""


def rewrite_needs_spark(plan: OptimizePlan) -> str | None:
    """Why only Spark can rewrite the files of a plan, for a message; None if Arrow can."""
    name = row_id_namesake(plan.snapshot.schema)
    if name is not None and kept_row_ids(plan.snapshot) is not None:
        return f"the table has a column named {name!r}"
    return files_need_spark(plan.layout)


def rewrite_by_arrow(table: Table, plan: OptimizePlan, written: list[WrittenFiles]) -> None:
    """Write one file for each bin, or files with rows in the order of an arrangement. Files that need much memory become several.

    Args:
        written: the files are appended to it.
    """
    snapshot, row_ids = plan.snapshot, kept_row_ids(plan.snapshot)
    size = plan.target_size if plan.arrangement is None else _MOST_TARGETS * plan.target_size
    spec = WriteSpec(is_filled=True, checked=False, hidden_columns=hidden_columns(row_ids), file_bytes=size)
    layout = zoned_layout(table, snapshot.layout)
    with closing(_parts(table, plan, layout)) as parts:
        files = write_arrow_parts(
            (stored_rows(rows, layout, row_ids) for rows in parts),
            schema=stored_schema(layout, row_ids),
            store=table.store,
            layout=plan.layout,
            spec=write_spec(plan.layout, spec),
        )
    written.append(files)


def _parts(table: Table, plan: OptimizePlan, layout: TableLayout) -> Generator[Iterator[pa.RecordBatch]]:
    """The rows of each new file. ``layout`` is that of the files that are read."""
    snapshot, started = plan.snapshot, time.monotonic()
    for done, files in enumerate(plan.bins, 1):
        request = ScanRequest(files=files, row_tracking=kept_row_ids(snapshot))
        rows = scan_batches(store=table.store, layout=layout, request=request)
        if plan.arrangement is None:
            yield rows
        else:
            yield from _order(table, plan, files, layout).files(rows)
        _log.info(
            "OPTIMIZE of %s: %d of %d files written after %.1f seconds",
            snapshot.identifier,
            done,
            plan.num_bins,
            time.monotonic() - started,
        )


def _order(table: Table, plan: OptimizePlan, files: pa.Table, layout: TableLayout) -> CurveOrder:
    """The order of the rows of ``files``."""
    arrangement = plan.arrangement
    assert arrangement is not None
    names = tuple(dict.fromkeys(column.path[0] for column in arrangement.columns))

    def count() -> int:
        recorded = logical_row_count(files)
        return recorded if recorded is not None else count_rows(store=table.store, layout=layout, files=files)

    return CurveOrder(
        columns=arrangement.columns,
        curve=arrangement.curve,
        keys=lambda: scan_batches(store=table.store, layout=layout, request=ScanRequest(files=files, columns=names)),
        count=count,
        num_files=num_parts(files, target_size=plan.target_size),
    )
