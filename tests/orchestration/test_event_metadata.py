"""Events of foreign commits: the standard metadata, who committed, and what a tick says of itself. No Spark."""

import logging
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.client.commits.context import ENGINE_INFO, CommitProperties
from cm_delta_dagster.orchestration import CatalogResource, MaintenancePolicy, OnDenied, build_maintenance_jobs
from cm_delta_dagster.orchestration.runs.remote import commit_metadata, run_context
from tests.orchestration.log_tables import commit, make_table
from tests.orchestration.maintenance.test_maintenance import NoSpark
from tests.orchestration.sensor_bench import KEY, NAME, Ticker, a_run, finish, sensor_of, versions

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def test_a_foreign_commit_has_the_standard_metadata_and_its_writer(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    ticker = Ticker(sensor_of(), catalog, instance)
    table = make_table(catalog.client, NAME)
    commit(table)
    snapshot = table.snapshot()
    transaction = table.start_transaction(
        snapshot, operation="WRITE", context=CommitProperties(user_metadata="by hand")
    )
    transaction.read_whole_table()
    transaction.set_metadata(snapshot.metadata)
    transaction.commit()
    *_, first, second = ticker.tick().asset_events
    found = {key: value.value for key, value in first.metadata.items()}
    assert found["dagster/row_count"] == 1
    assert found["cm_delta/table_files"] == 1 and found["cm_delta/table_bytes"] == 10
    assert found["cm_delta/unpublished_commits"] in (0, 1, 2), "publication is asynchronous"
    assert found["dagster/uri"] == snapshot.location
    assert found["dagster/table_name"] == NAME
    assert found["dagster/storage_kind"] == "deltalake"
    assert [column.name for column in found["dagster/column_schema"].columns] == ["id"]
    assert found["cm_delta/engine"].startswith("cm-delta-dagster/")
    assert second.metadata["cm_delta/engine"].value == ENGINE_INFO
    assert second.metadata["cm_delta/user_metadata"].value == "by hand"


def test_the_principal_of_a_commit_is_in_its_event(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    make_table(catalog.client, NAME)
    other = CatalogResource(
        url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse", principal="etl"
    )
    try:
        commit(other.client.table(NAME))
    finally:
        other.close()
    *_, event = Ticker(sensor_of(), catalog, instance).tick().asset_events
    assert isinstance(event, dg.AssetMaterialization)
    assert event.metadata["cm_delta/principal"].value == "etl"


def test_counts_follow_removals_and_unknown_rows(catalog: CatalogResource) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, partitions=({}, {}))
    commit(table, replace=True)
    entries = catalog.client.catalog.feed.feed(after=0, limit=10)
    assert [entry.summary.counts.num_rows for entry in entries] == [0, 2, 1]
    assert [entry.summary.counts.num_files for entry in entries] == [0, 2, 1]


def test_a_tick_says_what_it_has_reported(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    days = dg.StaticPartitionsDefinition(["a", "b"])
    spec = dg.AssetSpec(KEY, partitions_def=days, metadata={"partition_expr": "p", "table": NAME})
    ticker = Ticker(sensor_of(assets=[spec]), catalog, instance)
    table = make_table(catalog.client, NAME, by={"p": "string"})
    ticker.tick()
    commit(table, partitions=[{"p": "a"}])
    assert ticker.tick().skip_message == f"Reported version 1 of {NAME}: 1 partition."
    commit(table, partitions=[{"p": "a"}, {"p": "b"}])
    commit(table, data_change=False, partitions=[{"p": "a"}])
    message = ticker.tick().skip_message
    assert message == f"Reported version 3 of {NAME}: maintenance. Reported version 2 of {NAME}: 2 partitions."
    assert "No commits" in ticker.tick().skip_message


def test_new_values_become_dynamic_partitions_if_asked(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    regions = dg.DynamicPartitionsDefinition(name="regions")
    spec = dg.AssetSpec(KEY, partitions_def=regions, metadata={"partition_expr": "p", "table": NAME})
    ticker = Ticker(sensor_of(assets=[spec], add_dynamic_partitions=True), catalog, instance)
    instance.add_dynamic_partitions("regions", ["old"])
    table = make_table(catalog.client, NAME, by={"p": "string"})
    commit(table, partitions=[{"p": "old"}, {"p": "new"}, {"p": None}, {"p": "a...b"}])
    result = ticker.tick()
    (request,) = result.dynamic_partitions_requests
    assert (request.partitions_def_name, request.partition_keys) == ("regions", ["new"])
    materialized = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert [event.partition for event in materialized] == ["new", "old", None]
    assert "null" in materialized[-1].description


def test_a_script_of_a_run_is_not_reported_twice(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    """Its commits carry the run id; what it reports to Dagster names the commit."""
    ticker = Ticker(sensor_of(), catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = a_run(instance)
    context = run_context({"DAGSTER_RUN_ID": run.run_id}, asset_key=KEY)
    assert context.tags == {"dagster/run_id": run.run_id, "dagster/asset_key": "s/t"}
    reported, silent = commit(table, tags=context.tags), commit(table, tags=context.tags)
    metadata = commit_metadata(table_id=table.table_id, version=reported)
    ticker.tick()
    assert versions(instance) == []
    event = dg.AssetMaterialization(KEY, metadata=metadata)
    instance.report_runless_asset_event(event)
    finish(instance, run)
    ticker.tick()
    ticker.tick()
    assert sorted(versions(instance)) == [reported, silent]
    assert run_context({}, asset_key=KEY).tags == {}


@pytest.mark.parametrize("on_denied", list(OnDenied))
def test_a_denied_task_stands_out(catalog: CatalogResource, instance: dg.DagsterInstance, on_denied: Any) -> None:
    make_table(catalog.client, NAME)
    policy = MaintenancePolicy(tables=(NAME,), asset_keys={NAME: KEY}, on_denied=on_denied)
    (job,) = build_maintenance_jobs(policy)
    defs = dg.Definitions(jobs=[job], resources={"catalog": catalog, "spark": NoSpark()})
    result = defs.resolve_job_def(job.name).execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={
            "ops": {
                task: {"config": {"action": "run" if task == "vacuum" else "skip"}}
                for task in ("publish", "checkpoint", "compact", "vacuum", "clean_log", "clean_staged_commits")
            }
        },
    )
    assert result.success is (on_denied is not OnDenied.FAIL)
    (record,) = instance.fetch_observations(KEY, limit=10).records
    assert record.asset_observation.metadata["cm_delta/outcome"].value == "denied"
    warned = [entry for entry in instance.all_logs(result.run_id) if entry.level == logging.WARNING]
    assert ["does not permit" in entry.user_message for entry in warned] == [True] * (on_denied is OnDenied.WARN)
