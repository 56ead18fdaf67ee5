"""What every catalog must do; run for each database by ``tests/catalog/test_catalog_contract.py``.

A rule gets a :class:`Bench`: a way to open any number of clients of one empty catalog, and the clock that they share.
"""

import functools
import json
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyRule, PolicyChange
from cm_delta_dagster.catalog.maintenance import Claimed, HeldByAnother, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitPolicyChanged,
    CommitProposal,
    CommitSummary,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.tables import InactiveState, TableEntry, TableIdentifier
from cm_delta_dagster.errors import (
    CommitRejectedError,
    InvalidArgumentError,
    PurgeRefusedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

NAME = TableIdentifier("main", "sales", "orders")
OTHER = TableIdentifier("main", "sales", "renamed")
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Clock:
    """Epoch milliseconds that stand still until moved."""

    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Bench:
    """``connect(clock)`` opens another client of the same catalog; it can be sent to other processes."""

    connect: Callable[[Callable[[], int]], Catalog]
    clock: Clock = field(default_factory=Clock)

    @contextmanager
    def client(self) -> Iterator[Catalog]:
        catalog = self.connect(self.clock)
        try:
            yield catalog
        finally:
            catalog.close()


Rule = Callable[[Bench], None]


def summary(timestamp: int, *, data_change: bool = True, tags: dict[str, str] | None = None) -> CommitSummary:
    return CommitSummary(
        txn_id=str(uuid.uuid4()),
        in_commit_timestamp=timestamp,
        operation="WRITE",
        data_change=data_change,
        metrics={"numFiles": "1"},
        tags=tags or {},
    )


def proposal(version: int, *, data_change: bool = True, timestamp: int | None = None) -> CommitProposal:
    return CommitProposal(
        version=version,
        file_name=f"{version:020d}.{uuid.uuid4()}.json",
        file_size=100 + version,
        file_modification_time=5000 + version,
        summary=summary(1000 + version if timestamp is None else timestamp, data_change=data_change),
    )


def inline(version: int, *, timestamp: int | None = None, size: int = 0) -> CommitProposal:
    """A proposal that carries its commit, ``size`` bytes longer than need be."""
    one = proposal(version, timestamp=timestamp)
    info = {"txnId": one.summary.txn_id, "inCommitTimestamp": one.summary.in_commit_timestamp}
    content = json.dumps({"commitInfo": info}).encode() + b" " * size + b"\n"
    return replace(one, mode=CommitMode.INLINE, content=content, file_size=len(content))


def created(version: int, *, operation: str = "WRITE") -> CommitProposal:
    """What is told of a commit that the creation of its published file has made."""
    one = proposal(version)
    name = f"{version:020d}.json"
    return replace(
        one,
        mode=CommitMode.PUT_IF_ABSENT,
        file_name=name,
        summary=replace(one.summary, operation=operation, data_change=operation == "WRITE"),
    )


def create(catalog: Catalog, identifier: TableIdentifier = NAME) -> TableEntry:
    staging = catalog.create_staging_table(identifier)
    return catalog.register_table(staging.table_id, identifier, summary=summary(1000))


# Names


def a_reserved_table_cannot_be_resolved_until_it_is_registered(bench: Bench) -> None:
    """CM-D1, CM-D3, CM-D5"""
    with bench.client() as catalog, bench.client() as other:
        staging = catalog.create_staging_table(NAME)
        assert not staging.location.endswith("/") and "%" not in staging.location
        with pytest.raises(TableNotFoundError):
            other.load_table(NAME)
        with pytest.raises(TableNotFoundError):
            other.commit(staging.table_id, proposal(1))
        with pytest.raises(TableNotFoundError):
            other.get_ratified_commits(staging.table_id)
        assert other.list_tables() == ()
        entry = catalog.register_table(staging.table_id, NAME, summary=summary(1000))
        assert other.load_table(NAME) == entry
        assert (entry.table_id, entry.location) == (staging.table_id, staging.location)
        assert (entry.ratified.latest_version, entry.ratified.published_version, entry.ratified.commits) == (0, 0, ())
        assert entry.created_ms == bench.clock.now


def no_two_reservations_share_an_id_or_a_location(bench: Bench) -> None:
    """CM-D1"""
    with bench.client() as catalog, ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: catalog.create_staging_table(NAME), range(40)))
    assert len({staging.location for staging in made}) == len({staging.table_id for staging in made}) == 40


