"""The commit sensor before a catalog that is another one than before: replaced, or restored from a copy."""

import sqlite3
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.orchestration import CatalogResource
from tests.orchestration.log_tables import commit, make_table, resource_at
from tests.orchestration.sensor_bench import NAME, Ticker, a_run, own, sensor_of, versions
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def copy(source: Path, target: Path) -> None:
    """A consistent copy of a SQLite database, as a backup makes it."""
    target.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as backup:
        live.backup(backup)


def restored(tmp_path: Path, catalog: CatalogResource) -> CatalogResource:
    """The catalog once its database is the copy again."""
    catalog.close()
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    return resource_at(tmp_path)


def permit_cleanup(catalog: CatalogResource) -> None:
    """The first entry of the feed."""
    catalog.client.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=MaintenanceKind.FEED_CLEANUP, allowed=True)
    )


def delete_feed(catalog: CatalogResource) -> int:
    """Delete the entries that the feed has, and return their number."""
    client = catalog.client
    recorded_ms = client.coordinator.now_ms()
    until(lambda: client.coordinator.now_ms() > recorded_ms)
    return client.events.delete_old_entries(before_ms=client.coordinator.now_ms())


@pytest.fixture
def ticker(catalog: CatalogResource, instance: dg.DagsterInstance) -> Ticker:
    return Ticker(sensor_of(), catalog, instance)


def test_another_catalog_is_detected_and_read_from_its_beginning(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    ticker.tick()
    other = resource_at(tmp_path / "other")
    replacement = make_table(other.client, NAME)
    for _ in range(5):
        commit(replacement)
    ticker.catalog = other
    noticed = ticker.tick()
    assert "replaced or restored" in noticed.skip_message and "begins at feed position 0" in noticed.skip_message
    ticker.tick()
    assert versions(instance) == [1, 1, 2, 3, 4, 5]
    assert not ticker.tick().asset_events
    other.close()


def test_a_catalog_restored_from_a_copy_is_detected_and_its_commits_reported(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """The versions 2 and 3 were reported before; after the restore they are other commits."""
    table = make_table(catalog.client, NAME)
    commit(table)
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    lost = commit(table)
    ticker.tick()
    assert versions(instance) == [1, lost]
    staged = tmp_path / "warehouse"
    ticker.catalog = restored(tmp_path, catalog)
    for file in staged.rglob(f"{lost:020d}.*"):
        file.unlink()
    again = ticker.catalog.client.table(NAME)
    assert "feed ends at position 2" in ticker.tick().skip_message
    ticker.tick()
    assert versions(instance) == [1, lost]
    assert commit(again) == lost
    ticker.tick()
    assert versions(instance) == [1, lost, lost]
    ticker.catalog.close()


def test_a_restored_catalog_with_more_commits_than_the_cursor_is_detected(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    table = make_table(catalog.client, NAME)
    copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    commit(table)
    ticker.tick()
    ticker.catalog = restored(tmp_path, catalog)
    for file in (tmp_path / "warehouse").rglob(f"{1:020d}.*"):
        file.unlink()
    again = ticker.catalog.client.table(NAME)
    for _ in range(3):
        commit(again)
    assert "position 2 of its feed is another commit" in ticker.tick().skip_message
    ticker.tick()
    assert versions(instance) == [1, 1, 2, 3]
    ticker.catalog.close()


def test_pending_commits_of_the_former_feed_are_dropped(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, tags=own(a_run(instance)))
    ticker.tick()
    ticker.catalog = resource_at(tmp_path / "other")
    assert "1 commits that waited" in ticker.tick().skip_message
    assert "wait" not in ticker.tick().skip_message
    ticker.catalog.close()


def test_a_sensor_that_watches_another_table_keeps_its_position(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    commit(make_table(catalog.client, NAME))
    ticker.tick()
    commit(make_table(catalog.client, "main.s.other"))
    ticker.sensor = sensor_of(assets={"s/other": "main.s.other"})
    assert len(ticker.tick().asset_events) == 2
    ticker.sensor = sensor_of(assets={"s/t": NAME, "s/other": "main.s.other"})
    assert not ticker.tick().asset_events


def test_a_sensor_that_was_off_longer_than_the_retention_says_so_and_recovers(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """The newest commit of a table is reported, though its entry is gone; older ones are named as not reported."""
    permit_cleanup(catalog)
    table = make_table(catalog.client, NAME)
    commit(table)
    ticker.tick()
    commit(table)
    newest = commit(table)
    assert delete_feed(catalog) == 5
    noticed = ticker.tick()
    assert (
        "The entries at the positions 4 to 5 were deleted from the feed after their retention" in noticed.skip_message
    )
    assert versions(instance) == [1, newest] and len(noticed.asset_events) == 1
    assert not ticker.tick().asset_events
    later = commit(table)
    ticker.tick()
    assert versions(instance) == [1, newest, later]


def test_a_sensor_without_new_commits_is_not_behind_the_retention(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """It has read up to the end of the feed, although the last entries were not of its tables."""
    permit_cleanup(catalog)
    commit(make_table(catalog.client, NAME))
    ticker.tick()
    other = make_table(catalog.client, "main.s.other")
    commit(other)
    assert not ticker.tick().asset_events
    delete_feed(catalog)
    commit(other)
    last = ticker.tick()
    assert not last.asset_events and "were deleted" not in last.skip_message
