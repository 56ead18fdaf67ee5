"""What every catalog must do about ratification: one winner for each version, in order."""

import functools
import multiprocessing
import os
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.ratification import (
    MAX_CLOCK_DIFFERENCE_MS,
    CommitOutcome,
    CommitProposal,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CommitRejectedError,
    InvalidArgumentError,
)
from tests.contracts.catalog_bench import NAME, OTHER, SPAWN, Bench, Rule, create, proposal, summary


def commits_are_ratified_in_order_and_served_until_published(bench: Bench) -> None:
    """CM-C1, CM-C4, CM-C7, CM-C8, CM-C9, CM-C10"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        proposals = [proposal(version) for version in (1, 2, 3)]
        for one in proposals:
            assert catalog.commit(table, one) == Ratified(
                version=one.version, latest_version=one.version, published_version=0
            )
        served = other.get_ratified_commits(table)
        assert [commit.version for commit in served.commits] == [1, 2, 3]
        assert [commit.file_name for commit in served.commits] == [one.file_name for one in proposals]
        first = served.commits[0]
        assert (first.file_size, first.file_modification_time, first.in_commit_timestamp) == (101, 5001, 1001)
        assert first.txn_id == proposals[0].summary.txn_id
        assert [commit.version for commit in other.get_ratified_commits(table, start=2, end=2).commits] == [2]
        assert other.get_ratified_commits(table, start=7).latest_version == 3
        assert other.get_ratified_commits(table, start=7).commits == ()
        assert other.load_table(NAME).ratified == served
        catalog.set_published_version(table, 2)
        assert [commit.version for commit in other.get_ratified_commits(table).commits] == [3]
        assert other.get_ratified_commits(table, start=0, end=2).commits == ()
        catalog.set_published_version(table, 3)
        assert other.get_ratified_commits(table).commits == ()
        assert other.load_table(NAME).ratified.latest_version == 3


def the_published_version_moves_forward_only_and_never_above_the_latest(bench: Bench) -> None:
    """CM-C8"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in (1, 2):
            catalog.commit(table, proposal(version))
        catalog.set_published_version(table, 2)
        catalog.set_published_version(table, 1)
        assert catalog.get_ratified_commits(table).published_version == 2
        with pytest.raises(InvalidArgumentError):
            catalog.set_published_version(table, 3)
        assert catalog.get_ratified_commits(table).published_version == 2


def a_gap_is_rejected_and_changes_nothing(bench: Bench) -> None:
    """CM-C2"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        with pytest.raises(CommitRejectedError, match="latest is 0"):
            catalog.commit(table, proposal(2))
        assert catalog.get_ratified_commits(table).latest_version == 0
        assert catalog.latest_feed_position() == 1


def a_timestamp_far_ahead_of_the_catalogs_clock_is_refused(bench: Bench) -> None:
    """CM-C14, ICT-4: every later commit would have to be later still."""
    with bench.client() as catalog:
        assert catalog.now_ms() == bench.clock.now
        table = create(catalog).table_id
        newest = bench.clock.now + MAX_CLOCK_DIFFERENCE_MS
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.commit(table, proposal(1, timestamp=newest + 1))
        assert catalog.get_ratified_commits(table).latest_version == 0
        assert isinstance(catalog.commit(table, proposal(1, timestamp=newest)), Ratified)
        staging = catalog.create_staging_table(OTHER)
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.register_table(staging.table_id, OTHER, summary=summary(newest + 1))
        assert catalog.list_tables() == (NAME,)


def a_table_whose_history_lies_in_the_future_goes_on(bench: Bench) -> None:
    """ICT-4: the timestamp right after the previous one is the only one that is possible."""
    with bench.client() as catalog:
        table, ahead = create(catalog).table_id, bench.clock.now + 1000 * MAX_CLOCK_DIFFERENCE_MS
        bench.clock.now = ahead
        catalog.commit(table, proposal(1, timestamp=ahead))
        bench.clock.now = ahead - 999 * MAX_CLOCK_DIFFERENCE_MS
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.commit(table, proposal(2, timestamp=ahead + 2))
        for version in (2, 3):
            assert isinstance(catalog.commit(table, proposal(version, timestamp=ahead + version - 1)), Ratified)


def a_taken_version_is_answered_with_its_winners_published_or_not(bench: Bench) -> None:
    """CM-C3, CM-C11"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        winners = [proposal(version) for version in (1, 2, 3)]
        for one in winners:
            catalog.commit(table, one)
        catalog.set_published_version(table, 2)
        outcome = catalog.commit(table, proposal(2))
        assert isinstance(outcome, VersionTaken) and outcome.proposed_version == 2
        assert [commit.file_name for commit in outcome.winners.commits] == [one.file_name for one in winners[1:]]
        assert (outcome.winners.latest_version, outcome.winners.published_version) == (3, 2)
        assert isinstance(catalog.commit(table, proposal(0)), VersionTaken)


