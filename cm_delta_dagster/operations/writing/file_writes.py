"""Rows to data files of a table: by Spark, or by Arrow."""

from contextlib import nullcontext
from dataclasses import replace

from cm_delta_dagster.arrow.write.data_file_writer import write_arrow_files
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.writing.rows import RowsForArrow
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles, write_spec
from cm_delta_dagster.protocol.statistics.file_forecast import Gathered
from cm_delta_dagster.spark.library import DataFrame
from cm_delta_dagster.spark.write.optimized_write import AS_THEY_ARE, RowGathering, few_files_settings, in_few_files
from cm_delta_dagster.spark.write.write import write_files

DEFAULT_SPEC = WriteSpec()


def write_frame(
    table: WriteTarget,
    frame: DataFrame,
    layout: TableLayout,
    spec: WriteSpec = DEFAULT_SPEC,
    gathering: RowGathering = AS_THEY_ARE,
) -> WrittenFiles:
    """Write ``frame`` to data files. Raises as :func:`~cm_delta_dagster.spark.write.write.write_files`."""
    spec = write_spec(layout, replace(spec, now_ms=table.services.now_ms()))
    optimizes = layout.properties.optimize_write
    rows = in_few_files(frame, layout) if optimizes else gathering.all_rows(frame, layout)
    shuffles = optimizes or gathering.gathered is not Gathered.NONE
    with few_files_settings(frame.sparkSession) if shuffles else nullcontext():
        return write_files(rows, store=table.store, layout=layout, spec=spec)


def write_arrow(table: WriteTarget, rows: RowsForArrow, layout: TableLayout) -> WrittenFiles:
    """Write new rows to data files. Raises as :func:`~cm_delta_dagster.arrow.write.data_file_writer.write_arrow_files`."""
    spec = write_spec(layout, WriteSpec(now_ms=table.services.now_ms(), guard=rows.guard))
    return write_arrow_files(rows.rows, store=table.store, layout=layout, spec=spec)
