"""Carry out a plan of OPTIMIZE or REORG that was made before, as far as nothing has changed its files."""

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitConflictError
from cm_delta_dagster.operations.maintenance.authorization import check_size, maintenance_lease, require_permission
from cm_delta_dagster.operations.maintenance.optimize import apply_plan
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.writing.engine_choice import SessionSource
from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.spark.library import SparkSession


def apply_optimize(
    table: Table, plan: OptimizePlan, *, spark: SparkSession | SessionSource, context: CommitProperties = NO_PROPERTIES
) -> OptimizeResult:
    """Rewrite the files of ``plan``, which may be one of REORG. Files that were added since are left as they are.

    Raises:
        CommitConflictError: a commit has changed the files since the plan was made; nothing was committed.
        CmDeltaError: as :func:`optimize`.
    """
    decision = require_permission(table, MaintenanceKind.DATA_REORGANIZATION)
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as lease:
        check_size(table, decision, num_files=plan.num_files, num_bytes=plan.num_bytes)
        _refuse_changed(table, plan)
        return apply_plan(table, plan, spark=spark, lease=lease, context=context)


def _refuse_changed(table: Table, plan: OptimizePlan) -> None:
    """Refuse a plan whose files have changed, before they are rewritten; the commit refuses later changes."""
    snapshot = table.snapshot()
    if snapshot.version == plan.snapshot.version:
        return
    changed = pc.invert(pc.is_in(_identities(plan.files), value_set=_identities(snapshot.files)))
    if pc.any(changed, min_count=0).as_py():
        raise CommitConflictError(
            f"{plan.operation} of {snapshot.identifier} was planned for version {plan.snapshot.version}. Commits up to version "
            f"{snapshot.version} have changed {pc.sum(changed).as_py()} of its {plan.num_files} files. Nothing was changed. Make a "
            "new plan."
        )


def _identities(files: pa.Table) -> pa.Array:
    """Path and deletion vector of each file."""
    return pc.binary_join_element_wise(files["path"].combine_chunks(), pc.fill_null(dv_ids(files), ""), "\n")
