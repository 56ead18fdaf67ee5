"""Maintenance as jobs: publish, checkpoint, compaction, vacuum, log clean-up.

One job for each table, one op for each task. Every op asks the catalog first; a denied task does nothing, succeeds, and
shows who decided and why. ``action: plan`` shows what would be done. The ops of one table share the pool
``cm_delta/<table>``, and the catalog's claim keeps runs of other deployments off. Nothing here triggers downstream
assets: results are observations.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import dagster as dg
from pydantic import Field

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import CommitContext
from cm_delta_dagster.client.snapshots.log_reader import hinted_version
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CmDeltaError,
    InvalidArgumentError,
    MaintenanceInProgressError,
    MaintenanceNotPermittedError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log, plan_clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits, plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.optimize import optimize, plan_optimize
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.sizes import size_text, span_text
from cm_delta_dagster.operations.maintenance.vacuum import VacuumPlan, VacuumResult, plan_vacuum, vacuum
from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.runs import RUN_ID_TAG, STEP_KEY_TAG
from cm_delta_dagster.protocol.log import log_files

POOL_PREFIX = "cm_delta/"
STATE_TAG_PREFIX = "cm_delta_maintenance/"
_MOST_ROWS_SHOWN = 100


class MaintenanceTask(StrEnum):
    """What a maintenance job can do, in the order in which it does it."""

    PUBLISH = "publish"
    CHECKPOINT = "checkpoint"
    COMPACT = "compact"
    VACUUM = "vacuum"
    CLEAN_LOG = "clean_log"
    CLEAN_STAGED_COMMITS = "clean_staged_commits"

    @property
    def permission(self) -> MaintenanceKind | None:
        """What the catalog must allow; None for publishing, which belongs to committing."""
        return _PERMISSIONS.get(self)


_PERMISSIONS = {
    MaintenanceTask.CHECKPOINT: MaintenanceKind.CHECKPOINT,
    MaintenanceTask.COMPACT: MaintenanceKind.DATA_REORGANIZATION,
    MaintenanceTask.VACUUM: MaintenanceKind.DATA_CLEANUP,
    MaintenanceTask.CLEAN_LOG: MaintenanceKind.METADATA_CLEANUP,
    MaintenanceTask.CLEAN_STAGED_COMMITS: MaintenanceKind.METADATA_CLEANUP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """When which table needs what.

    Attributes:
        tables: full table names; ``asset_keys`` names the asset on which results of a table are shown.
        tasks: the tasks that schedules may start.
        commits_since_checkpoint: a checkpoint is due after so many commits.
        unpublished_commits: publishing is due for so many ratified commits that are not in ``_delta_log``.
        small_file_bytes: what counts as small; compaction is due for ``min_small_files`` of them that can be joined, if
            they are ``min_small_file_ratio`` of all files.
        target_file_bytes: size that compaction aims for; None: the table's own.
        tombstone_bytes: vacuum is due when files that it may delete hold so many bytes.
        retention_ms: of vacuum; None: the table's own. Less than that is refused.
        commits_between_log_cleanups: both log clean-ups are due after so many commits.
        cron: when schedules look, in ``timezone``.
    """

    tables: tuple[str, ...]
    asset_keys: Mapping[str, dg.AssetKey] = field(default_factory=dict)
    tasks: tuple[MaintenanceTask, ...] = tuple(MaintenanceTask)
    commits_since_checkpoint: int = 100
    unpublished_commits: int = 10
    small_file_bytes: int = 32 * 1024 * 1024
    min_small_files: int = 16
    min_small_file_ratio: float = 0.3
    target_file_bytes: int | None = None
    tombstone_bytes: int = 1024 * 1024 * 1024
    retention_ms: int | None = None
    commits_between_log_cleanups: int = 500
    cron: str = "0 * * * *"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        names = [job_name(table) for table in self.tables]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"Two tables of the policy give one job name: {', '.join(sorted(names))}.")
        unknown = sorted(set(self.asset_keys) - set(self.tables))
        if unknown:
            raise InvalidArgumentError(f"asset_keys names tables that the policy does not have: {', '.join(unknown)}.")


class TaskConfig(dg.Config):
    """Configuration of one maintenance op."""

    action: str = Field(
        default="run",
        pattern="^(run|plan|skip)$",
        description="run: do it; plan: show what would be done; skip: do nothing.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What an op did, or why it did nothing. ``outcome``: done, planned, nothing_to_do, denied, busy or skipped."""

    outcome: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTask:
    """A task that a threshold asks for. ``state`` is the same as long as nothing has changed since."""

    task: MaintenanceTask
    reason: str
    state: str


