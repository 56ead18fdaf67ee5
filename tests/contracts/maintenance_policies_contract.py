"""Contract of ``MaintenancePolicies``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import pytest

from cm_delta_dagster.catalog.maintenance import (
    NO_CONDITIONS,
    MaintenanceConditions,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create


@pytest.mark.requirements("CM-M4")
def maintenance_is_denied_by_default_except_for_the_exempt_kinds(bench: Bench) -> None:
    """A reservation that never became a table cannot be maintained either (CM-D5)."""
    allowed = ("CHECKPOINT", "LOG_COMPACTION", "VERSION_CHECKSUM", "CREATION_PURGE")
    with bench.client() as catalog:
        for kind in MaintenanceKind:
            decision = catalog.maintenance_policies.maintenance_decision(NAME, kind)
            assert decision.allowed is (kind.value in allowed)
            assert decision.decided_by == "default" and decision.reason


@pytest.mark.requirements("CM-M4", "CM-M5", "CM-M7")
def the_rule_of_the_narrowest_scope_applies_to_its_kind(bench: Bench) -> None:
    cleanup = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog, bench.client() as other:

        def decided() -> tuple[bool, str]:
            decision = other.maintenance_policies.maintenance_decision(NAME, cleanup)
            return decision.allowed, decision.decided_by

        for scope, allowed in (("main", True), ("main.sales", False), (str(NAME), True), ("mai", False)):
            catalog.maintenance_policies.set_maintenance_rule(
                MaintenanceRule(scope=scope, kind=cleanup, allowed=allowed)
            )
        assert decided() == (True, str(NAME))
        catalog.maintenance_policies.remove_maintenance_rule(str(NAME), cleanup)
        assert decided() == (False, "main.sales")
        catalog.maintenance_policies.remove_maintenance_rule("main.sales", cleanup)
        assert decided() == (True, "main")
        assert not other.maintenance_policies.maintenance_decision(NAME, MaintenanceKind.DATA_REORGANIZATION).allowed
        catalog.maintenance_policies.remove_maintenance_rule("main", cleanup)
        catalog.maintenance_policies.remove_maintenance_rule("main", cleanup)
        assert decided() == (False, "default")
        catalog.maintenance_policies.set_maintenance_rule(
            MaintenanceRule(scope="main", kind=MaintenanceKind.CHECKPOINT, allowed=False, reason="server does it")
        )
        checkpoint = other.maintenance_policies.maintenance_decision(NAME, MaintenanceKind.CHECKPOINT)
        assert (checkpoint.allowed, checkpoint.reason) == (False, "server does it")


@pytest.mark.requirements("CM-M5")
def rules_are_replaced_and_listed_by_scope_and_kind(bench: Bench) -> None:
    with bench.client() as catalog:
        first = MaintenanceRule(scope="b", kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
        second = MaintenanceRule(scope="b", kind=MaintenanceKind.DATA_CLEANUP, allowed=False, reason="no")
        third = MaintenanceRule(scope="a.s", kind=MaintenanceKind.CHECKPOINT, allowed=False)
        for rule in (first, second, third):
            catalog.maintenance_policies.set_maintenance_rule(rule)
        assert catalog.maintenance_policies.maintenance_rules() == (third, second)
        for scope in ("a.b.c.d", "", "a..b", "a/b"):
            with pytest.raises(InvalidArgumentError):
                catalog.maintenance_policies.set_maintenance_rule(
                    MaintenanceRule(scope=scope, kind=MaintenanceKind.CHECKPOINT, allowed=True)
                )


@pytest.mark.requirements("CM-M5", "CM-M7")
def maintenance_rules_of_the_new_name_apply_after_a_rename(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope=str(NAME), kind=kind, allowed=True))
        assert catalog.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed
        catalog.registry.rename_table(table_id, OTHER)
        assert not catalog.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed
        assert catalog.maintenance_policies.maintenance_decision(NAME, kind).allowed


@pytest.mark.requirements("CM-M4", "CM-M7")
def denied_maintenance_stays_denied_after_a_rename(bench: Bench) -> None:
    kind, exempt, other = MaintenanceKind.DATA_CLEANUP, MaintenanceKind.CHECKPOINT, MaintenanceKind.DATA_REORGANIZATION
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        for scope, which, allowed in (
            ("main", kind, True),
            (str(NAME), kind, False),
            (str(OTHER), kind, True),
            (str(NAME), exempt, False),
            (str(NAME), other, True),
        ):
            catalog.maintenance_policies.set_maintenance_rule(
                MaintenanceRule(scope=scope, kind=which, allowed=allowed, reason="" if allowed else "for the auditors")
            )
        catalog.registry.rename_table(table_id, OTHER)
        for which in (kind, exempt):
            decision = catalog.maintenance_policies.maintenance_decision(NAME, which, table_id=table_id)
            assert (decision.allowed, decision.decided_by) == (False, str(OTHER))
            assert str(NAME) in decision.reason and "for the auditors" in decision.reason
        assert not catalog.maintenance_policies.maintenance_decision(NAME, other, table_id=table_id).allowed
        catalog.registry.rename_table(table_id, OTHER)
        assert len([rule for rule in catalog.maintenance_policies.maintenance_rules() if rule.scope == str(OTHER)]) == 2


@pytest.mark.requirements("CM-M4", "CM-M7")
def a_rename_out_of_a_schema_keeps_its_denials(bench: Bench) -> None:
    kind, elsewhere = MaintenanceKind.DATA_CLEANUP, TableIdentifier("main", "scratch", "orders")
    at_night = MaintenanceConditions(windows=(MaintenanceWindow.parse("22:00-06:00"),))
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main.sales", kind=kind, allowed=False))
        catalog.maintenance_policies.set_maintenance_rule(
            MaintenanceRule(scope="main.scratch", kind=kind, allowed=True)
        )
        catalog.registry.rename_table(table_id, elsewhere)
        assert not catalog.maintenance_policies.maintenance_decision(elsewhere, kind, table_id=table_id).allowed
        assert catalog.audit_log.audit(scope=str(elsewhere))[-1].action == "set maintenance rule"
        only_at_night = MaintenanceRule(scope=str(OTHER), kind=kind, allowed=False, conditions=at_night)
        catalog.maintenance_policies.set_maintenance_rule(only_at_night)
        catalog.registry.rename_table(table_id, OTHER)
        own = [rule.conditions for rule in catalog.maintenance_policies.maintenance_rules() if rule.scope == str(OTHER)]
        assert own == [NO_CONDITIONS]
        catalog.registry.rename_table(table_id, elsewhere)
        assert not catalog.maintenance_policies.maintenance_decision(elsewhere, kind, table_id=table_id).allowed


MAINTENANCE_POLICIES_CONTRACT: tuple[Rule, ...] = (
    maintenance_is_denied_by_default_except_for_the_exempt_kinds,
    the_rule_of_the_narrowest_scope_applies_to_its_kind,
    rules_are_replaced_and_listed_by_scope_and_kind,
    maintenance_rules_of_the_new_name_apply_after_a_rename,
    denied_maintenance_stays_denied_after_a_rename,
    a_rename_out_of_a_schema_keeps_its_denials,
)
