"""One catalog-managed table of the Python API. Each method calls one operation of ``operations``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.peer_names import TABLE_CLASS_NAMES, TABLE_NAMES
from cm_delta_dagster.api.table.table_maintenance import DeltaTableMaintenance, bound_repair
from cm_delta_dagster.api.table.table_writes import TableWrites
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.operations.arguments import duration_ms, one_of
from cm_delta_dagster.operations.doctor import Depth, DoctorReport, doctor
from cm_delta_dagster.operations.maintenance.apply_optimize import apply_optimize
from cm_delta_dagster.operations.maintenance.optimize import optimize, plan_optimize
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.maintenance.vacuum import (
    VacuumPlan,
    VacuumResult,
    apply_vacuum,
    plan_vacuum,
    vacuum,
)
from cm_delta_dagster.protocol.predicates.predicates import Predicate


class DeltaTable(AbsentMethods, TableWrites):
    """One catalog-managed table: reads, writes and maintenance.

    ``optimize``, ``vacuum`` and ``restore`` are methods of this class, as in delta-spark; the rest of the maintenance is in
    :attr:`maintenance`. A method that deletes or rewrites files has a dry run, ``plan_<verb>``. Its plan has a method ``apply``,
    which does what the plan says and nothing else. The catalog must permit maintenance: see ``maintenance.decision`` and
    ``lake.maintenance.set_policy``.

    If the table is dropped and another table takes its name, the methods raise TableNotFoundError.
    """

    _peer_names = TABLE_NAMES
    _peer_class_names = TABLE_CLASS_NAMES

    @property
    def maintenance(self) -> DeltaTableMaintenance:
        """The log, superfluous files and repairs: ``table.maintenance.checkpoint()``, ``clean_log``, ``repair`` and so on."""
        return DeltaTableMaintenance(self._connection, self.table)

    def plan_optimize(
        self,
        *,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        min_size: int | None = None,
        z_order_by: str | Sequence[str] = (),
        full: bool = False,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> OptimizePlan:
        """List the files that :meth:`optimize` would rewrite; changes nothing.

        Args:
            where: condition on partition columns; None for all partitions.
            target_size: target size of a rewritten file in bytes; by default ``delta.targetFileSize`` of the table, or 1 GiB.
            min_size: files of at least this many bytes are rewritten only if they have many deleted rows; by default
                ``target_size``.
            z_order_by, full, commit_properties: as for :meth:`optimize`.
        """
        plan = plan_optimize(
            self.table, where=where, target_size=target_size, min_size=min_size, z_order_by=z_order_by, full=full
        )
        return plan.bound(
            lambda bound: apply_optimize(self.table, bound, spark=self._connection.available, context=commit_properties)
        )

    def optimize(
        self,
        *,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        min_size: int | None = None,
        z_order_by: str | Sequence[str] = (),
        full: bool = False,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> OptimizeResult:
        """Rewrite small files into fewer large files; rows do not change.

        On a table with clustering columns, cluster the files that are not clustered yet.

        Args:
            where: condition on partition columns that limits the files.
            target_size: bytes of a rewritten file; by default the table's setting, or 1 GiB.
            min_size: files of at least that many bytes are not rewritten; by default ``target_size``.
            z_order_by: columns or fields; all files are rewritten, so that rows with near values in them are in the same file.
            full: on a table with clustering columns, cluster all files again.
            commit_properties: provenance, recorded in the table history.

        Raises:
            InvalidArgumentError: rows cannot be ordered by a column, the table is clustered and cannot be Z-ordered, or only Spark
                can write its files, and no session runs or was configured.
            MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION.
            MaintenanceInProgressError: another maintenance run holds the lease of the table.
        """
        return optimize(
            self.table,
            spark=self._connection.available,
            where=where,
            target_size=target_size,
            min_size=min_size,
            z_order_by=z_order_by,
            full=full,
            context=commit_properties,
        )

    def plan_vacuum(self, retention: timedelta | None = None, *, force: bool = False) -> VacuumPlan:
        """List the files that :meth:`vacuum` would delete; deletes nothing.

        ``apply`` of the plan keeps those of the files that a commit, a clone or a longer retention needs by then.
        """
        plan = plan_vacuum(self.table, retention_ms=_duration(retention), force=force)
        return plan.bound(lambda bound: apply_vacuum(self.table, bound))

    def vacuum(self, retention: timedelta | None = None, *, force: bool = False) -> VacuumResult:
        """Delete the data files that no version within ``retention`` needs.

        Args:
            retention: by default the retention of the table, which is 7 days unless set.
            force: allow a retention shorter than that of the table. Dangerous: running readers and writers may need the files.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow DATA_CLEANUP.
            RetentionTooShortError: shorter than the retention of the table.
            InvalidArgumentError: ``retention`` is negative, or is not a timedelta.
        """
        return vacuum(self.table, retention_ms=_duration(retention), force=force)

    def doctor(
        self, *, depth: Depth | str = Depth.LISTING, progress: Callable[[int, int], None] | None = None
    ) -> DoctorReport:
        """Compare catalog and storage of this table: versions, bytes, timestamps, checksums, checkpoints, files.

        It also checks tables that cannot be loaded. It changes nothing; the report has a plan of repairs, ``report.plan.apply()``.

        Args:
            depth: ``footers`` also reads the footers and deletion vectors of all data files of the latest version.
            progress: called with the number of data files read and the total, while they are read.

        Raises:
            InvalidArgumentError: an unknown depth.
        """
        report = doctor(self.table, depth=one_of(Depth, depth, name="depth"), progress=progress)
        return replace(report, plan=bound_repair(self.table, report.plan))


def _duration(retention: timedelta | None) -> int | None:
    return None if retention is None else duration_ms(retention, name="retention")
