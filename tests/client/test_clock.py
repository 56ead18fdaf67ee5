"""Clients whose clock is far away from the catalog's."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client import clock as client_clock
from cm_delta_dagster.client.client import DeltaClient, wall_clock_ms
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CommitRejectedError
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA
from tests.support.creation import create_table
from tests.support.lake import DAY_MS, START_MS, Lake
from tests.support.log_records import messages_of
from tests.support.waiting import until

HOUR_MS = 60 * 60 * 1000
YEAR_MS = 365 * DAY_MS


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def client_at(lake: Lake, clock: Callable[[], int], settings: ClientSettings | None = None) -> DeltaClient:
    return DeltaClient(lake.catalog, stores=Stores(stores={"memory": lake.store}), settings=settings, now_ms=clock)


def commit(table: Table) -> int:
    return table.start_transaction(table.snapshot(), operation="WRITE").commit().in_commit_timestamp


@pytest.mark.requirements("ICT-4")
@pytest.mark.parametrize("skew_ms", [YEAR_MS, -YEAR_MS, HOUR_MS + 1, -HOUR_MS - 1])
def test_a_commit_by_a_clock_that_is_far_off_gets_the_catalogs_time(
    lake: Lake, skew_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not set the time of all later commits."""
    lake.new_table()
    lake.clock.now += DAY_MS
    client = client_at(lake, lambda: lake.clock.now + skew_ms)
    with caplog.at_level(logging.WARNING):
        assert commit(client.table("main.test.t")) == lake.clock.now
        lake.clock.now += 1
        assert commit(client.table("main.test.t")) == lake.clock.now
        assert create_table(client, identifier="main.test.new", schema=SCHEMA).snapshot().timestamp_ms == lake.clock.now
    client.background.close()
    (warning,) = messages_of(caplog, client_clock)
    then = START_MS + DAY_MS
    for moment in (then, then + skew_ms):
        assert utc_text(moment) in warning
    assert "Set the clock of this machine" in warning
    assert commit(lake.client.table("main.test.t")) == lake.clock.now + 1


@pytest.mark.parametrize("skew_ms", [HOUR_MS, -HOUR_MS, 0])
def test_a_clock_within_the_bound_is_used_as_it_is(lake: Lake, skew_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    lake.new_table()
    lake.clock.now += DAY_MS
    client = client_at(lake, lambda: lake.clock.now + skew_ms)
    assert commit(client.table("main.test.t")) == lake.clock.now + skew_ms
    client.background.close()
    assert not messages_of(caplog, client_clock)


def test_a_client_that_allows_more_than_the_catalog_is_refused(lake: Lake) -> None:
    table = lake.new_table()
    settings = ClientSettings(max_clock_difference=timedelta(milliseconds=2 * YEAR_MS))
    client = client_at(lake, lambda: lake.clock.now + YEAR_MS, settings)
    with pytest.raises(CommitRejectedError, match="max_clock_difference"):
        commit(client.table("main.test.t"))
    client.background.close()
    assert table.snapshot().version == 0


@pytest.mark.requirements("ICT-4")
def test_a_table_whose_history_lies_in_the_future_goes_on_working(lake: Lake) -> None:
    """Its commits follow each other by a millisecond until the clocks have caught up."""
    lake.clock.now += YEAR_MS
    table = lake.new_table()
    lake.append(table)
    last = table.snapshot().timestamp_ms
    lake.clock.now = START_MS
    client = client_at(lake, lake.clock)
    times = [commit(client.table("main.test.t")) for _ in range(3)]
    assert times == [last + 1, last + 2, last + 3]
    client.background.close()
    lake.clock.now = last + DAY_MS
    assert commit(table) == lake.clock.now


@pytest.mark.requirements("VAC-1")
def test_vacuum_by_a_clock_a_year_ahead_keeps_what_the_table_keeps(lake: Lake) -> None:
    """Young files, perhaps of a running writer, do not get old by a wrong clock."""
    table = lake.new_table()
    lake.append(table, "a.parquet")
    lake.remove(table, "a.parquet")
    lake.put(table, "of-a-running-writer.parquet")
    lake.clock.now += HOUR_MS
    client = client_at(lake, lambda: lake.clock.now + YEAR_MS)
    assert plan_vacuum(client.table("main.test.t")).paths == ()
    client.background.close()


@pytest.mark.postgres
def test_the_clock_of_postgresql_is_the_servers(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock of this machine says; leases run by it too."""
    real = wall_clock_ms()
    monkeypatch.setattr(time, "time_ns", lambda: (real + YEAR_MS) * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: (real + YEAR_MS) / 1000)
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        assert abs(catalog.coordinator.now_ms() - real) < 60_000
        client = DeltaClient(catalog, stores=Stores())
        table = create_table(client, identifier="main.test.t", schema=SCHEMA)
        assert abs(table.snapshot().timestamp_ms - real) < 60_000
        assert abs(commit(table) - real) < 60_000
        lease = catalog.leases.acquire_maintenance_lease(
            table.table_id, MaintenanceKind.DATA_CLEANUP, owner="o", duration_ms=1000
        )
        assert isinstance(lease, LeaseGranted) and abs(lease.expires_ms - real) < 60_000
        client.close()


@pytest.mark.postgres
def test_the_clock_of_postgresql_goes_on_without_requests(postgres_url: str) -> None:
    with SqlCatalog(postgres_url, warehouse="memory://w") as catalog:
        catalog.registry.list_tables()
        sent: list[str] = []

        def count(*event: object) -> None:
            sent.append(str(event[2]))

        sa.event.listen(sa.Engine, "before_cursor_execute", count)
        before = catalog.coordinator.now_ms()
        until(lambda: catalog.coordinator.now_ms() >= before + 50)
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
        assert not sent


@pytest.mark.postgres
def test_two_clients_of_postgresql_agree_on_the_time(postgres_url: str) -> None:
    with (
        closing(SqlCatalog(postgres_url, warehouse="memory://w")) as one,
        closing(SqlCatalog(postgres_url, warehouse="memory://w")) as other,
    ):
        assert abs(one.coordinator.now_ms() - other.coordinator.now_ms()) < 1_000