def only_one_of_many_reservations_gets_the_name(bench: Bench) -> None:
    """CM-D3"""
    with bench.client() as catalog:
        made = [catalog.create_staging_table(NAME) for _ in range(8)]

        def register(table_id: str) -> TableEntry | None:
            try:
                return catalog.register_table(table_id, NAME, summary=summary(1000))
            except TableAlreadyExistsError:
                return None

        with ThreadPoolExecutor(8) as threads:
            entries = [entry for entry in threads.map(register, [staging.table_id for staging in made]) if entry]
        assert len(entries) == 1 and catalog.load_table(NAME) == entries[0]
        assert catalog.latest_feed_position() == 1
        with pytest.raises(TableAlreadyExistsError, match=r"main\.sales\.orders"):
            catalog.create_staging_table(NAME)


def registering_again_answers_with_the_entry(bench: Bench) -> None:
    """CM-D3"""
    with bench.client() as catalog:
        entry = create(catalog)
        assert catalog.register_table(entry.table_id, NAME, summary=summary(9)) == entry
        assert len(catalog.feed(after=0, limit=10)) == 1
        with pytest.raises(TableAlreadyExistsError):
            catalog.register_table(entry.table_id, TableIdentifier("main", "sales", "other"), summary=summary(9))
        with pytest.raises(TableNotFoundError):
            catalog.register_table(str(uuid.uuid4()), NAME, summary=summary(9))


def a_dropped_and_recreated_name_fences_clients_of_the_old_table(bench: Bench) -> None:
    """CM-D6, CM-D8"""
    with bench.client() as catalog:
        old = create(catalog)
        assert isinstance(catalog.commit(old.table_id, proposal(1)), Ratified)
        catalog.drop_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.load_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.drop_table(NAME)
        new = create(catalog)
        assert new.table_id != old.table_id and new.location != old.location
        for stale in (
            lambda: catalog.commit(old.table_id, proposal(2)),
            lambda: catalog.get_ratified_commits(old.table_id),
            lambda: catalog.set_published_version(old.table_id, 1),
            lambda: catalog.claim_maintenance(old.table_id, MaintenanceKind.CHECKPOINT, owner="a", duration_ms=1),
            lambda: catalog.register_table(old.table_id, NAME, summary=summary(1)),
        ):
            with pytest.raises(TableNotFoundError):
                stale()
        assert catalog.load_table(NAME) == new


def a_drop_by_id_spares_the_table_that_has_the_name_now(bench: Bench) -> None:
    """CM-D8"""
    with bench.client() as catalog:
        old = create(catalog)
        catalog.drop_table(NAME, table_id=old.table_id)
        catalog.drop_table(NAME, table_id=old.table_id)
        new = create(catalog)
        catalog.drop_table(NAME, table_id=old.table_id)
        with pytest.raises(TableNotFoundError):
            catalog.drop_table(NAME, table_id=str(uuid.uuid4()))
        assert catalog.load_table(NAME) == new


def a_dropped_table_comes_back_whole_and_only_under_a_free_name(bench: Bench) -> None:
    """CM-D6, CM-D8"""
    with bench.client() as catalog:
        catalog.set_published_version(create(catalog).table_id, 0)
        old = catalog.load_table(NAME)
        assert isinstance(catalog.commit(old.table_id, proposal(1)), Ratified)
        before = catalog.load_table(NAME)
        catalog.drop_table(NAME)
        (dropped,) = catalog.inactive_tables()
        assert (dropped.identifier, dropped.table_id, dropped.location) == (NAME, old.table_id, old.location)
        assert (dropped.state, dropped.since_ms) == (InactiveState.DROPPED, bench.clock.now)
        new = create(catalog)
        with pytest.raises(TableAlreadyExistsError):
            catalog.undrop_table(old.table_id)
        catalog.drop_table(NAME, table_id=new.table_id)
        assert catalog.undrop_table(old.table_id) == before == catalog.undrop_table(old.table_id)
        assert catalog.load_table(NAME) == before
        assert isinstance(catalog.commit(old.table_id, proposal(2)), Ratified)
        assert [table.table_id for table in catalog.inactive_tables("main.sales")] == [new.table_id]
        assert catalog.inactive_tables("main.other") == ()
        with pytest.raises(TableNotFoundError):
            catalog.undrop_table(str(uuid.uuid4()))
        with pytest.raises(TableNotFoundError):
            catalog.undrop_table(catalog.create_staging_table(OTHER).table_id)


