"""One catalog-managed table of the Python API. Each method calls one operation of ``operations``."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import overload

from pyspark.sql import Column, DataFrame

from cm_delta_dagster.api.merge_builder import MergeBuilder, key_columns, merge_condition
from cm_delta_dagster.api.table_alterer import TableAlterer
from cm_delta_dagster.api.table_reads import TableReads
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms
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
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import PartitionOverwrite, append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.evolution import SchemaMode


class DeltaTable(TableReads[Table]):
    """One catalog-managed table: reads, writes and maintenance.

    Maintenance consists of methods of this class, each named after its SQL or Delta verb, as ``vacuum`` and ``optimize`` are
    in delta-spark: ``publish``, ``checkpoint`` (``create_checkpoint`` in deltalake), ``compact_log`` (``compact_logs``),
    ``optimize`` (``optimize.compact``), ``vacuum``, ``clean_log`` (``cleanup_metadata``), ``clean_staged_commits`` and
    ``doctor`` (``repair``). The methods that delete or rewrite files have a dry run, ``plan_<verb>``; that of ``doctor`` is
    ``plan_repair``. The catalog must permit them: see :meth:`maintenance_decision` and ``Connection.allow``.

    If the table is dropped and another table takes its name, the methods raise TableNotFoundError.
    """

    @property
    def alter(self) -> TableAlterer:
        """ALTER TABLE: ``table.alter.add_constraint(...)``, ``set_default`` and so on."""
        return TableAlterer(self.table, self._connection)

    def append(
        self,
        frame: DataFrame,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Append the rows of ``frame`` in one commit.

        Args:
            schema_mode: whether the write may add columns to the table.
            idempotency: a value that is committed at most once; a repetition is skipped.
            context: provenance, recorded in the table history.

        Raises:
            SchemaMismatchError: the columns do not fit the table.
            InvalidDataError: a row violates a constraint of the table.
        """
        return append(
            self.table,
            frame=frame,
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    def overwrite(
        self,
        frame: DataFrame,
        *,
        where: Condition | None = None,
        partitions: PartitionOverwrite | str = PartitionOverwrite.STATIC,
        replace_using: str | Sequence[str] = (),
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Replace all rows by the rows of ``frame``, in one commit; or the rows of a condition, of partitions or of keys.

        Args:
            where: replace only the rows that satisfy it; every row of ``frame`` must.
            partitions: ``"dynamic"`` replaces only the partitions in which ``frame`` has rows.
            replace_using: key column or columns; replace only the rows that have the keys of a row of ``frame``.

        Raises:
            PartitionMismatchError: a row of ``frame`` does not satisfy ``where``.
            CommitConflictError: a concurrent commit changed the rows that are replaced.
        """
        return overwrite(
            self.table,
            frame=frame,
            where=where,
            partitions=partitions,
            keys=(replace_using,) if isinstance(replace_using, str) else tuple(replace_using),
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    @overload
    def merge(
        self,
        frame: DataFrame,
        on: str | Sequence[str],
        *,
        mode: MergeMode = MergeMode.UPSERT,
        within: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult: ...

    @overload
    def merge(
        self,
        frame: DataFrame,
        on: str | Column,
        *,
        source_alias: str,
        target_alias: str = "target",
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> MergeBuilder: ...

    def merge(
        self,
        frame: DataFrame,
        on: str | Sequence[str] | Column,
        *,
        source_alias: str | None = None,
        target_alias: str = "target",
        mode: MergeMode = MergeMode.UPSERT,
        within: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult | MergeBuilder:
        """Update, insert or delete rows, in one commit: by key, or with clauses if ``source_alias`` is given.

        Args:
            on: key column or columns; unique among the rows of ``frame``. With ``source_alias``: a condition on source and table,
                as SQL text or Column.
            source_alias: name of ``frame`` in conditions and values. The result is then a builder: add clauses, then call
                ``execute``.
            target_alias: name of the table in conditions and values.
            mode: what to do with matched and unmatched rows.
            within: condition on the rows of the table; other rows are neither read nor changed.

        Raises:
            InvalidDataError: several rows of ``frame`` have the same key.
            CommitConflictError: a concurrent commit changed the matched rows.
        """
        if source_alias is not None:
            change = RowChange(
                source=frame, on=merge_condition(on), source_alias=source_alias, target_alias=target_alias
            )
            return MergeBuilder(
                self.table, change=change, options=CommitOptions(idempotency=idempotency, context=context)
            )
        return merge(
            self.table,
            frame=frame,
            keys=key_columns(on),
            mode=mode,
            within=within,
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    def delete(self, where: Condition, *, context: CommitContext = NO_CONTEXT) -> WriteResult:
        """Delete the rows that satisfy ``where``, in one commit. Raises CommitConflictError."""
        return delete(self.table, spark=self._connection.spark, where=where, context=context)

    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Condition | None = None,
        *,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Set columns of the rows that satisfy ``where``, or of all rows, in one commit.

        Args:
            assignments: values by column, as SQL text or Columns; ``a.b`` names the field of a struct.

        Raises:
            InvalidArgumentError: a condition or value is not valid, or the table has no such column.
            CommitConflictError: a concurrent commit changed the rows that are read.
        """
        return update(
            self.table,
            spark=self._connection.spark,
            assignments=assignments,
            where=where,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

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
        depth: Depth | str = Depth.LISTING,
        progress: Callable[[int, int], None] | None = None,
    ) -> DoctorReport:
        """Compare catalog and storage of this table: versions, bytes, timestamps, checksums, checkpoints, files.

        It also checks tables that cannot be loaded. Without ``repair`` it changes nothing.

        Args:
            repair: carry out the repairs of :meth:`plan_repair`, and report the remaining findings.
            depth: ``footers`` also reads the footers and deletion vectors of all data files of the latest version.
            progress: called with the number of data files read and the total, while they are read.

        Raises:
            InvalidArgumentError: an unknown depth.
        """
        try:
            checked_depth = Depth(depth)
        except ValueError as error:
            raise InvalidArgumentError(f"depth is {depth!r}; give one of {', '.join(Depth)}.") from error
        return doctor(self.table, repair=repair, depth=checked_depth, progress=progress)

    def plan_repair(self) -> RepairPlan:
        """List the repairs of :meth:`doctor` with ``repair=True``, in order, and the findings without one; changes nothing."""
        return plan_repair(self.table)


def maintenance_kind(kind: MaintenanceKind | str) -> MaintenanceKind:
    """Return the kind of that name, in upper or lower case. Raises InvalidArgumentError."""
    try:
        return MaintenanceKind(kind.upper())
    except ValueError as error:
        kinds = ", ".join(known.value for known in MaintenanceKind)
        raise InvalidArgumentError(f"{kind!r} is not a kind of maintenance; the kinds are {kinds}.") from error


def _duration(retention: timedelta | None) -> int | None:
    return None if retention is None else duration_ms(retention, name="retention")
