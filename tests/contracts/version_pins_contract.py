"""Contract of ``VersionPins``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.version_pins import PIN_LIFETIME_MS
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    TableNotFoundError,
)
from tests.contracts.catalog_bench import FORKSERVER, NAME, Bench, Rule, create, proposal


def _created(catalog: Catalog, versions: int) -> str:
    """The id of a table with this many versions after the first."""
    table = create(catalog).table_id
    for version in range(1, versions + 1):
        catalog.coordinator.commit(table, proposal(version))
    return table


def the_first_pin_of_an_owner_stays(bench: Bench) -> None:
    with bench.client() as first, bench.client() as second:
        table = _created(first, 5)
        assert first.pins.pinned_version(table, owner="run 1") is None
        assert first.pins.pin_version(table, 3, owner="run 1") == 3
        assert second.pins.pin_version(table, 5, owner="run 1") == 3
        assert second.pins.pin_version(table, 1, owner="run 1") == 3
        assert second.pins.pin_version(table, 5, owner="run 2") == 5
        assert first.pins.pinned_version(table, owner="run 1") == 3


def a_pin_is_raised_and_never_lowered(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _created(catalog, 9)
        assert catalog.pins.raise_pinned_version(table, 4, owner="run") == 4
        assert catalog.pins.raise_pinned_version(table, 7, owner="run") == 7
        assert catalog.pins.raise_pinned_version(table, 6, owner="run") == 7
        assert catalog.pins.pin_version(table, 9, owner="run") == 7
        assert catalog.pins.pinned_version(table, owner="run") == 7


def an_owner_has_one_pin_for_each_table(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _created(catalog, 1)
        other = create(catalog, TableIdentifier("main", "sales", "other")).table_id
        catalog.pins.pin_version(table, 1, owner="run")
        catalog.pins.pin_version(other, 0, owner="run")
        assert [catalog.pins.pinned_version(each, owner="run") for each in (table, other)] == [1, 0]


def a_pin_belongs_to_the_principal_that_made_it(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table = create(owner).table_id
        for version in (1, 2):
            owner.coordinator.commit(table, proposal(version))
        owner.access.enable_grants(owner=owner.access.whoami().principal)
        for client, privilege in ((ana, Privilege.APPEND), (bob, Privilege.READ)):
            owner.access.grant([privilege], str(NAME), str(client.access.whoami().principal))
        assert ana.pins.pin_version(table, 1, owner="run") == 1
        assert bob.pins.pinned_version(table, owner="run") is None
        assert bob.pins.pin_version(table, 0, owner="run") == 0
        assert (ana.pins.pinned_version(table, owner="run"), bob.pins.pinned_version(table, owner="run")) == (1, 0)
        assert ana.pins.raise_pinned_version(table, 2, owner="run") == 2, "it has written the version"
        assert bob.pins.pinned_version(table, owner="run") == 2


def pins_expire_after_their_lifetime(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _created(catalog, 2)
        catalog.pins.pin_version(table, 1, owner="old")
        catalog.pins.pin_version(table, 1, owner="renewed")
        bench.clock.now += PIN_LIFETIME_MS
        catalog.pins.raise_pinned_version(table, 2, owner="renewed")
        catalog.pins.pin_version(table, 2, owner="next")
        assert catalog.pins.pinned_version(table, owner="old") == 1
        bench.clock.now += 1
        catalog.pins.pin_version(table, 2, owner="last")
        assert catalog.pins.pinned_version(table, owner="old") is None
        assert catalog.pins.pinned_version(table, owner="renewed") == 2


def a_pin_requires_a_table_an_owner_and_a_version(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        for pin in (catalog.pins.pin_version, catalog.pins.raise_pinned_version):
            with pytest.raises(TableNotFoundError):
                pin("no such id", 1, owner="run")
            with pytest.raises(InvalidArgumentError):
                pin(table, 1, owner="")
            with pytest.raises(InvalidArgumentError):
                pin(table, -1, owner="run")


def a_version_that_the_table_does_not_have_is_not_pinned(bench: Bench) -> None:
    """Except of a table whose commits are made put-if-absent: clients see its versions before the catalog does."""
    with bench.client() as catalog:
        table = _created(catalog, 1)
        for pin in (catalog.pins.pin_version, catalog.pins.raise_pinned_version):
            with pytest.raises(InvalidArgumentError, match="the latest version is 1"):
                pin(table, 2, owner="run")
            assert catalog.pins.pinned_version(table, owner="run") is None
        assert catalog.pins.pin_version(table, 1, owner="run") == 1
        with pytest.raises(InvalidArgumentError, match="the latest version is 1"):
            catalog.pins.raise_pinned_version(table, 2, owner="run")
        assert catalog.pins.pinned_version(table, owner="run") == 1
        catalog.coordinator.set_published_version(table, 1)
        catalog.commit_policies.change_commit_policy(table, CommitPolicy.parse("put_if_absent"))
        assert catalog.pins.raise_pinned_version(table, 2, owner="run") == 2
        assert catalog.pins.pin_version(table, 5, owner="other run") == 5


def _pin_all(bench: Bench, table: str, own: int, rounds: int, barrier: Any, answers: Any) -> None:
    with bench.client() as catalog:
        pinned = []
        for number in range(rounds):
            barrier.wait(300)
            pinned.append(catalog.pins.pin_version(table, own, owner=f"run {number}"))
    answers.put(pinned)


def one_of_concurrent_processes_sets_each_pin(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _created(catalog, 3)
    barrier, answers = FORKSERVER.Barrier(3), FORKSERVER.Queue()
    processes = [
        FORKSERVER.Process(target=_pin_all, args=(bench, table, own, 20, barrier, answers)) for own in (1, 2, 3)
    ]
    for process in processes:
        process.start()
    pinned = [answers.get(timeout=500) for _ in processes]
    for process in processes:
        process.join()
    assert pinned[0] == pinned[1] == pinned[2]
    with bench.client() as catalog:
        assert [catalog.pins.pinned_version(table, owner=f"run {number}") for number in range(20)] == pinned[0]


def concurrent_raises_leave_the_highest_pin(bench: Bench) -> None:
    with bench.client() as catalog, ThreadPoolExecutor(max_workers=6) as pool:
        table = _created(catalog, 39)
        pinned = list(
            pool.map(lambda version: catalog.pins.raise_pinned_version(table, version, owner="run"), range(40))
        )
        assert all(answer >= version for version, answer in enumerate(pinned))
        assert catalog.pins.pinned_version(table, owner="run") == 39


VERSION_PINS_CONTRACT: tuple[Rule, ...] = (
    the_first_pin_of_an_owner_stays,
    a_pin_is_raised_and_never_lowered,
    an_owner_has_one_pin_for_each_table,
    a_pin_belongs_to_the_principal_that_made_it,
    pins_expire_after_their_lifetime,
    a_pin_requires_a_table_an_owner_and_a_version,
    a_version_that_the_table_does_not_have_is_not_pinned,
    one_of_concurrent_processes_sets_each_pin,
    concurrent_raises_leave_the_highest_pin,
)
