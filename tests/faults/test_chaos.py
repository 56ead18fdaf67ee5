"""The short form of the chaos run; the long one is ``python -m tests.faults.chaos --minutes 10``."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.chaos import SWITCHED, Length, Outcome, judge_rows, run
from tests.faults.chaos_worker import row_ids

# A writer lives for two seconds on average, and on a machine that is busy with other things needs most of them to start: how
# much is committed in a fixed time says nothing. So a run goes on until enough has happened to be worth judging. Only one that
# does not get there in minutes has failed.
ENOUGH = {"ack": 60, "delete-ack": 10, "rearranged": 1, "kills": 30, "read": 3}
LIMIT_SECONDS = 240.0


def judged(outcome: Outcome, counts: Mapping[str, int]) -> None:
    """Nothing is wrong, enough has happened, and the doctor looked at all of it."""
    print(outcome)
    assert outcome.wrong == []
    assert {name: number for name, number in counts.items() if outcome.counts[name] < number} == {}
    assert outcome.counts["commits compared by the doctor"] >= outcome.counts["ack"]
    assert any("the doctor" in what for what in outcome.checked)


@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_processes_killed_at_random_lose_nothing(catalog: str, tmp_path: Path) -> None:
    """OCC-3, OCC-15, CM-C1, CM-C15, CM-P3, ICT-5"""
    counts = ENOUGH if catalog == "sqlite" else {**ENOUGH, "cuts": 3, "restarts": 2}
    length = Length(seconds=20, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(length=length, catalog=catalog, writers=8, directory=tmp_path, seed=7)
    judged(outcome, counts)
    if catalog == "sqlite":
        assert outcome.counts["of them byte by byte"] > 0
        assert list((tmp_path / "catalog.db-locks").iterdir()), "no writer used the commit lock"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "put_if_absent", SWITCHED])
def test_processes_killed_at_random_lose_nothing_however_commits_are_made(mode: str, tmp_path: Path) -> None:
    """CM-6, CM-C5, CM-C6"""
    counts = ENOUGH | ({"switched": 4} if mode == SWITCHED else {})
    length = Length(seconds=10, counts=counts, limit=LIMIT_SECONDS)
    judged(run(length=length, catalog="sqlite", writers=4, directory=tmp_path, seed=8, mode=mode), counts)


def test_the_judgement_notices_rows_that_are_lost_twice_there_refused_deleted_or_of_nobody() -> None:
    good = Counter(row_ids("a") + row_ids("in-doubt") + row_ids("half-deleted"))
    told = {
        "try": ["a", "b", "refused", "in-doubt", "deleted", "half-deleted"],
        "ack": ["a", "deleted", "half-deleted"],
        "refused": ["refused"],
        "delete-try": ["deleted", "deleted", "half-deleted", "a"],
        "delete-ack": ["deleted"],
        "delete-refused": ["deleted", "a"],
    }

    def wrong(rows: Counter[str], told: dict[str, list[str]] = told) -> int:
        outcome = Outcome()
        judge_rows(outcome, rows, told)
        return len(outcome.wrong)

    assert wrong(good) == 0
    assert wrong(good - Counter(row_ids("half-deleted"))) == 0
    assert wrong(good - Counter(row_ids("in-doubt"))) == 0
    assert wrong(good - Counter(row_ids("a")[:1])) == 1
    assert wrong(good - Counter(row_ids("half-deleted")[:1])) == 1
    assert wrong(good + Counter(row_ids("in-doubt"))) == 1
    assert wrong(good + Counter(row_ids("refused"))) == 3
    assert wrong(good + Counter(row_ids("deleted"))) == 3
    assert wrong(good + Counter(["stranger"])) == 1
    assert wrong(good, told | {"delete-ack": ["deleted", "deleted"]}) == 1
