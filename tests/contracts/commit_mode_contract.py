"""What every catalog must do about the ways in which commits are made."""

import uuid
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyRule, PolicyChange
from cm_delta_dagster.catalog.ratification import (
    CommitPolicyChanged,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CommitRejectedError,
    InvalidArgumentError,
    TableNotFoundError,
)
from tests.contracts.catalog_bench import NAME, Bench, Rule, create, created, inline, proposal

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


COMMIT_MODE_CONTRACT: tuple[Rule, ...] = (
    an_inline_commit_is_served_unchanged_until_it_is_published,
    inline_content_that_contradicts_its_proposal_is_rejected,
    the_commit_policy_of_the_narrowest_scope_is_served,
    put_if_absent_of_a_wider_scope_is_for_tables_to_come,
    a_table_goes_into_put_if_absent_only_when_everything_is_published,
    a_switch_into_put_if_absent_can_be_taken_back,
    a_table_leaves_put_if_absent_behind_a_barrier,
    a_created_commit_is_recorded_once_and_published_at_once,
    a_table_keeps_its_own_commit_policy_under_another_name,
)
