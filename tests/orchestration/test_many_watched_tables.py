"""A commit sensor in a catalog with 10,000 tables: its cursor and its statements do not grow with the number of watched tables."""

from pathlib import Path

import pytest

from benchmarks.sensor_ticks import Ticker, fill_catalog
from tests.support.sent_statements import sent_statements

FEW, MANY, COMMITS = 20, 10_000, 10
MOST_CHARACTERS, MOST_STATEMENTS = 400, 12


def ticks(url: str, directory: Path, *, watched: int) -> list[int]:
    """Statements of a tick without a new commit, and of one with commits, of a sensor that watches so many tables."""
    ticker = Ticker(url, f"file://{directory}/warehouse", directory / f"{watched}", watched, first=watched // 2)
    found = []
    try:
        ticker.tick()
        for commits in (0, COMMITS):
            for _ in range(commits):
                ticker.commit()
            with sent_statements("cm_delta_") as sent:
                assert ticker.tick()["answer"] == commits
            assert len(str(ticker.cursor)) < MOST_CHARACTERS
            found.append(len(sent))
    finally:
        ticker.close()
    return found


def check(url: str, directory: Path) -> None:
    fill_catalog(url, f"file://{directory}/warehouse", MANY)
    few, many = (ticks(url, directory, watched=watched) for watched in (FEW, MANY))
    assert few == many
    assert all(1 <= statements <= MOST_STATEMENTS for statements in many)


def test_ticks_over_10_000_tables_take_no_more_statements_than_over_20(tmp_path: Path) -> None:
    """Without a new commit and with ten, the cursor has a few hundred characters."""
    check(f"sqlite:///{tmp_path}/catalog.db", tmp_path)


@pytest.mark.postgres
def test_ticks_over_10_000_tables_of_postgresql_take_no_more_statements(postgres_url: str, tmp_path: Path) -> None:
    """A tick with commits gives the new entries of the feed their positions, in a constant number of statements."""
    check(postgres_url, tmp_path)
