"""Maintenance as Dagster jobs and schedules: publish, checkpoint, compaction, vacuum, log cleanup.

Each table has one job with one op for each task. Every op asks the catalog for permission; a denied op does nothing, and its
metadata shows which rule denied it. By the policy it logs a warning, or fails. ``action: plan`` is a dry run. The ops of one
table share the pool ``cm_delta/<table>``, and a lease in the catalog excludes runs of other deployments. Results are asset
observations, which do not trigger downstream assets.
"""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import (
    DueTask,
    MaintenancePolicy,
    MaintenanceTask,
    OnDenied,
    due_tasks,
    job_name,
)
from cm_delta_dagster.orchestration.maintenance.maintenance_tasks import TaskReport, perform
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.metadata_keys import PREFIX
from cm_delta_dagster.orchestration.runs.runs import RUN_ID_TAG, STEP_KEY_TAG

STATE_TAG_PREFIX = "cm_delta_maintenance/"


class TaskConfig(dg.Config):
    """Configuration of one maintenance op."""

    action: str = Field(
        default="run",
        pattern="^(run|plan|skip)$",
        description="run: execute the task; plan: show what it would do; skip: do nothing.",
    )


def build_maintenance_jobs(
    policy: MaintenancePolicy, *, catalog: str = "catalog", spark: str = "spark"
) -> list[dg.JobDefinition]:
    """One job for each table of the policy; only compaction uses Spark.

    Args:
        policy: the tables, and the tasks of each.
        catalog: key of the catalog resource.
        spark: key of the Spark resource.
    """
    return [_table_job(policy, table, catalog=catalog, spark=spark) for table in policy.tables]


def build_maintenance_schedules(
    policy: MaintenancePolicy,
    *,
    catalog: str = "catalog",
    spark: str = "spark",
    jobs: Sequence[dg.JobDefinition] | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> list[dg.ScheduleDefinition]:
    """One schedule for each table. A tick reads catalog and log, needs no Spark, and is skipped if no task is due and
    permitted.

    Args:
        catalog: resource key of the CatalogResource; ``spark``: of the SparkResource.
        jobs: the jobs of :func:`build_maintenance_jobs` for the same policy, if the code location also lists them;
            None: the schedules build their own.

    Raises:
        InvalidArgumentError: ``jobs`` are not those of the tables of the policy.
    """
    started = jobs if jobs is not None else build_maintenance_jobs(policy, catalog=catalog, spark=spark)
    started_names, needed = [job.name for job in started], [job_name(table) for table in policy.tables]
    if started_names != needed:
        raise InvalidArgumentError(
            f"jobs has {', '.join(started_names) or 'no job'}, and the tables of the policy need {', '.join(needed) or 'none'}, in "
            "this order. Give the result of build_maintenance_jobs for the same policy, or None."
        )
    return [
        _table_schedule(policy, table, job, catalog=catalog, default_status=default_status)
        for table, job in zip(policy.tables, started, strict=True)
    ]


def _table_job(policy: MaintenancePolicy, table: str, *, catalog: str, spark: str) -> dg.JobDefinition:
    ops = [_task_op(policy, table, task, catalog=catalog, spark=spark) for task in MaintenanceTask]

    @dg.job(
        name=job_name(table),
        description=f"Maintenance of {table}; every task needs the permission of the catalog.",
        executor_def=dg.in_process_executor,
        tags={"cm_delta_maintenance/table": table},
    )
    def maintain() -> None:
        # Op definitions must have unique names in a code location; the alias is the name within the job.
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
        pool=f"{PREFIX}{table_name}",
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
            context=CommitProperties(tags={RUN_ID_TAG: context.run_id, STEP_KEY_TAG: str(context.op_handle)}),
            spark=lambda: getattr(context.resources, spark).spark_session,
        )
        _report(context, table, task, report, policy.asset_keys.get(table_name))
        if report.outcome in ("busy", "denied"):
            _clear_state_tag(context, task)
        if report.outcome == "denied":
            _denied(context, report, policy.on_denied)

    return run_task


def _denied(context: dg.OpExecutionContext, report: TaskReport, on_denied: OnDenied) -> None:
    """Make a denial stand out. Raises dagster.Failure if the policy asks for a failed run."""
    if on_denied is OnDenied.WARN:
        context.log.warning(report.text)
    if on_denied is OnDenied.FAIL:
        raise dg.Failure(description=report.text, allow_retries=False)


def _clear_state_tag(context: dg.OpExecutionContext, task: MaintenanceTask) -> None:
    """Allow the schedule to start this task again for the same state, because nothing was done."""
    tag = f"{STATE_TAG_PREFIX}{task.value}"
    if context.run.tags.get(tag):
        context.instance.add_run_tags(context.run_id, {tag: ""})


def _report(
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
        observation = dg.AssetObservation(asset_key=asset_key, description=report.text, metadata=metadata)
        # Dagster drops what an op that fails has given to context.log_event, and a denial may fail the op.
        dg.DagsterEvent.asset_observation(context.get_step_execution_context(), observation)


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
        description=f"Starts due maintenance of {table_name}.",
    )
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            table = getattr(context.resources, catalog).client.table(table_name)
            startable, reasons = _startable(context.instance, table, due_tasks(table, policy))
        except CmDeltaError as error:
            return dg.SkipReason(f"The maintenance of {table_name} could not be evaluated: {error}")
        if not startable:
            return dg.SkipReason(f"Nothing to do for {table_name}. {' '.join(reasons)}".strip())
        chosen = {item.task for item in startable}
        return dg.RunRequest(
            run_key=";".join(f"{item.task.value}={item.state}" for item in startable),
            run_config={
                "ops": {
                    task.value: {"config": {"action": "run" if task in chosen else "skip"}} for task in MaintenanceTask
                }
            },
            tags={f"{STATE_TAG_PREFIX}{item.task.value}": item.state for item in startable},
        )

    return evaluate


def _startable(
    instance: dg.DagsterInstance, table: Table, due: Sequence[DueTask]
) -> tuple[tuple[DueTask, ...], tuple[str, ...]]:
    """The due tasks that are permitted and were not started for this state; for all others, the reasons."""
    startable, reasons = [], []
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
            startable.append(item)
    return tuple(startable), tuple(reasons)


def _was_started(instance: dg.DagsterInstance, item: DueTask) -> bool:
    # Dagster deduplicates run keys of a schedule only within one tick.
    runs = instance.get_runs(dg.RunsFilter(tags={f"{STATE_TAG_PREFIX}{item.task.value}": item.state}))
    return any(not run.is_finished or run.is_success for run in runs)
