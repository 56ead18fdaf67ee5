"""Maintenance needs the permission of the catalog and a lease on the table."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CatalogUnavailableError,
    CommitRefusedError,
    MaintenanceInProgressError,
    MaintenanceNotPermittedError,
    RetentionTooShortError,
)
from cm_delta_dagster.operations.maintenance import authorization
from cm_delta_dagster.operations.maintenance.authorization import (
    LeaseTarget,
    MaintenanceLease,
    maintenance_lease,
    require_permission,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from tests.support.lake import DAY_MS, Lake
from tests.support.waiting import until

KIND = MaintenanceKind.DATA_CLEANUP


def run_optimize(table: Table) -> object:
    return optimize(table, spark=None)  # It is refused before Spark is needed.


def run_compact_log(table: Table) -> object:
    return compact_log(table, start=0, end=1)


VERBS: list[tuple[MaintenanceKind, Callable[[Table], object]]] = [
    (MaintenanceKind.DATA_REORGANIZATION, run_optimize),
    (MaintenanceKind.DATA_CLEANUP, vacuum),
    (MaintenanceKind.METADATA_CLEANUP, clean_log),
    (MaintenanceKind.METADATA_CLEANUP, clean_staged_commits),
    (MaintenanceKind.CHECKPOINT, checkpoint),
    (MaintenanceKind.LOG_COMPACTION, run_compact_log),
]
EXCLUSIVE = [(kind, verb) for kind, verb in VERBS if not kind.allowed_by_default]
DELETING = [(kind, verb) for kind, verb in EXCLUSIVE if verb is not run_optimize]
READS = {"list_from", "read", "stat"}


@pytest.mark.requirements("CM-M4", "CM-M5", "CM-M6")
@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_a_denied_operation_names_the_rule_and_changes_nothing(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    table = lake.new_table()
    lake.append(table)
    lake.deny(kind, "main.test", reason="audit under way")
    lake.client.wait_for_background()
    before, version = lake.files(table), table.snapshot().version
    lake.store.calls.clear()
    with pytest.raises(MaintenanceNotPermittedError, match=r"'main\.test' denies it \(audit under way\)") as caught:
        verb(table)
    assert f"lake.maintenance.set_policy('main.test.t', {kind.value!r})" in str(caught.value)
    assert {method for method, _ in lake.store.calls} <= READS
    assert (lake.files(table), table.snapshot().version) == (before, version)


def test_a_denial_without_a_reason_is_said_once(lake: Lake) -> None:
    table = lake.new_table()
    lake.catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main.test", kind=KIND, allowed=False))
    with pytest.raises(MaintenanceNotPermittedError, match=r"the rule for 'main\.test' denies it\. Nothing was done"):
        require_permission(table, KIND)


@pytest.mark.parametrize(("kind", "verb"), DELETING)
def test_the_catalog_is_checked_before_permission_to_delete_is_asked_for(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    table = lake.new_table()
    lake.deny(kind)
    lake.put(table, "_delta_log/00000000000000000005.json")
    with pytest.raises(CatalogBehindStorageError):
        verb(table)


@pytest.mark.requirements("CM-M4")
@pytest.mark.parametrize(("kind", "verb"), EXCLUSIVE)
def test_without_a_rule_only_the_exempt_kinds_are_permitted(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    table = lake.new_table()
    with pytest.raises(MaintenanceNotPermittedError, match="by default"):
        verb(table)


@pytest.mark.requirements("CM-M7")
@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_a_catalog_that_does_not_answer_permits_nothing(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    table = lake.new_table()
    lake.allow(kind)
    lake.client.wait_for_background()
    lake.store.calls.clear()
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "authorize_maintenance" else None
    with pytest.raises(CatalogUnavailableError):
        verb(table)
    assert {method for method, _ in lake.store.calls} <= READS


@pytest.mark.parametrize(("kind", "verb"), EXCLUSIVE)
def test_an_operation_fails_while_another_run_has_the_lease(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    table = lake.new_table()
    lake.allow(kind)
    lake.catalog.leases.acquire_maintenance_lease(table.table_id, KIND, owner="other", duration_ms=60_000)
    with pytest.raises(MaintenanceInProgressError, match="other"):
        verb(table)


@pytest.mark.parametrize("scope", ["main", "main.test", "main.test.t"])
def test_a_rule_of_any_scope_permits(lake: Lake, scope: str) -> None:
    table = lake.new_table()
    lake.allow(KIND, scope)
    assert require_permission(table, KIND).decided_by == scope


@pytest.mark.requirements("CM-M7")
def test_permission_for_one_kind_does_not_imply_another(lake: Lake) -> None:
    table = lake.new_table()
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    with pytest.raises(MaintenanceNotPermittedError):
        require_permission(table, MaintenanceKind.DATA_REORGANIZATION)


def test_a_narrower_denial_beats_a_wider_permission(lake: Lake) -> None:
    table = lake.new_table()
    lake.allow(KIND, "main")
    lake.deny(KIND, "main.test.t")
    with pytest.raises(MaintenanceNotPermittedError, match=r"main\.test\.t"):
        require_permission(table, KIND)


def test_a_lease_excludes_other_runs_until_the_block_ends(lake: Lake) -> None:
    table = lake.new_table()
    with maintenance_lease(table, KIND, owner="first") as lease:
        lease.check()
        with (
            pytest.raises(MaintenanceInProgressError, match="first"),
            maintenance_lease(table, MaintenanceKind.METADATA_CLEANUP),
        ):
            pass
    with maintenance_lease(table, KIND):
        pass


def test_a_lease_is_released_when_the_work_fails(lake: Lake) -> None:
    table = lake.new_table()
    with pytest.raises(ZeroDivisionError), maintenance_lease(table, KIND):
        _ = 1 / 0
    with maintenance_lease(table, KIND):
        pass


def test_two_runs_of_one_process_are_two_owners(lake: Lake) -> None:
    table = lake.new_table()
    with maintenance_lease(table, KIND), pytest.raises(MaintenanceInProgressError), maintenance_lease(table, KIND):
        pass


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its last value is the time by the clock of this machine, in seconds."""
    values: list[float] = []
    monkeypatch.setattr(authorization, "seconds_since_boot", lambda: values[-1])
    return values