def a_renamed_table_is_the_same_table(bench: Bench) -> None:
    """CM-D8"""
    with bench.client() as catalog, bench.client() as stale:
        old = create(catalog)
        stale.load_table(NAME)
        renamed = catalog.rename_table(old.table_id, OTHER)
        assert renamed == catalog.rename_table(old.table_id, OTHER) == catalog.load_table(OTHER)
        assert (renamed.table_id, renamed.location) == (old.table_id, old.location)
        with pytest.raises(TableNotFoundError):
            catalog.load_table(NAME)
        assert isinstance(stale.commit(old.table_id, proposal(1)), Ratified)
        stale.set_published_version(old.table_id, 1)
        new = create(catalog)
        with pytest.raises(TableAlreadyExistsError):
            catalog.rename_table(old.table_id, NAME)
        with pytest.raises(TableAlreadyExistsError):
            catalog.rename_table(new.table_id, OTHER)
        with pytest.raises(TableNotFoundError):
            stale.drop_table(NAME, table_id=old.table_id)
        assert (catalog.load_table(OTHER).ratified.latest_version, catalog.load_table(NAME)) == (1, new)
        with pytest.raises(InvalidArgumentError):
            catalog.rename_table(old.table_id, TableIdentifier("main", "sales", "a/b"))
        catalog.drop_table(OTHER)
        with pytest.raises(TableNotFoundError):
            catalog.rename_table(old.table_id, TableIdentifier("main", "sales", "third"))


def a_renamed_table_is_under_the_rules_of_its_name_now(bench: Bench) -> None:
    """CM-M5, CM-M7"""
    kind = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.set_maintenance_rule(MaintenanceRule(scope=str(NAME), kind=kind, allowed=True))
        assert catalog.maintenance_decision(NAME, kind, table_id=table_id).allowed
        catalog.rename_table(table_id, OTHER)
        assert not catalog.maintenance_decision(NAME, kind, table_id=table_id).allowed
        assert catalog.maintenance_decision(NAME, kind).allowed


def what_is_denied_to_a_table_stays_denied_under_its_next_name(bench: Bench) -> None:
    """CM-M4, CM-M7"""
    kind, exempt, other = MaintenanceKind.DATA_CLEANUP, MaintenanceKind.CHECKPOINT, MaintenanceKind.DATA_REORGANIZATION
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        for scope, which, allowed in (
            ("main", kind, True),
            (str(NAME), kind, False),
            (str(OTHER), kind, True),
            (str(NAME), exempt, False),
            (str(NAME), other, True),
        ):
            catalog.set_maintenance_rule(
                MaintenanceRule(scope=scope, kind=which, allowed=allowed, reason="" if allowed else "for the auditors")
            )
        catalog.rename_table(table_id, OTHER)
        for which in (kind, exempt):
            decision = catalog.maintenance_decision(NAME, which, table_id=table_id)
            assert (decision.allowed, decision.decided_by) == (False, str(OTHER))
            assert str(NAME) in decision.reason and "for the auditors" in decision.reason
        assert not catalog.maintenance_decision(NAME, other, table_id=table_id).allowed
        catalog.rename_table(table_id, OTHER)
        assert len([rule for rule in catalog.maintenance_rules() if rule.scope == str(OTHER)]) == 2


def a_purge_takes_old_dropped_tables_only_and_for_good(bench: Bench) -> None:
    """CM-D7, CM-D8"""
    with bench.client() as catalog:
        entry = create(catalog)
        with pytest.raises(PurgeRefusedError):
            catalog.begin_purge(entry.table_id, min_age_ms=0)
        catalog.drop_table(NAME)
        bench.clock.now += 999
        with pytest.raises(PurgeRefusedError):
            catalog.begin_purge(entry.table_id, min_age_ms=1000)
        with pytest.raises(PurgeRefusedError):
            catalog.finish_purge(entry.table_id)
        bench.clock.now += 1
        purging = catalog.begin_purge(entry.table_id, min_age_ms=1000)
        assert purging == catalog.begin_purge(entry.table_id, min_age_ms=1000) == catalog.inactive_tables()[0]
        assert (purging.state, purging.location, purging.registered) == (InactiveState.PURGING, entry.location, True)
        for late in (
            lambda: catalog.undrop_table(entry.table_id),
            lambda: catalog.register_table(entry.table_id, NAME, summary=summary(1)),
            lambda: catalog.commit(entry.table_id, proposal(1)),
            lambda: catalog.rename_table(entry.table_id, OTHER),
        ):
            with pytest.raises(TableNotFoundError):
                late()
        catalog.finish_purge(entry.table_id)
        catalog.finish_purge(entry.table_id)
        assert catalog.inactive_tables() == ()
        with pytest.raises(TableNotFoundError):
            catalog.begin_purge(entry.table_id, min_age_ms=0)
        with pytest.raises(TableNotFoundError):
            catalog.undrop_table(entry.table_id)
        assert [one.table_id for one in catalog.feed(after=0, limit=9)] == [entry.table_id]