def the_same_file_name_again_is_the_same_commit(bench: Bench) -> None:
    """CM-C3: a client that lost the answer proposes again and learns that it had won"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        mine = proposal(1)
        catalog.commit(table, mine)
        catalog.commit(table, proposal(2))
        catalog.set_published_version(table, 2)
        answer = catalog.commit(table, mine)
        assert answer == Ratified(version=1, latest_version=2, published_version=2, repeated=True)
        assert catalog.latest_feed_position() == 3
        another = catalog.commit(table, replace(mine, file_size=mine.file_size + 1))
        assert isinstance(another, VersionTaken), "it has the name, and is another commit"


def a_proposal_that_cannot_be_right_is_rejected(bench: Bench) -> None:
    """CM-C14"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        good = proposal(1)
        stem = str(uuid.uuid4())
        for name in (
            f"{2:020d}.{stem}.json",
            f"{1:020d}.json",
            f"1.{stem}.json",
            f"../{1:020d}.{stem}.json",
            f"{1:020d}.{stem}.json\n",
            f"{1:020d}.{stem}.parquet",
            "",
        ):
            with pytest.raises(CommitRejectedError, match="file name"):
                catalog.commit(
                    table,
                    CommitProposal(
                        version=1, file_name=name, file_size=1, file_modification_time=1, summary=good.summary
                    ),
                )
        with pytest.raises(CommitRejectedError, match="timestamp"):
            catalog.commit(table, proposal(1, timestamp=1000))
        assert catalog.get_ratified_commits(table).latest_version == 0


def a_proposal_that_no_database_can_hold_is_rejected(bench: Bench) -> None:
    """CM-C14: whatever the database, and as a refusal that the writer understands."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        good = proposal(1)
        for wrong in (
            proposal(2**63 - 1),
            proposal(2**64),
            proposal(1, timestamp=2**64),
            replace(good, file_size=2**63),
            replace(good, published_version=2**64),
            replace(good, summary=replace(good.summary, operation="a\0b")),
            replace(good, summary=replace(good.summary, operation="\ud800")),
        ):
            with pytest.raises(CommitRejectedError, match="can hold"):
                catalog.commit(table, wrong)
        with pytest.raises(CommitRejectedError, match="one after the other"):
            catalog.commit(table, replace(proposal(2**63 - 2, timestamp=2000), file_size=1, file_modification_time=1))
        assert catalog.get_ratified_commits(table).latest_version == 0


def one_of_many_threads_wins_each_version(bench: Bench) -> None:
    """CM-C3, CM-C15"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in range(1, 11):
            rivals = [proposal(version) for _ in range(8)]
            with ThreadPoolExecutor(8) as threads:
                outcomes = list(threads.map(functools.partial(catalog.commit, table), rivals))
            won = [rival for rival, outcome in zip(rivals, outcomes, strict=True) if isinstance(outcome, Ratified)]
            assert len(won) == 1
            for outcome in outcomes:
                if isinstance(outcome, VersionTaken):
                    assert outcome.winners.commits[0].file_name == won[0].file_name


def _race(bench: Bench, table: str, versions: int, barrier: Any, answers: Any) -> None:
    won: list[str] = []
    with bench.client() as catalog:
        for version in range(1, versions + 1):
            barrier.wait(60)
            mine = proposal(version)
            if isinstance(catalog.commit(table, mine), Ratified):
                won.append(mine.file_name)
    answers.put(won)


