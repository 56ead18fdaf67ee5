"""Roles that a call states: the same grants and rules apply as to a member of a role that the catalog records."""

from collections.abc import Iterator

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitRefusedError, InvalidArgumentError, OperationRefusedError
from tests.contracts.catalog_bench import NAME, create
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.commit_privileges import case_of

STAFF = TableIdentifier("main", "staff", "salaries")
STRANGE = ("a'b\"];\\", "ünï—😀", "user:owner", "role:readers", "%_*", "x" * 195, "main.sales", "own")


@pytest.fixture
def owner(catalog_url: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(catalog_url, warehouse="memory://w", principal="owner") as catalog:
        create(catalog)
        create(catalog, STAFF)
        catalog.access.enable_grants()
        yield catalog


def test_grants_to_stated_roles_apply_to_every_kind_of_call(owner: SqlCatalog) -> None:
    """To a table, to a list, to a scope, to any place, to a commit, and by a role that has the stated one as a member."""
    eve, without = owner.acting_as("eve", roles=("analysts", "loaders")), owner.acting_as("eve")
    table_id = owner.registry.load_table(NAME).table_id
    owner.access.grant([Privilege.READ], str(NAME), "role:analysts")
    assert eve.registry.load_table(NAME).table_id == table_id
    assert [entry.identifier for entry in eve.registry.readable_tables().entries] == [NAME]
    assert [table.identifier for table in eve.overview.table_overviews()] == [NAME]
    assert eve.recovery.overlapping_tables("memory://w") is not None
    with pytest.raises(CommitRefusedError, match="the principal eve does not have the privilege append"):
        eve.coordinator.commit(table_id, commit_of(1, ADD))
    owner.access.add_to_role("writers", ["role:loaders"])
    owner.access.grant([Privilege.MODIFY], "main.sales", "writers")
    assert isinstance(eve.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
    assert isinstance(eve.coordinator.commit(table_id, commit_of(2, REMOVE)), Ratified)
    owner.access.grant([Privilege.ALTER], "main.staff", "role:loaders")
    create(owner.acting_as("creator", roles=("loaders",)), TableIdentifier("main", "staff", "bonuses"))
    assert eve.access.whoami().roles == ("analysts", "loaders", "writers")
    for caller in (without, owner.acting_as("analysts"), owner.acting_as("eve", roles=("other",))):
        with pytest.raises(OperationRefusedError):
            caller.registry.load_table(NAME)
        with pytest.raises(CommitRefusedError):
            caller.coordinator.commit(table_id, commit_of(3, ADD))
        assert caller.registry.readable_tables().entries == () and caller.overview.table_overviews() == ()
        with pytest.raises(OperationRefusedError):
            caller.recovery.overlapping_tables("memory://w")


def test_rules_and_ownership_know_stated_roles(owner: SqlCatalog) -> None:
    table_id = owner.registry.load_table(NAME).table_id
    eve, other = owner.acting_as("eve", roles=("stewards",)), owner.acting_as("other")
    rule = CommitRule(
        scope="main", name="columns", kind=CommitRuleKind.SCHEMA_CHANGE, arguments={"principals": ("role:stewards",)}
    )
    kind, only = MaintenanceKind.DATA_CLEANUP, MaintenanceConditions(principals=("role:stewards",))
    with pytest.raises(InvalidArgumentError, match="no principal could change the schema"):
        owner.commit_rules.set_commit_rule(rule)
    owner.access.grant([Privilege.OWN], "main", "role:stewards")
    eve.commit_rules.set_commit_rule(rule)
    assert owner.commit_rules.commit_rules()[0].arguments == rule.arguments
    owner.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=kind, allowed=True, conditions=only)
    )
    owner.access.revoke([Privilege.OWN], "main", "role:stewards")
    for principal in ("role:stewards", "other"):
        owner.access.grant([Privilege.ALTER, Privilege.MAINTAIN], "main", principal)
    changed = case_of("metadata")
    with pytest.raises(CommitRefusedError, match="changes the schema as other"):
        other.coordinator.commit(table_id, changed.proposal(1))
    assert isinstance(eve.coordinator.commit(table_id, changed.proposal(1)), Ratified)
    assert eve.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed
    assert not other.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed
    owner.access.transfer_table(table_id, "role:stewards")
    assert owner.access.table_owner(table_id) == "role:stewards"
    with pytest.raises(OperationRefusedError):
        other.registry.drop_table(NAME)
    eve.registry.drop_table(NAME)


def test_strange_roles_are_names_and_nothing_else(owner: SqlCatalog) -> None:
    owner.access.add_to_role("readers", ["ana"])
    owner.access.grant([Privilege.READ], str(NAME), "readers")
    eve = owner.acting_as("eve", roles=(*STRANGE, "public"))
    assert set(eve.access.whoami().roles) == {*STRANGE}
    with pytest.raises(OperationRefusedError):
        eve.registry.load_table(NAME)
    for role in STRANGE:
        owner.access.grant([Privilege.READ], str(NAME), f"role:{role}")
        named = owner.acting_as("eve", roles=(role,))
        assert named.registry.load_table(NAME).identifier == NAME
        assert [table.identifier for table in named.overview.table_overviews()] == [NAME]
        owner.access.revoke([Privilege.READ], str(NAME), f"role:{role}")
    for impossible in ("", " a", "a\nb", "a\x00", "\ud800", "x" * 201):
        with pytest.raises(InvalidArgumentError):
            owner.acting_as("eve", roles=("analysts", impossible))