def an_abandoned_reservation_is_purged_and_can_no_longer_become_a_table(bench: Bench) -> None:
    """CM-D5"""
    with bench.client() as catalog:
        staging = catalog.create_staging_table(NAME)
        (found,) = catalog.inactive_tables()
        assert (found.state, found.table_id, found.registered) == (InactiveState.STAGING, staging.table_id, False)
        with pytest.raises(PurgeRefusedError):
            catalog.begin_purge(staging.table_id, min_age_ms=1)
        purging = catalog.begin_purge(staging.table_id, min_age_ms=0)
        assert (purging, purging.registered) == (catalog.inactive_tables()[0], False)
        with pytest.raises(TableNotFoundError):
            catalog.register_table(staging.table_id, NAME, summary=summary(1))
        catalog.finish_purge(staging.table_id)
        assert catalog.inactive_tables() == ()
        assert create(catalog).table_id != staging.table_id


def one_of_undrop_and_purge_wins(bench: Bench) -> None:
    """CM-D7"""
    with bench.client() as one, bench.client() as two:
        table_ids = []
        for number in range(8):
            name = TableIdentifier("main", "sales", f"t{number}")
            table_ids.append(create(one, name).table_id)
            one.drop_table(name)

        def purge(table_id: str) -> bool:
            try:
                two.begin_purge(table_id, min_age_ms=0)
            except PurgeRefusedError:
                return False
            return True

        def undrop(table_id: str) -> bool:
            try:
                one.undrop_table(table_id)
            except TableNotFoundError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            outcomes = [(pool.submit(purge, table), pool.submit(undrop, table)) for table in table_ids]
            assert all(purged.result() != undropped.result() for purged, undropped in outcomes)


def names_are_listed_by_scope_in_order(bench: Bench) -> None:
    with bench.client() as catalog:
        texts = ["b.s.t", "a.s.t", "a.S.t", "a.s-2.t", "a.s.Ü", "a.s.a_1"]
        for text in texts:
            create(catalog, TableIdentifier.parse(text))
        create(catalog, TableIdentifier.parse("a.s.gone"))
        catalog.drop_table(TableIdentifier.parse("a.s.gone"))
        assert catalog.list_tables() == tuple(sorted(map(TableIdentifier.parse, texts)))
        assert [str(name) for name in catalog.list_tables("a.s")] == ["a.s.a_1", "a.s.t", "a.s.Ü"]
        assert len(catalog.list_tables("a")) == 5 and catalog.list_tables("c") == ()


def names_that_would_break_paths_are_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        for part in ("a/b", "a b", "a%b", "..", "", "a'b", "a.b", "u\u0308", "x" * 300, "a\x00"):
            with pytest.raises(InvalidArgumentError):
                catalog.create_staging_table(TableIdentifier("main", "sales", part))


# Ratification


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


# Feed


def the_feed_shows_every_commit_in_order_with_its_summary(bench: Bench) -> None:
    with bench.client() as catalog:
        other_name = TableIdentifier("main", "sales", "other")
        table, other = create(catalog).table_id, create(catalog, other_name).table_id
        bench.clock.now += 7
        catalog.commit(table, proposal(1))
        catalog.commit(other, proposal(1, data_change=False))
        tagged = CommitProposal(
            version=2,
            file_name=f"{2:020d}.{uuid.uuid4()}.json",
            file_size=1,
            file_modification_time=1,
            summary=summary(2000, data_change=False, tags={"dagster/partition_key": "ä|\x00'\""}),
        )
        catalog.commit(table, tagged)
        feed = catalog.feed(after=0, limit=100)
        assert [(entry.identifier, entry.version, entry.data_version) for entry in feed] == [
            (NAME, 0, 0),
            (other_name, 0, 0),
            (NAME, 1, 1),
            (other_name, 1, 0),
            (NAME, 2, 1),
        ]
        assert [entry.position for entry in feed] == [1, 2, 3, 4, 5]
        assert feed[4].summary == tagged.summary and feed[4].ratified_ms == bench.clock.now
        assert catalog.feed(after=2, limit=2) == feed[2:4]
        assert [entry.position for entry in catalog.feed(after=0, limit=9, identifiers=[other_name])] == [2, 4]
        assert catalog.feed(after=0, limit=9, identifiers=[]) == ()
        assert catalog.latest_feed_position() == 5
        assert catalog.load_table(NAME).ratified.latest_data_version == 1


