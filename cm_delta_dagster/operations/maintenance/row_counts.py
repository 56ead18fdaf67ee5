"""Numbers of rows by partition, to check that a rewrite of files changes no row."""

from datetime import UTC

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.operations.maintenance.packing import deleted_rows
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import canonical_partition_text
from cm_delta_dagster.protocol.features.column_mapping import stored_names
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.statistics.statistics import num_records


def rows_by_partition(files: pa.Table, layout: TableLayout) -> dict[tuple[str, ...], int]:
    """Return the number of live rows of each partition. Different serializations of a partition value count as one value.

    Args:
        layout: by which ``files`` are written; its time zone is that of timestamps that state none.
    """
    rows = pc.subtract(num_records(files["stats"]), deleted_rows(files)).to_pylist()
    if not layout.partition_columns:
        return {(): sum(rows)}
    columns = []
    names = stored_names(layout.partition_columns, layout.schema, layout.mapping)
    for field, name in zip(layout.partition_fields, names, strict=True):
        texts = partition_column(files, name).to_pylist()
        parsed = {
            text: canonical_partition_text(text, field.type, zone=layout.time_zone or UTC) or "" for text in set(texts)
        }
        columns.append([parsed[text] for text in texts])
    totals: dict[tuple[str, ...], int] = {}
    for partition, count in zip(zip(*columns, strict=True), rows, strict=True):
        totals[partition] = totals.get(partition, 0) + count
    return totals
