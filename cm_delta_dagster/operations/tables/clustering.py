"""Set the clustering columns of a table (protocol heading "Clustered Table")."""

from collections.abc import Sequence

import pyarrow.compute as pc

from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.operations.tables.constraints import altered
from cm_delta_dagster.protocol.features.clustering import (
    FEATURE,
    clustering_domain,
    logical_path,
    physical_path,
    stored_clustering_columns,
)
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import STRING
from cm_delta_dagster.protocol.statistics.layout_columns import check_clustering_columns
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics
from cm_delta_dagster.remedies import RewriteFiles


@names_table
def cluster_by(table: Table, *, columns: Sequence[str], context: CommitProperties = NO_PROPERTIES) -> AlterResult:
    """Set the columns by which ``optimize`` clusters rows. Rewrites no file; commits nothing if the table has these columns.

    Args:
        columns: up to four columns or fields, such as ``a`` or ``a.b``; case is ignored. Empty for none.

    Raises:
        InvalidArgumentError: the table has partition columns, a column cannot be used, or a file has no statistics of a column.
        UnsupportedFeatureError: this client must not write to the table.
        CommitConflictError: a concurrent commit changed the metadata, the protocol or the clustering columns.
    """
    snapshot = table.snapshot()
    paths = check_clustering_columns(snapshot.layout, columns)
    stored = tuple(physical_path(path, snapshot.schema, snapshot.column_mapping) for path in paths)
    present = stored_clustering_columns(snapshot.domains)
    if stored == present:
        return AlterResult(table_id=table.table_id, version=snapshot.version, snapshot=snapshot)
    for path, names in zip(paths, stored, strict=True):
        check_statistics(snapshot, path, names)
    before = [logical_path(path, snapshot.schema, snapshot.column_mapping) or path for path in present]
    parameters = {"oldClusteringColumns": _listed(before), "newClusteringColumns": _listed(paths)}
    transaction = table.start_transaction(snapshot, operation="CLUSTER BY", parameters=parameters, context=context)
    protocol = with_features(snapshot.protocol, [FEATURE])
    if protocol != snapshot.protocol:
        transaction.set_protocol(protocol)
    transaction.set_clustering(clustering_domain(stored))
    return altered(table, transaction.commit())


def _listed(columns: Sequence[ColumnPath]) -> str:
    return ",".join(".".join(path) for path in columns)


def check_statistics(snapshot: Snapshot, column: ColumnPath, stored: ColumnPath) -> None:
    """Refuse a column of which a file has no statistics. Raises InvalidArgumentError."""
    statistics = parse_statistics(snapshot.files["stats"], {stored: STRING})
    missing = pc.sum(pc.is_null(statistics.null_counts[stored])).as_py() or 0
    if missing:
        raise InvalidArgumentError(
            f"Rows cannot be clustered by {'.'.join(column)!r}: {missing} of {snapshot.num_files} files have no statistics of it. "
            "Nothing was changed."
        ).with_remedy(RewriteFiles(column=".".join(column)))