def an_empty_catalog_has_an_empty_feed(bench: Bench) -> None:
    with bench.client() as catalog:
        assert (catalog.latest_feed_position(), catalog.feed(after=0, limit=1), catalog.list_tables()) == (0, (), ())


def a_reader_of_the_feed_never_misses_a_commit_made_meanwhile(bench: Bench) -> None:
    """A position that shows up after a greater one was read would be lost to a sensor's cursor."""
    writers, commits_each = 6, 40
    with bench.client() as catalog, bench.client() as reader:
        names = [TableIdentifier("main", "sales", f"t{number}") for number in range(writers)]
        tables = [create(catalog, name).table_id for name in names]

        def write(table: str) -> None:
            for version in range(1, commits_each + 1):
                catalog.commit(table, proposal(version))

        seen: list[int] = []
        with ThreadPoolExecutor(writers) as threads:
            pending = [threads.submit(write, table) for table in tables]
            while True:
                done = all(future.done() for future in pending)
                page = reader.feed(after=seen[-1] if seen else 0, limit=7)
                seen += [entry.position for entry in page]
                if done and not page:
                    break
                time.sleep(0.001)  # A spinning reader would keep the interpreter from the writers.
            for future in pending:
                future.result()
        assert seen == list(range(1, writers * (commits_each + 1) + 1))


# Maintenance


def maintenance_is_denied_by_default_except_for_the_exempt_kinds(bench: Bench) -> None:
    """CM-M4; and what never became a table is no table to maintain (CM-D5)."""
    allowed = ("CHECKPOINT", "LOG_COMPACTION", "VERSION_CHECKSUM", "CREATION_PURGE")
    with bench.client() as catalog:
        for kind in MaintenanceKind:
            decision = catalog.maintenance_decision(NAME, kind)
            assert decision.allowed is (kind.value in allowed)
            assert decision.decided_by == "default" and decision.reason


def the_narrowest_rule_decides_and_only_for_its_kind(bench: Bench) -> None:
    """CM-M4, CM-M5, CM-M7"""
    cleanup = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog, bench.client() as other:

        def decided() -> tuple[bool, str]:
            decision = other.maintenance_decision(NAME, cleanup)
            return decision.allowed, decision.decided_by

        for scope, allowed in (("main", True), ("main.sales", False), (str(NAME), True), ("mai", False)):
            catalog.set_maintenance_rule(MaintenanceRule(scope=scope, kind=cleanup, allowed=allowed))
        assert decided() == (True, str(NAME))
        catalog.remove_maintenance_rule(str(NAME), cleanup)
        assert decided() == (False, "main.sales")
        catalog.remove_maintenance_rule("main.sales", cleanup)
        assert decided() == (True, "main")
        assert not other.maintenance_decision(NAME, MaintenanceKind.DATA_REORGANIZATION).allowed
        catalog.remove_maintenance_rule("main", cleanup)
        catalog.remove_maintenance_rule("main", cleanup)
        assert decided() == (False, "default")
        catalog.set_maintenance_rule(
            MaintenanceRule(scope="main", kind=MaintenanceKind.CHECKPOINT, allowed=False, reason="server does it")
        )
        checkpoint = other.maintenance_decision(NAME, MaintenanceKind.CHECKPOINT)
        assert (checkpoint.allowed, checkpoint.reason) == (False, "server does it")


