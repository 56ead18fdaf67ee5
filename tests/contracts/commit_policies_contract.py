"""Contract of ``CommitPolicies``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import uuid

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyRule, PolicyChange
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


def the_commit_policy_of_the_narrowest_scope_is_served(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id

        def policy() -> CommitPolicy:
            served = other.coordinator.get_ratified_commits(table).commit_policy
            assert other.registry.load_table(NAME).ratified.commit_policy == served
            return served

        assert policy() == STAGED
        auto = CommitPolicy.parse("auto:1000")
        catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=INLINE))
        assert policy() == INLINE
        catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main.sales", policy=INLINE))
        catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main.sales", policy=auto))
        assert policy() == auto
        assert catalog.commit_policies.change_commit_policy(table, STAGED) is PolicyChange.DONE
        assert policy() == STAGED
        assert [(rule.scope, str(rule.policy)) for rule in other.commit_policies.commit_policies()] == [
            ("main", "inline"),
            ("main.sales", "auto:1000"),
            ("main.sales.orders", "staged"),
        ]
        catalog.commit_policies.remove_commit_policy("main.sales")
        assert catalog.commit_policies.change_commit_policy(table, None) is PolicyChange.DONE
        assert policy() == INLINE
        assert isinstance(catalog.coordinator.commit(table, proposal(1)), Ratified)
        for scope, wrong in (("main.sales.orders", INLINE), ("main", SWITCHING)):
            with pytest.raises(InvalidArgumentError):
                catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope=scope, policy=wrong))
        with pytest.raises(InvalidArgumentError):
            catalog.commit_policies.change_commit_policy(table, SWITCHING)
        with pytest.raises(TableNotFoundError):
            catalog.commit_policies.change_commit_policy(str(uuid.uuid4()), INLINE)


def put_if_absent_of_a_scope_applies_to_new_tables_only(bench: Bench) -> None:
    with bench.client() as catalog:
        old = create(catalog).table_id
        catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=PUT_IF_ABSENT))
        new = create(catalog, TableIdentifier("main", "sales", "other")).table_id
        assert catalog.coordinator.get_ratified_commits(old).commit_policy == STAGED
        assert catalog.coordinator.get_ratified_commits(new).commit_policy == PUT_IF_ABSENT
        catalog.commit_policies.remove_commit_policy("main")
        assert catalog.coordinator.get_ratified_commits(new).commit_policy == PUT_IF_ABSENT


@pytest.mark.requirements("CM-C5", "CM-C6")
def a_change_to_put_if_absent_requires_publication(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, inline(1))
        assert catalog.commit_policies.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.PUBLISH_FIRST
        assert other.coordinator.commit(table, proposal(2)) == CommitPolicyChanged(policy=SWITCHING)
        assert isinstance(other.coordinator.commit(table, proposal(1)), VersionTaken)
        assert other.commit_policies.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.PUBLISH_FIRST
        with pytest.raises(CommitRejectedError, match="published up to version 0"):
            other.coordinator.record_published(table, created(2))
        other.coordinator.set_published_version(table, 1)
        assert other.commit_policies.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.DONE
        assert catalog.commit_policies.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.DONE
        for one in (proposal(2), inline(2)):
            assert catalog.coordinator.commit(table, one) == CommitPolicyChanged(policy=PUT_IF_ABSENT)
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 1


def a_change_to_put_if_absent_can_be_cancelled(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        assert catalog.commit_policies.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.PUBLISH_FIRST
        assert catalog.commit_policies.change_commit_policy(table, INLINE) is PolicyChange.DONE
        assert isinstance(catalog.coordinator.commit(table, inline(2)), Ratified)


@pytest.mark.requirements("CM-C5", "CM-C6")
def a_change_from_put_if_absent_requires_a_barrier_commit(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        assert catalog.commit_policies.change_commit_policy(table, PUT_IF_ABSENT) is PolicyChange.DONE
        barriers = [created(version, operation="SET COMMIT MODE") for version in (1, 3)]
        catalog.coordinator.record_published(table, barriers[0])
        assert catalog.commit_policies.change_commit_policy(table, STAGED) is PolicyChange.BARRIER_FIRST
        assert other.coordinator.commit(table, proposal(2)) == CommitPolicyChanged(policy=SWITCHING)
        late = created(2)
        assert other.coordinator.record_published(table, late) == Ratified(
            version=2, latest_version=2, published_version=2
        )
        for policy in (STAGED, None, INLINE):
            assert other.commit_policies.change_commit_policy(table, policy) is PolicyChange.BARRIER_FIRST
        other.coordinator.record_published(table, barriers[1])
        assert other.commit_policies.change_commit_policy(table, INLINE) is PolicyChange.DONE
        assert isinstance(other.coordinator.commit(table, inline(4)), Ratified)
        assert catalog.coordinator.record_published(table, late) == Ratified(
            version=2, latest_version=4, published_version=3, repeated=True
        )


def a_renamed_table_keeps_its_own_commit_policy(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        catalog.commit_policies.change_commit_policy(table, PUT_IF_ABSENT)
        catalog.registry.rename_table(table, TableIdentifier("main", "old", "orders"))
        catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main.old", policy=INLINE))
        assert catalog.coordinator.get_ratified_commits(table).commit_policy == PUT_IF_ABSENT
        again = create(catalog).table_id
        assert catalog.coordinator.get_ratified_commits(again).commit_policy == STAGED


def the_audit_has_the_policy_before_and_after(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id
        for policy in (INLINE, STAGED):
            catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=policy))
            catalog.commit_policies.change_commit_policy(table, policy)
        catalog.commit_policies.remove_commit_policy("main")
        catalog.commit_policies.remove_commit_policy("main")
        found = [(entry.scope, entry.before, entry.after) for entry in catalog.audit_log.audit()]
        assert found == [
            ("main", None, "inline"),
            (str(NAME), None, "inline"),
            ("main", "inline", "staged"),
            (str(NAME), "inline", "staged"),
            ("main", "staged", None),
        ]


COMMIT_POLICIES_CONTRACT: tuple[Rule, ...] = (
    the_commit_policy_of_the_narrowest_scope_is_served,
    put_if_absent_of_a_scope_applies_to_new_tables_only,
    a_change_to_put_if_absent_requires_publication,
    a_change_to_put_if_absent_can_be_cancelled,
    a_change_from_put_if_absent_requires_a_barrier_commit,
    a_renamed_table_keeps_its_own_commit_policy,
    the_audit_has_the_policy_before_and_after,
)