def one_of_many_processes_wins_each_version(bench: Bench) -> None:
    """CM-C3, CM-C15"""
    with bench.client() as catalog:
        table = create(catalog).table_id
    barrier, answers = SPAWN.Barrier(3), SPAWN.Queue()
    processes = [SPAWN.Process(target=_race, args=(bench, table, 30, barrier, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    won = [name for _ in processes for name in answers.get(timeout=120)]
    for process in processes:
        process.join()
    with bench.client() as catalog:
        stored = catalog.get_ratified_commits(table).commits
    assert [commit.version for commit in stored] == list(range(1, 31))
    assert sorted(won) == [commit.file_name for commit in stored]


def _first_use(bench: Bench, number: int, barrier: Any, answers: Any) -> None:
    barrier.wait(60)
    with bench.client() as catalog:
        create(catalog, TableIdentifier("main", "sales", f"t{number}"))
    answers.put(number)


def many_processes_may_be_the_first_to_use_the_catalog(bench: Bench) -> None:
    """CM-C15"""
    barrier, answers = SPAWN.Barrier(4), SPAWN.Queue()
    processes = [SPAWN.Process(target=_first_use, args=(bench, number, barrier, answers)) for number in range(4)]
    for process in processes:
        process.start()
    assert sorted(answers.get(timeout=120) for _ in processes) == [0, 1, 2, 3]
    for process in processes:
        process.join()
    with bench.client() as catalog:
        assert len(catalog.list_tables()) == 4


def _commit_and_be_killed(bench: Bench, table: str, one: CommitProposal, sender: Any) -> None:
    with bench.client() as catalog:
        outcome = catalog.commit(table, one)
        sender.send(outcome)
        signal.pause()


def a_commit_survives_the_death_of_its_process_right_after_the_answer(bench: Bench) -> None:
    """CM-C1, CM-C15"""
    with bench.client() as catalog:
        table = create(catalog).table_id
    for version in (1, 2, 3):
        one = proposal(version)
        receiver, sender = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=_commit_and_be_killed, args=(bench, table, one, sender))
        process.start()
        assert receiver.poll(60) and isinstance(receiver.recv(), Ratified)
        os.kill(int(process.pid or 0), signal.SIGKILL)
        process.join()
        with bench.client() as catalog:
            assert catalog.get_ratified_commits(table).commits[-1].file_name == one.file_name


def _commit_after_fork(catalog: Catalog, table: str, answers: Any) -> None:
    answers.put(isinstance(catalog.commit(table, proposal(2)), Ratified))


def a_client_keeps_working_on_both_sides_of_a_fork(bench: Bench) -> None:
    """CM-C15"""
    fork = multiprocessing.get_context("fork")
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.commit(table, proposal(1))
        answers = fork.SimpleQueue()
        process = fork.Process(target=_commit_after_fork, args=(catalog, table, answers))
        process.start()
        assert answers.get()
        process.join()
        assert process.exitcode == 0
        assert catalog.get_ratified_commits(table).latest_version == 2
        assert isinstance(catalog.commit(table, proposal(3)), Ratified)


def ten_thousand_commits_are_served_and_stay_quick(bench: Bench) -> None:
    """CM-C7, CM-C9"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in range(1, 10_001):
            outcome: CommitOutcome = catalog.commit(table, proposal(version))
            assert isinstance(outcome, Ratified)
        served = catalog.get_ratified_commits(table).commits
        assert [commit.version for commit in served] == list(range(1, 10_001))
        catalog.set_published_version(table, 9_999)
        assert [commit.version for commit in catalog.load_table(NAME).ratified.commits] == [10_000]
        assert len(catalog.feed(after=0, limit=20_000)) == 10_001


RATIFICATION_CONTRACT: tuple[Rule, ...] = (
    commits_are_ratified_in_order_and_served_until_published,
    the_published_version_moves_forward_only_and_never_above_the_latest,
    a_gap_is_rejected_and_changes_nothing,
    a_timestamp_far_ahead_of_the_catalogs_clock_is_refused,
    a_table_whose_history_lies_in_the_future_goes_on,
    a_taken_version_is_answered_with_its_winners_published_or_not,
    the_same_file_name_again_is_the_same_commit,
    a_proposal_that_cannot_be_right_is_rejected,
    a_proposal_that_no_database_can_hold_is_rejected,
    one_of_many_threads_wins_each_version,
    one_of_many_processes_wins_each_version,
    many_processes_may_be_the_first_to_use_the_catalog,
    a_commit_survives_the_death_of_its_process_right_after_the_answer,
    a_client_keeps_working_on_both_sides_of_a_fork,
    ten_thousand_commits_are_served_and_stay_quick,
)