def rules_are_replaced_and_listed_by_scope_and_kind(bench: Bench) -> None:
    """CM-M5"""
    with bench.client() as catalog:
        first = MaintenanceRule(scope="b", kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
        second = MaintenanceRule(scope="b", kind=MaintenanceKind.DATA_CLEANUP, allowed=False, reason="no")
        third = MaintenanceRule(scope="a.s", kind=MaintenanceKind.CHECKPOINT, allowed=False)
        for rule in (first, second, third):
            catalog.set_maintenance_rule(rule)
        assert catalog.maintenance_rules() == (third, second)
        for scope in ("a.b.c.d", "", "a..b", "a/b"):
            with pytest.raises(InvalidArgumentError):
                catalog.set_maintenance_rule(
                    MaintenanceRule(scope=scope, kind=MaintenanceKind.CHECKPOINT, allowed=True)
                )


def a_claim_keeps_others_out_until_it_expires_or_is_released(bench: Bench) -> None:
    """CM-M5"""
    optimize, vacuum = MaintenanceKind.DATA_REORGANIZATION, MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        start = bench.clock.now
        assert catalog.claim_maintenance(table, optimize, owner="a", duration_ms=100) == Claimed(expires_ms=start + 100)
        held = HeldByAnother(owner="a", kind=optimize, expires_ms=start + 100)
        assert other.claim_maintenance(table, vacuum, owner="b", duration_ms=100) == held
        bench.clock.now += 50
        assert catalog.claim_maintenance(table, vacuum, owner="a", duration_ms=100) == Claimed(expires_ms=start + 150)
        other.release_maintenance(table, owner="b")
        bench.clock.now = start + 149
        assert isinstance(other.claim_maintenance(table, vacuum, owner="b", duration_ms=1), HeldByAnother)
        bench.clock.now = start + 150
        assert isinstance(other.claim_maintenance(table, vacuum, owner="b", duration_ms=1000), Claimed)
        catalog.release_maintenance(table, owner="a")
        assert isinstance(catalog.claim_maintenance(table, vacuum, owner="a", duration_ms=1), HeldByAnother)
        other.release_maintenance(table, owner="b")
        assert isinstance(catalog.claim_maintenance(table, vacuum, owner="a", duration_ms=1), Claimed)
        assert isinstance(catalog.commit(table, proposal(1)), Ratified)


def one_of_many_rivals_gets_the_claim(bench: Bench) -> None:
    """CM-M5"""
    with bench.client() as catalog:
        table = create(catalog).table_id

        def attempt(number: int) -> Claimed | HeldByAnother:
            return catalog.claim_maintenance(table, MaintenanceKind.DATA_CLEANUP, owner=str(number), duration_ms=1000)

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(attempt, range(8)))
        assert sum(isinstance(answer, Claimed) for answer in answers) == 1


# Commit modes

INLINE, PUT_IF_ABSENT = CommitPolicy.parse("inline"), CommitPolicy.parse("put_if_absent")
STAGED, SWITCHING = CommitPolicy.parse("staged"), CommitPolicy.parse("switching")


