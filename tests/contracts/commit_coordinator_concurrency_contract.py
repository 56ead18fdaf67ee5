"""Contract of ``CommitCoordinator``: concurrency, durability and forks.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import functools
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from tests.contracts.catalog_bench import FORKSERVER, Bench, Rule, create, proposal


@pytest.mark.requirements("CM-C3", "CM-C15")
def one_of_concurrent_threads_wins_each_version(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in range(1, 11):
            proposals = [proposal(version) for _ in range(8)]
            with ThreadPoolExecutor(8) as threads:
                outcomes = list(threads.map(functools.partial(catalog.coordinator.commit, table), proposals))
            won = [one for one, outcome in zip(proposals, outcomes, strict=True) if isinstance(outcome, Ratified)]
            assert len(won) == 1
            for outcome in outcomes:
                if isinstance(outcome, VersionTaken):
                    assert outcome.winners.commits[0].file_name == won[0].file_name


def _commit_concurrently(bench: Bench, table: str, versions: int, barrier: Any, answers: Any) -> None:
    won: list[str] = []
    with bench.client() as catalog:
        for version in range(1, versions + 1):
            barrier.wait(300)
            mine = proposal(version)
            if isinstance(catalog.coordinator.commit(table, mine), Ratified):
                won.append(mine.file_name)
    answers.put(won)


@pytest.mark.requirements("CM-C3", "CM-C15")
def one_of_concurrent_processes_wins_each_version(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
    barrier, answers = FORKSERVER.Barrier(3), FORKSERVER.Queue()
    processes = [
        FORKSERVER.Process(target=_commit_concurrently, args=(bench, table, 30, barrier, answers)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    won = [name for _ in processes for name in answers.get(timeout=500)]
    for process in processes:
        process.join()
    with bench.client() as catalog:
        stored = catalog.coordinator.get_ratified_commits(table).commits
    assert [commit.version for commit in stored] == list(range(1, 31))
    assert sorted(won) == [commit.file_name for commit in stored]


def _create_first_table(bench: Bench, number: int, barrier: Any, answers: Any) -> None:
    barrier.wait(300)
    with bench.client() as catalog:
        create(catalog, TableIdentifier("main", "sales", f"t{number}"))
    answers.put(number)


@pytest.mark.requirements("CM-C15")
def concurrent_processes_create_the_catalog_once(bench: Bench) -> None:
    barrier, answers = FORKSERVER.Barrier(4), FORKSERVER.Queue()
    processes = [
        FORKSERVER.Process(target=_create_first_table, args=(bench, number, barrier, answers)) for number in range(4)
    ]
    for process in processes:
        process.start()
    assert sorted(answers.get(timeout=500) for _ in processes) == [0, 1, 2, 3]
    for process in processes:
        process.join()
    with bench.client() as catalog:
        assert len(catalog.registry.list_tables()) == 4


def _commit_and_be_killed(bench: Bench, table: str, one: CommitProposal, sender: Any) -> None:
    with bench.client() as catalog:
        outcome = catalog.coordinator.commit(table, one)
        sender.send(outcome)
        signal.pause()


@pytest.mark.requirements("CM-C1", "CM-C15")
def a_commit_is_durable_when_its_process_is_killed(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
    for version in (1, 2, 3):
        one = proposal(version)
        receiver, sender = FORKSERVER.Pipe(duplex=False)
        process = FORKSERVER.Process(target=_commit_and_be_killed, args=(bench, table, one, sender))
        process.start()
        assert receiver.poll(300) and isinstance(receiver.recv(), Ratified)
        os.kill(int(process.pid or 0), signal.SIGKILL)
        process.join()
        with bench.client() as catalog:
            assert catalog.coordinator.get_ratified_commits(table).commits[-1].file_name == one.file_name


def _commit_after_fork(catalog: Catalog, table: str, answers: Any) -> None:
    answers.put(isinstance(catalog.coordinator.commit(table, proposal(2)), Ratified))


@pytest.mark.requirements("CM-C15")
def a_client_works_in_parent_and_child_after_a_fork(bench: Bench) -> None:
    fork = multiprocessing.get_context("fork")
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        answers = fork.SimpleQueue()
        process = fork.Process(target=_commit_after_fork, args=(catalog, table, answers))
        process.start()
        assert answers.get()
        process.join()
        assert process.exitcode == 0
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 2
        assert isinstance(catalog.coordinator.commit(table, proposal(3)), Ratified)


COMMIT_COORDINATOR_CONCURRENCY_CONTRACT: tuple[Rule, ...] = (
    one_of_concurrent_threads_wins_each_version,
    one_of_concurrent_processes_wins_each_version,
    concurrent_processes_create_the_catalog_once,
    a_commit_is_durable_when_its_process_is_killed,
    a_client_works_in_parent_and_child_after_a_fork,
)
