"""One catalog-managed table of the Python API. Each method calls one operation of ``operations``."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.peer_names import TABLE_NAMES
from cm_delta_dagster.api.table_writes import TableWrites
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms, one_of
from cm_delta_dagster.operations.doctor import Depth, DoctorReport, RepairPlan, doctor, plan_repair
from cm_delta_dagster.operations.maintenance.checkpoint import CheckpointResult, checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import CleanLogPlan, CleanLogResult, clean_log, plan_clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import (
    CleanStagedCommitsPlan,
    CleanStagedCommitsResult,
    clean_staged_commits,
    plan_clean_staged_commits,
)
from cm_delta_dagster.operations.maintenance.compact_log import CompactLogResult, compact_log
from cm_delta_dagster.operations.maintenance.optimize import OptimizePlan, OptimizeResult, optimize, plan_optimize
from cm_delta_dagster.operations.maintenance.publish import PublishResult, publish
from cm_delta_dagster.operations.maintenance.reorg import plan_reorg, reorg
from cm_delta_dagster.operations.maintenance.vacuum import RetentionCheck, VacuumPlan, VacuumResult, plan_vacuum, vacuum
from cm_delta_dagster.protocol.predicates.predicates import Predicate


class DeltaTable(AbsentMethods, TableWrites):
    """One catalog-managed table: reads, writes and maintenance.

    Maintenance consists of methods of this class, each named after its SQL or Delta verb, as ``vacuum`` and ``optimize`` are
    in delta-spark: ``publish``, ``checkpoint`` (``create_checkpoint`` in deltalake), ``compact_log`` (``compact_logs``),
    ``optimize`` (``optimize.compact``), ``vacuum``, ``clean_log`` (``cleanup_metadata``), ``clean_staged_commits`` and
    ``doctor`` (``repair``). The methods that delete or rewrite files have a dry run, ``plan_<verb>``; that of ``doctor`` is
    ``plan_repair``. The catalog must permit them: see :meth:`maintenance_decision` and ``Connection.allow``.

    If the table is dropped and another table takes its name, the methods raise TableNotFoundError.
    """

    _peer_names = TABLE_NAMES

    def maintenance_decision(self, kind: MaintenanceKind | str) -> MaintenanceDecision:
        """Return whether the catalog permits a kind of maintenance on this table, by which rule, and why.

        Raises:
            InvalidArgumentError: an unknown kind.
        """
        return self.table.maintenance_decision(maintenance_kind(kind))

    def publish(self) -> PublishResult:
        """Copy ratified commits that are not yet in ``_delta_log`` to it. Writers also do this after each commit."""
        return publish(self.table)

    def checkpoint(self) -> CheckpointResult:
        """Write a checkpoint of the latest version. Raises MaintenanceNotPermittedError if the policy denies it."""
        return checkpoint(self.table)

    def compact_log(self, start: int, end: int) -> CompactLogResult:
        """Write a log compaction of versions ``start`` to ``end``, both included. Raises UnpublishedVersionError."""
        return compact_log(self.table, start=start, end=end)

    def plan_optimize(
        self,
        *,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        min_size: int | None = None,
        z_order_by: str | Sequence[str] = (),
        full: bool = False,
    ) -> OptimizePlan:
        """List the files that :meth:`optimize` would rewrite; changes nothing.

        Args:
            where: condition on partition columns; None for all partitions.
            target_size: target size of a rewritten file in bytes; by default ``delta.targetFileSize`` of the table, or 1 GiB.
            min_size: files of at least this many bytes are rewritten only if they have many deleted rows; by default
                ``target_size``.
            z_order_by, full: as for :meth:`optimize`.
        """
        return plan_optimize(
            self.table, where=where, target_size=target_size, min_size=min_size, z_order_by=z_order_by, full=full
        )

    def optimize(
        self,
        *,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        min_size: int | None = None,
        z_order_by: str | Sequence[str] = (),
        full: bool = False,
    ) -> OptimizeResult:
        """Rewrite small files into fewer large files; rows do not change.

        On a table with clustering columns, cluster the files that are not clustered yet.

        Args:
            where: condition on partition columns that limits the files.
            target_size: bytes of a rewritten file; by default the table's setting, or 1 GiB.
            min_size: files of at least that many bytes are not rewritten; by default ``target_size``.
            z_order_by: columns or fields; all files are rewritten, so that rows with near values in them are in the same file.
            full: on a table with clustering columns, cluster all files again.

        Raises:
            InvalidArgumentError: rows cannot be ordered by a column, or the table is clustered and cannot be Z-ordered.
            MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION.
            MaintenanceInProgressError: another maintenance run holds the lease of the table.
        """
        return optimize(
            self.table,
            spark=self._connection.spark,
            where=where,
            target_size=target_size,
            min_size=min_size,
            z_order_by=z_order_by,
            full=full,
        )

    def plan_reorg(self, *, where: Predicate | str | None = None) -> OptimizePlan:
        """List the files that :meth:`reorg` would rewrite; changes nothing.

        Args:
            where: condition on partition columns; None for all partitions.
        """
        return plan_reorg(self.table, where=where)

    def reorg(self, *, where: Predicate | str | None = None) -> OptimizeResult:
        """Rewrite the files that have deleted rows or dropped columns (REORG TABLE ... APPLY (PURGE)); rows do not change.

        Args:
            where: condition on partition columns that limits the files.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow DATA_REORGANIZATION.
            MaintenanceInProgressError: another maintenance run holds the lease of the table.
        """
        return reorg(self.table, spark=self._connection.spark, where=where)

    def plan_vacuum(
        self, retention: timedelta | None = None, *, retention_check: RetentionCheck = RetentionCheck.ENFORCED
    ) -> VacuumPlan:
        """List the files that :meth:`vacuum` would delete; deletes nothing."""
        return plan_vacuum(self.table, retention_ms=_duration(retention), retention_check=retention_check)

    def vacuum(
        self, retention: timedelta | None = None, *, retention_check: RetentionCheck = RetentionCheck.ENFORCED
    ) -> VacuumResult:
        """Delete the data files that no version within ``retention`` needs.

        Args:
            retention: by default the retention of the table, which is 7 days unless set.
            retention_check: whether a retention shorter than that of the table is refused.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow DATA_CLEANUP.
            RetentionTooShortError: shorter than the retention of the table, and the check is enforced.
            InvalidArgumentError: ``retention`` is negative, or is not a timedelta.
        """
        return vacuum(self.table, retention_ms=_duration(retention), retention_check=retention_check)

    def plan_clean_log(self) -> CleanLogPlan:
        """List the log files that :meth:`clean_log` would delete; deletes nothing."""
        return plan_clean_log(self.table)

    def clean_log(self) -> CleanLogResult:
        """Delete log files older than ``delta.logRetentionDuration``.

        Raises:
            MaintenanceNotPermittedError: the policy does not allow METADATA_CLEANUP.
        """
        return clean_log(self.table)

    def plan_clean_staged_commits(self) -> CleanStagedCommitsPlan:
        """List the staged commits that :meth:`clean_staged_commits` would delete; deletes nothing."""
        return plan_clean_staged_commits(self.table)

    def clean_staged_commits(self) -> CleanStagedCommitsResult:
        """Delete staged commits of published versions, at least one day old. Raises MaintenanceNotPermittedError."""
        return clean_staged_commits(self.table)

    def doctor(
        self,
        *,
        repair: bool = False,
        take_back: Collection[int] = (),
        depth: Depth | str = Depth.LISTING,
        progress: Callable[[int, int], None] | None = None,
    ) -> DoctorReport:
        """Compare catalog and storage of this table: versions, bytes, timestamps, checksums, checkpoints, files.

        It also checks tables that cannot be loaded. Without ``repair`` it changes nothing.

        Args:
            repair: carry out the repairs of :meth:`plan_repair`, and report the remaining findings.
            take_back: with ``repair``, versions whose commits no reader can use, and that you consent to take back as an owner of
                the table. Their finding says what is taken back; the originals are set aside.
            depth: ``footers`` also reads the footers and deletion vectors of all data files of the latest version.
            progress: called with the number of data files read and the total, while they are read.

        Raises:
            InvalidArgumentError: an unknown depth, or a version in ``take_back`` that has no such finding.
        """
        return doctor(
            self.table,
            repair=repair,
            take_back=take_back,
            depth=one_of(Depth, depth, name="depth"),
            progress=progress,
        )

    def plan_repair(self, *, take_back: Collection[int] = ()) -> RepairPlan:
        """List the repairs of :meth:`doctor` with ``repair=True``, in order, and the findings without one; changes nothing."""
        return plan_repair(self.table, take_back=take_back)


def maintenance_kind(kind: MaintenanceKind | str) -> MaintenanceKind:
    """Return the kind of that name, in upper or lower case. Raises InvalidArgumentError."""
    try:
        return MaintenanceKind(str(kind).upper())
    except ValueError as error:
        kinds = ", ".join(known.value for known in MaintenanceKind)
        raise InvalidArgumentError(f"{kind!r} is not a kind of maintenance; the kinds are {kinds}.") from error


def _duration(retention: timedelta | None) -> int | None:
    return None if retention is None else duration_ms(retention, name="retention")
