"""A sensor on trial: what the daemon does with it, and events as runs leave them. No Spark."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster import AssetKey
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.events import AssetObservationData, StepMaterializationData

from cm_delta_dagster.client.table import Table
from cm_delta_dagster.orchestration import CatalogResource, FirstTick, ratified_commit_sensor
from tests.orchestration.log_tables import report

KEY = AssetKey(["s", "t"])
NAME = "main.s.t"


def sensor_of(**arguments: Any) -> dg.SensorDefinition:
    arguments = {"assets": {KEY: NAME}, "first_tick": FirstTick.FROM_BEGINNING, **arguments}
    return ratified_commit_sensor(name="commits", **arguments)


class Ticker:
    """The daemon: evaluates, reports the events, keeps the cursor."""

    def __init__(
        self,
        sensor: dg.SensorDefinition,
        catalog: CatalogResource,
        instance: dg.DagsterInstance,
        definitions: dg.Definitions | None = None,
    ) -> None:
        self.sensor, self.catalog, self.instance, self.definitions = sensor, catalog, instance, definitions
        self.cursor: str | None = None

    def evaluate(self) -> SensorExecutionData:
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            resources={"catalog": self.catalog},
            definitions=self.definitions,
        ) as context:
            return self.sensor.evaluate_tick(context)

    def tick(self) -> SensorExecutionData:
        result = self.evaluate()
        report(self.instance, result)
        self.cursor = result.cursor
        return result


def versions(instance: dg.DagsterInstance, kind: str = "materialization", key: AssetKey = KEY) -> list[Any]:
    fetch = instance.fetch_materializations if kind == "materialization" else instance.fetch_observations
    records = fetch(key, limit=1000, ascending=True).records
    events = [record.asset_materialization or record.asset_observation for record in records]
    return [event.metadata["cm_delta/commit_version"].value for event in events]


def record_by_run(
    instance: dg.DagsterInstance,
    run_id: str,
    table: Table,
    version: int,
    kind: str = "materialization",
    partition: str | None = None,
    outcome: str = "committed",
) -> None:
    """What the IO manager's output, or a maintenance job, leaves in the event log of a run."""
    metadata = {
        "cm_delta/table_id": table.table_id,
        "cm_delta/commit_version": version,
        "cm_delta/outcome": outcome,
    }
    if kind == "materialization":
        event_type = dg.DagsterEventType.ASSET_MATERIALIZATION
        data = StepMaterializationData(dg.AssetMaterialization(KEY, metadata=metadata, partition=partition))
    else:
        event_type = dg.DagsterEventType.ASSET_OBSERVATION
        data = AssetObservationData(dg.AssetObservation(KEY, metadata=metadata))
    event = dg.DagsterEvent(event_type_value=event_type.value, job_name="job", event_specific_data=data)
    instance.report_dagster_event(event, run_id=run_id)


def a_run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED,
    tags: Mapping[str, str] | None = None,
) -> dg.DagsterRun:
    @dg.job
    def job() -> None: ...

    return instance.create_run_for_job(job, status=status, tags=tags)


def finish(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    instance.report_run_failed(run)


def own(run: dg.DagsterRun) -> dict[str, str]:
    return {"dagster/run_id": run.run_id, "dagster/asset_key": "s/t"}
