"""The Dagster integration: resources, IO manager, commit sensor, maintenance, checks, automation and components."""

from cm_delta_dagster.orchestration.assets.change_inputs import report_changes_read
from cm_delta_dagster.orchestration.assets.definition_metadata import definition_metadata
from cm_delta_dagster.orchestration.assets.io_manager import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.audit.audited import audited
from cm_delta_dagster.orchestration.automation.automation import (
    data_version_sensor,
    on_new_data_version,
    on_new_data_version_of_any_partition,
)
from cm_delta_dagster.orchestration.checks.settings import CheckSettings, TableCheck
from cm_delta_dagster.orchestration.checks.table_checks import table_checks
from cm_delta_dagster.orchestration.components.catalog_managed_delta import CatalogManagedDelta
from cm_delta_dagster.orchestration.components.commit_sensor import CommitSensor
from cm_delta_dagster.orchestration.components.connection import CatalogSettings, SparkSettings
from cm_delta_dagster.orchestration.components.delta_tables import DeltaTables
from cm_delta_dagster.orchestration.components.discovery import DeltaTableProps
from cm_delta_dagster.orchestration.components.spark_sql_asset import SparkSqlAsset
from cm_delta_dagster.orchestration.components.table_maintenance import TableMaintenance
from cm_delta_dagster.orchestration.definitions import cm_delta_definitions
from cm_delta_dagster.orchestration.maintenance.maintenance import build_maintenance_jobs, build_maintenance_schedules
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import MaintenancePolicy, MaintenanceTask, OnDenied
from cm_delta_dagster.orchestration.maintenance.maintenance_sweep import build_maintenance_sweep
from cm_delta_dagster.orchestration.metadata.write_contract import OnConflict, WriteMode
from cm_delta_dagster.orchestration.runs.remote import commit_metadata, run_context
from cm_delta_dagster.orchestration.runs.resources import CatalogResource, ClientSettingsConfig, SparkResource
from cm_delta_dagster.orchestration.sensor.sensor_tick import LaunchFor
from cm_delta_dagster.orchestration.sensor.sensors import FirstTick, ratified_commit_sensor

__all__ = [
    "CatalogManagedDelta",
    "CatalogManagedDeltaIOManager",
    "CatalogResource",
    "CatalogSettings",
    "CheckSettings",
    "ClientSettingsConfig",
    "CommitSensor",
    "DeltaTableProps",
    "DeltaTables",
    "FirstTick",
    "LaunchFor",
    "MaintenancePolicy",
    "MaintenanceTask",
    "OnConflict",
    "OnDenied",
    "SparkResource",
    "SparkSettings",
    "SparkSqlAsset",
    "TableCheck",
    "TableMaintenance",
    "WriteMode",
    "audited",
    "build_maintenance_jobs",
    "build_maintenance_schedules",
    "build_maintenance_sweep",
    "cm_delta_definitions",
    "commit_metadata",
    "data_version_sensor",
    "definition_metadata",
    "on_new_data_version",
    "on_new_data_version_of_any_partition",
    "ratified_commit_sensor",
    "report_changes_read",
    "run_context",
    "table_checks",
]
