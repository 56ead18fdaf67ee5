"""Row counts and least and greatest values from the log, without reading rows.

Values that the log does not have exactly are unknown; the caller reads them from the rows. Importing this module needs no
Spark.
"""

from dataclasses import replace

from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates, metadata_aggregates


@names_table
def aggregate(scan: SnapshotScan) -> MetadataAggregates:
    """The row count of a scan, and the least and greatest value of its columns, as far as the log has them.

    A condition on other than partition columns makes all results unknown.

    Raises:
        InvalidArgumentError: ``where`` is not a condition, or row ids are among the columns.
    """
    snapshot = scan.snapshot
    return metadata_aggregates(
        snapshot.files,
        snapshot.schema.names if scan.columns is None else scan.columns,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.column_mapping,
        where=scan.predicate,
        index=snapshot.state.files.index,
        zone=snapshot.time_zone,
    )


def known_row_count(scan: SnapshotScan) -> int | None:
    """The number of rows of a scan, if the log has it. Raises InvalidArgumentError as :func:`aggregate`."""
    return aggregate(replace(scan, columns=())).num_rows
