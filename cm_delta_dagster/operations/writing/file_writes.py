"""Rows to data files of a table: by Spark, or by Arrow."""

from contextlib import nullcontext
from dataclasses import replace

from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.arrow.write.data_file_writer import write_arrow_files
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.writing.rows import zone_of_expressions
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec, WrittenFiles, write_spec
from cm_delta_dagster.protocol.statistics.file_forecast import Gathered
from cm_delta_dagster.spark.library import DataFrame
from cm_delta_dagster.spark.write.optimized_write import AS_THEY_ARE, RowGathering, few_files_settings, in_few_files
from cm_delta_dagster.spark.write.write import write_files

DEFAULT_SPEC = WriteSpec()


def write_rows(
    table: WriteTarget,
    rows: DataFrame | ArrowRows,
    layout: TableLayout,
    spec: WriteSpec = DEFAULT_SPEC,
    gathering: RowGathering = AS_THEY_ARE,
) -> WrittenFiles:
    """Write rows to data files: a DataFrame by Spark, rows of Arrow by Arrow.

    Args:
        gathering: which rows of a DataFrame are shuffled first.

    Raises:
        CmDeltaError: as :func:`~cm_delta_dagster.spark.write.write.write_files` and
            :func:`~cm_delta_dagster.arrow.write.data_file_writer.write_arrow_files`.
    """
    spec = write_spec(layout, replace(spec, now_ms=table.services.now_ms()))
    if isinstance(rows, ArrowRows):
        return write_arrow_files(rows, store=table.store, layout=layout_for_arrow(table, layout), spec=spec)
    optimizes = layout.properties.optimize_write
    frame = in_few_files(rows, layout) if optimizes else gathering.all_rows(rows, layout)
    shuffles = optimizes or gathering.gathered is not Gathered.NONE
    with few_files_settings(frame.sparkSession) if shuffles else nullcontext():
        return write_files(frame, store=table.store, layout=layout, spec=spec)


def layout_for_arrow(table: WriteTarget, layout: TableLayout) -> TableLayout:
    """``layout`` with the time zone in which Arrow evaluates expressions of the table."""
    return replace(layout, time_zone=zone_of_expressions(as_zone(table.services.settings.time_zone)))


def zoned_layout(table: WriteTarget, layout: TableLayout) -> TableLayout:
    """``layout`` with the time zone of partition values that state none: its own, else that of :func:`layout_for_arrow`."""
    return layout if layout.time_zone is not None else layout_for_arrow(table, layout)
