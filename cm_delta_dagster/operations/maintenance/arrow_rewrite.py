"""Rewrites the files of a plan by Arrow, in this process. Rows are read and written in streams, one bin after the other."""

import logging
import time

from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.arrow.write.data_file_writer import write_arrow_files
from cm_delta_dagster.arrow.write.stored_columns import files_need_spark
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan
from cm_delta_dagster.operations.writing.engines.arrow_files import stored_rows
from cm_delta_dagster.operations.writing.table_files import hidden_columns, kept_row_ids
from cm_delta_dagster.protocol.features.row_tracking import row_id_namesake
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles, write_spec

_log = logging.getLogger(__name__)


def rewrite_needs_spark(plan: OptimizePlan) -> str | None:
    """Why only Spark can rewrite the files of a plan, for a message; None if Arrow can."""
    if plan.arrangement is not None:
        return "rows are ordered"
    if plan.definition is not None:
        return "the table gets another definition"
    name = row_id_namesake(plan.snapshot.schema)
    if name is not None and kept_row_ids(plan.snapshot) is not None:
        return f"the table has a column named {name!r}"
    return files_need_spark(plan.layout)


def rewrite_by_arrow(table: Table, plan: OptimizePlan, written: list[WrittenFiles]) -> None:
    """Write one file for each bin, or several if they need much memory.

    Args:
        written: the files of each bin are appended to it.
    """
    snapshot, layout, started = plan.snapshot, plan.layout, time.monotonic()
    row_ids = kept_row_ids(snapshot)
    spec = WriteSpec(is_filled=True, checked=False, hidden_columns=hidden_columns(row_ids), file_bytes=plan.target_size)
    spec = write_spec(layout, spec)
    for done, files in enumerate(plan.bins, 1):
        request = ScanRequest(files=files, row_tracking=row_ids)
        batches = scan_batches(store=table.store, layout=snapshot.layout, request=request)
        rows = stored_rows(batches, snapshot.layout, row_ids)
        written.append(write_arrow_files(rows, store=table.store, layout=layout, spec=spec))
        _log.info(
            "OPTIMIZE of %s: %d of %d files written after %.1f seconds",
            snapshot.identifier,
            done,
            plan.num_bins,
            time.monotonic() - started,
        )
