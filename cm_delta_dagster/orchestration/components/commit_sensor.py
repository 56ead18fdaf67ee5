"""The component ``CommitSensor``: reports ratified commits as events of assets."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.components.connection import DescribedModel, duration_field
from cm_delta_dagster.orchestration.components.scaffolding import ExampleScaffolder
from cm_delta_dagster.orchestration.sensor.sensor_tick import LaunchFor
from cm_delta_dagster.orchestration.sensor.sensors import FirstTick, ratified_commit_sensor


class _CommitSensorScaffolder(ExampleScaffolder):
    attributes: ClassVar[Mapping[str, Any]] = {
        "name": "ratified_commits",
        "tables": {"sales/orders": "main.sales.orders"},
        "minimum_interval": "30 seconds",
    }


@dg.scaffold_with(_CommitSensorScaffolder)
class CommitSensor(dg.Component, DescribedModel):
    """A sensor that reports ratified commits, also those from outside Dagster, and launches runs for new data.

    ``watch`` lists folders and files below ``defs`` whose assets are watched, with their partitions. ``tables`` lists single assets
    with the names of their tables; their commits are reported without partitions.
    """

    name: str = Field(default="ratified_commits", description="Name of the sensor.")
    watch: list[str] = Field(
        default_factory=list, description="Paths below defs whose assets are watched, e.g. orders.py"
    )
    tables: dict[str, str] = Field(default_factory=dict, description="Asset key to full name of its table.")
    target: str | None = Field(default=None, description="Selection of the assets to materialize for new data.")
    launch_on: list[str] | None = Field(
        default=None, description="Watched assets whose commits launch runs; all if empty."
    )
    launch_for: LaunchFor = Field(default=LaunchFor.EVERY_COMMIT, description="Which commits launch runs.")
    launch_checks: bool = Field(
        default=False, description="Whether the checks of an asset are launched when new data of it is reported."
    )
    first_tick: FirstTick = Field(default=FirstTick.FROM_NOW, description="Where a sensor without a cursor starts.")
    minimum_interval: Annotated[timedelta, duration_field("minimum_interval")] = Field(
        default=timedelta(seconds=30), description="Minimum time between two ticks, e.g. '30 seconds'."
    )
    batch_size: int = Field(default=1000, description="Maximum number of commits of one tick.")
    catalog_key: str = Field(default="catalog", description="Resource key of the catalog.")
    running: bool = Field(default=True, description="Whether the sensor runs when it is deployed first.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        if bool(self.watch) == bool(self.tables):
            raise InvalidArgumentError(
                f"CommitSensor {self.name} needs either 'watch', paths of assets below defs, or 'tables', asset keys with the "
                "names of their tables."
            )
        if self.launch_on and self.target is None:
            raise InvalidArgumentError(
                f"CommitSensor {self.name} has 'launch_on' and has no 'target', so it launches nothing. Set the selection of the "
                "assets to materialize, or remove 'launch_on'."
            )
        sensor = ratified_commit_sensor(
            name=self.name,
            assets=self.tables or self._watched(context),
            catalog=self.catalog_key,
            target=None if self.target is None else dg.AssetSelection.from_string(self.target),
            launch_on=None if not self.launch_on else [dg.AssetKey.from_user_string(key) for key in self.launch_on],
            launch_for=self.launch_for,
            launch_checks=self.launch_checks,
            first_tick=self.first_tick,
            minimum_interval=self.minimum_interval,
            batch_size=self.batch_size,
            default_status=dg.DefaultSensorStatus.RUNNING if self.running else dg.DefaultSensorStatus.STOPPED,
        )
        return dg.Definitions(sensors=[sensor])

    def _watched(self, context: dg.ComponentLoadContext) -> list[dg.AssetSpec | dg.AssetsDefinition]:
        watched: list[dg.AssetSpec | dg.AssetsDefinition] = []
        for path in self.watch:
            if not (context.defs_module_path / path).exists():
                raise InvalidArgumentError(
                    f"CommitSensor {self.name} watches {path}, which does not exist in {context.defs_module_path}."
                )
            assets = context.build_defs(path).assets or ()
            own = [asset for asset in assets if isinstance(asset, dg.AssetSpec | dg.AssetsDefinition)]
            if not own:
                raise InvalidArgumentError(f"CommitSensor {self.name} watches {path}, which has no assets.")
            watched += own
        return watched