def job_name(table: str) -> str:
    """``maintain_main_sales_orders`` for ``main.sales.orders``. Raises InvalidArgumentError for no table name."""
    return f"maintain_{re.sub(r'[^A-Za-z0-9_]', '_', str(TableIdentifier.parse(table)))}"


def build_maintenance_jobs(
    policy: MaintenancePolicy, *, catalog: str = "catalog", spark: str = "spark"
) -> list[dg.JobDefinition]:
    """One job for each table of the policy. ``catalog`` and ``spark`` are resource keys; only compaction uses Spark."""
    return [_table_job(policy, table, catalog=catalog, spark=spark) for table in policy.tables]


def build_maintenance_schedules(
    policy: MaintenancePolicy,
    *,
    catalog: str = "catalog",
    spark: str = "spark",
    jobs: Sequence[dg.JobDefinition] | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> list[dg.ScheduleDefinition]:
    """One schedule for each table. It looks at catalog and log, starts no Spark, and skips when nothing is due or
    permitted.

    Args:
        jobs: those of :func:`build_maintenance_jobs` for the same policy, where a code location lists them as well;
            without it the schedules bring their own.
    """
    started = jobs if jobs is not None else build_maintenance_jobs(policy, catalog=catalog, spark=spark)
    return [
        _table_schedule(policy, table, job, catalog=catalog, default_status=default_status)
        for table, job in zip(policy.tables, started, strict=True)
    ]


def due_tasks(table: Table, policy: MaintenancePolicy) -> tuple[DueTask, ...]:
    """Tasks whose threshold is reached. Reads the log, not the data; whether they are permitted is another question."""
    snapshot = table.snapshot()
    found: dict[MaintenanceTask, DueTask] = {}

    def due(task: MaintenanceTask, reason: str, state: object) -> None:
        found[task] = DueTask(task=task, reason=reason, state=f"{table.table_id}:{state}")

    unpublished = snapshot.version - snapshot.published_version
    if unpublished >= policy.unpublished_commits:
        due(MaintenanceTask.PUBLISH, f"{unpublished} commits are not published", snapshot.published_version)
    checkpointed = hinted_version(table.store, table.location)
    behind = snapshot.version - checkpointed
    if behind >= policy.commits_since_checkpoint:
        due(MaintenanceTask.CHECKPOINT, f"{behind} commits since the last checkpoint", checkpointed)
    if MaintenanceTask.COMPACT in policy.tasks and snapshot.num_files >= policy.min_small_files:
        small = plan_optimize(table, target_size=policy.target_file_bytes, min_size=policy.small_file_bytes).num_files
        if small >= max(policy.min_small_files, policy.min_small_file_ratio * snapshot.num_files):
            due(MaintenanceTask.COMPACT, f"{small} of {snapshot.num_files} files are small", snapshot.version)
    if MaintenanceTask.VACUUM in policy.tasks and table.maintenance_decision(MaintenanceKind.DATA_CLEANUP).allowed:
        # The listing is what counts: checkpoints forget tombstones, and vacuumed files still have theirs.
        removal = plan_vacuum(table, retention_ms=policy.retention_ms)
        if removal.num_files and removal.num_bytes >= policy.tombstone_bytes:
            reason = f"{removal.num_files} files ({size_text(removal.num_bytes)}) are past their retention"
            due(MaintenanceTask.VACUUM, reason, f"{removal.num_files}:{removal.num_bytes}")
    rounds = snapshot.version // policy.commits_between_log_cleanups
    if rounds:
        for task in (MaintenanceTask.CLEAN_LOG, MaintenanceTask.CLEAN_STAGED_COMMITS):
            due(task, f"another {policy.commits_between_log_cleanups} commits were made", rounds)
    return tuple(found[task] for task in MaintenanceTask if task in found and task in policy.tasks)


def perform(
    table: Table, task: MaintenanceTask, *, action: str, policy: MaintenancePolicy, context: CommitContext, spark: Any
) -> TaskReport:
    """Do or plan one task, if the catalog permits it.

    Args:
        action: ``run``, ``plan`` or ``skip``.
        spark: called without arguments for a session, by compaction only.
    """
    if action == "skip":
        return TaskReport(outcome="skipped", text="Switched off by the configuration of the run.")
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
        verdict = (
            "permitted" if decision is None or decision.allowed else f"not permitted (decided by {decision.decided_by})"
        )
        report = _plan(table, task, policy)
        return TaskReport(
            outcome="planned",
            text=f"{report.text} It is {verdict}.",
            metadata={**report.metadata, "cm_delta/verdict": verdict},
        )
    try:
        report = _run(table, task, policy, context, spark)
    except MaintenanceInProgressError as error:
        return TaskReport(outcome="busy", text=str(error))
    except MaintenanceNotPermittedError as error:  # The policy changed since it was asked.
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
            removal = plan_vacuum(table, retention_ms=policy.retention_ms)
            report = _planned("would be deleted", removal.paths, num_bytes=removal.num_bytes)
            return replace(report, text=report.text + _why_none_goes(removal))
        case MaintenanceTask.CLEAN_LOG:
            log = plan_clean_log(table)
            names = [*log.log_names, *log.staged_names, *log.sidecar_names]
            return _planned("would be deleted", names, num_bytes=log.num_bytes)
        case MaintenanceTask.CLEAN_STAGED_COMMITS:
            staged = plan_clean_staged_commits(table)
            return _planned("would be deleted", staged.names, num_bytes=staged.num_bytes)


def _planned(verb: str, names: Sequence[str], *, num_bytes: int | None = None) -> TaskReport:
    size = f" ({size_text(num_bytes)})" if num_bytes else ""
    metadata: dict[str, Any] = {"cm_delta/num_files": len(names)}
    if num_bytes is not None:
        metadata["cm_delta/num_bytes"] = num_bytes
    if names:
        records = [dg.TableRecord({"file": name}) for name in names[:_MOST_ROWS_SHOWN]]
        schema = dg.TableSchema(columns=[dg.TableColumn("file", "string")])
        metadata["cm_delta/plan"] = dg.MetadataValue.table(records=records, schema=schema)
    return TaskReport(outcome="planned", text=f"{len(names)} files{size} {verb}.", metadata=metadata)


def _run(
    table: Table, task: MaintenanceTask, policy: MaintenancePolicy, context: CommitContext, spark: Any
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
                spark=spark(),
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
            vacuumed = vacuum(table, retention_ms=policy.retention_ms)
            report = _deleted(vacuumed, "data files")
            return replace(report, text=report.text + _why_none_goes(vacuumed))
        case MaintenanceTask.CLEAN_LOG:
            return _deleted(clean_log(table), "files of the log")
        case MaintenanceTask.CLEAN_STAGED_COMMITS:
            return _deleted(clean_staged_commits(table), "staged commits")


def _deleted(result: Any, what: str) -> TaskReport:
    size = f" ({size_text(result.num_bytes)})" if result.num_bytes else ""
    text = f"Deleted {result.num_files} {what}{size}."
    return _done(result.num_files, text, num_files=result.num_files, num_bytes=result.num_bytes)


def _why_none_goes(found: VacuumPlan | VacuumResult) -> str:
    """What explains a vacuum that deletes nothing, e.g. right after a compaction; empty if it deletes something."""
    if found.num_files:
        return ""
    kept = span_text(found.retention_ms)
    return f" Files written or removed within the last {kept} are kept, for time travel and for queries that run."


def _done(amount: int, text: str, **entries: int) -> TaskReport:
    return TaskReport(
        outcome="done" if amount else "nothing_to_do",
        text=text,
        metadata={f"cm_delta/{name}": value for name, value in entries.items()},
    )


def _table_job(policy: MaintenancePolicy, table: str, *, catalog: str, spark: str) -> dg.JobDefinition:
    ops = [_task_op(policy, table, task, catalog=catalog, spark=spark) for task in MaintenanceTask]

    @dg.job(
        name=job_name(table),
        description=f"Maintenance of {table}; every task asks the catalog first.",
        executor_def=dg.in_process_executor,
        tags={"cm_delta_maintenance/table": table},
    )
    def maintain() -> None:
        # Definitions of ops are unique in a code location; within the job each has the plain name of its task.
        previous = ops[0].alias(MaintenanceTask.PUBLISH.value)()
        for task, op in zip(list(MaintenanceTask)[1:], ops[1:], strict=True):
            previous = op.alias(task.value)(previous)

    return maintain


def _task_op(
    policy: MaintenancePolicy, table_name: str, task: MaintenanceTask, *, catalog: str, spark: str
) -> dg.OpDefinition:
    needs = {catalog, spark} if task is MaintenanceTask.COMPACT else {catalog}

    @dg.op(
        name=f"{task.value}_{job_name(table_name)}",
        description=f"{task.value} of {table_name}",
        ins={} if task is MaintenanceTask.PUBLISH else {"after": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        pool=f"{POOL_PREFIX}{table_name}",
        required_resource_keys=needs,
        tags={"cm_delta_maintenance/task": task.value},
    )
    def run_task(context: dg.OpExecutionContext, config: TaskConfig) -> None:
        table = getattr(context.resources, catalog).client.table(table_name)
        report = perform(
            table,
            task,
            action=config.action,
            policy=policy,
            context=CommitContext(tags={RUN_ID_TAG: context.run_id, STEP_KEY_TAG: str(context.op_handle)}),
            spark=lambda: getattr(context.resources, spark).spark_session,
        )
        _show(context, table, task, report, policy.asset_keys.get(table_name))
        if report.outcome in ("busy", "denied"):
            _forget_state(context, task)

    return run_task


def _forget_state(context: dg.OpExecutionContext, task: MaintenanceTask) -> None:
    """Let the schedule start this task again for the same state: nothing was done."""
    tag = f"{STATE_TAG_PREFIX}{task.value}"
    if context.run.tags.get(tag):
        context.instance.add_run_tags(context.run_id, {tag: ""})


def _show(
    context: dg.OpExecutionContext,
    table: Table,
    task: MaintenanceTask,
    report: TaskReport,
    asset_key: dg.AssetKey | None,
) -> None:
    context.log.info("%s of %s: %s. %s", task.value, table.identifier, report.outcome, report.text)
    metadata = {
        "dagster/table_name": str(table.identifier),
        facts.TABLE_ID: table.table_id,
        facts.OPERATION: task.value,
        "cm_delta/outcome": report.outcome,
        "cm_delta/result": dg.MetadataValue.md(report.text),
        **report.metadata,
    }
    context.add_output_metadata(metadata)
    if asset_key is not None and report.outcome != "skipped":
        context.log_event(dg.AssetObservation(asset_key=asset_key, description=report.text, metadata=metadata))


def _table_schedule(
    policy: MaintenancePolicy,
    table_name: str,
    job: dg.JobDefinition,
    *,
    catalog: str,
    default_status: dg.DefaultScheduleStatus,
) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=policy.cron,
        execution_timezone=policy.timezone,
        default_status=default_status,
        required_resource_keys={catalog},
        description=f"Starts the maintenance that {table_name} needs.",
    )
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            table = getattr(context.resources, catalog).client.table(table_name)
            wanted, reasons = _startable(context.instance, table, due_tasks(table, policy))
        except CmDeltaError as error:
            return dg.SkipReason(f"{table_name} could not be looked at: {error}")
        if not wanted:
            return dg.SkipReason(f"Nothing to do for {table_name}. {' '.join(reasons)}".strip())
        chosen = {item.task for item in wanted}
        return dg.RunRequest(
            run_key=";".join(f"{item.task.value}={item.state}" for item in wanted),
            run_config={
                "ops": {
                    task.value: {"config": {"action": "run" if task in chosen else "skip"}} for task in MaintenanceTask
                }
            },
            tags={f"{STATE_TAG_PREFIX}{item.task.value}": item.state for item in wanted},
        )

    return evaluate


def _startable(
    instance: dg.DagsterInstance, table: Table, due: Sequence[DueTask]
) -> tuple[tuple[DueTask, ...], tuple[str, ...]]:
    """The due tasks that are permitted and were not started for this state already; for the others, why not."""
    wanted, reasons = [], []
    for item in due:
        kind = item.task.permission
        decision = None if kind is None else table.maintenance_decision(kind)
        if decision is not None and not decision.allowed:
            reasons.append(
                f"{item.task.value} is due ({item.reason}) but not permitted: {decision.reason or 'no reason given'} "
                f"(decided by {decision.decided_by})."
            )
        elif _was_started(instance, item):
            reasons.append(f"{item.task.value} was already started for this state ({item.reason}).")
        else:
            wanted.append(item)
    return tuple(wanted), tuple(reasons)


def _was_started(instance: dg.DagsterInstance, item: DueTask) -> bool:
    # Dagster drops a repeated run key of a schedule only within one tick.
    runs = instance.get_runs(dg.RunsFilter(tags={f"{STATE_TAG_PREFIX}{item.task.value}": item.state}))
    return any(not run.is_finished or run.is_success for run in runs)
