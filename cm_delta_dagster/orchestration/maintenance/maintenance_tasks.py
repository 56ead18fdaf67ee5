"""One maintenance task of one table: check the permission, then plan or execute it, and report the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import MaintenanceInProgressError, MaintenanceNotPermittedError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log, plan_clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits, plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.optimize import optimize, plan_optimize
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.maintenance.vacuum import VacuumPlan, VacuumResult, plan_vacuum, vacuum
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import MaintenancePolicy, MaintenanceTask
from cm_delta_dagster.protocol.log import log_files

_MAX_LISTED_FILES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The result of an op. ``outcome`` is done, planned, nothing_to_do, denied, busy or skipped."""

    outcome: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


def perform(
    table: Table,
    task: MaintenanceTask,
    *,
    action: str,
    policy: MaintenancePolicy,
    context: CommitProperties,
    spark: Callable[[], Any],
) -> TaskReport:
    """Execute or plan one task. A task that the catalog denies is not executed; its plan says so.

    Args:
        action: ``run``, ``plan`` or ``skip``.
        spark: returns the Spark session; only compaction calls it.
    """
    if action == "skip":
        return TaskReport(outcome="skipped", text="Skipped by the run configuration.")
    kind = task.permission
    decision = None if kind is None else table.maintenance_decision(kind)
    if decision is not None and not decision.allowed and action == "run":
        return TaskReport(
            outcome="denied",
            text=f"The catalog does not permit {decision.kind.value} on {table.identifier}: "
            f"{decision.reason or 'no reason given'} (decided by {decision.decided_by}). Nothing was done.",
            metadata={"cm_delta/decided_by": decision.decided_by, "cm_delta/reason": decision.reason},
        )
    if action == "plan":
        permission = (
            "permitted" if decision is None or decision.allowed else f"not permitted (decided by {decision.decided_by})"
        )
        report = _plan(table, task, policy)
        return TaskReport(
            outcome="planned",
            text=f"{report.text} It is {permission}.",
            metadata={**report.metadata, "cm_delta/verdict": permission},
        )
    try:
        report = _run(table, task, policy, context, spark)
    except MaintenanceInProgressError as error:
        return TaskReport(outcome="busy", text=str(error))
    except MaintenanceNotPermittedError as error:  # The policy changed after the check above.
        return TaskReport(outcome="denied", text=str(error))
    if decision is None:
        return report
    approval = {"cm_delta/decided_by": decision.decided_by, "cm_delta/reason": decision.reason}
    return replace(report, metadata={**report.metadata, **approval})


def _plan(table: Table, task: MaintenanceTask, policy: MaintenancePolicy) -> TaskReport:
    match task:
        case MaintenanceTask.PUBLISH:
            snapshot = table.snapshot()
            names = [
                log_files.commit_file_name(version)
                for version in range(snapshot.published_version + 1, snapshot.version + 1)
            ]
            return _planned("would be published", names)
        case MaintenanceTask.CHECKPOINT:
            snapshot = table.snapshot()
            return _planned("would get a checkpoint", [log_files.commit_file_name(snapshot.version)])
        case MaintenanceTask.COMPACT:
            compaction = plan_optimize(table, target_size=policy.target_file_bytes, min_size=policy.small_file_bytes)
            paths = [path for files in compaction.bins for path in files["path"].to_pylist()]
            return _planned(f"would become {compaction.num_bins}", paths, num_bytes=compaction.num_bytes)
        case MaintenanceTask.VACUUM:
            removal = plan_vacuum(table, retention_ms=policy.vacuum_ms())
            report = _planned("would be deleted", removal.paths, num_bytes=removal.num_bytes)
            return replace(report, text=report.text + _retention_note(removal))
        case MaintenanceTask.CLEAN_LOG:
            log = plan_clean_log(table)
            names = [*log.log_names, *log.staged_names, *log.sidecar_names]
            report = _planned("would be deleted", names, num_bytes=log.num_bytes)
            return replace(report, text=f"{report.text} {log.kept}".rstrip())
        case MaintenanceTask.CLEAN_STAGED_COMMITS:
            staged = plan_clean_staged_commits(table)
            return _planned("would be deleted", staged.names, num_bytes=staged.num_bytes)


