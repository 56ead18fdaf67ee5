"""What every catalog must do about turns: the advice by which writers of one table need not race."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contracts.catalog_bench import OTHER, SPAWN, Bench, Rule, create

_SOON, _LONG = 0.05, 30.0


def one_writer_at_a_time_has_the_turn(bench: Bench) -> None:
    """OCC-15: writers who have met need not lose races against each other."""
    with bench.client() as catalog:
        table = create(catalog).table_id
    inside: list[int] = []

    def wait(number: int) -> int:
        with bench.client() as catalog:
            for _ in range(5):
                with catalog.commit_lock(table, seconds=_LONG) as ones_turn:
                    assert ones_turn
                    inside.append(number)
                    time.sleep(0.002)
                    assert inside == [number]
                    inside.remove(number)
        return number

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(wait, range(4))) == [0, 1, 2, 3]


def who_does_not_get_the_turn_in_time_is_told_and_may_go_on(bench: Bench) -> None:
    """OCC-15: a writer that stands still holds nobody up for long."""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        with catalog.commit_lock(table, seconds=_LONG) as first, other.commit_lock(table, seconds=_SOON) as second:
            assert (first, second) == (True, False)
            assert other.get_ratified_commits(table).latest_version == 0
        with other.commit_lock(table, seconds=_SOON) as second:
            assert second


def tables_do_not_wait_for_each_other(bench: Bench) -> None:
    """OCC-15"""
    with bench.client() as catalog, bench.client() as other:
        here, there = create(catalog).table_id, create(catalog, OTHER).table_id
        with catalog.commit_lock(here, seconds=_LONG) as first, other.commit_lock(there, seconds=_SOON) as second:
            assert (first, second) == (True, True)


def a_turn_ends_with_an_error_and_passes_it_on(bench: Bench) -> None:
    """OCC-15"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        with pytest.raises(ZeroDivisionError), catalog.commit_lock(table, seconds=_LONG):
            raise ZeroDivisionError
        with other.commit_lock(table, seconds=_SOON) as ones_turn:
            assert ones_turn


def _hold(bench: Bench, table: str, sender: Any) -> None:
    with bench.client() as catalog, catalog.commit_lock(table, seconds=_LONG) as ones_turn:
        sender.send(ones_turn)
        signal.pause()


def a_turn_ends_with_its_process(bench: Bench) -> None:
    """OCC-15, CM-C15"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        receiver, sender = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=_hold, args=(bench, table, sender))
        process.start()
        assert receiver.poll(60) and receiver.recv()
        with catalog.commit_lock(table, seconds=_SOON) as ones_turn:
            assert not ones_turn
        os.kill(int(process.pid or 0), signal.SIGKILL)
        process.join()
        with catalog.commit_lock(table, seconds=_LONG) as ones_turn:
            assert ones_turn


def a_turn_that_was_given_back_does_not_stay_with_a_forked_child(bench: Bench) -> None:
    """OCC-15"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        child = multiprocessing.get_context("fork").Process(target=signal.pause)
        with catalog.commit_lock(table, seconds=_LONG) as ones_turn:
            assert ones_turn
            child.start()
        with other.commit_lock(table, seconds=_SOON) as ones_turn:
            assert ones_turn
        child.kill()
        child.join()


def a_closed_client_gets_no_turn_or_leaves_nothing_open(bench: Bench) -> None:
    """OCC-15: what is to be committed then fails for that reason, and for no other."""
    with bench.client() as catalog:
        table = create(catalog).table_id
    with catalog.commit_lock(table, seconds=_SOON):
        pass


TURN_CONTRACT: tuple[Rule, ...] = (
    one_writer_at_a_time_has_the_turn,
    who_does_not_get_the_turn_in_time_is_told_and_may_go_on,
    tables_do_not_wait_for_each_other,
    a_turn_ends_with_an_error_and_passes_it_on,
    a_turn_ends_with_its_process,
    a_turn_that_was_given_back_does_not_stay_with_a_forked_child,
    a_closed_client_gets_no_turn_or_leaves_nothing_open,
)
