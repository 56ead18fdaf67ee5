"""Contract of ``CommitCoordinator``: the advisory commit lock.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cm_delta_dagster.catalog.tables import TableIdentifier
from tests.contracts.catalog_bench import FORKSERVER, Bench, Rule, create

_SHORT, _LONG = 0.05, 30.0


@pytest.mark.requirements("OCC-15")
def one_writer_at_a_time_holds_the_commit_lock(bench: Bench) -> None:
    """Contended writers that take the commit lock do not conflict."""
    with bench.client() as catalog:
        table = create(catalog).table_id
    inside: list[int] = []

    def wait(number: int) -> int:
        with bench.client() as catalog:
            for _ in range(5):
                with catalog.coordinator.commit_lock(table, seconds=_LONG) as acquired:
                    assert acquired
                    inside.append(number)
                    time.sleep(0.002)
                    assert inside == [number]
                    inside.remove(number)
        return number

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(wait, range(4))) == [0, 1, 2, 3]


@pytest.mark.requirements("OCC-15")
def a_writer_without_the_lock_continues_after_the_timeout(bench: Bench) -> None:
    """A suspended writer delays others only until the timeout."""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        with (
            catalog.coordinator.commit_lock(table, seconds=_LONG) as first,
            other.coordinator.commit_lock(table, seconds=_SHORT) as second,
        ):
            assert (first, second) == (True, False)
            assert other.coordinator.get_ratified_commits(table).latest_version == 0
        with other.coordinator.commit_lock(table, seconds=_LONG) as second:
            assert second


@pytest.mark.requirements("OCC-15")
def commit_locks_of_two_tables_are_independent(bench: Bench) -> None:
    """SQLite has 64 lock files, so that two tables may share one by chance."""
    with bench.client() as catalog, bench.client() as other:
        here = create(catalog).table_id
        others = [create(catalog, TableIdentifier("main", "s", f"other_{number}")).table_id for number in range(4)]
        with catalog.coordinator.commit_lock(here, seconds=_LONG) as first:
            assert first
            acquired = []
            for table in others:
                with other.coordinator.commit_lock(table, seconds=_SHORT) as second:
                    acquired.append(second)
            assert any(acquired)


@pytest.mark.requirements("OCC-15")
def an_error_releases_the_commit_lock_and_is_raised(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        with pytest.raises(ZeroDivisionError), catalog.coordinator.commit_lock(table, seconds=_LONG):
            raise ZeroDivisionError
        with other.coordinator.commit_lock(table, seconds=_LONG) as acquired:
            assert acquired


def _hold_commit_lock(bench: Bench, table: str, sender: Any) -> None:
    with bench.client() as catalog, catalog.coordinator.commit_lock(table, seconds=_LONG) as acquired:
        sender.send(acquired)
        signal.pause()


@pytest.mark.requirements("OCC-15", "CM-C15")
def the_commit_lock_is_released_when_its_process_ends(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        receiver, sender = FORKSERVER.Pipe(duplex=False)
        process = FORKSERVER.Process(target=_hold_commit_lock, args=(bench, table, sender))
        process.start()
        assert receiver.poll(300) and receiver.recv()
        with catalog.coordinator.commit_lock(table, seconds=_SHORT) as acquired:
            assert not acquired
        os.kill(int(process.pid or 0), signal.SIGKILL)
        process.join()
        with catalog.coordinator.commit_lock(table, seconds=_LONG) as acquired:
            assert acquired


@pytest.mark.requirements("OCC-15")
def a_forked_child_does_not_keep_a_released_commit_lock(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        child = multiprocessing.get_context("fork").Process(target=signal.pause)
        with catalog.coordinator.commit_lock(table, seconds=_LONG) as acquired:
            assert acquired
            child.start()
        with other.coordinator.commit_lock(table, seconds=_LONG) as acquired:
            assert acquired
        child.kill()
        child.join()


@pytest.mark.requirements("OCC-15")
def a_closed_client_acquires_no_commit_lock(bench: Bench) -> None:
    """What is to be committed then fails for that reason, and for no other."""
    with bench.client() as catalog:
        table = create(catalog).table_id
    with catalog.coordinator.commit_lock(table, seconds=_SHORT):
        pass


COMMIT_COORDINATOR_LOCK_CONTRACT: tuple[Rule, ...] = (
    one_writer_at_a_time_holds_the_commit_lock,
    a_writer_without_the_lock_continues_after_the_timeout,
    commit_locks_of_two_tables_are_independent,
    an_error_releases_the_commit_lock_and_is_raised,
    the_commit_lock_is_released_when_its_process_ends,
    a_forked_child_does_not_keep_a_released_commit_lock,
    a_closed_client_acquires_no_commit_lock,
)