def renewals(lake: Lake) -> int:
    return sum(method == "renew_lease" for method, _ in lake.catalog.calls)


def test_a_long_run_renews_its_lease(lake: Lake, now: list[float]) -> None:
    table = lake.new_table()
    now.append(0.0)
    with maintenance_lease(table, KIND, duration_ms=300) as lease:
        until(lambda: renewals(lake) >= 2)
        lease.check()


def test_a_run_that_cannot_renew_its_lease_stops_when_the_lease_expires(lake: Lake, now: list[float]) -> None:
    table = lake.new_table()
    now.append(0.0)
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "renew_lease" else None
    with maintenance_lease(table, KIND, duration_ms=200) as lease:
        until(lambda: renewals(lake) >= 1)
        lease.check()
        now.append(0.2)
        with pytest.raises(MaintenanceInProgressError, match="expired"):
            lease.check()
        lake.catalog.fails = lambda method, _: None
        until(lambda: not any(thread.name == "cm-delta-maintenance-lease" for thread in threading.enumerate()))
        with pytest.raises(MaintenanceInProgressError):
            lease.check()


def test_a_run_stops_when_another_run_has_acquired_the_lease(lake: Lake) -> None:
    table = lake.new_table()
    target = LeaseTarget(
        identifier=table.identifier, table_id=table.table_id, leases=table.services.leases, duration_ms=60_000
    )
    lease = MaintenanceLease(target, KIND, owner="slow", duration_ms=60_000)
    lease.acquire()
    lake.clock.now += 61_000
    assert isinstance(
        lake.catalog.leases.acquire_maintenance_lease(table.table_id, KIND, owner="next", duration_ms=60_000),
        LeaseGranted,
    )
    with pytest.raises(MaintenanceInProgressError, match="next"):
        lease.renew()
    with pytest.raises(MaintenanceInProgressError, match="next"):
        lease.check()


def test_a_run_whose_lease_was_ended_neither_deletes_nor_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "CONFIRM_EVERY_S", 0.0)
    table = lake.new_table()
    snapshot = table.snapshot()
    with maintenance_lease(table, KIND, owner="slow") as lease:
        transaction = table.start_transaction(snapshot, operation="OPTIMIZE", parameters={})
        lease.fence(transaction)
        lease.check()
        lake.catalog.leases.expire_lease(table.table_id, owner="slow")
        with pytest.raises(MaintenanceInProgressError, match="expired or was ended"):
            lease.check()
        with pytest.raises(CommitRefusedError, match="Nothing was committed"):
            transaction.commit()
    assert table.snapshot().version == 0


def test_a_purge_deletes_under_a_lease(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    table = lake.new_table()
    lake.append(table)
    lake.client.registry.drop_table(table.identifier)
    lake.clock.pass_days(30)
    plan = plan_purge(lake.client)
    lake.client.registry.begin_purge(table.table_id, min_age_ms=0)
    kind = MaintenanceKind.TABLE_PURGE
    lake.catalog.leases.acquire_maintenance_lease(table.table_id, kind, owner="other", duration_ms=60_000)
    with pytest.raises(MaintenanceInProgressError, match="other"):
        purge(lake.client, plan)
    assert lake.files(table)
    lake.clock.now += 60_000
    assert purge(lake.client, plan).num_files and not lake.files(table)


def test_a_catalog_that_fails_at_the_end_does_not_undo_the_work(lake: Lake) -> None:
    table = lake.new_table()
    lake.catalog.fails = lambda method, _: (
        CatalogUnavailableError("no") if method == "release_maintenance_lease" else None
    )
    with maintenance_lease(table, KIND):
        pass


def test_a_rule_can_be_removed(lake: Lake) -> None:
    table = lake.new_table()
    lake.catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope="main", kind=KIND, allowed=True))
    lake.catalog.maintenance_policies.remove_maintenance_rule("main", KIND)
    with pytest.raises(MaintenanceNotPermittedError):
        require_permission(table, KIND)


