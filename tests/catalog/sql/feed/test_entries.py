"""Positions of the feed on PostgreSQL: none is missed and none is seen twice, whatever transactions are open."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import RatifiedTogether
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database import transaction_end
from cm_delta_dagster.catalog.sql.database.callers import serving
from cm_delta_dagster.catalog.sql.database.prepared import run_in_order
from cm_delta_dagster.catalog.sql.ratification import commits
from cm_delta_dagster.catalog.tables import TableIdentifier
from tests.contracts.catalog_bench import create, proposal

pytestmark = pytest.mark.postgres


@pytest.fixture
def catalog(postgres_url: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(postgres_url, warehouse="memory://warehouse") as catalog:
        yield catalog


def table_of(catalog: SqlCatalog, name: str) -> str:
    return create(catalog, TableIdentifier("main", "sales", name)).table_id


@contextmanager
def open_transaction(catalog: SqlCatalog) -> Iterator[sa.Connection]:
    """A transaction that commits at the end of the block."""
    with catalog._database.shared._ready()[1].connect() as connection:
        yield connection
        transaction_end.commit(connection)


def ratify(connection: sa.Connection, table: str, version: int) -> None:
    """Ratify a commit in a transaction that stays open; what it would send together with its COMMIT is sent."""
    transaction_end.forget(connection)
    ratified = commits.ratify(serving(connection, None, now_ms=2**41), {table: proposal(version)})
    assert isinstance(ratified, RatifiedTogether)
    end = transaction_end._end_of(connection)
    calls, end.calls = end.calls, []
    run_in_order(connection, calls)


def seen(catalog: SqlCatalog, after: int = 0) -> list[tuple[str, int]]:
    return [(entry.table_id, entry.version) for entry in catalog.feed.feed(after=after, limit=1000)]


def test_an_open_transaction_delays_only_its_own_entry(catalog: SqlCatalog) -> None:
    first, second = table_of(catalog, "a"), table_of(catalog, "b")
    start = catalog.feed.latest_feed_position()
    with open_transaction(catalog) as paused:
        ratify(paused, first, 1)
        for version in (1, 2):
            catalog.coordinator.commit(second, proposal(version))
        assert seen(catalog, start) == [(second, 1), (second, 2)]
        position = catalog.feed.latest_feed_position()
    assert seen(catalog, position) == [(first, 1)]
    assert seen(catalog, start) == [(second, 1), (second, 2), (first, 1)]


def test_a_rolled_back_transaction_leaves_no_entry(catalog: SqlCatalog) -> None:
    table = table_of(catalog, "a")
    with catalog._database.shared._ready()[1].connect() as connection:
        ratify(connection, table, 1)
        connection.rollback()
    catalog.coordinator.commit(table, proposal(1))
    assert seen(catalog) == [(table, 0), (table, 1)]


def test_an_idle_transaction_of_another_database_does_not_delay_the_feed(
    catalog: SqlCatalog, postgres_server: str
) -> None:
    table = table_of(catalog, "a")
    engine = sa.create_engine(postgres_server, poolclass=sa.pool.NullPool)
    with engine.connect() as idle:
        idle.execute(sa.text("SELECT pg_current_xact_id()"))  # Has a transaction id, and stays open.
        catalog.coordinator.commit(table, proposal(1))
        assert seen(catalog) == [(table, 0), (table, 1)]
        idle.rollback()


def test_two_readers_that_place_entries_agree_on_positions(catalog: SqlCatalog, postgres_url: str) -> None:
    tables = [table_of(catalog, f"t{number}") for number in range(4)]
    readers = 4
    together = threading.Barrier(readers)

    def read(_: int) -> list[tuple[int, str, int]]:
        with SqlCatalog(postgres_url) as reader:
            reader.feed.latest_feed_position()
            together.wait()
            return [(one.position, one.table_id, one.version) for one in reader.feed.feed(after=0, limit=1000)]

    with ThreadPoolExecutor(readers) as threads:
        for version in range(1, 6):
            for table in tables:
                catalog.coordinator.commit(table, proposal(version))
            found = list(threads.map(read, range(readers)))
            assert all(one == found[0] for one in found)
            assert [position for position, _, _ in found[0]] == list(range(1, len(found[0]) + 1))


@pytest.mark.slow
def test_readers_miss_nothing_while_transactions_stay_open_and_roll_back(catalog: SqlCatalog) -> None:
    """Writers hold their transactions open for random times, some roll back, some commit several tables."""
    writers, commits_each = 6, 25
    tables = [table_of(catalog, f"t{number}") for number in range(writers)]
    ends = threading.Event()

    def write(number: int) -> None:
        draw = random.Random(number)
        version = 1
        while version <= commits_each:
            if draw.random() < 0.5:
                catalog.coordinator.commit(tables[number], proposal(version))
                version += 1
                continue
            with catalog._database.shared._ready()[1].connect() as connection:
                ratify(connection, tables[number], version)
                time.sleep(draw.random() / 50)
                if draw.random() < 0.3:
                    connection.rollback()
                else:
                    transaction_end.commit(connection)
                    version += 1

    def read(_: int) -> list[tuple[int, str, int]]:
        found: list[tuple[int, str, int]] = []
        while True:
            is_last = ends.is_set()
            page = catalog.feed.feed(after=found[-1][0] if found else 0, limit=7)
            found += [(one.position, one.table_id, one.version) for one in page]
            if is_last and not page:
                return found

    with ThreadPoolExecutor(writers + 3) as threads:
        reading = [threads.submit(read, number) for number in range(3)]
        for future in [threads.submit(write, number) for number in range(writers)]:
            future.result()
        ends.set()
        answers = [future.result() for future in reading]
    for found in answers:
        assert found == answers[0]
        assert [position for position, _, _ in found] == list(range(1, len(found) + 1))
        for table in tables:
            assert [version for _, of, version in found if of == table] == list(range(commits_each + 1))
