"""Which partitions a rewrite of files covers."""

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.protocol.features.column_mapping import stored_names
from cm_delta_dagster.protocol.predicates.predicates import Predicate, columns_of, partition_only, short_sql


def partition_predicate(snapshot: Snapshot, where: Predicate | str | None) -> Predicate | None:
    """``where`` as a predicate on partition columns; None for all files.

    Raises:
        InvalidArgumentError: it uses other columns.
    """
    predicate = as_predicate(where, snapshot.schema)
    if predicate is None:
        return None
    if not partition_only(predicate, snapshot.partition_columns):
        columns = ", ".join(snapshot.partition_columns) or "none: the table is not partitioned"
        raise InvalidArgumentError(
            f"OPTIMIZE of {snapshot.identifier} cannot be limited by {short_sql(predicate)}, because that does not depend on "
            f"partition columns alone (its columns: {', '.join(sorted(columns_of(predicate))) or 'unknown'}; "
            f"partition columns: {columns}). Files are rewritten whole; use a condition on partition columns."
        )
    return predicate


def stored_partitions(snapshot: Snapshot) -> tuple[str, ...]:
    """The keys of the partition values of files."""
    return stored_names(snapshot.partition_columns, snapshot.schema, snapshot.column_mapping)
