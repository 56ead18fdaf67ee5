"""Which commits keep their content in the catalog."""

from dataclasses import replace
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.ratification import (
    CACHED_COMMITS,
    CACHED_CONTENT_BYTES,
    CommitProposal,
    CommitSummary,
    Ratified,
)
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.ratification.cached_content import (
    SLIDES_BY,
    content_from_after,
    deletions,
    is_cached,
)
from tests.contracts.catalog_bench import create, inline
from tests.contracts.catalog_bench import proposal as staged


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


@pytest.mark.requirements("CM-C7", "CM-C8")
@pytest.mark.parametrize(
    ("published", "content_from", "deletes"),
    [
        ((0, 0), (0, 0), False),
        ((2, 2), (5, 5), False),
        ((2, 5), (0, 0), False),
        ((2, 5), (3, 3), False),
        ((2, 5), (4, 4), True),
        ((2, 3), (9, 9), True),
        ((5, 5), (5, 6), False),
        ((5, 5), (1, 17), True),
    ],
    ids=["no move", "unpublished", "published", "all in range", "some below", "below", "by one", "range moves"],
)
def test_content_is_deleted_when_its_commit_is_published_and_below_the_cached_range(
    published: tuple[int, int], content_from: tuple[int, int], deletes: bool
) -> None:
    """A statement is sent only if there can be such content."""
    calls = deletions("t", published=published, content_from=content_from, keeps_inline=False)
    assert [arguments for _, arguments in calls] == ([{"of_table": "t", "published": published[1]}] if deletes else [])


@pytest.mark.requirements("CM-C8")
def test_content_of_an_inline_commit_goes_once_it_is_published_and_not_cached(tmp_path: Path) -> None:
    """In a catalog without access control, where everybody may maintain tables."""
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://w") as catalog:
        table = create(catalog).table_id
        large = inline(1, size=CACHED_CONTENT_BYTES)
        assert isinstance(catalog.coordinator.commit(table, large), Ratified)
        assert catalog.coordinator.commit_records(table, start=1, end=1)[0].content == large.content
        published = replace(staged(2), published_version=1)
        assert isinstance(catalog.coordinator.commit(table, published), Ratified)
        assert catalog.coordinator.commit_records(table, start=1, end=1)[0].content is None
