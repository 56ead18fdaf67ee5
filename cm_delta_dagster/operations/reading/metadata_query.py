"""Row counts and least and greatest values from the log, without reading rows.

Values that the log does not have exactly are unknown; the caller reads them from the rows. Importing this module needs no
Spark.
"""

from collections.abc import Sequence

from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates, metadata_aggregates


@names_table
def aggregate(
    table: ReadableTable,
    *,
    columns: Sequence[str] = (),
    where: Predicate | str | None = None,
    version: int | None = None,
) -> MetadataAggregates:
    """The row count of the table, and the least and greatest value of ``columns``, as far as the log has them.

    Args:
        columns: top-level columns.
        where: condition on partition columns, SQL text or a predicate value; with any other condition all results are unknown.
        version: the table at that version; the latest for None.

    Raises:
        VersionNotFoundError: no such version.
        InvalidArgumentError: an unknown column, or ``where`` is not a condition.
    """
    snapshot = table.snapshot(version=version)
    return metadata_aggregates(
        snapshot.files,
        columns,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        mapping=snapshot.column_mapping,
        where=as_predicate(where, snapshot.schema, zone=snapshot.time_zone),
        index=snapshot.state.files.index,
        zone=snapshot.time_zone,
    )
