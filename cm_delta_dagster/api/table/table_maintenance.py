"""``table.maintenance``: the log of one table, files that have become superfluous, and repairs."""

from collections.abc import Callable, Collection

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import one_of
from cm_delta_dagster.operations.doctor import Depth, DoctorReport, RepairPlan, apply_repair, plan_repair, repair_table
from cm_delta_dagster.operations.maintenance.apply_optimize import apply_optimize
from cm_delta_dagster.operations.maintenance.checkpoint import CheckpointResult, checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import (
    CleanLogPlan,
    CleanLogResult,
    apply_clean_log,
    clean_log,
    plan_clean_log,
)
from cm_delta_dagster.operations.maintenance.clean_staged_commits import (
    CleanStagedCommitsPlan,
    CleanStagedCommitsResult,
    apply_clean_staged_commits,
    clean_staged_commits,
    plan_clean_staged_commits,
)
from cm_delta_dagster.operations.maintenance.compact_log import CompactLogResult, compact_log
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.maintenance.publish import PublishResult, publish
from cm_delta_dagster.operations.maintenance.reorg import plan_reorg, reorg
from cm_delta_dagster.protocol.predicates.predicates import Predicate


class DeltaTableMaintenance(AbsentMethods):
    """Maintenance of one table beside ``table.optimize`` and ``table.vacuum``.

    A method ``plan_<verb>`` is the dry run of ``<verb>``; its plan has a method ``apply``.
    """

    def __init__(self, connection: ClientSession, table: Table) -> None:
        self._connection = connection
        self._table = table

    def __repr__(self) -> str:
        return f"DeltaTableMaintenance({str(self._table.identifier)!r})"

    def decision(self, kind: MaintenanceKind | str) -> MaintenanceDecision:
        """Return whether the catalog permits a kind of maintenance on this table, by which rule, and why.

        Raises:
            InvalidArgumentError: an unknown kind.
        """
        return self._table.maintenance_decision(maintenance_kind(kind))

    def publish(self) -> PublishResult:
        """Copy ratified commits that are not yet in ``_delta_log`` to it. Writers also do this after each commit."""
        return publish(self._table)

    def checkpoint(self) -> CheckpointResult:
        """Write a checkpoint of the latest version. Raises MaintenanceNotPermittedError if the policy denies it."""
        return checkpoint(self._table)

    def compact_log(self, start: int, end: int) -> CompactLogResult:
        """Write a log compaction of versions ``start`` to ``end``, both included. Raises UnpublishedVersionError."""
        return compact_log(self._table, start=start, end=end)

    def plan_reorg(
        self, *, where: Predicate | str | None = None, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> OptimizePlan:
        """List the files that :meth:`reorg` would rewrite; changes nothing.

        Args:
            where: condition on partition columns; None for all partitions.
            commit_properties: of the commit of ``apply``.
        """
        return plan_reorg(self._table, where=where).bound(
            lambda plan: apply_optimize(self._table, plan, spark=self._connection.available, context=commit_properties)
        )

    def reorg(
        self, *, where: Predicate | str | None = None, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> OptimizeResult:
        """Rewrite the files that have deleted rows or dropped columns (REORG TABLE ... APPLY (PURGE)); rows do not change.

        Args:
            where: condition on partition columns that limits the files.
            commit_properties: provenance, recorded in the table history.

        Raises:
            InvalidArgumentError: only Spark can write the files, and no session runs or was configured.
            MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION.
            MaintenanceInProgressError: another maintenance run holds the lease of the table.
        """
        return reorg(self._table, spark=self._connection.available, where=where, context=commit_properties)

    def plan_clean_log(self) -> CleanLogPlan:
        """List the log files that :meth:`clean_log` would delete; deletes nothing."""
        return plan_clean_log(self._table).bound(lambda plan: apply_clean_log(self._table, plan))

    def clean_log(self) -> CleanLogResult:
        """Delete log files older than ``delta.logRetentionDuration``.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow METADATA_CLEANUP.
        """
        return clean_log(self._table)

    def plan_clean_staged_commits(self) -> CleanStagedCommitsPlan:
        """List the staged commits that :meth:`clean_staged_commits` would delete; deletes nothing."""
        return plan_clean_staged_commits(self._table).bound(lambda plan: apply_clean_staged_commits(self._table, plan))

    def clean_staged_commits(self) -> CleanStagedCommitsResult:
        """Delete staged commits of published versions, at least one day old. Raises MaintenanceNotPermittedError."""
        return clean_staged_commits(self._table)

    def plan_repair(self, *, take_back: Collection[int] = ()) -> RepairPlan:
        """List the repairs of :meth:`repair`, in order, and the findings without one; changes nothing."""
        return bound_repair(self._table, plan_repair(self._table, take_back=take_back))

    def repair(
        self,
        *,
        take_back: Collection[int] = (),
        depth: Depth | str = Depth.LISTING,
        progress: Callable[[int, int], None] | None = None,
    ) -> DoctorReport:
        """Repair what is provably safe of the findings of ``table.doctor()``, and report the remaining ones.

        Args:
            take_back: versions whose commits no reader can use, and that you consent to take back as an owner of the table. Their
                finding says what is taken back; the originals are set aside.
            depth, progress: of the check, as for ``table.doctor``.

        Raises:
            InvalidArgumentError: an unknown depth, or a version in ``take_back`` that has no such finding.
        """
        return repair_table(
            self._table, take_back=take_back, depth=one_of(Depth, depth, name="depth"), progress=progress
        )


def bound_repair(table: Table, plan: RepairPlan) -> RepairPlan:
    """The plan with what applies it."""
    return plan.bound(lambda bound: apply_repair(table, bound))


def maintenance_kind(kind: MaintenanceKind | str) -> MaintenanceKind:
    """Return the kind of that name, in upper or lower case. Raises InvalidArgumentError."""
    try:
        return MaintenanceKind(str(kind).upper())
    except ValueError as error:
        kinds = ", ".join(known.value for known in MaintenanceKind)
        raise InvalidArgumentError(
            f"{kind!r} is not a kind of maintenance; the kinds are {kinds}. VACUUM is DATA_CLEANUP, OPTIMIZE DATA_REORGANIZATION."
        ) from error
