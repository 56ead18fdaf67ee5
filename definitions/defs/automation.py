"""Automation: the sensor on ratified commits, the join that its events trigger, checks, and the maintenance schedules."""

from datetime import timedelta

import dagster as dg

from cm_delta_dagster.orchestration import (
    CheckSettings,
    FirstTick,
    MaintenancePolicy,
    OnDenied,
    TableCheck,
    build_maintenance_schedules,
    data_version_sensor,
    ratified_commit_sensor,
    table_checks,
)
from definitions.defs.flights import flights, flights_enriched, weather
from definitions.defs.reference import airlines, airports, planes
from definitions.defs.report import carrier_months

MAINTAINED = {
    "main.nyc.flights": flights.key,
    "main.nyc.weather": weather.key,
    "main.nyc.flights_enriched": flights_enriched.key,
}

policy = MaintenancePolicy(
    tables=tuple(MAINTAINED),
    asset_keys=MAINTAINED,
    min_small_files=30,
    min_small_file_ratio=0.5,
    on_denied=OnDenied.FAIL,
    cron="0 4 * * *",
)

schedules = build_maintenance_schedules(policy, default_status=dg.DefaultScheduleStatus.RUNNING)

flight_checks = table_checks(
    flights,
    settings=CheckSettings(
        max_unpublished_commits=1,
        errors=frozenset({TableCheck.UNPUBLISHED_COMMITS}),
        min_rows=1,
        maintenance=policy,
    ),
)

check_job = dg.define_asset_job(
    "check_flights",
    selection=dg.AssetSelection.checks(*flight_checks),
    description="Checks main.nyc.flights from its log and the catalog, without Spark.",
    executor_def=dg.in_process_executor,
)

check_schedule = dg.ScheduleDefinition(
    job=check_job,
    cron_schedule="0 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Checks main.nyc.flights every hour.",
)

report_job = dg.define_asset_job(
    "report_job",
    selection=dg.AssetSelection.assets(carrier_months) | dg.AssetSelection.checks(*flight_checks),
    description="Checks the flights and materializes the report; launched for each new version of main.nyc.flights.",
    executor_def=dg.in_process_executor,
)

commit_sensor = ratified_commit_sensor(
    name="ratified_commits",
    assets=[flights, weather, flights_enriched, airlines, airports, planes],
    job=report_job,
    launch_on=[flights.key],
    minimum_interval=timedelta(seconds=3),
    first_tick=FirstTick.FROM_BEGINNING,
    default_status=dg.DefaultSensorStatus.RUNNING,
)

follow_sensor = data_version_sensor(
    dg.AssetSelection.assets(flights_enriched.key),
    name="follow_changes",
    minimum_interval=timedelta(seconds=3),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Materializes the months of flights_enriched whose flights or weather changed.",
)
