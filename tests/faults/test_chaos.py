"""The short form of the chaos run; the long one is ``python -m tests.faults.chaos --minutes 10``."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.chaos import SWITCHED, Length, Outcome, check_rows, run
from tests.faults.chaos_worker import row_ids

# A writer lives for two seconds on average. On a busy machine most of that time is its start, so the number of commits in a
# fixed time varies. Therefore a run continues until enough events have happened, and fails if that takes minutes.
ENOUGH = {"ack": 60, "delete-ack": 10, "rearranged": 1, "kills": 30, "read": 3}
LIMIT_SECONDS = 240.0


def check_outcome(outcome: Outcome, counts: Mapping[str, int]) -> None:
    """No check failed, enough events happened, and the doctor checked all commits."""
    print(outcome)
    assert outcome.wrong == []
    assert {name: number for name, number in counts.items() if outcome.counts[name] < number} == {}
    assert outcome.counts["commits compared by the doctor"] >= outcome.counts["ack"]
    assert any("the doctor" in what for what in outcome.checked)


@pytest.mark.requirements("OCC-3", "OCC-15", "CM-C1", "CM-C15", "CM-P3", "ICT-5")
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [8, pytest.param(20, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_processes_killed_at_random_lose_nothing(catalog: str, seconds: int, tmp_path: Path) -> None:
    counts = ENOUGH if catalog == "sqlite" else {**ENOUGH, "cuts": 3, "restarts": 2}
    length = Length(seconds=seconds, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(length=length, catalog=catalog, writers=8, directory=tmp_path, seed=7)
    check_outcome(outcome, counts)
    if catalog == "sqlite":
        assert outcome.counts["of them byte by byte"] > 0
        assert list((tmp_path / "catalog.db-locks").iterdir()), "no writer used the commit lock"


@pytest.mark.requirements("OCC-3", "CM-C1", "CM-C15", "CM-P3", "ICT-5")
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "catalog",
    [pytest.param("sqlite", marks=pytest.mark.exhaustive), pytest.param("postgres", marks=pytest.mark.postgres)],
)
def test_killed_writers_and_a_killed_server_lose_nothing_over_http(catalog: str, seconds: int, tmp_path: Path) -> None:
    """Requests and answers are lost, and connections are cut too."""
    counts = {"ack": 40, "kills": 20, "read": 3, "cuts": 3, "restarts": 2}
    length = Length(seconds=seconds, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(
        length=length, catalog=catalog, writers=6, directory=tmp_path, seed=13, mode="auto:2000", over_http=True
    )
    check_outcome(outcome, counts)
    assert outcome.counts["lost requests and answers"] > 0


@pytest.mark.requirements("CM-6", "CM-C5", "CM-C6")
@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [*(pytest.param(mode, marks=pytest.mark.exhaustive) for mode in ("inline", "put_if_absent")), SWITCHED],
)
def test_processes_killed_at_random_lose_nothing_in_any_commit_mode(mode: str, tmp_path: Path) -> None:
    counts = ENOUGH | ({"switched": 4} if mode == SWITCHED else {})
    length = Length(seconds=10, counts=counts, limit=LIMIT_SECONDS)
    check_outcome(run(length=length, catalog="sqlite", writers=4, directory=tmp_path, seed=8, mode=mode), counts)


@pytest.mark.requirements("CM-C1", "CM-C3", "CM-C15", "MTX-2", "WAP-1", "WAP-2")
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "catalog", ["sqlite", pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.exhaustive))]
)
def test_processes_killed_at_random_commit_two_tables_or_none_also_if_they_were_held(
    catalog: str, seconds: int, tmp_path: Path
) -> None:
    """Several writers hold, ratify and discard. Nothing is seen before a ratification began, lost, doubled, or there by half."""
    counts = ENOUGH | {"ack": 40, "pair": 10, "pair-read": 3, "held": 10, "ratified": 5, "discarded": 2}
    length = Length(seconds=seconds, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(
        length=length, catalog=catalog, writers=4, directory=tmp_path, seed=11, mode="auto:2000", pairs=True, holds=True
    )
    check_outcome(outcome, counts)
    assert outcome.counts["holds at the end"] >= outcome.counts["held"]


@pytest.mark.slow
def test_rules_that_change_while_writers_are_killed_lose_and_forge_nothing(tmp_path: Path) -> None:
    """Of the commits that wait, exactly those that are approved become versions, each once."""
    counts = {"ack": 40, "kills": 20, "rule": 5, "parked": 3, "approved": 1, "read": 3}
    length = Length(seconds=10, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(length=length, catalog="sqlite", writers=4, directory=tmp_path, seed=12, rules=True)
    check_outcome(outcome, counts)


@pytest.mark.requirements("CM-6", "CM-C1", "CM-C5", "CM-C6", "CM-C15", "CM-P3")
@pytest.mark.exhaustive
def test_processes_killed_at_random_with_their_files_in_s3_lose_nothing(tmp_path: Path) -> None:
    """Requests fail and connections are cut too."""
    counts = {"ack": 5, "kills": 5, "store faults": 5}
    length = Length(seconds=15, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(length=length, catalog="sqlite", writers=4, directory=tmp_path, seed=9, mode=SWITCHED, warehouse="s3")
    check_outcome(outcome, counts)


@pytest.mark.requirements("CM-6", "CM-C1", "CM-C5", "CM-C6", "CM-C15", "CM-P3")
@pytest.mark.parametrize(
    "warehouse",
    [
        pytest.param("azure", marks=pytest.mark.exhaustive),
        pytest.param("gcs", marks=pytest.mark.exhaustive),
        pytest.param("gofakes3", marks=pytest.mark.exhaustive),
    ],
)
def test_processes_killed_at_random_with_their_files_in_other_stores_lose_nothing(
    warehouse: str, tmp_path: Path
) -> None:
    counts = {"ack": 5, "kills": 5, "store faults": 5}
    length = Length(seconds=8, counts=counts, limit=LIMIT_SECONDS)
    outcome = run(
        length=length, catalog="sqlite", writers=2, directory=tmp_path, seed=10, mode=SWITCHED, warehouse=warehouse
    )
    check_outcome(outcome, counts)


def test_the_check_finds_lost_duplicate_refused_deleted_and_unknown_rows() -> None:
    good = Counter(row_ids("a") + row_ids("in-doubt") + row_ids("half-deleted"))
    events = {
        "try": ["a", "b", "refused", "in-doubt", "deleted", "half-deleted"],
        "ack": ["a", "deleted", "half-deleted"],
        "refused": ["refused"],
        "delete-try": ["deleted", "deleted", "half-deleted", "a"],
        "delete-ack": ["deleted"],
        "delete-refused": ["deleted", "a"],
    }

    def wrong(rows: Counter[str], events: dict[str, list[str]] = events) -> int:
        outcome = Outcome()
        check_rows(outcome, rows, events)
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
    assert wrong(good, events | {"delete-ack": ["deleted", "deleted"]}) == 1
