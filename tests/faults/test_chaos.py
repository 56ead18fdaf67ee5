"""The short form of the chaos run; the long one is ``python -m tests.faults.chaos --minutes 10``."""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.chaos import Outcome, judge_rows, run
from tests.faults.chaos_worker import row_ids

SECONDS = 20


@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_processes_killed_at_random_lose_nothing(catalog: str, tmp_path: Path) -> None:
    """OCC-3, CM-C1, CM-C15, CM-P3, ICT-5"""
    outcome = run(seconds=SECONDS, catalog=catalog, writers=8, directory=tmp_path, seed=7)
    print(outcome)
    assert outcome.wrong == []
    # Few on a machine that is busy with other things; the long form is for many.
    assert outcome.counts["ack"] > 3 and outcome.counts["kills"] > 10 and outcome.counts["read"] > 0
    if catalog == "postgres":
        assert outcome.counts["cuts"] > 0 and outcome.counts["restarts"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "put_if_absent"])
def test_processes_killed_at_random_lose_nothing_however_commits_are_made(mode: str, tmp_path: Path) -> None:
    """CM-6, CM-C5, CM-C6"""
    outcome = run(seconds=SECONDS / 2, catalog="sqlite", writers=4, directory=tmp_path, seed=8, mode=mode)
    print(mode, outcome)
    assert outcome.wrong == []
    assert outcome.counts["ack"] > 5 and outcome.counts["kills"] > 5


def test_the_judgement_notices_rows_that_are_lost_twice_there_refused_or_of_nobody() -> None:
    good = Counter(row_ids("a") + row_ids("in-doubt"))
    tried = {"a", "b", "refused", "in-doubt"}

    def wrong(rows: Counter[str]) -> int:
        outcome = Outcome()
        judge_rows(outcome, rows, acknowledged={"a": 1}, definite={"refused"}, tried=tried)
        return len(outcome.wrong)

    assert wrong(good) == 0
    assert wrong(good - Counter(row_ids("a")[:1])) == 1
    assert wrong(good + Counter(row_ids("in-doubt"))) == 3
    assert wrong(good + Counter(row_ids("refused"))) == 3
    assert wrong(good + Counter(["stranger"])) == 1
