"""Contract of ``CommitCoordinator``: content and digests of commits.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import hashlib
import uuid
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    CACHED_COMMITS,
    CACHED_CONTENT_BYTES,
    Ratified,
    RatifiedCommits,
    VersionTaken,
)
from cm_delta_dagster.errors import (
    CommitRejectedError,
    IllegalCommitError,
)
from tests.contracts.catalog_bench import (
    NAME,
    Bench,
    Rule,
    copied,
    create,
    created,
    defined,
    inline,
    metadata,
    proposal,
)


def cached_versions(catalog: Catalog, table: str, *, since: int = 0) -> list[int]:
    """Versions that are published and served with their content; the row is checked to be whole."""
    answer = catalog.coordinator.get_ratified_commits(table, content_from_version=since)
    versions = [commit.version for commit in answer.cached_commits]
    assert all(
        commit.content is not None and len(commit.content) == commit.file_size for commit in answer.cached_commits
    )
    assert versions == list(range(answer.published_version - len(versions) + 1, answer.published_version + 1))
    assert [commit.version for commit in answer.commits] == list(
        range(answer.published_version + 1, answer.latest_version + 1)
    )
    return versions


@pytest.mark.requirements("CM-C4", "CM-C7", "CM-C8", "CM-C9")
def an_inline_commit_is_served_unchanged_until_it_is_published(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        made = (inline(1), proposal(2), inline(3, size=300_000))
        for one in made:
            assert isinstance(catalog.coordinator.commit(table, one), Ratified)
        served = other.coordinator.get_ratified_commits(table)
        assert [commit.content for commit in served.commits] == [made[0].content, None, made[2].content]
        assert [commit.file_name for commit in served.commits] == [one.file_name for one in made]
        assert other.registry.load_table(NAME).ratified == served
        assert catalog.coordinator.commit(table, made[0]) == Ratified(
            version=1, latest_version=3, published_version=0, repeated=True
        )
        catalog.coordinator.set_published_version(table, 2)
        assert other.coordinator.get_ratified_commits(table).commits == served.commits[2:]
        taken = other.coordinator.commit(table, inline(1))
        assert isinstance(taken, VersionTaken)
        assert [commit.content for commit in taken.winners.commits] == [None, None, made[2].content]
        catalog.coordinator.set_published_version(table, 3)
        assert len(catalog.feed.feed(after=0, limit=10)) == 4


@pytest.mark.requirements("CM-C14")
def inline_content_that_contradicts_its_proposal_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        good = inline(1)
        wrong = (
            replace(good, content=None),
            replace(good, file_size=good.file_size + 1),
            replace(good, summary=replace(good.summary, txn_id=str(uuid.uuid4()))),
            replace(good, summary=replace(good.summary, in_commit_timestamp=4000)),
            replace(good, mode=CommitMode.STAGED, file_size=good.file_size - 1),
            replace(good, mode=CommitMode.PUT_IF_ABSENT),
            inline(1, timestamp=1000),
        )
        for one in wrong:
            with pytest.raises(CommitRejectedError, match="Version 1 "):
                catalog.coordinator.commit(table, one)
        for content in (b"{}\n", b"\xff\n"):
            with pytest.raises(IllegalCommitError, match="The proposed commit is not valid: "):
                catalog.coordinator.commit(table, replace(good, content=content, file_size=len(content)))
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0
        assert isinstance(catalog.coordinator.commit(table, good), Ratified)


@pytest.mark.requirements("CM-C4", "CM-C9", "CM-C16")
def content_of_small_commits_is_served_after_publication(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first = inline(0).content
        table = defined(catalog, content=first).table_id
        made = [copied(1), inline(2), copied(3)]
        for one in made:
            assert isinstance(catalog.coordinator.commit(table, one), Ratified)
        plain = other.coordinator.get_ratified_commits(table)
        assert [commit.content for commit in plain.commits] == [None, made[1].content, None]
        assert [commit.mode.value for commit in plain.commits] == ["staged", "inline", "staged"]
        answer = other.coordinator.get_ratified_commits(table, content_from_version=2)
        assert [commit.content for commit in answer.commits] == [None, made[1].content, made[2].content]
        assert answer.cached_commits == () and plain.cached_commits == ()
        catalog.coordinator.set_published_version(table, 2)
        answer = other.coordinator.get_ratified_commits(table, content_from_version=0)
        assert [commit.content for commit in answer.cached_commits] == [first, made[0].content, made[1].content]
        assert [commit.content for commit in answer.commits] == [made[2].content]
        assert cached_versions(other, table, since=2) == [2] and cached_versions(other, table, since=3) == []
        ranged = other.coordinator.get_ratified_commits(table, start=1, end=1, content_from_version=0)
        assert [commit.version for commit in ranged.cached_commits] == [1] and ranged.commits == ()
        assert (
            other.coordinator.get_ratified_commits(table).cached_commits
            == ()
            == other.registry.load_table(NAME).ratified.cached_commits
        )
        taken = other.coordinator.commit(table, proposal(1))
        assert isinstance(taken, VersionTaken)
        assert [commit.content for commit in taken.winners.commits] == [one.content for one in made]


def the_timestamp_of_the_preceding_version_is_served(bench: Bench) -> None:
    """A client compares it with the version that it has in memory."""
    with bench.client() as catalog:
        table = defined(catalog).table_id
        made = [proposal(1), proposal(2), proposal(3)]
        for one in made:
            assert isinstance(catalog.coordinator.commit(table, one), Ratified)
        expected = [one.summary.in_commit_timestamp for one in made[:2]]
        answer = [
            catalog.coordinator.get_ratified_commits(table, content_from_version=version).preceding_timestamp
            for version in (2, 3, 4)
        ]
        assert answer == [*expected, None]
        catalog.coordinator.set_published_version(table, 3)
        assert (
            catalog.coordinator.get_ratified_commits(table, content_from_version=3).preceding_timestamp == expected[1]
        )
        assert catalog.coordinator.get_ratified_commits(table).preceding_timestamp is None


@pytest.mark.requirements("CM-C7", "CM-C8")
def a_large_commit_ends_the_range_of_cached_commits(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        assert cached_versions(catalog, table) == []
        catalog.coordinator.commit(table, copied(1))
        catalog.coordinator.commit(table, inline(2, size=CACHED_CONTENT_BYTES))
        catalog.coordinator.commit(table, copied(3))
        served = catalog.coordinator.get_ratified_commits(table, content_from_version=0)
        assert all(commit.content is not None for commit in served.commits)
        catalog.coordinator.set_published_version(table, 1)
        assert cached_versions(catalog, table) == []
        catalog.coordinator.set_published_version(table, 3)
        assert cached_versions(catalog, table) == [3]
        catalog.coordinator.commit(table, replace(proposal(4), published_version=3))
        assert cached_versions(catalog, table) == []
        catalog.coordinator.set_published_version(table, 4)
        assert cached_versions(catalog, table) == []
        records = catalog.coordinator.commit_records(table, start=0, end=4)
        assert [record.content for record in records] == [None] * 5


@pytest.mark.requirements("CM-C8")
def the_number_of_cached_commits_is_bounded(bench: Bench) -> None:
    """What a catalog keeps of a table does not grow with its age."""
    with bench.client() as catalog:
        content = inline(0).content
        table = defined(catalog, content=content).table_id
        most = 0
        for version in range(1, 3 * CACHED_COMMITS):
            one = copied(version) if version % 3 else inline(version)
            catalog.coordinator.commit(table, replace(one, published_version=version - 1 if version % 2 else None))
            if version % 10 == 0:
                catalog.coordinator.set_published_version(table, version)
            if version % 20 == 0:
                now = cached_versions(catalog, table)
                assert min(version + 1, CACHED_COMMITS) <= len(now) < CACHED_COMMITS + 16
                stored = [
                    one
                    for one in catalog.coordinator.commit_records(table, start=0, end=version)
                    if one.content is not None
                ]
                most = max(most, len(stored))
        assert CACHED_COMMITS <= most < CACHED_COMMITS + 16


@pytest.mark.requirements("CM-C7")
def content_is_not_deleted_before_its_commit_is_published(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        last = 2 * CACHED_COMMITS
        for version in range(1, last + 1):
            catalog.coordinator.commit(table, inline(version))
        served = catalog.coordinator.get_ratified_commits(table).commits
        assert len(served) == last and all(commit.content is not None for commit in served)
        catalog.coordinator.set_published_version(table, last)
        assert CACHED_COMMITS <= len(cached_versions(catalog, table)) < CACHED_COMMITS + 16


@pytest.mark.requirements("CM-C5")
def content_of_put_if_absent_commits_is_cached(bench: Bench) -> None:
    with bench.client() as catalog:
        zero, one = inline(0).content, inline(1)
        table = defined(catalog, content=zero).table_id
        catalog.commit_policies.change_commit_policy(table, CommitPolicy.parse("put_if_absent"))
        record = replace(
            created(1), content=one.content, file_size=one.file_size, summary=one.summary, metadata=metadata("id", "b")
        )
        with pytest.raises(CommitRejectedError):
            catalog.coordinator.record_published(table, replace(record, file_size=1))
        assert isinstance(catalog.coordinator.record_published(table, record), Ratified)
        answer: RatifiedCommits = catalog.coordinator.get_ratified_commits(table, content_from_version=0)
        assert [commit.content for commit in answer.cached_commits] == [zero, one.content]
        definition = catalog.registry.load_table(NAME).definition
        assert definition is not None and definition.metadata == metadata("id", "b")


def the_digest_of_every_commit_is_stored_and_served(bench: Bench) -> None:
    """Digests come with the proposal, or from its content; they are served with commits, records, and by themselves."""
    with bench.client() as catalog:
        zero = b'{"commitInfo":{"txnId":"t","inCommitTimestamp":1000}}\n'
        table = defined(catalog, content=zero).table_id
        sent, derived, without = inline(1), copied(2), proposal(3)
        assert sent.content is not None and derived.content is not None
        digests = {
            0: hashlib.sha256(zero).hexdigest(),
            1: hashlib.sha256(sent.content).hexdigest(),
            2: hashlib.sha256(derived.content).hexdigest(),
            4: "0" * 64,
        }
        for offered in (replace(sent, sha256=digests[1]), derived, without, replace(proposal(4), sha256=digests[4])):
            assert isinstance(catalog.coordinator.commit(table, offered), Ratified)
    with bench.client() as other:
        assert dict(other.coordinator.commit_digests(table, start=0, end=9)) == digests
        assert dict(other.coordinator.commit_digests(table, start=2, end=3)) == {2: digests[2]}
        assert dict(other.coordinator.commit_digests("unknown", start=0, end=9)) == {}
        records = other.coordinator.commit_records(table, start=0, end=4)
        assert [record.sha256 for record in records] == [digests.get(version) for version in range(5)]
        served = other.coordinator.get_ratified_commits(table).commits
        assert [commit.sha256 for commit in served] == [digests.get(version) for version in range(1, 5)]


def a_malformed_or_wrong_digest_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        table = defined(catalog).table_id
        for wrong in (replace(inline(1), sha256="0" * 64), replace(proposal(1), sha256="F" * 64)):
            with pytest.raises(CommitRejectedError, match="SHA-256"):
                catalog.coordinator.commit(table, wrong)
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0


COMMIT_COORDINATOR_CONTENT_CONTRACT: tuple[Rule, ...] = (
    an_inline_commit_is_served_unchanged_until_it_is_published,
    inline_content_that_contradicts_its_proposal_is_rejected,
    content_of_small_commits_is_served_after_publication,
    the_timestamp_of_the_preceding_version_is_served,
    a_large_commit_ends_the_range_of_cached_commits,
    the_number_of_cached_commits_is_bounded,
    content_is_not_deleted_before_its_commit_is_published,
    content_of_put_if_absent_commits_is_cached,
    the_digest_of_every_commit_is_stored_and_served,
    a_malformed_or_wrong_digest_is_rejected,
)
