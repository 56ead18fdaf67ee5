"""The commit sensor before a catalog that is another one than before: replaced, or restored from a copy."""

import sqlite3
from contextlib import closing

import pytest

from tests.orchestration.log_tables import commit, make_table, resource_at
from tests.orchestration.sensor_bench import NAME, Ticker, a_run, own, sensor_of, versions

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


def copy(source, target):
    """A consistent copy of a SQLite database, as a backup makes it."""
    target.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as backup:
        live.backup(backup)


def restored(tmp_path, catalog):
    """The catalog once its database is the copy again."""
    catalog.close()
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    return resource_at(tmp_path)


@pytest.fixture
def ticker(catalog, instance):
    return Ticker(sensor_of(), catalog, instance)


def test_another_catalog_is_detected_and_read_from_its_beginning(ticker, catalog, instance, tmp_path):
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


def test_a_catalog_restored_from_a_copy_is_detected_and_its_commits_reported(ticker, catalog, instance, tmp_path):
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


def test_a_restored_catalog_with_more_commits_than_the_cursor_is_detected(ticker, catalog, instance, tmp_path):
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


def test_pending_commits_of_the_former_feed_are_dropped(ticker, catalog, instance, tmp_path):
    table = make_table(catalog.client, NAME)
    commit(table, tags=own(a_run(instance)))
    ticker.tick()
    ticker.catalog = resource_at(tmp_path / "other")
    assert "1 commits that waited" in ticker.tick().skip_message
    assert "wait" not in ticker.tick().skip_message
    ticker.catalog.close()


def test_a_sensor_that_watches_another_table_keeps_its_position(ticker, catalog, instance):
    commit(make_table(catalog.client, NAME))
    ticker.tick()
    commit(make_table(catalog.client, "main.s.other"))
    ticker.sensor = sensor_of(assets={"s/other": "main.s.other"})
    assert len(ticker.tick().asset_events) == 2
    ticker.sensor = sensor_of(assets={"s/t": NAME, "s/other": "main.s.other"})
    assert not ticker.tick().asset_events


def test_a_sensor_that_was_off_longer_than_the_retention_says_so_and_recovers(ticker, catalog, instance):
    """The newest commit of a table is reported, though its entry is gone; older ones are named as not reported."""
    table = make_table(catalog.client, NAME)
    commit(table)
    ticker.tick()
    commit(table)
    newest = commit(table)
    deleted = catalog.client.events.delete_old_entries(before_ms=2**50)
    assert deleted == 4
    noticed = ticker.tick()
    assert (
        "The entries at the positions 3 to 4 were deleted from the feed after their retention" in noticed.skip_message
    )
    assert versions(instance) == [1, newest] and len(noticed.asset_events) == 1
    assert not ticker.tick().asset_events
    later = commit(table)
    ticker.tick()
    assert versions(instance) == [1, newest, later]


def test_a_sensor_without_new_commits_is_not_behind_the_retention(ticker, catalog, instance):
    """It has read up to the end of the feed, although the last entries were not of its tables."""
    commit(make_table(catalog.client, NAME))
    ticker.tick()
    other = make_table(catalog.client, "main.s.other")
    commit(other)
    assert not ticker.tick().asset_events
    catalog.client.events.delete_old_entries(before_ms=2**50)
    commit(other)
    last = ticker.tick()
    assert not last.asset_events and "were deleted" not in last.skip_message
