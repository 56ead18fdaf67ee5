"""Automation: the sensor on ratified commits, the join that its events trigger, and the maintenance schedules."""

import dagster as dg

from cm_delta_dagster.orchestration import (
    FirstTick,
    MaintenancePolicy,
    build_maintenance_schedules,
    ratified_commit_sensor,
)
from definitions.defs.flights import flights, flights_enriched, weather
from definitions.defs.reference import airlines, airports, planes
from definitions.defs.report import carrier_months

report_job = dg.define_asset_job("report_job", selection=[carrier_months], executor_def=dg.in_process_executor)

commit_sensor = ratified_commit_sensor(
    name="ratified_commits",
    assets=[flights, weather, flights_enriched, airlines, airports, planes],
    job=report_job,
    launch_on=[flights.key],
    minimum_interval_seconds=15,
    first_tick=FirstTick.FROM_BEGINNING,
    default_status=dg.DefaultSensorStatus.RUNNING,
)

follow_sensor = dg.AutomationConditionSensorDefinition(
    name="follow_changes",
    target=dg.AssetSelection.assets(flights_enriched.key),
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
)

MAINTAINED = {
    "main.nyc.flights": flights.key,
    "main.nyc.weather": weather.key,
    "main.nyc.flights_enriched": flights_enriched.key,
}

policy = MaintenancePolicy(
    tables=tuple(MAINTAINED), asset_keys=MAINTAINED, min_small_files=400, min_small_file_ratio=0.5, cron="*/15 * * * *"
)

schedules = build_maintenance_schedules(policy, default_status=dg.DefaultScheduleStatus.RUNNING)