def an_inline_commit_is_served_unchanged_until_it_is_published(bench: Bench) -> None:
    """CM-C4, CM-C7, CM-C8, CM-C9"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        made = (inline(1), proposal(2), inline(3, size=300_000))
        for one in made:
            assert isinstance(catalog.commit(table, one), Ratified)
        served = other.get_ratified_commits(table)
        assert [commit.content for commit in served.commits] == [made[0].content, None, made[2].content]
        assert [commit.file_name for commit in served.commits] == [one.file_name for one in made]
        assert other.load_table(NAME).ratified == served
        assert catalog.commit(table, made[0]) == Ratified(
            version=1, latest_version=3, published_version=0, repeated=True
        )
        catalog.set_published_version(table, 2)
        assert other.get_ratified_commits(table).commits == served.commits[2:]
        taken = other.commit(table, inline(1))
        assert isinstance(taken, VersionTaken)
        assert [commit.content for commit in taken.winners.commits] == [None, None, made[2].content]
        catalog.set_published_version(table, 3)
        assert len(catalog.feed(after=0, limit=10)) == 4


def inline_content_that_contradicts_its_proposal_is_rejected(bench: Bench) -> None:
    """CM-C14"""
    with bench.client() as catalog:
        table = create(catalog).table_id
        good = inline(1)
        wrong = (
            replace(good, content=None),
            replace(good, file_size=good.file_size + 1),
            replace(good, content=b"{}\n", file_size=3),
            replace(good, content=b"\xff\n", file_size=2),
            replace(good, summary=replace(good.summary, txn_id=str(uuid.uuid4()))),
            replace(good, summary=replace(good.summary, in_commit_timestamp=4000)),
            replace(good, mode=CommitMode.STAGED, file_size=good.file_size - 1),
            replace(good, mode=CommitMode.PUT_IF_ABSENT),
            inline(1, timestamp=1000),
        )
        for one in wrong:
            with pytest.raises(CommitRejectedError, match="Version 1 "):
                catalog.commit(table, one)
        assert catalog.get_ratified_commits(table).latest_version == 0
        assert isinstance(catalog.commit(table, good), Ratified)


def the_commit_policy_of_the_narrowest_scope_is_served(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id

        def policy() -> CommitPolicy:
            served = other.get_ratified_commits(table).commit_policy
            assert other.load_table(NAME).ratified.commit_policy == served
            return served

        assert policy() == STAGED
        auto = CommitPolicy.parse("auto:1000")
        catalog.set_commit_policy(CommitPolicyRule(scope="main", policy=INLINE))
        assert policy() == INLINE
        catalog.set_commit_policy(CommitPolicyRule(scope="main.sales", policy=INLINE))
        catalog.set_commit_policy(CommitPolicyRule(scope="main.sales", policy=auto))
        assert policy() == auto
        assert catalog.change_commit_policy(table, STAGED) is PolicyChange.DONE
        assert policy() == STAGED
        assert [(rule.scope, str(rule.policy)) for rule in other.commit_policies()] == [
            ("main", "inline"),
            ("main.sales", "auto:1000"),
            ("main.sales.orders", "staged"),
        ]
        catalog.remove_commit_policy("main.sales")
        assert catalog.change_commit_policy(table, None) is PolicyChange.DONE
        assert policy() == INLINE
        assert isinstance(catalog.commit(table, proposal(1)), Ratified)
        for scope, wrong in (("main.sales.orders", INLINE), ("main", SWITCHING)):
            with pytest.raises(InvalidArgumentError):
                catalog.set_commit_policy(CommitPolicyRule(scope=scope, policy=wrong))
        with pytest.raises(InvalidArgumentError):
            catalog.change_commit_policy(table, SWITCHING)
        with pytest.raises(TableNotFoundError):
            catalog.change_commit_policy(str(uuid.uuid4()), INLINE)


def put_if_absent_of_a_wider_scope_is_for_tables_to_come(bench: Bench) -> None:
    with bench.client() as catalog:
        old = create(catalog).table_id
        catalog.set_commit_policy(CommitPolicyRule(scope="main", policy=PUT_IF_ABSENT))
        new = create(catalog, TableIdentifier("main", "sales", "other")).table_id
        assert catalog.get_ratified_commits(old).commit_policy == STAGED
        assert catalog.get_ratified_commits(new).commit_policy == PUT_IF_ABSENT
        catalog.remove_commit_policy("main")
        assert catalog.get_ratified_commits(new).commit_policy == PUT_IF_ABSENT


def a_table_goes_into_put_if_absent_only_when_everything_is_published(bench: Bench) -> None:
    """CM-C5, CM-C6"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        catalog.commit(table, inline(1))
        assert catalog.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.PUBLISH_FIRST
        assert other.commit(table, proposal(2)) == CommitPolicyChanged(policy=SWITCHING)
        assert isinstance(other.commit(table, proposal(1)), VersionTaken)
        assert other.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.PUBLISH_FIRST
        with pytest.raises(CommitRejectedError, match="published up to version 0"):
            other.record_published(table, created(2))
        other.set_published_version(table, 1)
        assert other.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.DONE
        assert catalog.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.DONE
        for one in (proposal(2), inline(2)):
            assert catalog.commit(table, one) == CommitPolicyChanged(policy=PUT_IF_ABSENT)
        assert catalog.get_ratified_commits(table).latest_version == 1


