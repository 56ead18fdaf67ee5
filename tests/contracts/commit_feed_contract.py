"""Contract of ``CommitFeed``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from tests.contracts.catalog_bench import NAME, Bench, Rule, create, proposal, summary


def the_feed_shows_every_commit_in_order_with_its_summary(bench: Bench) -> None:
    with bench.client() as catalog:
        other_name = TableIdentifier("main", "sales", "other")
        table, other = create(catalog).table_id, create(catalog, other_name).table_id
        bench.clock.now += 7
        catalog.coordinator.commit(table, proposal(1))
        catalog.coordinator.commit(other, proposal(1, data_change=False))
        tagged = CommitProposal(
            version=2,
            file_name=f"{2:020d}.{uuid.uuid4()}.json",
            file_size=1,
            file_modification_time=1,
            summary=summary(2000, data_change=False, tags={"dagster/partition_key": "ä|\x00'\""}),
        )
        catalog.coordinator.commit(table, tagged)
        feed = catalog.feed.feed(after=0, limit=100)
        assert [(entry.identifier, entry.version, entry.data_version) for entry in feed] == [
            (NAME, 0, 0),
            (other_name, 0, 0),
            (NAME, 1, 1),
            (other_name, 1, 0),
            (NAME, 2, 1),
        ]
        assert [entry.position for entry in feed] == [1, 2, 3, 4, 5]
        assert feed[4].summary == tagged.summary and feed[4].ratified_ms == bench.clock.now
        assert catalog.feed.feed(after=2, limit=2) == feed[2:4]
        assert [entry.position for entry in catalog.feed.feed(after=0, limit=9, identifiers=[other_name])] == [2, 4]
        assert catalog.feed.feed(after=0, limit=9, identifiers=[]) == ()
        assert catalog.feed.latest_feed_position() == 5
        assert catalog.registry.load_table(NAME).ratified.latest_data_version == 1


def an_empty_catalog_has_an_empty_feed(bench: Bench) -> None:
    with bench.client() as catalog:
        assert (
            catalog.feed.latest_feed_position(),
            catalog.feed.feed(after=0, limit=1),
            catalog.registry.list_tables(),
        ) == (
            0,
            (),
            (),
        )


def a_feed_reader_misses_no_concurrent_commit(bench: Bench) -> None:
    """A position that shows up after a greater one was read would be lost to a sensor's cursor."""
    writers, commits_each = 6, 40
    with bench.client() as catalog, bench.client() as reader:
        names = [TableIdentifier("main", "sales", f"t{number}") for number in range(writers)]
        tables = [create(catalog, name).table_id for name in names]

        def write(table: str) -> None:
            for version in range(1, commits_each + 1):
                catalog.coordinator.commit(table, proposal(version))

        seen: list[int] = []
        with ThreadPoolExecutor(writers) as threads:
            pending = [threads.submit(write, table) for table in tables]
            while True:
                done = all(future.done() for future in pending)
                page = reader.feed.feed(after=seen[-1] if seen else 0, limit=7)
                seen += [entry.position for entry in page]
                if done and not page:
                    break
                time.sleep(0.001)  # A spinning reader would keep the interpreter from the writers.
            for future in pending:
                future.result()
        assert seen == list(range(1, writers * (commits_each + 1) + 1))


def a_feed_page_has_the_catalog_id_and_the_latest_position(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        empty = catalog.feed.feed_page(after=0, limit=10)
        assert (empty.latest_position, empty.entries) == (0, ())
        table = create(catalog).table_id
        create(catalog, TableIdentifier("main", "sales", "other"))
        catalog.coordinator.commit(table, proposal(1))
        page = other.feed.feed_page(after=1, limit=1)
        assert page.catalog_id == empty.catalog_id and page.catalog_id
        assert (page.latest_position, page.entries) == (3, tuple(catalog.feed.feed(after=1, limit=1)))
        mine = catalog.feed.feed_page(after=0, limit=10, identifiers=[NAME])
        assert [entry.position for entry in mine.entries] == [1, 3]
        for nothing in (
            catalog.feed.feed_page(after=3, limit=10, identifiers=[NAME]),
            catalog.feed.feed_page(after=0, limit=10, identifiers=[]),
        ):
            assert (nothing.catalog_id, nothing.latest_position, nothing.entries) == (empty.catalog_id, 3, ())


def a_page_of_many_tables_is_that_of_each_of_them(bench: Bench) -> None:
    """Few entries are read without the names of the tables, and as many as the limit with them."""
    others = [TableIdentifier("main", "sales", f"absent{number}") for number in range(400)]
    with bench.client() as catalog:
        mine, other = create(catalog).table_id, create(catalog, TableIdentifier("main", "sales", "other")).table_id
        for version in range(1, 6):
            catalog.coordinator.commit(other, proposal(version))
            catalog.coordinator.commit(mine, proposal(version))
        for wanted in ([NAME, *others], frozenset((NAME, *others))):
            for after in range(13):
                for limit in (0, 1, 3, 7, 50):
                    few = catalog.feed.feed_page(after=after, limit=limit, identifiers=[NAME])
                    assert catalog.feed.feed_page(after=after, limit=limit, identifiers=wanted) == few, (after, limit)


COMMIT_FEED_CONTRACT: tuple[Rule, ...] = (
    the_feed_shows_every_commit_in_order_with_its_summary,
    an_empty_catalog_has_an_empty_feed,
    a_feed_reader_misses_no_concurrent_commit,
    a_feed_page_has_the_catalog_id_and_the_latest_position,
    a_page_of_many_tables_is_that_of_each_of_them,
)
