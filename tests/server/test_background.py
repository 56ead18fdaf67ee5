"""Publication of what writers leave unpublished, by one of several server processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind
from cm_delta_dagster.client.client import client_through
from cm_delta_dagster.client.post_commit import scheduler
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.server import background
from cm_delta_dagster.server.background import PublicationCatchUp
from cm_delta_dagster.server.storage_access import StorageAccess
from tests.support.forced_commit import ratify_append
from tests.support.lake import Lake, broken_storage
from tests.support.log_records import messages_of
from tests.support.waiting import until


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def catch_up(lake: Lake, root: str = "memory://lake/warehouse", **arguments: float) -> PublicationCatchUp:
    client = lake.reopened()
    return PublicationCatchUp(client, StorageAccess(client.stores, (root,)), **arguments)


def published(table: Table) -> int:
    return table.catalog_answer().published_version


def test_the_first_look_finds_all_unpublished_commits_and_the_second_publishes_them(lake: Lake) -> None:
    table = lake.new_table()
    ratify_append(lake, table, "a.parquet")
    ratify_append(lake, table, "b.parquet")
    publication = catch_up(lake)
    publication.look()
    assert published(table) == 0
    publication.look()
    assert published(table) == 2
    assert {f"_delta_log/{version:020d}.json" for version in range(3)} <= lake.files(table)
    assert not lake.catalog.leases.leases()


def test_later_looks_find_what_the_feed_has_since_the_last_one(lake: Lake) -> None:
    table, other = lake.new_table("t"), lake.new_table("other")
    publication = catch_up(lake)
    publication.look()
    ratify_append(lake, table, "a.parquet")
    publication.look()
    ratify_append(lake, other, "b.parquet")
    publication.look()
    assert (published(table), published(other)) == (1, 0)
    publication.look()
    assert published(other) == 1


def test_a_table_whose_lease_another_process_has_is_left_to_it(lake: Lake) -> None:
    table = lake.new_table()
    ratify_append(lake, table, "a.parquet")
    lease = lake.catalog.leases.acquire_maintenance_lease(
        table.table_id, MaintenanceKind.CHECKPOINT, owner="another server", duration_ms=1000
    )
    assert isinstance(lease, LeaseGranted)
    publication = catch_up(lake)
    publication.look()
    publication.look()
    assert published(table) == 0
    assert [held.owner for held in lake.catalog.leases.leases()] == ["another server"]


def test_what_could_not_be_published_is_logged_and_other_tables_are_published(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    table, other = lake.new_table("t"), lake.new_table("other")
    ratify_append(lake, table, "a.parquet")
    ratify_append(lake, other, "b.parquet")
    publication = catch_up(lake)
    publication.look()
    lake.store.fails = broken_storage("write_if_absent", table.location)
    publication.look()
    assert (published(table), published(other)) == (0, 1)
    assert any("main.test.t" in record.getMessage() for record in caplog.records)


def test_a_table_outside_of_the_storage_roots_is_not_published(lake: Lake) -> None:
    table = lake.new_table()
    ratify_append(lake, table, "a.parquet")
    publication = catch_up(lake, root="memory://lake/elsewhere")
    publication.look()
    publication.look()
    assert published(table) == 0


def named_catch_up(lake: Lake, principal: str | None, **arguments: float) -> PublicationCatchUp:
    """Of a server with this principal."""
    client = client_through(lake.reopened(), lake.sql_catalog.acting_as(principal))
    return PublicationCatchUp(client, StorageAccess(client.stores, ("memory://lake/warehouse",)), **arguments)


def test_a_server_without_a_principal_says_once_what_to_grant(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table = lake.new_table()
    ratify_append(lake, table, "a.parquet")
    entry = lake.sql_catalog.registry.load_table(table.identifier)
    lake.sql_catalog.access.enable_grants(owner="ana")
    publication = named_catch_up(lake, None, look_seconds=0.01)
    publication.start()
    until(lambda: messages_of(caplog, background) != [])
    server = client_through(lake.client, lake.sql_catalog.acting_as(None))
    for _ in range(2):
        publication.schedule(server, entry)
        server.background.wait()
    publication.stop()
    (refusal,) = messages_of(caplog, background)
    assert "cm-delta access grant maintain '*' NAME" in refusal
    assert messages_of(caplog, scheduler) == []


def test_a_server_that_may_maintain_tables_publishes_while_grants_are_enforced(lake: Lake) -> None:
    table = lake.new_table()
    ratify_append(lake, table, "a.parquet")
    lake.sql_catalog.access.enable_grants(owner="ana")
    lake.sql_catalog.acting_as("ana").access.grant([Privilege.MAINTAIN], "*", "lake-server")
    publication = named_catch_up(lake, "lake-server")
    publication.look()
    publication.look()
    assert lake.files(table, "_delta_log") >= {f"{1:020d}.json"}


def test_a_started_catch_up_looks_by_itself_until_it_is_stopped(lake: Lake) -> None:
    table = lake.new_table()
    ratify_append(lake, table, "a.parquet")
    publication = catch_up(lake, look_seconds=0.01)
    publication.start()
    until(lambda: published(table) == 1)
    publication.stop()
    ratify_append(lake, table, "b.parquet")
    assert published(table) == 1
