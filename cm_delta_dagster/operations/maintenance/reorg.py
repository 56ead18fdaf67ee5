"""REORG TABLE ... APPLY (PURGE): rewrite files so that deleted rows and dropped columns leave storage.

The old files stay until VACUUM deletes them. The commit changes no row.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.authorization import check_size, maintenance_lease, require_permission
from cm_delta_dagster.operations.maintenance.optimize import TARGET_SIZE, apply_plan
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.maintenance.packing import pack
from cm_delta_dagster.operations.maintenance.rewritten_partitions import partition_predicate, stored_partitions
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice, SessionSource
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_schema
from cm_delta_dagster.protocol.predicates.predicates import Predicate, to_sql
from cm_delta_dagster.protocol.schema.types import ArrayType, DataType, MapType, StructType
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.read.footers import read_footers
from cm_delta_dagster.spark.read.layout import absolute_locations
from cm_delta_dagster.storage.store import ObjectStatus, Store


def plan_reorg(table: Table, *, where: Predicate | str | None = None) -> OptimizePlan:
    """List the files that :func:`reorg` would rewrite. Reads the footers of files only if the table maps columns.

    Args:
        where: predicate on partition columns that limits the files considered.

    Raises:
        InvalidArgumentError: ``where`` uses columns that are not partition columns.
    """
    snapshot = table.snapshot()
    predicate = partition_predicate(snapshot, where)
    files = snapshot.matching_files(predicate)
    is_rewritten = pc.or_(files["deletionVector"].is_valid(), _with_dropped_columns(table.store, snapshot, files))
    target = snapshot.properties.target_file_size or TARGET_SIZE
    columns = stored_partitions(snapshot)
    bins = pack(files.filter(is_rewritten), partition_columns=columns, target_size=target, min_size=0, all_files=True)
    return OptimizePlan(
        snapshot=snapshot,
        bins=bins,
        target_size=target,
        where=None if predicate is None else to_sql(predicate),
        operation="REORG",
    )


def reorg(
    table: Table,
    *,
    spark: SparkSession | SessionSource | EngineChoice,
    where: Predicate | str | None = None,
    context: CommitProperties = NO_PROPERTIES,
) -> OptimizeResult:
    """Rewrite the files that have deleted rows or dropped columns, in one commit that changes no row.

    Raises:
        MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION; nothing was done.
        MaintenanceInProgressError: another maintenance run holds a lease on the table.
        CommitConflictError: a concurrent commit changed the files; nothing was committed.
    """
    decision = require_permission(table, MaintenanceKind.DATA_REORGANIZATION)
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as lease:
        plan = plan_reorg(table, where=where)
        check_size(table, decision, num_files=plan.num_files, num_bytes=plan.num_bytes)
        return apply_plan(table, plan, spark=spark, lease=lease, context=context)


def _with_dropped_columns(store: Store, snapshot: Snapshot, files: pa.Table) -> pa.Array:
    """Whether each file holds a column that the table no longer has; without column mapping columns cannot be dropped."""
    if snapshot.column_mapping is ColumnMappingMode.NONE or not files.num_rows:
        return pa.array([False] * files.num_rows, pa.bool_())
    row_ids = kept_row_ids(snapshot)
    hidden = frozenset[str]() if row_ids is None else frozenset((row_ids.row_id, row_ids.row_commit_version))
    schema = physical_schema(snapshot.schema, snapshot.column_mapping)
    locations = absolute_locations(snapshot.location, files["path"]).to_pylist()
    places = [
        ObjectStatus(location=location, size=size, modification_time=0)
        for location, size in zip(locations, files["size"].to_pylist(), strict=True)
    ]
    columns = [footer.schema.to_arrow_schema() for footer in read_footers(store, places)]
    return pa.array([_has_others(list(fields), schema, hidden) for fields in columns], pa.bool_())


def _has_others(fields: Sequence[pa.Field], schema: StructType, hidden: frozenset[str] = frozenset()) -> bool:
    """Whether a file has a column or nested field that is not in ``schema``, whose names are physical."""
    known = {item.name: item.type for item in schema.fields}
    return any(
        field.name not in hidden and (field.name not in known or _differs(field.type, known[field.name]))
        for field in fields
    )


def _differs(stored: pa.DataType, known: DataType) -> bool:
    match known:
        case StructType() if pa.types.is_struct(stored):
            return _has_others(list(stored), known)
        case ArrayType() if pa.types.is_list(stored):
            return _differs(stored.value_type, known.element_type)
        case MapType() if pa.types.is_map(stored):
            return _differs(stored.key_type, known.key_type) or _differs(stored.item_type, known.value_type)
        case _:
            return False
