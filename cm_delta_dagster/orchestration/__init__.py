"""The Dagster integration: resources, IO manager, commit sensor, maintenance jobs and schedules."""

from cm_delta_dagster.orchestration.definition_metadata import definition_metadata
from cm_delta_dagster.orchestration.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.maintenance import build_maintenance_jobs, build_maintenance_schedules
from cm_delta_dagster.orchestration.maintenance_policy import MaintenancePolicy, MaintenanceTask, OnDenied
from cm_delta_dagster.orchestration.maintenance_sweep import build_maintenance_sweep
from cm_delta_dagster.orchestration.remote import commit_metadata, run_context
from cm_delta_dagster.orchestration.resources import CatalogResource, ClientSettingsConfig, SparkResource
from cm_delta_dagster.orchestration.sensor_tick import LaunchFor
from cm_delta_dagster.orchestration.sensors import FirstTick, ratified_commit_sensor
from cm_delta_dagster.orchestration.write_contract import OnConflict, WriteMode

__all__ = [
    "CatalogManagedDeltaIOManager",
    "CatalogResource",
    "ClientSettingsConfig",
    "FirstTick",
    "LaunchFor",
    "MaintenancePolicy",
    "MaintenanceTask",
    "OnConflict",
    "OnDenied",
    "SparkResource",
    "WriteMode",
    "build_maintenance_jobs",
    "build_maintenance_schedules",
    "build_maintenance_sweep",
    "commit_metadata",
    "definition_metadata",
    "ratified_commit_sensor",
    "run_context",
]
