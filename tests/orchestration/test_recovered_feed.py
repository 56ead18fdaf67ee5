"""Sensors report each commit once, also if the catalog was restored from a copy, or lost, and took its commits from storage."""

from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetKey

from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.orchestration import CatalogResource, FirstTick
from tests.orchestration.log_tables import commit, make_table, resource_at
from tests.orchestration.sensor_bench import KEY, NAME, Ticker, a_run, own, record_by_run, sensor_of, versions
from tests.orchestration.test_lost_feed import copy, restored

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

OTHER = "main.s.other"
OTHER_KEY = AssetKey(["s", "other"])
BOTH = {KEY: NAME, OTHER_KEY: OTHER}


def recovered(tmp_path: Path, catalog: CatalogResource) -> CatalogResource:
    """The catalog, restored from the copy, with everything that storage holds above it."""
    resource = restored(tmp_path, catalog)
    recover(resource.client, plan_recovery(resource.client))
    return resource


def drain(ticker: Ticker, ticks: int = 4) -> None:
    for _ in range(ticks):
        ticker.tick()


@pytest.mark.parametrize("noticed_before", [True, False])
def test_what_was_reported_before_the_restore_is_not_reported_again(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path, noticed_before: bool
) -> None:
    ticker = Ticker(sensor_of(), catalog, instance)
    table = make_table(catalog.client, NAME)
    commit(table)
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    commit(table)
    commit(table)
    ticker.tick()
    commit(table)
    assert versions(instance) == [1, 2, 3]
    resource = restored(tmp_path, catalog)
    ticker.catalog = resource
    if noticed_before:
        assert "feed ends at position" in ticker.tick().skip_message
        ticker.tick()
    recover(resource.client, plan_recovery(resource.client))
    table = resource.client.table(NAME)
    for _ in range(5):
        commit(table)
        ticker.tick()
    drain(ticker)
    assert versions(instance) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert versions(instance, "observation") == [0]
    resource.close()


def test_commits_of_several_tables_are_reported_once_in_whatever_order_they_come_back(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """The other table's commit was made after the sensor's last look, and comes back before what the sensor saw last."""
    ticker = Ticker(sensor_of(assets=BOTH), catalog, instance)
    table, other = make_table(catalog.client, NAME), make_table(catalog.client, OTHER)
    unwatched = make_table(catalog.client, "main.s.unwatched")
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    commit(table)
    commit(unwatched)
    commit(table)
    ticker.tick()
    commit(other)
    resource = recovered(tmp_path, catalog)
    ticker.catalog = resource
    for _ in range(3):
        commit(resource.client.table(NAME))
        commit(resource.client.table(OTHER))
        ticker.tick()
    drain(ticker)
    assert versions(instance) == [1, 2, 3, 4, 5]
    assert versions(instance, key=OTHER_KEY) == [1, 2, 3, 4]
    resource.close()


def test_a_sensor_without_a_seen_commit_misses_nothing(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """It began at the end of the feed that was lost, so that it knows a position and no commit."""
    table = make_table(catalog.client, NAME)
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    commit(table)
    commit(table)
    ticker = Ticker(sensor_of(first_tick=FirstTick.FROM_NOW), catalog, instance)
    ticker.tick()
    commit(table)
    resource = recovered(tmp_path, catalog)
    ticker.catalog = resource
    drain(ticker)
    found = versions(instance)
    assert found[-1] == 3 and len(found) == len(set(found))
    resource.close()


def test_partitions_that_were_reported_are_not_reported_again(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    days = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
    asset = dg.AssetSpec(KEY, metadata={"table": NAME, "partition_expr": "day"}, partitions_def=days)
    ticker = Ticker(sensor_of(assets=[asset]), catalog, instance)
    table = make_table(catalog.client, NAME, by={"day": "string"})
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    commit(table, partitions=[{"day": "2026-01-01"}])
    ticker.tick()
    commit(table, partitions=[{"day": "2026-01-01"}, {"day": "2026-01-02"}])
    ticker.catalog = recovered(tmp_path, catalog)
    drain(ticker)
    events = [
        (record.partition_key, record.asset_materialization.metadata["cm_delta/commit_version"].value)
        for record in instance.fetch_materializations(KEY, limit=99, ascending=True).records
    ]
    assert events == [("2026-01-01", 1), ("2026-01-01", 2), ("2026-01-02", 2)]
    ticker.catalog.close()


def test_commits_of_runs_that_reported_them_are_left_to_the_runs(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    ticker = Ticker(sensor_of(), catalog, instance)
    table = make_table(catalog.client, NAME)
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    run = a_run(instance, status=dg.DagsterRunStatus.SUCCESS)
    record_by_run(instance, run.run_id, table, commit(table, tags=own(run)))
    ticker.catalog = recovered(tmp_path, catalog)
    drain(ticker)
    assert versions(instance) == [1]
    ticker.catalog.close()


def test_a_lost_catalog_that_was_rebuilt_has_every_commit_reported_once(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    ticker = Ticker(sensor_of(), catalog, instance)
    table = make_table(catalog.client, NAME)
    commit(table)
    commit(table)
    ticker.tick()
    commit(table)
    catalog.close()
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    resource = resource_at(tmp_path)
    plan = plan_warehouse_recovery(resource.client, warehouse=f"{tmp_path}/warehouse")
    recover_warehouse(resource.client, plan)
    ticker.catalog = resource
    assert "replaced or restored" in ticker.tick().skip_message
    commit(resource.client.table(NAME))
    drain(ticker)
    assert versions(instance) == [1, 2, 3, 4]
    assert versions(instance, "observation") == [0]
    resource.close()