def conditions(lake: Lake, kind: MaintenanceKind = KIND, *, scope: str = "main", **given: Any) -> None:
    rule = MaintenanceRule(
        scope=scope, kind=kind, allowed=True, reason="as agreed", conditions=MaintenanceConditions(**given)
    )
    lake.catalog.maintenance_policies.set_maintenance_rule(rule)


def test_a_retention_below_that_of_a_rule_is_refused_even_if_it_is_passed(lake: Lake) -> None:
    table = lake.new_table()
    conditions(lake, min_retention=timedelta(days=10))
    conditions(lake, scope="main.test")
    for retention_ms, force in ((None, False), (9 * DAY_MS, True)):
        with pytest.raises(RetentionTooShortError, match="at least 10 days"):
            vacuum(table, retention_ms=retention_ms, force=force)
    assert vacuum(table, retention_ms=10 * DAY_MS).retention == timedelta(days=10)
    conditions(lake, MaintenanceKind.METADATA_CLEANUP, min_retention=timedelta(days=31))
    with pytest.raises(RetentionTooShortError, match="as agreed"):
        clean_log(table)


def test_a_run_that_deletes_more_than_a_rule_permits_does_nothing(lake: Lake) -> None:
    table = lake.new_table()
    lake.put(table, "orphan-1.parquet")
    lake.put(table, "orphan-2.parquet")
    lake.clock.pass_days(8)
    for limit in ({"max_files": 1}, {"max_bytes": 199}):
        conditions(lake, **limit)
        with pytest.raises(MaintenanceNotPermittedError, match="at most"):
            vacuum(table)
        assert "orphan-1.parquet" in lake.data_files(table)
    conditions(lake, max_files=2, max_bytes=200)
    assert vacuum(table).num_files == 2


def test_rules_permit_some_principals_at_some_times(lake: Lake) -> None:
    """The clock of the lake starts on a Tuesday at 12:00 UTC; its client states no principal."""
    table = lake.new_table()
    conditions(lake, windows=(MaintenanceWindow.parse("11:00-13:00"),))
    assert require_permission(table, KIND).allowed
    conditions(lake, windows=(MaintenanceWindow.parse("Wed 11:00-13:00"),))
    with pytest.raises(MaintenanceNotPermittedError, match="as agreed, but only in the time Wed 11:00-13:00 UTC"):
        require_permission(table, KIND)
    lake.sql_catalog.access.add_to_role(
        "ops", ["eve"]
    )  # The name means a role if there is one when the rule is set, else a principal.
    conditions(lake, principals=("ops",))
    with pytest.raises(MaintenanceNotPermittedError, match="only for ops"):
        require_permission(table, KIND)
    with SqlCatalog(f"sqlite:///{lake.directory}/catalog.db", now_ms=lake.clock, principal="ada") as catalog:
        assert not catalog.maintenance_policies.maintenance_decision(table.identifier, KIND).allowed
        catalog.access.add_to_role("ops", ["ada"])
        assert catalog.maintenance_policies.maintenance_decision(table.identifier, KIND).allowed
    denial = MaintenanceConditions(principals=("eve",))
    lake.catalog.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main.test", kind=MaintenanceKind.CHECKPOINT, allowed=False, conditions=denial)
    )
    assert require_permission(table, MaintenanceKind.CHECKPOINT).allowed


def test_the_audit_has_changes_of_rules_and_decisions(lake: Lake) -> None:
    table = lake.new_table()
    conditions(lake, max_files=1)
    require_permission(table, KIND)
    require_permission(table, MaintenanceKind.CHECKPOINT)
    lake.catalog.maintenance_policies.remove_maintenance_rule("main", KIND)
    with pytest.raises(MaintenanceNotPermittedError):
        require_permission(table, KIND)
    entries = [(entry.action, entry.after) for entry in lake.sql_catalog.audit_log.audit()]
    assert entries == [
        ("set maintenance rule", "allow DATA_CLEANUP at most 1 files"),
        ("maintenance", "DATA_CLEANUP: allowed by main"),
        ("remove maintenance rule", None),
        ("maintenance", "DATA_CLEANUP: denied by default"),
    ]
