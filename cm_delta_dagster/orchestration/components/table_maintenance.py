"""The component ``TableMaintenance``: maintenance jobs and schedules."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.orchestration.components.connection import DescribedModel, duration_field
from cm_delta_dagster.orchestration.components.scaffolding import ExampleScaffolder
from cm_delta_dagster.orchestration.maintenance.maintenance import build_maintenance_schedules
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import MaintenancePolicy, MaintenanceTask

_DEFAULTS = MaintenancePolicy(tables=())


class _TableMaintenanceScaffolder(ExampleScaffolder):
    attributes: ClassVar[Mapping[str, Any]] = {"tables": ["main.sales.orders"], "cron": _DEFAULTS.cron}


@dg.scaffold_with(_TableMaintenanceScaffolder)
class TableMaintenance(dg.Component, DescribedModel):
    """A maintenance job and a schedule for each table: publish, checkpoint, compaction, vacuum and cleanup of the log.

    The attributes set when a task is due. They permit nothing: the catalog does.
    """

    tables: list[str] = Field(description="Full names of the tables.", min_length=1)
    asset_keys: dict[str, str] | None = Field(
        default=None, description="Table to the asset that shows the results; if missing, schema/table."
    )
    tasks: list[MaintenanceTask] = Field(
        default_factory=lambda: list(MaintenanceTask), description="What schedules start."
    )
    commits_since_checkpoint: int = Field(
        default=_DEFAULTS.commits_since_checkpoint, description="Checkpoint: number of commits since the last one."
    )
    unpublished_commits: int = Field(
        default=_DEFAULTS.unpublished_commits, description="Publish: number of commits that are not in _delta_log."
    )
    small_file_bytes: int = Field(
        default=_DEFAULTS.small_file_bytes, description="Compaction: a smaller file is small."
    )
    min_small_files: int = Field(
        default=_DEFAULTS.min_small_files, description="Compaction: minimum number of small files."
    )
    min_small_file_ratio: float = Field(
        default=_DEFAULTS.min_small_file_ratio, description="Compaction: minimum share of small files."
    )
    target_file_bytes: int | None = Field(default=None, description="Compaction: size of the written files.")
    tombstone_bytes: int = Field(
        default=_DEFAULTS.tombstone_bytes, description="Vacuum: total size of the files that it may delete."
    )
    retention: Annotated[timedelta | None, duration_field("retention")] = Field(
        default=None, description="Vacuum: how long removed files are kept, e.g. '30 days'."
    )
    commits_between_log_cleanups: int = Field(
        default=_DEFAULTS.commits_between_log_cleanups, description="Cleanup of the log: number of commits between two."
    )
    cron: str = Field(default=_DEFAULTS.cron, description="When schedules are evaluated.")
    timezone: str = Field(default=_DEFAULTS.timezone, description="Time zone of cron.")
    catalog_key: str = Field(default="catalog", description="Resource key of the catalog.")
    spark_key: str = Field(default="spark", description="Resource key of Spark, which only compaction uses.")
    running: bool = Field(default=True, description="Whether the schedules run when they are deployed first.")

    def policy(self) -> MaintenancePolicy:
        """The thresholds. Raises InvalidArgumentError for malformed or doubled names."""
        keys = self.asset_keys
        if keys is None:
            keys = {table: "/".join(str(TableIdentifier.parse(table)).split(".")[1:]) for table in self.tables}
        return MaintenancePolicy(
            tables=tuple(self.tables),
            asset_keys={table: dg.AssetKey.from_user_string(key) for table, key in keys.items()},
            tasks=tuple(self.tasks),
            commits_since_checkpoint=self.commits_since_checkpoint,
            unpublished_commits=self.unpublished_commits,
            small_file_bytes=self.small_file_bytes,
            min_small_files=self.min_small_files,
            min_small_file_ratio=self.min_small_file_ratio,
            target_file_bytes=self.target_file_bytes,
            tombstone_bytes=self.tombstone_bytes,
            retention=self.retention,
            commits_between_log_cleanups=self.commits_between_log_cleanups,
            cron=self.cron,
            timezone=self.timezone,
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        status = dg.DefaultScheduleStatus.RUNNING if self.running else dg.DefaultScheduleStatus.STOPPED
        schedules = build_maintenance_schedules(
            self.policy(), catalog=self.catalog_key, spark=self.spark_key, default_status=status
        )
        return dg.Definitions(schedules=schedules)
