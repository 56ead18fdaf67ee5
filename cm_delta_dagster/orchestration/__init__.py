"""The Dagster integration: resources, IO manager, commit sensor, maintenance jobs and schedules."""

from cm_delta_dagster.orchestration.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.maintenance import build_maintenance_jobs, build_maintenance_schedules
from cm_delta_dagster.orchestration.maintenance_policy import MaintenancePolicy, MaintenanceTask
from cm_delta_dagster.orchestration.resources import CatalogResource, ClientSettingsConfig, SparkResource
from cm_delta_dagster.orchestration.sensor_tick import LaunchFor
from cm_delta_dagster.orchestration.sensors import FirstTick, ratified_commit_sensor
from cm_delta_dagster.orchestration.write_contract import WriteMode

__all__ = [
    "CatalogManagedDeltaIOManager",
    "CatalogResource",
    "ClientSettingsConfig",
    "FirstTick",
    "LaunchFor",
    "MaintenancePolicy",
    "MaintenanceTask",
    "SparkResource",
    "WriteMode",
    "build_maintenance_jobs",
    "build_maintenance_schedules",
    "ratified_commit_sensor",
]
