"""What every catalog must do about maintenance: who may, and who is at it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import (
    Ratified,
)
from cm_delta_dagster.errors import (
    InvalidArgumentError,
)
from tests.contracts.catalog_bench import NAME, Bench, Rule, create, proposal


def maintenance_is_denied_by_default_except_for_the_exempt_kinds(bench: Bench) -> None:
    """CM-M4; and what never became a table is no table to maintain (CM-D5)."""
    allowed = ("CHECKPOINT", "LOG_COMPACTION", "VERSION_CHECKSUM", "CREATION_PURGE")
    with bench.client() as catalog:
        for kind in MaintenanceKind:
            decision = catalog.maintenance_decision(NAME, kind)
            assert decision.allowed is (kind.value in allowed)
            assert decision.decided_by == "default" and decision.reason


def the_narrowest_rule_decides_and_only_for_its_kind(bench: Bench) -> None:
    """CM-M4, CM-M5, CM-M7"""
    cleanup = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog, bench.client() as other:

        def decided() -> tuple[bool, str]:
            decision = other.maintenance_decision(NAME, cleanup)
            return decision.allowed, decision.decided_by

        for scope, allowed in (("main", True), ("main.sales", False), (str(NAME), True), ("mai", False)):
            catalog.set_maintenance_rule(MaintenanceRule(scope=scope, kind=cleanup, allowed=allowed))
        assert decided() == (True, str(NAME))
        catalog.remove_maintenance_rule(str(NAME), cleanup)
        assert decided() == (False, "main.sales")
        catalog.remove_maintenance_rule("main.sales", cleanup)
        assert decided() == (True, "main")
        assert not other.maintenance_decision(NAME, MaintenanceKind.DATA_REORGANIZATION).allowed
        catalog.remove_maintenance_rule("main", cleanup)
        catalog.remove_maintenance_rule("main", cleanup)
        assert decided() == (False, "default")
        catalog.set_maintenance_rule(
            MaintenanceRule(scope="main", kind=MaintenanceKind.CHECKPOINT, allowed=False, reason="server does it")
        )
        checkpoint = other.maintenance_decision(NAME, MaintenanceKind.CHECKPOINT)
        assert (checkpoint.allowed, checkpoint.reason) == (False, "server does it")


def rules_are_replaced_and_listed_by_scope_and_kind(bench: Bench) -> None:
    """CM-M5"""
    with bench.client() as catalog:
        first = MaintenanceRule(scope="b", kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
        second = MaintenanceRule(scope="b", kind=MaintenanceKind.DATA_CLEANUP, allowed=False, reason="no")
        third = MaintenanceRule(scope="a.s", kind=MaintenanceKind.CHECKPOINT, allowed=False)
        for rule in (first, second, third):
            catalog.set_maintenance_rule(rule)
        assert catalog.maintenance_rules() == (third, second)
        for scope in ("a.b.c.d", "", "a..b", "a/b"):
            with pytest.raises(InvalidArgumentError):
                catalog.set_maintenance_rule(
                    MaintenanceRule(scope=scope, kind=MaintenanceKind.CHECKPOINT, allowed=True)
                )


def a_claim_keeps_others_out_until_it_expires_or_is_released(bench: Bench) -> None:
    """CM-M5"""
    optimize, vacuum = MaintenanceKind.DATA_REORGANIZATION, MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        start = bench.clock.now
        assert catalog.acquire_maintenance_lease(table, optimize, owner="a", duration_ms=100) == LeaseGranted(
            expires_ms=start + 100
        )
        held = LeaseHeldByAnother(owner="a", kind=optimize, expires_ms=start + 100)
        assert other.acquire_maintenance_lease(table, vacuum, owner="b", duration_ms=100) == held
        bench.clock.now += 50
        assert catalog.acquire_maintenance_lease(table, vacuum, owner="a", duration_ms=100) == LeaseGranted(
            expires_ms=start + 150
        )
        other.release_maintenance_lease(table, owner="b")
        bench.clock.now = start + 149
        assert isinstance(other.acquire_maintenance_lease(table, vacuum, owner="b", duration_ms=1), LeaseHeldByAnother)
        bench.clock.now = start + 150
        assert isinstance(other.acquire_maintenance_lease(table, vacuum, owner="b", duration_ms=1000), LeaseGranted)
        catalog.release_maintenance_lease(table, owner="a")
        assert isinstance(
            catalog.acquire_maintenance_lease(table, vacuum, owner="a", duration_ms=1), LeaseHeldByAnother
        )
        other.release_maintenance_lease(table, owner="b")
        assert isinstance(catalog.acquire_maintenance_lease(table, vacuum, owner="a", duration_ms=1), LeaseGranted)
        assert isinstance(catalog.commit(table, proposal(1)), Ratified)


def one_of_many_rivals_gets_the_claim(bench: Bench) -> None:
    """CM-M5"""
    with bench.client() as catalog:
        table = create(catalog).table_id

        def attempt(number: int) -> LeaseGranted | LeaseHeldByAnother:
            return catalog.acquire_maintenance_lease(
                table, MaintenanceKind.DATA_CLEANUP, owner=str(number), duration_ms=1000
            )

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(attempt, range(8)))
        assert sum(isinstance(answer, LeaseGranted) for answer in answers) == 1


MAINTENANCE_CONTRACT: tuple[Rule, ...] = (
    maintenance_is_denied_by_default_except_for_the_exempt_kinds,
    the_narrowest_rule_decides_and_only_for_its_kind,
    rules_are_replaced_and_listed_by_scope_and_kind,
    a_claim_keeps_others_out_until_it_expires_or_is_released,
    one_of_many_rivals_gets_the_claim,
)
