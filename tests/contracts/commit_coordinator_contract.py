"""Contract of ``CommitCoordinator``: ratification and publication.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import uuid
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    MAX_CLOCK_DIFFERENCE_MS,
    CommitOutcome,
    CommitProposal,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql.ratification import coordinator
from cm_delta_dagster.errors import (
    CommitRejectedError,
    InvalidArgumentError,
    TableNotFoundError,
)
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create, created, inline, proposal, summary
from tests.contracts.recoverable_catalog_contract import history
from tests.support.log_records import logged_by


@pytest.mark.requirements("CM-C1", "CM-C4", "CM-C7", "CM-C8", "CM-C9", "CM-C10")
def commits_are_ratified_in_order_and_served_until_published(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        proposals = [proposal(version) for version in (1, 2, 3)]
        for one in proposals:
            assert catalog.coordinator.commit(table, one) == Ratified(
                version=one.version, latest_version=one.version, published_version=0
            )
        served = other.coordinator.get_ratified_commits(table)
        assert [commit.version for commit in served.commits] == [1, 2, 3]
        assert [commit.file_name for commit in served.commits] == [one.file_name for one in proposals]
        first = served.commits[0]
        assert (first.file_size, first.file_modification_time, first.in_commit_timestamp) == (101, 5001, 1001)
        assert first.txn_id == proposals[0].summary.txn_id
        assert [commit.version for commit in other.coordinator.get_ratified_commits(table, start=2, end=2).commits] == [
            2
        ]
        assert other.coordinator.get_ratified_commits(table, start=7).latest_version == 3
        assert other.coordinator.get_ratified_commits(table, start=7).commits == ()
        assert other.registry.load_table(NAME).ratified == served
        catalog.coordinator.set_published_version(table, 2)
        assert [commit.version for commit in other.coordinator.get_ratified_commits(table).commits] == [3]
        assert other.coordinator.get_ratified_commits(table, start=0, end=2).commits == ()
        catalog.coordinator.set_published_version(table, 3)
        assert other.coordinator.get_ratified_commits(table).commits == ()
        assert other.registry.load_table(NAME).ratified.latest_version == 3


@pytest.mark.requirements("CM-C8")
def the_published_version_never_decreases_or_exceeds_the_latest(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in (1, 2):
            catalog.coordinator.commit(table, proposal(version))
        catalog.coordinator.set_published_version(table, 2)
        catalog.coordinator.set_published_version(table, 1)
        assert catalog.coordinator.get_ratified_commits(table).published_version == 2
        with pytest.raises(InvalidArgumentError):
            catalog.coordinator.set_published_version(table, 3)
        assert catalog.coordinator.get_ratified_commits(table).published_version == 2


@pytest.mark.requirements("CM-C2")
def a_version_that_leaves_a_gap_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        with pytest.raises(CommitRejectedError, match="latest is 0"):
            catalog.coordinator.commit(table, proposal(2))
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0
        assert catalog.feed.latest_feed_position() == 1


@pytest.mark.requirements("CM-C14", "ICT-4")
def a_timestamp_far_ahead_of_the_catalogs_clock_is_rejected(bench: Bench) -> None:
    """Every later commit would have to be later still."""
    with bench.client() as catalog:
        assert catalog.coordinator.now_ms() == bench.clock.now
        table = create(catalog).table_id
        newest = bench.clock.now + MAX_CLOCK_DIFFERENCE_MS
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.coordinator.commit(table, proposal(1, timestamp=newest + 1))
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0
        assert isinstance(catalog.coordinator.commit(table, proposal(1, timestamp=newest)), Ratified)
        staging = catalog.registry.create_staging_table(OTHER)
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.registry.register_table(staging.table_id, OTHER, summary=summary(newest + 1))
        assert catalog.registry.list_tables() == (NAME,)


@pytest.mark.requirements("CM-C5", "ICT-4")
def a_commit_made_put_if_absent_far_ahead_of_the_clock_is_recorded_with_one_warning(bench: Bench) -> None:
    """As far ahead as a proposal may be, there is none; nor when it is reported again."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.commit_policies.change_commit_policy(table, CommitPolicy.parse("put_if_absent"))
        for version, ahead, seconds in (
            (1, MAX_CLOCK_DIFFERENCE_MS, None),
            (2, MAX_CLOCK_DIFFERENCE_MS + 1, 3600),
            (3, 2 * MAX_CLOCK_DIFFERENCE_MS, 7200),
        ):
            record = created(version)
            record = replace(record, summary=replace(record.summary, in_commit_timestamp=bench.clock.now + ahead))
            for is_repeated in (False, True):
                with logged_by(coordinator) as messages:
                    outcome = catalog.coordinator.record_published(table, record)
                assert isinstance(outcome, Ratified) and outcome.repeated == is_repeated
                is_warned = seconds is not None and not is_repeated
                assert [f" {seconds} seconds ahead of the catalog's clock" in message for message in messages] == (
                    [True] * is_warned
                )


