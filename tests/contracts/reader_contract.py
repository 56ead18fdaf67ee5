"""What every catalog does for runs and sensors: pinned versions, and pages of the feed that say whose feed it is.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.version_pins import PIN_LIFETIME_MS
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from tests.contracts.catalog_bench import NAME, SPAWN, Bench, Rule, create, proposal


def the_first_pin_of_an_owner_stays(bench: Bench) -> None:
    with bench.client() as first, bench.client() as second:
        table = create(first).table_id
        assert first.pinned_version(table, owner="run 1") is None
        assert first.pin_version(table, 3, owner="run 1") == 3
        assert second.pin_version(table, 5, owner="run 1") == 3
        assert second.pin_version(table, 1, owner="run 1") == 3
        assert second.pin_version(table, 5, owner="run 2") == 5
        assert first.pinned_version(table, owner="run 1") == 3


def a_raised_pin_moves_forward_only(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        assert catalog.raise_pinned_version(table, 4, owner="run") == 4
        assert catalog.raise_pinned_version(table, 7, owner="run") == 7
        assert catalog.raise_pinned_version(table, 6, owner="run") == 7
        assert catalog.pin_version(table, 9, owner="run") == 7
        assert catalog.pinned_version(table, owner="run") == 7


def pins_of_one_owner_are_kept_for_each_table(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        other = create(catalog, TableIdentifier("main", "sales", "other")).table_id
        catalog.pin_version(table, 1, owner="run")
        catalog.pin_version(other, 2, owner="run")
        assert [catalog.pinned_version(each, owner="run") for each in (table, other)] == [1, 2]


def pins_are_forgotten_after_their_lifetime(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.pin_version(table, 1, owner="old")
        catalog.pin_version(table, 1, owner="renewed")
        bench.clock.now += PIN_LIFETIME_MS
        catalog.raise_pinned_version(table, 2, owner="renewed")
        catalog.pin_version(table, 2, owner="next")
        assert catalog.pinned_version(table, owner="old") == 1
        bench.clock.now += 1
        catalog.pin_version(table, 2, owner="last")
        assert catalog.pinned_version(table, owner="old") is None
        assert catalog.pinned_version(table, owner="renewed") == 2


def a_pin_needs_a_table_an_owner_and_a_version(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        for pin in (catalog.pin_version, catalog.raise_pinned_version):
            with pytest.raises(TableNotFoundError):
                pin("no such id", 1, owner="run")
            with pytest.raises(InvalidArgumentError):
                pin(table, 1, owner="")
            with pytest.raises(InvalidArgumentError):
                pin(table, -1, owner="run")


def _pin_all(bench: Bench, table: str, own: int, rounds: int, barrier: Any, answers: Any) -> None:
    with bench.client() as catalog:
        held = []
        for number in range(rounds):
            barrier.wait(60)
            held.append(catalog.pin_version(table, own, owner=f"run {number}"))
    answers.put(held)


def one_of_many_processes_decides_each_pin(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
    barrier, answers = SPAWN.Barrier(3), SPAWN.Queue()
    processes = [SPAWN.Process(target=_pin_all, args=(bench, table, own, 20, barrier, answers)) for own in (1, 2, 3)]
    for process in processes:
        process.start()
    held = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert held[0] == held[1] == held[2]
    with bench.client() as catalog:
        assert [catalog.pinned_version(table, owner=f"run {number}") for number in range(20)] == held[0]


def many_threads_raise_a_pin_to_the_highest(bench: Bench) -> None:
    with bench.client() as catalog, ThreadPoolExecutor(max_workers=6) as pool:
        table = create(catalog).table_id
        held = list(pool.map(lambda version: catalog.raise_pinned_version(table, version, owner="run"), range(40)))
        assert all(answer >= version for version, answer in enumerate(held))
        assert catalog.pinned_version(table, owner="run") == 39


def a_page_of_the_feed_says_whose_feed_it_is_and_where_it_ends(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        empty = catalog.feed_page(after=0, limit=10)
        assert (empty.latest_position, empty.entries) == (0, ())
        table = create(catalog).table_id
        create(catalog, TableIdentifier("main", "sales", "other"))
        catalog.commit(table, proposal(1))
        page = other.feed_page(after=1, limit=1)
        assert page.catalog_id == empty.catalog_id and page.catalog_id
        assert (page.latest_position, page.entries) == (3, tuple(catalog.feed(after=1, limit=1)))
        mine = catalog.feed_page(after=0, limit=10, identifiers=[NAME])
        assert [entry.position for entry in mine.entries] == [1, 3]
        for nothing in (
            catalog.feed_page(after=3, limit=10, identifiers=[NAME]),
            catalog.feed_page(after=0, limit=10, identifiers=[]),
        ):
            assert (nothing.catalog_id, nothing.latest_position, nothing.entries) == (empty.catalog_id, 3, ())


READER_CONTRACT: tuple[Rule, ...] = (
    the_first_pin_of_an_owner_stays,
    a_raised_pin_moves_forward_only,
    pins_of_one_owner_are_kept_for_each_table,
    pins_are_forgotten_after_their_lifetime,
    a_pin_needs_a_table_an_owner_and_a_version,
    one_of_many_processes_decides_each_pin,
    many_threads_raise_a_pin_to_the_highest,
    a_page_of_the_feed_says_whose_feed_it_is_and_where_it_ends,
)
