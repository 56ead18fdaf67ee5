"""When maintenance of a table is due: tasks, thresholds, and the comparison of both with the log."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

import dagster as dg

from cm_delta_dagster.catalog.durations import milliseconds_of
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.snapshots.log_reader import hinted_version
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms, listed
from cm_delta_dagster.operations.maintenance.optimize import plan_optimize
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum
from cm_delta_dagster.orchestration.metadata.setting_names import SettingName


class MaintenanceTask(SettingName):
    """The tasks of a maintenance job, in the order of execution."""

    PUBLISH = "publish"
    CHECKPOINT = "checkpoint"
    COMPACT = "compact"
    VACUUM = "vacuum"
    CLEAN_LOG = "clean_log"
    CLEAN_STAGED_COMMITS = "clean_staged_commits"

    @property
    def permission(self) -> MaintenanceKind | None:
        """The kind of maintenance that the catalog must permit; None for publication, which needs no permission."""
        return _PERMISSIONS.get(self)


_PERMISSIONS = {
    MaintenanceTask.CHECKPOINT: MaintenanceKind.CHECKPOINT,
    MaintenanceTask.COMPACT: MaintenanceKind.DATA_REORGANIZATION,
    MaintenanceTask.VACUUM: MaintenanceKind.DATA_CLEANUP,
    MaintenanceTask.CLEAN_LOG: MaintenanceKind.METADATA_CLEANUP,
    MaintenanceTask.CLEAN_STAGED_COMMITS: MaintenanceKind.METADATA_CLEANUP,
}


class OnDenied(StrEnum):
    """What a maintenance job does if the catalog does not permit a task."""

    WARN = "warn"
    """It logs a warning; the run succeeds."""

    FAIL = "fail"
    """The run fails; the tasks after it are not executed."""

    SKIP = "skip"
    """It logs an info message; the run succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """The thresholds at which maintenance of the tables is due. It permits nothing: the catalog does.

    Attributes:
        tables: full table names.
        asset_keys: the asset that gets the observations of a table, by table name.
        tasks: the tasks that schedules may start.
        commits_since_checkpoint: number of commits after which a checkpoint is due.
        unpublished_commits: number of ratified commits missing in ``_delta_log`` at which publication is due.
        small_file_bytes: files below this size are small. Compaction is due if at least ``min_small_files`` small files
            can be joined and they are at least ``min_small_file_ratio`` of all files.
        target_file_bytes: size of the files that compaction writes; None for the table's own setting.
        tombstone_bytes: vacuum is due if the files that it may delete have this size in total.
        retention: retention of vacuum; None for the table's own, which is also the minimum.
        commits_between_log_cleanups: number of commits after which both log cleanups are due.
        on_denied: what a job does if the catalog does not permit a task.
        cron: when schedules are evaluated, in ``timezone``.

    Raises:
        InvalidArgumentError: ``tables`` is a text, two tables have one job name, ``asset_keys`` names another table, or ``cron`` or
            ``timezone`` is not valid.
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
    retention: timedelta | None = None
    commits_between_log_cleanups: int = 500
    on_denied: OnDenied = OnDenied.WARN
    cron: str = "0 * * * *"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        listed(self.tables, name="tables")
        names = [job_name(table) for table in self.tables]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"Two tables of the policy have the same job name: {', '.join(sorted(names))}.")
        unknown = sorted(set(self.asset_keys) - set(self.tables))
        if unknown:
            raise InvalidArgumentError(f"asset_keys names tables that the policy does not have: {', '.join(unknown)}.")
        if self.retention is not None:
            duration_ms(self.retention, name="retention")
        _check_schedule(self.cron, self.timezone)

    def vacuum_ms(self) -> int | None:
        """``retention`` as the operations take it."""
        return None if self.retention is None else milliseconds_of(self.retention)


def _check_schedule(cron: str, timezone: str) -> None:
    what = (
        f"cron {cron!r} and timezone {timezone!r} of a MaintenancePolicy make no schedule: give five fields such as '0 * * * *', "
        "and a name such as 'Europe/Berlin'."
    )
    if not isinstance(cron, str) or not isinstance(timezone, str):
        raise InvalidArgumentError(what)
    try:
        dg.ScheduleDefinition(
            name="maintenance", job_name="maintenance", cron_schedule=cron, execution_timezone=timezone
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise InvalidArgumentError(f"{what} Dagster reports: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTask:
    """A task whose threshold is reached. ``state`` identifies the state of the table for which it is due."""

    task: MaintenanceTask
    reason: str
    state: str


def job_name(table: str) -> str:
    """``maintain_main_sales_orders`` for ``main.sales.orders``. Raises InvalidArgumentError for an invalid table name."""
    return f"maintain_{re.sub(r'[^A-Za-z0-9_]', '_', str(TableIdentifier.parse(table)))}"


def due_tasks(table: Table, policy: MaintenancePolicy) -> tuple[DueTask, ...]:
    """Tasks whose threshold is reached, in the order of execution. Reads the log, not the data.

    Except for vacuum, whose check lists the files of the table, permission is not checked.
    """
    snapshot = table.snapshot()
    tasks: dict[MaintenanceTask, DueTask] = {}

    def due(task: MaintenanceTask, reason: str, state: object) -> None:
        tasks[task] = DueTask(task=task, reason=reason, state=f"{table.table_id}:{state}")

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
        # Tombstones in the log do not show this: checkpoints drop them, and files that vacuum deleted still have them.
        removal = plan_vacuum(table, retention_ms=policy.vacuum_ms())
        if removal.num_files and removal.num_bytes >= policy.tombstone_bytes:
            reason = f"{removal.num_files} files ({size_text(removal.num_bytes)}) are past their retention"
            due(MaintenanceTask.VACUUM, reason, f"{removal.num_files}:{removal.num_bytes}")
    rounds = snapshot.version // policy.commits_between_log_cleanups
    if rounds:
        for task in (MaintenanceTask.CLEAN_LOG, MaintenanceTask.CLEAN_STAGED_COMMITS):
            due(task, f"another {policy.commits_between_log_cleanups} commits were made", rounds)
    return tuple(tasks[task] for task in MaintenanceTask if task in tasks and task in policy.tasks)