@pytest.mark.requirements("ICT-4")
def the_timestamp_after_one_in_the_future_is_accepted(bench: Bench) -> None:
    """The timestamp right after the previous one is the only one that is possible."""
    with bench.client() as catalog:
        table, ahead = create(catalog).table_id, bench.clock.now + 1000 * MAX_CLOCK_DIFFERENCE_MS
        bench.clock.now = ahead
        catalog.coordinator.commit(table, proposal(1, timestamp=ahead))
        bench.clock.now = ahead - 999 * MAX_CLOCK_DIFFERENCE_MS
        with pytest.raises(CommitRejectedError, match="ahead of the catalog's clock"):
            catalog.coordinator.commit(table, proposal(2, timestamp=ahead + 2))
        for version in (2, 3):
            assert isinstance(
                catalog.coordinator.commit(table, proposal(version, timestamp=ahead + version - 1)), Ratified
            )


@pytest.mark.requirements("CM-C3", "CM-C11")
def a_taken_version_returns_its_winners_published_or_not(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        winners = [proposal(version) for version in (1, 2, 3)]
        for one in winners:
            catalog.coordinator.commit(table, one)
        catalog.coordinator.set_published_version(table, 2)
        outcome = catalog.coordinator.commit(table, proposal(2))
        assert isinstance(outcome, VersionTaken) and outcome.proposed_version == 2
        assert [commit.file_name for commit in outcome.winners.commits] == [one.file_name for one in winners[1:]]
        assert (outcome.winners.latest_version, outcome.winners.published_version) == (3, 2)
        assert isinstance(catalog.coordinator.commit(table, proposal(0)), VersionTaken)


@pytest.mark.requirements("CM-C3")
def a_repeated_proposal_has_no_effect(bench: Bench) -> None:
    """A client with an unknown outcome proposes again and gets the ratified version."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        mine = proposal(1)
        catalog.coordinator.commit(table, mine)
        catalog.coordinator.commit(table, proposal(2))
        catalog.coordinator.set_published_version(table, 2)
        answer = catalog.coordinator.commit(table, mine)
        assert answer == Ratified(version=1, latest_version=2, published_version=2, repeated=True)
        assert catalog.feed.latest_feed_position() == 3
        another = catalog.coordinator.commit(table, replace(mine, file_size=mine.file_size + 1))
        assert isinstance(another, VersionTaken), "it has the name, and is another commit"


@pytest.mark.requirements("CM-C14")
def a_malformed_proposal_is_rejected(bench: Bench) -> None:
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
                catalog.coordinator.commit(
                    table,
                    CommitProposal(
                        version=1, file_name=name, file_size=1, file_modification_time=1, summary=good.summary
                    ),
                )
        with pytest.raises(CommitRejectedError, match="timestamp"):
            catalog.coordinator.commit(table, proposal(1, timestamp=1000))
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0


@pytest.mark.requirements("CM-C14")
def a_proposal_that_no_database_can_store_is_rejected(bench: Bench) -> None:
    """Whatever the database, and as a refusal that the writer understands."""
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
        ):
            with pytest.raises(CommitRejectedError, match="can hold"):
                catalog.coordinator.commit(table, wrong)
        # A client over HTTP cannot even send it.
        with pytest.raises((CommitRejectedError, InvalidArgumentError), match=r"can hold|not sent"):
            catalog.coordinator.commit(table, replace(good, summary=replace(good.summary, operation="\ud800")))
        with pytest.raises(CommitRejectedError, match="one after the other"):
            catalog.coordinator.commit(
                table, replace(proposal(2**63 - 2, timestamp=2000), file_size=1, file_modification_time=1)
            )
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 0


@pytest.mark.requirements("CM-P4", "CM-P5", "CM-C8")
def a_published_version_may_be_reported_late_or_with_a_commit(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        for version in (1, 2, 3):
            catalog.coordinator.commit(table, proposal(version))
        answer = catalog.coordinator.commit(table, replace(proposal(4), published_version=2))
        assert answer == Ratified(version=4, latest_version=4, published_version=2)
        assert [commit.version for commit in catalog.coordinator.get_ratified_commits(table).commits] == [3, 4]
        late = catalog.coordinator.commit(table, replace(proposal(5), published_version=1))
        assert late == Ratified(version=5, latest_version=5, published_version=2)
        whole = catalog.coordinator.commit(table, replace(inline(6), published_version=5))
        assert whole == Ratified(version=6, latest_version=6, published_version=5)
        catalog.coordinator.set_published_version(table, 6)
        assert catalog.coordinator.get_ratified_commits(table).commits == ()


@pytest.mark.requirements("CM-P1", "CM-C3")
def a_published_version_above_the_latest_one_is_refused(bench: Bench) -> None:
    """The version is checked before the published version."""
    with bench.client() as catalog:
        table = create(catalog).table_id
        one = proposal(1)
        catalog.coordinator.commit(table, one)
        for reported in (2, 3):
            with pytest.raises(CommitRejectedError, match="published"):
                catalog.coordinator.commit(table, replace(proposal(2), published_version=reported))
        with pytest.raises(InvalidArgumentError):
            catalog.coordinator.set_published_version(table, 2)
        assert isinstance(catalog.coordinator.commit(table, replace(proposal(1), published_version=9)), VersionTaken)
        repeated = catalog.coordinator.commit(table, replace(one, published_version=1))
        assert repeated == Ratified(version=1, latest_version=1, published_version=0, repeated=True)
        known = catalog.coordinator.get_ratified_commits(table)
        assert (known.latest_version, known.published_version) == (1, 0)


@pytest.mark.requirements("CM-C5", "CM-C6", "CM-C2", "CM-C3")
def a_put_if_absent_commit_is_recorded_once_as_published(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        with pytest.raises(CommitRejectedError, match="made staged"):
            catalog.coordinator.record_published(table, created(1))
        catalog.commit_policies.change_commit_policy(table, CommitPolicy.parse("put_if_absent"))
        one = created(1)
        assert catalog.coordinator.record_published(table, one) == Ratified(
            version=1, latest_version=1, published_version=1
        )
        repeated = other.coordinator.record_published(table, one)
        assert repeated == Ratified(version=1, latest_version=1, published_version=1, repeated=True)
        served = other.coordinator.get_ratified_commits(table)
        assert (served.latest_version, served.published_version, served.commits) == (1, 1, ())
        assert isinstance(other.coordinator.record_published(table, created(1)), VersionTaken)
        assert [entry.version for entry in other.feed.feed(after=0, limit=9)] == [0, 1]
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
                catalog.coordinator.record_published(table, refused)
        with pytest.raises(TableNotFoundError):
            catalog.coordinator.record_published(str(uuid.uuid4()), two)
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 1


@pytest.mark.requirements("CM-C7", "CM-C9")
def ten_thousand_unpublished_commits_are_served(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        if bench.recorded_together:
            recorded = [proposal(version) for version in range(1, bench.recorded_together + 1)]
            catalog.recovery.take_in_commits(table, history(recorded, to=0), after=0)
        for version in range(bench.recorded_together + 1, 10_001):
            outcome: CommitOutcome = catalog.coordinator.commit(table, proposal(version))
            assert isinstance(outcome, Ratified)
        served = catalog.coordinator.get_ratified_commits(table).commits
        assert [commit.version for commit in served] == list(range(1, 10_001))
        catalog.coordinator.set_published_version(table, 9_999)
        assert [commit.version for commit in catalog.registry.load_table(NAME).ratified.commits] == [10_000]
        assert len(catalog.feed.feed(after=0, limit=20_000)) == 10_001


COMMIT_COORDINATOR_CONTRACT: tuple[Rule, ...] = (
    commits_are_ratified_in_order_and_served_until_published,
    the_published_version_never_decreases_or_exceeds_the_latest,
    a_version_that_leaves_a_gap_is_rejected,
    a_timestamp_far_ahead_of_the_catalogs_clock_is_rejected,
    a_commit_made_put_if_absent_far_ahead_of_the_clock_is_recorded_with_one_warning,
    the_timestamp_after_one_in_the_future_is_accepted,
    a_taken_version_returns_its_winners_published_or_not,
    a_repeated_proposal_has_no_effect,
    a_malformed_proposal_is_rejected,
    a_proposal_that_no_database_can_store_is_rejected,
    a_published_version_may_be_reported_late_or_with_a_commit,
    a_published_version_above_the_latest_one_is_refused,
    a_put_if_absent_commit_is_recorded_once_as_published,
    ten_thousand_unpublished_commits_are_served,
)
