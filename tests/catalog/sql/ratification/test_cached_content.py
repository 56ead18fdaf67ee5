"""Which commits keep their content in the catalog."""

import pytest

from cm_delta_dagster.catalog.ratification import CACHED_COMMITS, CACHED_CONTENT_BYTES, CommitProposal, CommitSummary
from cm_delta_dagster.catalog.sql.ratification.cached_content import (
    SLIDES_BY,
    content_from_after,
    is_cached,
)


def proposal(version: int, content: bytes | None) -> CommitProposal:
    summary = CommitSummary(txn_id="t", in_commit_timestamp=1, operation="WRITE", data_change=True)
    return CommitProposal(
        version=version, file_name="f", file_size=1, file_modification_time=1, summary=summary, content=content
    )


@pytest.mark.parametrize(
    ("content", "cached"),
    [(None, False), (b"", True), (b"x" * CACHED_CONTENT_BYTES, True), (b"x" * (CACHED_CONTENT_BYTES + 1), False)],
)
def test_content_is_cached_up_to_its_limit(content: bytes | None, cached: bool) -> None:
    assert is_cached(proposal(1, content)) is cached


OLDEST = CACHED_COMMITS - 1
"""Versions before the newest one that the range has."""


@pytest.mark.parametrize(
    ("version", "before", "cached", "expected"),
    [
        (0, 0, True, 0),
        (5, 0, False, 6),
        (5, 3, True, 3),
        (OLDEST + SLIDES_BY - 1, 0, True, 0),
        (OLDEST + SLIDES_BY, 0, True, SLIDES_BY),
        (OLDEST + SLIDES_BY + 5, 0, True, SLIDES_BY + 5),
        (OLDEST + SLIDES_BY + 6, 7, True, 7),
        (OLDEST + SLIDES_BY + 7, 7, True, SLIDES_BY + 7),
    ],
)
def test_the_cached_range_moves_by_many_commits_at_a_time(
    version: int, before: int, cached: bool, expected: int
) -> None:
    assert content_from_after(proposal(version, b"x" if cached else None), before) == expected
