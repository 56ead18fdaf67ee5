"""Assets, pins, sensors, maintenance and components whose catalog is a running server.

The imported tests are those of the catalog by its database: only their fixtures are others here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import DefsFolderSandbox
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.rest.server_connection import TOKEN_VARIABLE
from cm_delta_dagster.orchestration import (
    CatalogManagedDelta,
    CatalogManagedDeltaIOManager,
    CatalogResource,
    CommitSensor,
    DeltaTables,
    TableMaintenance,
)
from cm_delta_dagster.server.settings import ServerSettings
from tests.differential.other_readers import duckdb_answers
from tests.orchestration import process_jobs
from tests.orchestration.assets.test_change_inputs import test_each_run_gets_what_the_last_one_did_not
from tests.orchestration.assets.test_io_manager import (
    test_an_asset_becomes_a_table_and_a_downstream_asset_reads_it,
    test_modes_append_overwrite_and_merge,
)
from tests.orchestration.audit.test_audited import (
    test_rows_that_fail_are_discarded_and_readers_never_see_them,
    test_rows_that_pass_are_ratified_and_the_results_name_their_version,
)
from tests.orchestration.components.test_components import add, load, refresh, sandbox
from tests.orchestration.conftest import RunningSpark, World
from tests.orchestration.log_tables import commit, make_table
from tests.orchestration.maintenance.test_maintenance import (
    test_a_sweep_visits_every_table_that_matches_in_turn,
    test_a_table_with_a_lease_of_another_run_is_not_maintained,
    test_a_threshold_starts_its_task_alone_and_once_for_each_state,
    test_checkpoint_and_publish_run_without_spark,
)
from tests.orchestration.runs.test_run_connection import (
    test_all_steps_of_a_run_see_what_the_first_read_saw,
    test_the_sensor_reports_a_commit_that_the_run_has_not_reported_after_the_run,
)
from tests.orchestration.sensor.test_sensors import (
    test_a_commit_of_a_run_under_way_is_pending_and_blocks_no_other,
    test_a_crash_between_events_and_cursor_repeats_nothing,
    test_foreign_changes_are_materializations_and_maintenance_is_an_observation,
    ticker,
)
from tests.orchestration.sensor_bench import KEY, NAME, Ticker, sensor_of, versions
from tests.orchestration.test_partitioned_outputs import (
    test_a_merge_stays_within_its_partition,
    test_a_range_of_partitions_is_one_commit_and_keeps_the_others,
)
from tests.orchestration.test_processes import (
    stored_instance,
    test_steps_in_processes_of_their_own_read_one_version,
)
from tests.support.cached_folders import or_skip
from tests.support.live_server import LiveServer, live_server
from tests.support.peer_environments import peer_environment
from tests.support.unity_wire import UnityWire

__all__ = [
    "sandbox",
    "stored_instance",
    "test_a_commit_of_a_run_under_way_is_pending_and_blocks_no_other",
    "test_a_crash_between_events_and_cursor_repeats_nothing",
    "test_a_merge_stays_within_its_partition",
    "test_a_range_of_partitions_is_one_commit_and_keeps_the_others",
    "test_a_sweep_visits_every_table_that_matches_in_turn",
    "test_a_table_with_a_lease_of_another_run_is_not_maintained",
    "test_a_threshold_starts_its_task_alone_and_once_for_each_state",
    "test_all_steps_of_a_run_see_what_the_first_read_saw",
    "test_an_asset_becomes_a_table_and_a_downstream_asset_reads_it",
    "test_checkpoint_and_publish_run_without_spark",
    "test_each_run_gets_what_the_last_one_did_not",
    "test_foreign_changes_are_materializations_and_maintenance_is_an_observation",
    "test_modes_append_overwrite_and_merge",
    "test_rows_that_fail_are_discarded_and_readers_never_see_them",
    "test_rows_that_pass_are_ratified_and_the_results_name_their_version",
    "test_steps_in_processes_of_their_own_read_one_version",
    "test_the_sensor_reports_a_commit_that_the_run_has_not_reported_after_the_run",
    "ticker",
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning"),
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),  # Of dagster-spark.
]


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """A server whose URL and token the environment has."""
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        monkeypatch.setenv(process_jobs.SERVER, live.url)
        monkeypatch.setenv(TOKEN_VARIABLE, live.token_for("etl"))
        yield live


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp() as instance:  # Schedules want an instance that other processes can open.
        yield instance


@pytest.fixture
def catalog(server: LiveServer) -> Iterator[CatalogResource]:
    resource = CatalogResource(url=server.url, token=server.token_for("etl"))
    yield resource
    resource.close()


@pytest.fixture
def world(spark: SparkSession, instance: dg.DagsterInstance, catalog: CatalogResource) -> Iterator[World]:
    """Runs read URL and token of the environment; ``catalog`` is used outside of runs."""
    of_runs = process_jobs.catalog_of()
    manager = CatalogManagedDeltaIOManager(catalog=of_runs, spark=RunningSpark())
    resources = {"catalog": of_runs, "spark": RunningSpark(), "io_manager": manager}
    yield World(spark=spark, instance=instance, client=catalog.client, catalog=catalog, resources=resources)


def test_the_catalog_of_these_tests_is_a_server(catalog: CatalogResource) -> None:
    assert isinstance(catalog.client.catalog, HttpCatalog)
    with process_jobs.catalog_of().process_config_and_initialize_cm() as of_runs:
        assert isinstance(of_runs.client.catalog, HttpCatalog)


def test_a_commit_by_unity_catalogs_api_is_an_event_of_its_asset_once(
    ticker: Ticker, server: LiveServer, instance: dg.DagsterInstance
) -> None:
    wire = UnityWire(server, "other engine")
    wire.create("t")
    for version in (1, 2):
        assert wire.append("t").status_code == 200
        ticker.tick()
        assert versions(instance) == list(range(version + 1))
    again = ticker.tick()
    assert again.skip_message and not again.asset_events and versions(instance) == [0, 1, 2]
    wire.http.close()


@pytest.mark.peers
def test_an_insert_by_duckdb_is_an_event_of_its_asset_once(
    catalog: CatalogResource, server: LiveServer, instance: dg.DagsterInstance
) -> None:
    or_skip(peer_environment, "duckdb")
    make_table(catalog.client, NAME)
    ticker = Ticker(sensor_of(), catalog, instance)
    ticker.tick()
    secret = f"CREATE SECRET (TYPE unity_catalog, TOKEN '{server.token_for('duck')}', ENDPOINT '{server.url}', AWS_REGION 'x')"
    attach = "ATTACH 'main' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 's')"
    insert = "INSERT INTO lake.s.t VALUES (7)"
    duckdb_answers(secret, attach, insert, extensions=("httpfs", "delta", "unity_catalog"))
    (event,) = ticker.tick().asset_events
    assert event.asset_key == KEY and versions(instance) == [1]
    assert event.metadata["cm_delta/commit_version"].value == 1
    again = ticker.tick()
    assert not again.asset_events and versions(instance) == [1]


def test_components_work_over_a_server(
    sandbox: DefsFolderSandbox, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """Tables are discovered, their commits are reported, and a schedule maintains them; the token stays a reference."""
    reference: dict[str, Any] = {"url": {"env": process_jobs.SERVER}, "token": f"{{{{ env.{TOKEN_VARIABLE} }}}}"}
    table = make_table(catalog.client, "main.sales.by_day", by={"day": "date"})
    commit(table, partitions=[{"day": "2026-01-02"}])
    add(sandbox, CatalogManagedDelta, "lake", catalog=reference)
    add(sandbox, DeltaTables, "tables", catalog="lake", scope="main.sales", commit_sensor=True)
    add(sandbox, CommitSensor, "sensor", tables={"sales/other": "main.sales.other"})
    add(sandbox, TableMaintenance, "maintenance", tables=["main.sales.by_day"], commits_since_checkpoint=2)
    refresh(sandbox, "tables")
    defs = load(sandbox)
    key = dg.AssetKey(["sales", "by_day"])
    assert defs.resources is not None and key in {spec.key for spec in defs.resolve_all_asset_specs()}
    assert defs.resources["catalog"]._resolved_config_dict["token"] == {"env": TOKEN_VARIABLE}
    ticker = Ticker(defs.resolve_sensor_def("commits_of_main_sales"), catalog, instance, defs)
    ticker.tick()
    commit(table, partitions=[{"day": "2026-01-03"}])
    ticker.tick()
    assert instance.get_materialized_partitions(key) == {"2026-01-03"}
    schedule = defs.resolve_schedule_def("maintain_main_sales_by_day_schedule")
    with dg.build_schedule_context(instance=instance, resources={"catalog": catalog}) as context:
        (request,) = schedule.evaluate_tick(context).run_requests
    job = defs.resolve_job_def("maintain_main_sales_by_day")
    assert job.execute_in_process(run_config=request.run_config, instance=instance).success
    observed = instance.fetch_observations(key, limit=10).records
    assert "checkpoint" in {record.asset_observation.metadata["cm_delta/operation"].value for record in observed}