def _planned(verb: str, names: Sequence[str], *, num_bytes: int | None = None) -> TaskReport:
    size = f" ({size_text(num_bytes)})" if num_bytes else ""
    metadata: dict[str, Any] = {"cm_delta/num_files": len(names)}
    if num_bytes is not None:
        metadata["cm_delta/num_bytes"] = num_bytes
    if names:
        records = [dg.TableRecord({"file": name}) for name in names[:_MAX_LISTED_FILES]]
        schema = dg.TableSchema(columns=[dg.TableColumn("file", "string")])
        metadata["cm_delta/plan"] = dg.MetadataValue.table(records=records, schema=schema)
    return TaskReport(outcome="planned", text=f"{len(names)} files{size} {verb}.", metadata=metadata)


def _run(
    table: Table, task: MaintenanceTask, policy: MaintenancePolicy, context: CommitProperties, spark: Callable[[], Any]
) -> TaskReport:
    match task:
        case MaintenanceTask.PUBLISH:
            published = publish(table)
            return _done(
                published.num_commits,
                f"Published {published.num_commits} commits; the log now holds every version up to "
                f"{published.published_version}.",
                published_version=published.published_version,
            )
        case MaintenanceTask.CHECKPOINT:
            written = checkpoint(table)
            return _done(
                1,
                f"Wrote a checkpoint of version {written.version}.",
                checkpoint_version=written.version,
                num_bytes=written.num_bytes,
            )
        case MaintenanceTask.COMPACT:
            compacted = optimize(
                table,
                spark=spark,
                target_size=policy.target_file_bytes,
                min_size=policy.small_file_bytes,
                context=context,
            )
            return _done(
                compacted.num_removed_files,
                f"Joined {compacted.num_removed_files} files into {compacted.num_added_files}; version "
                f"{compacted.version}.",
                commit_version=compacted.version,
                added_files=compacted.num_added_files,
                removed_files=compacted.num_removed_files,
                added_bytes=compacted.added_bytes,
                removed_bytes=compacted.removed_bytes,
                conflict_retries=compacted.retries,
            )
        case MaintenanceTask.VACUUM:
            vacuumed = vacuum(table, retention_ms=policy.vacuum_ms())
            report = _deleted(vacuumed, "data files")
            return replace(report, text=report.text + _retention_note(vacuumed))
        case MaintenanceTask.CLEAN_LOG:
            cleaned = clean_log(table)
            report = _deleted(cleaned, "files of the log")
            return replace(report, text=f"{report.text} {cleaned.kept}".rstrip())
        case MaintenanceTask.CLEAN_STAGED_COMMITS:
            return _deleted(clean_staged_commits(table), "staged commits")


def _deleted(result: Any, what: str) -> TaskReport:
    size = f" ({size_text(result.num_bytes)})" if result.num_bytes else ""
    text = f"Deleted {result.num_files} {what}{size}."
    return _done(result.num_files, text, num_files=result.num_files, num_bytes=result.num_bytes)


def _retention_note(vacuum: VacuumPlan | VacuumResult) -> str:
    """Why a vacuum deletes nothing, e.g. directly after a compaction; empty if it deletes files."""
    if vacuum.num_files:
        return ""
    kept = span_text(milliseconds_of(vacuum.retention))
    return f" Files written or removed within the last {kept} are kept for time travel and running queries."


def _done(amount: int, text: str, **entries: int) -> TaskReport:
    return TaskReport(
        outcome="done" if amount else "nothing_to_do",
        text=text,
        metadata={f"cm_delta/{name}": value for name, value in entries.items()},
    )