def a_switch_into_put_if_absent_can_be_taken_back(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.commit(table, proposal(1))
        assert catalog.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.PUBLISH_FIRST
        assert catalog.change_commit_policy(table, INLINE) is PolicyChange.DONE
        assert isinstance(catalog.commit(table, inline(2)), Ratified)


def a_table_leaves_put_if_absent_behind_a_barrier(bench: Bench) -> None:
    """CM-C5, CM-C6"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        assert catalog.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.DONE
        barriers = [created(version, operation="SET COMMIT MODE") for version in (1, 3)]
        catalog.record_published(table, barriers[0])
        assert catalog.change_commit_policy(table, STAGED) is PolicyChange.BARRIER_FIRST
        assert other.commit(table, proposal(2)) == CommitPolicyChanged(policy=SWITCHING)
        late = created(2)
        assert other.record_published(table, late) == Ratified(version=2, latest_version=2, published_version=2)
        for policy in (STAGED, None, INLINE):
            assert other.change_commit_policy(table, policy) is PolicyChange.BARRIER_FIRST
        other.record_published(table, barriers[1])
        assert other.change_commit_policy(table, INLINE) is PolicyChange.DONE
        assert isinstance(other.commit(table, inline(4)), Ratified)
        assert catalog.record_published(table, late) == Ratified(
            version=2, latest_version=4, published_version=3, repeated=True
        )


def a_created_commit_is_recorded_once_and_published_at_once(bench: Bench) -> None:
    """CM-C5, CM-C6, CM-C2, CM-C3"""
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        with pytest.raises(CommitRejectedError, match="made staged"):
            catalog.record_published(table, created(1))
        catalog.change_commit_policy(table, PUT_IF_ABSENT)
        one = created(1)
        assert catalog.record_published(table, one) == Ratified(version=1, latest_version=1, published_version=1)
        repeated = other.record_published(table, one)
        assert repeated == Ratified(version=1, latest_version=1, published_version=1, repeated=True)
        served = other.get_ratified_commits(table)
        assert (served.latest_version, served.published_version, served.commits) == (1, 1, ())
        assert isinstance(other.record_published(table, created(1)), VersionTaken)
        assert [entry.version for entry in other.feed(after=0, limit=9)] == [0, 1]
        two = created(2)
        wrong = (
            created(3),
            replace(two, file_name=f"{2:020d}.{uuid.uuid4()}.json"),
            replace(two, mode=CommitMode.STAGED),
            replace(two, summary=replace(two.summary, txn_id="")),
            replace(two, summary=replace(two.summary, in_commit_timestamp=1001)),
        )
        for refused in wrong:
            with pytest.raises(CommitRejectedError):
                catalog.record_published(table, refused)
        with pytest.raises(TableNotFoundError):
            catalog.record_published(str(uuid.uuid4()), two)
        assert catalog.get_ratified_commits(table).latest_version == 1


def a_table_keeps_its_own_commit_policy_under_another_name(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.change_commit_policy(table, PUT_IF_ABSENT)
        catalog.rename_table(table, TableIdentifier("main", "old", "orders"))
        catalog.set_commit_policy(CommitPolicyRule(scope="main.old", policy=INLINE))
        assert catalog.get_ratified_commits(table).commit_policy == PUT_IF_ABSENT
        again = create(catalog).table_id
        assert catalog.get_ratified_commits(again).commit_policy == STAGED


CATALOG_CONTRACT: tuple[Rule, ...] = (
    an_inline_commit_is_served_unchanged_until_it_is_published,
    inline_content_that_contradicts_its_proposal_is_rejected,
    the_commit_policy_of_the_narrowest_scope_is_served,
    put_if_absent_of_a_wider_scope_is_for_tables_to_come,
    a_table_goes_into_put_if_absent_only_when_everything_is_published,
    a_switch_into_put_if_absent_can_be_taken_back,
    a_table_leaves_put_if_absent_behind_a_barrier,
    a_created_commit_is_recorded_once_and_published_at_once,
    a_table_keeps_its_own_commit_policy_under_another_name,
    a_reserved_table_cannot_be_resolved_until_it_is_registered,
    no_two_reservations_share_an_id_or_a_location,
    only_one_of_many_reservations_gets_the_name,
    registering_again_answers_with_the_entry,
    a_dropped_and_recreated_name_fences_clients_of_the_old_table,
    a_drop_by_id_spares_the_table_that_has_the_name_now,
    a_dropped_table_comes_back_whole_and_only_under_a_free_name,
    a_renamed_table_is_the_same_table,
    a_renamed_table_is_under_the_rules_of_its_name_now,
    what_is_denied_to_a_table_stays_denied_under_its_next_name,
    a_purge_takes_old_dropped_tables_only_and_for_good,
    an_abandoned_reservation_is_purged_and_can_no_longer_become_a_table,
    one_of_undrop_and_purge_wins,
    names_are_listed_by_scope_in_order,
    names_that_would_break_paths_are_refused,
    commits_are_ratified_in_order_and_served_until_published,
    the_published_version_moves_forward_only_and_never_above_the_latest,
    a_gap_is_rejected_and_changes_nothing,
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
    the_feed_shows_every_commit_in_order_with_its_summary,
    an_empty_catalog_has_an_empty_feed,
    a_reader_of_the_feed_never_misses_a_commit_made_meanwhile,
    maintenance_is_denied_by_default_except_for_the_exempt_kinds,
    the_narrowest_rule_decides_and_only_for_its_kind,
    rules_are_replaced_and_listed_by_scope_and_kind,
    a_claim_keeps_others_out_until_it_expires_or_is_released,
    one_of_many_rivals_gets_the_claim,
)
