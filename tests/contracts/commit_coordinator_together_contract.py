"""Contract of ``CommitCoordinator``: commits to several tables at once.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import itertools
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    MAX_CLOCK_DIFFERENCE_MS,
    CommitPolicyChanged,
    CommitProposal,
    Ratified,
    RatifiedTogether,
    RefusedTogether,
    VersionTaken,
)
from cm_delta_dagster.errors import (
    CatalogError,
    CommitRejectedError,
    IllegalCommitError,
    InvalidArgumentError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions.actions import TRANSACTION_TAG
from tests.contracts.catalog_bench import NAME, OTHER, PROTOCOL, Bench, Rule, create, inline, metadata, proposal


def _two(catalog: Catalog) -> tuple[str, str]:
    return create(catalog).table_id, create(catalog, OTHER).table_id


def _latest(catalog: Catalog, *tables: str) -> list[int]:
    return [catalog.coordinator.get_ratified_commits(table).latest_version for table in tables]


@pytest.mark.requirements("CM-C1", "CM-C3")
def commits_to_several_tables_are_ratified_together(bench: Bench) -> None:
    with bench.client() as catalog:
        one, two = _two(catalog)
        catalog.coordinator.commit(two, proposal(1))
        changed = replace(proposal(1), metadata=metadata("id", "day"), protocol=PROTOCOL)
        outcome = catalog.coordinator.commit_together({one: changed, two: replace(inline(2), published_version=1)})
        assert outcome == RatifiedTogether(
            commits={
                one: Ratified(version=1, latest_version=1, published_version=0),
                two: Ratified(version=2, latest_version=2, published_version=1),
            }
        )
        assert _latest(catalog, one, two) == [1, 2]
        (served,) = catalog.coordinator.get_ratified_commits(two).commits
        assert served.content is not None
        definition = catalog.registry.load_table(NAME).definition
        assert definition is not None and definition.metadata == changed.metadata
        entries = catalog.feed.feed(after=3, limit=9)
        assert {entry.table_id for entry in entries} == {one, two} and len(entries) == 2


@pytest.mark.requirements("CM-C3", "CM-C11")
def nothing_is_ratified_if_one_version_is_taken(bench: Bench) -> None:
    with bench.client() as catalog:
        one, two = _two(catalog)
        winner = proposal(1)
        catalog.coordinator.commit(two, winner)
        position = catalog.feed.latest_feed_position()
        outcome = catalog.coordinator.commit_together({one: proposal(1), two: proposal(1)})
        assert isinstance(outcome, RefusedTogether) and set(outcome.refusals) == {two}
        refusal = outcome.refusals[two]
        assert isinstance(refusal, VersionTaken)
        assert [commit.file_name for commit in refusal.winners.commits] == [winner.file_name]
        assert _latest(catalog, one, two) == [0, 1]
        assert catalog.feed.latest_feed_position() == position


@pytest.mark.requirements("CM-C5")
def nothing_is_ratified_if_one_table_creates_its_files(bench: Bench) -> None:
    with bench.client() as catalog:
        one, two = _two(catalog)
        catalog.commit_policies.change_commit_policy(two, CommitPolicy.parse("put_if_absent"))
        outcome = catalog.coordinator.commit_together({one: proposal(1), two: proposal(1)})
        assert isinstance(outcome, RefusedTogether)
        assert isinstance(outcome.refusals[two], CommitPolicyChanged) and set(outcome.refusals) == {two}
        assert _latest(catalog, one, two) == [0, 0]


@pytest.mark.requirements("CM-C2", "CM-C14")
def nothing_is_ratified_if_one_proposal_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        one, two = _two(catalog)
        late = bench.clock.now + MAX_CLOCK_DIFFERENCE_MS + 1
        for wrong in (
            proposal(2),
            proposal(1, timestamp=1000),
            proposal(1, timestamp=late),
            replace(proposal(1), published_version=1),
            replace(proposal(1), file_name="1.json"),
        ):
            for proposals in ({one: proposal(1), two: wrong}, {one: wrong, two: proposal(1)}):
                with pytest.raises(CommitRejectedError):
                    catalog.coordinator.commit_together(proposals)
        with pytest.raises(InvalidArgumentError):
            catalog.coordinator.commit_together({})
        assert _latest(catalog, one, two) == [0, 0]
        catalog.registry.drop_table(OTHER)
        with pytest.raises(TableNotFoundError):
            catalog.coordinator.commit_together({one: proposal(1), two: proposal(1)})
        assert _latest(catalog, one) == [0]


@pytest.mark.requirements("CM-C3")
def commits_together_are_repeated_without_effect(bench: Bench) -> None:
    """A client with an unknown outcome proposes again and gets the ratified versions."""
    with bench.client() as catalog:
        one, two = _two(catalog)
        proposals = {one: proposal(1), two: proposal(1)}
        catalog.coordinator.commit_together(proposals)
        catalog.coordinator.commit(two, proposal(2))
        position = catalog.feed.latest_feed_position()
        again = catalog.coordinator.commit_together(proposals)
        assert again == RatifiedTogether(
            commits={
                one: Ratified(version=1, latest_version=1, published_version=0, repeated=True),
                two: Ratified(version=1, latest_version=2, published_version=0, repeated=True),
            }
        )
        assert catalog.feed.latest_feed_position() == position
        # A refusal would let the writer delete the files of a ratified commit.
        with pytest.raises(CatalogError, match="restored"):
            catalog.coordinator.commit_together({one: proposals[one], two: proposal(3)})
        with pytest.raises(CatalogError, match="restored"):
            catalog.coordinator.commit_together({one: proposals[one], two: proposal(2)})
        assert _latest(catalog, one, two) == [1, 2]


def _grouped(version: int, participants: Mapping[str, int], *, transaction_id: str = "together") -> CommitProposal:
    """An inline proposal that names the versions of all tables of its transaction."""
    one = inline(version)
    summary = replace(one.summary, tags={TRANSACTION_TAG: transaction_id})
    info = {"txnId": summary.txn_id, "inCommitTimestamp": summary.in_commit_timestamp, "tags": dict(summary.tags)}
    group = {
        "transactionId": transaction_id,
        "participants": [{"tableId": table, "proposedVersion": at} for table, at in participants.items()],
        "coordinatingCatalog": "this",
    }
    content = f"{json.dumps({'commitInfo': info})}\n{json.dumps({'transactionGroup': group})}\n".encode()
    return replace(one, summary=summary, content=content, file_size=len(content))


@pytest.mark.requirements("MTX-2", "MTX-3", "CM-C3")
def commits_that_name_each_other_are_ratified_only_together(bench: Bench) -> None:
    with bench.client() as catalog:
        one, two = _two(catalog)
        catalog.coordinator.commit(two, proposal(1))
        versions = {one: 1, two: 2}
        right = {table: _grouped(version, versions) for table, version in versions.items()}
        with pytest.raises(IllegalCommitError, match=f"names version 2 of table {two}"):
            catalog.coordinator.commit(one, right[one])
        for wrong in (
            inline(2),
            _grouped(2, {one: 1, two: 3}),
            _grouped(2, versions, transaction_id="another"),
            _grouped(2, {two: 2, "elsewhere": 1}),
        ):
            with pytest.raises(IllegalCommitError, match="transactionGroup"):
                catalog.coordinator.commit_together({one: right[one], two: wrong})
        assert _latest(catalog, one, two) == [0, 1]
        assert isinstance(catalog.coordinator.commit_together(right), RatifiedTogether)
        assert catalog.coordinator.commit_together(right) == RatifiedTogether(
            commits={
                one: Ratified(version=1, latest_version=1, published_version=0, repeated=True),
                two: Ratified(version=2, latest_version=2, published_version=0, repeated=True),
            }
        )
        assert _latest(catalog, one, two) == [1, 2]


@pytest.mark.requirements("CM-C3", "CM-C15")
def readers_see_concurrent_commits_together_whole(bench: Bench) -> None:
    with bench.client() as catalog:
        one, two = _two(catalog)
        stopped = threading.Event()

        def read() -> int:
            readings = 0
            while not stopped.is_set() or not readings:
                versions = {entry.ratified.latest_version for entry in catalog.registry.load_tables((NAME, OTHER))}
                assert len(versions) == 1, versions
                readings += 1
            return readings

        def write(order: tuple[str, str]) -> None:
            for version in itertools.count(1):
                proposals: Mapping[str, CommitProposal] = {table: proposal(version) for table in order}
                if _latest(catalog, one) == [20]:
                    return
                catalog.coordinator.commit_together(proposals) if version > _latest(catalog, one)[0] else None

        with ThreadPoolExecutor(3) as threads:
            reading = threads.submit(read)
            try:
                for writing in [threads.submit(write, order) for order in ((one, two), (two, one))]:
                    writing.result()
            finally:
                stopped.set()
            assert reading.result()
        assert _latest(catalog, one, two) == [20, 20]


COMMIT_COORDINATOR_TOGETHER_CONTRACT: tuple[Rule, ...] = (
    commits_to_several_tables_are_ratified_together,
    nothing_is_ratified_if_one_version_is_taken,
    nothing_is_ratified_if_one_table_creates_its_files,
    nothing_is_ratified_if_one_proposal_is_rejected,
    commits_together_are_repeated_without_effect,
    commits_that_name_each_other_are_ratified_only_together,
    readers_see_concurrent_commits_together_whole,
)
