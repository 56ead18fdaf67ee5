"""Maintenance of many tables by one schedule: a run works through the tables that match, within a time budget.

A run begins after the table at which the last run stopped or died, so that no table is left out. The tick of the schedule reads
neither catalog nor storage; the run finds out what is due.
"""

import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg

from cm_delta_dagster.api.keyword_hints import checking_keywords
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms, listed
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import MaintenancePolicy, OnDenied, due_tasks
from cm_delta_dagster.orchestration.maintenance.maintenance_tasks import TaskReport, perform
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.runs.runs import RUN_ID_TAG, STEP_KEY_TAG

LAST_TABLE_TAG = "cm_delta_maintenance/last_table"
_MAX_LISTED = 500
_PARTS = 3
"""catalog.schema.table"""


@checking_keywords
def build_maintenance_sweep(
    selectors: Sequence[str],
    *,
    policy: MaintenancePolicy,
    name: str = "maintain_tables",
    budget: timedelta = timedelta(minutes=30),
    asset_keys: Mapping[str, dg.AssetKey] | None = None,
    catalog: str = "catalog",
    spark: str = "spark",
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """A schedule whose job does the due maintenance of all matching tables, also of tables that are created later.

    Args:
        selectors: table names in which ``*`` stands for any text within a part, e.g. ``main.sales.*``.
        policy: thresholds, tasks and cron; its own ``tables`` are not used.
        budget: time after which a run starts no other task. A run maintains at least one table.
        asset_keys: the asset that gets the observations of a table, by table name.
        catalog: resource key of the CatalogResource; ``spark``: of the SparkResource.

    Raises:
        InvalidArgumentError: ``selectors`` is a text, a selector does not have three parts, or there is none.
    """
    parsed = tuple(_selector(text) for text in listed(selectors, name="selectors"))
    duration_ms(budget, name="budget")
    if not parsed or not budget:
        raise InvalidArgumentError(
            "A maintenance sweep needs at least one selector and a budget of more than 0 seconds."
        )

    @dg.op(name=name, out=dg.Out(dg.Nothing), required_resource_keys={catalog, spark})
    def sweep(context: dg.OpExecutionContext) -> None:
        client = getattr(context.resources, catalog).client
        run = _Sweep(
            context=context,
            client=client,
            policy=policy,
            asset_keys=dict(asset_keys or {}),
            spark=lambda: getattr(context.resources, spark).spark_session,
            deadline=time.monotonic() + budget.total_seconds(),
        )
        names = sorted(table for table in map(str, client.registry.list_tables()) if _matches(table, parsed))
        run.run(_from_last(names, _last_table(context)))
        run.finish(num_tables=len(names))

    @dg.job(
        name=name,
        description=f"Due maintenance of {', '.join(selectors)}.",
        executor_def=dg.in_process_executor,
        tags={"cm_delta_maintenance/sweep": name},
    )
    def maintain() -> None:
        sweep()

    return dg.ScheduleDefinition(
        name=f"{name}_schedule",
        job=maintain,
        cron_schedule=policy.cron,
        execution_timezone=policy.timezone,
        default_status=default_status,
        description=f"Starts the due maintenance of {', '.join(selectors)}.",
    )


@dataclass(slots=True, kw_only=True)
class _Sweep:
    """One run: what it has done, and what failed."""

    context: dg.OpExecutionContext
    client: DeltaClient
    policy: MaintenancePolicy
    asset_keys: Mapping[str, dg.AssetKey]
    spark: Callable[[], Any]
    deadline: float
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    visited: int = 0

    def run(self, names: Sequence[str]) -> None:
        for name in names:
            # The first table is maintained whatever the time, so that each run makes progress.
            if self.visited and time.monotonic() >= self.deadline:
                self.context.log.info("The time is over; the next run continues with %s.", name)
                return
            # Before the maintenance: if it kills the process each time, later runs begin with the tables after this one.
            self.context.instance.add_run_tags(self.context.run_id, {LAST_TABLE_TAG: name})
            try:
                self._maintain(name)
            except Exception as error:
                self.context.log.error("The maintenance of %s failed: %s", name, error)
                self.faults.append(f"{name}: {error}")
            self.visited += 1

    def finish(self, *, num_tables: int) -> None:
        """Report the run. Raises dagster.Failure if the maintenance of a table failed."""
        columns = [dg.TableColumn(name) for name in ("table", "task", "outcome", "result")]
        records = [
            dg.TableRecord(dict(zip(("table", "task", "outcome", "result"), row, strict=True)))
            for row in self.rows[:_MAX_LISTED]
        ]
        metadata: dict[str, Any] = {
            "cm_delta/tables": num_tables,
            "cm_delta/tables_visited": self.visited,
            "cm_delta/tasks": len(self.rows),
        }
        if records:
            table = dg.MetadataValue.table(records=records, schema=dg.TableSchema(columns=columns))
            metadata["cm_delta/results"] = table
        if self.faults:
            raise dg.Failure(description="\n".join(self.faults), metadata=metadata, allow_retries=False)
        self.context.add_output_metadata(metadata)

    def _maintain(self, name: str) -> None:
        table = self.client.table(name)
        origin = CommitProperties(tags={RUN_ID_TAG: self.context.run_id, STEP_KEY_TAG: str(self.context.op_handle)})
        for number, due in enumerate(due_tasks(table, self.policy)):
            if number and time.monotonic() >= self.deadline:
                return
            report = perform(table, due.task, action="run", policy=self.policy, context=origin, spark=self.spark)
            self.rows.append((name, due.task.value, report.outcome, report.text))
            self.context.log.info("%s of %s: %s. %s", due.task.value, name, report.outcome, report.text)
            if report.outcome == "denied":
                self._denied(name, report)
            self._observe(name, table.table_id, due.task.value, report)

    def _denied(self, name: str, report: TaskReport) -> None:
        if self.policy.on_denied is OnDenied.WARN:
            self.context.log.warning(report.text)
        if self.policy.on_denied is OnDenied.FAIL:
            self.faults.append(f"{name}: {report.text}")

    def _observe(self, name: str, table_id: str, task: str, report: TaskReport) -> None:
        asset_key = self.asset_keys.get(name)
        if asset_key is None:
            return
        metadata = {
            facts.TABLE_NAME: name,
            facts.TABLE_ID: table_id,
            facts.OPERATION: task,
            facts.OUTCOME: report.outcome,
            **report.metadata,
        }
        observation = dg.AssetObservation(asset_key=asset_key, description=report.text, metadata=metadata)
        self.context.log_event(observation)


def _selector(text: str) -> tuple[str, ...]:
    parts = tuple(text.split("."))
    if len(parts) != _PARTS or not all(parts):
        raise InvalidArgumentError(f"The selector {text!r} is not catalog.schema.table, with * for any text of a part.")
    return parts


def _matches(name: str, selectors: Sequence[tuple[str, ...]]) -> bool:
    parts = name.split(".")
    return any(
        all(fnmatch.fnmatchcase(part, pattern) for part, pattern in zip(parts, selector, strict=True))
        for selector in selectors
    )


def _from_last(names: Sequence[str], last: str | None) -> Sequence[str]:
    """The tables after ``last`` and then the others."""
    later = [name for name in names if last is not None and name > last]
    return [*later, *(name for name in names if name not in set(later))]


def _last_table(context: dg.OpExecutionContext) -> str | None:
    """The table at which the last run of this job stopped."""
    for run in context.instance.get_runs(dg.RunsFilter(job_name=context.job_name), limit=10):
        if run.run_id != context.run_id and LAST_TABLE_TAG in run.tags:
            return run.tags[LAST_TABLE_TAG]
    return None
