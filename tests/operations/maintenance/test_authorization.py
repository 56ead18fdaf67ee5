"""Permission comes first, and one maintenance run at a time has the table."""

import time
from collections.abc import Callable

import pytest

from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError, MaintenanceInProgressError, MaintenanceNotPermittedError
from cm_delta_dagster.operations.maintenance.authorization import (
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
from tests.support.lake import Lake

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


@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_a_denied_verb_names_the_rule_and_touches_nothing(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    """CM-M4, CM-M5, CM-M6"""
    table = lake.new_table()
    lake.append(table)
    lake.deny(kind, "main.test", reason="audit under way")
    lake.client.wait_for_background()
    before, version = lake.files(table), table.snapshot().version
    lake.store.calls.clear()
    with pytest.raises(MaintenanceNotPermittedError, match=r"'main\.test' denies it \(audit under way\)") as caught:
        verb(table)
    assert f"cm-delta policy allow main.test.t {kind.value}" in str(caught.value)
    assert lake.store.calls == []
    assert (lake.files(table), table.snapshot().version) == (before, version)


@pytest.mark.parametrize(("kind", "verb"), EXCLUSIVE)
def test_without_a_rule_only_the_exempt_kinds_are_permitted(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    """CM-M4"""
    table = lake.new_table()
    with pytest.raises(MaintenanceNotPermittedError, match="by default"):
        verb(table)


@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_a_catalog_that_does_not_answer_has_not_permitted_anything(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    """CM-M7"""
    table = lake.new_table()
    lake.allow(kind)
    lake.client.wait_for_background()
    lake.store.calls.clear()
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "maintenance_decision" else None
    with pytest.raises(CatalogUnavailableError):
        verb(table)
    assert lake.store.calls == []


@pytest.mark.parametrize(("kind", "verb"), EXCLUSIVE)
def test_a_verb_that_deletes_or_rewrites_waits_for_no_other_run(
    lake: Lake, kind: MaintenanceKind, verb: Callable[[Table], object]
) -> None:
    table = lake.new_table()
    lake.allow(kind)
    lake.catalog.acquire_maintenance_lease(table.table_id, KIND, owner="somebody", duration_ms=60_000)
    with pytest.raises(MaintenanceInProgressError, match="somebody"):
        verb(table)


@pytest.mark.parametrize("scope", ["main", "main.test", "main.test.t"])
def test_a_rule_of_any_scope_permits(lake: Lake, scope: str) -> None:
    table = lake.new_table()
    lake.allow(KIND, scope)
    assert require_permission(table, KIND).decided_by == scope


def test_permission_for_one_kind_does_not_imply_another(lake: Lake) -> None:
    """CM-M7"""
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


def test_a_claim_keeps_other_runs_out_until_the_block_ends(lake: Lake) -> None:
    table = lake.new_table()
    with maintenance_lease(table, KIND, owner="first") as claim:
        claim.check()
        with (
            pytest.raises(MaintenanceInProgressError, match="first"),
            maintenance_lease(table, MaintenanceKind.METADATA_CLEANUP),
        ):
            pass
    with maintenance_lease(table, KIND):
        pass


def test_a_claim_is_given_back_when_the_work_fails(lake: Lake) -> None:
    table = lake.new_table()
    with pytest.raises(ZeroDivisionError), maintenance_lease(table, KIND):
        _ = 1 / 0
    with maintenance_lease(table, KIND):
        pass


def test_two_runs_of_one_process_are_two_owners(lake: Lake) -> None:
    table = lake.new_table()
    with maintenance_lease(table, KIND), pytest.raises(MaintenanceInProgressError), maintenance_lease(table, KIND):
        pass


def test_a_long_run_renews_its_claim(lake: Lake) -> None:
    table = lake.new_table()
    with maintenance_lease(table, KIND, duration_ms=300) as claim:
        time.sleep(0.8)
        claim.check()
    claims = [method for method, _ in lake.catalog.calls if method == "acquire_maintenance_lease"]
    assert len(claims) >= 3


def test_a_run_that_cannot_renew_stops_when_its_claim_has_run_out(lake: Lake) -> None:
    table = lake.new_table()
    with maintenance_lease(table, KIND, duration_ms=200) as claim:
        lake.catalog.fails = lambda method, _: (
            CatalogUnavailableError("no") if method == "acquire_maintenance_lease" else None
        )
        claim.check()
        time.sleep(0.4)
        with pytest.raises(MaintenanceInProgressError, match="ran out"):
            claim.check()
        lake.catalog.fails = lambda method, _: None
        time.sleep(0.2)
        with pytest.raises(MaintenanceInProgressError):
            claim.check()


def test_a_run_that_lost_the_table_to_another_stops(lake: Lake) -> None:
    table = lake.new_table()
    claim = MaintenanceLease(table, KIND, owner="slow", duration_ms=60_000)
    claim.acquire()
    lake.clock.now += 61_000
    assert isinstance(
        lake.catalog.acquire_maintenance_lease(table.table_id, KIND, owner="next", duration_ms=60_000), LeaseGranted
    )
    with pytest.raises(MaintenanceInProgressError, match="next"):
        claim.acquire()
    with pytest.raises(MaintenanceInProgressError, match="next"):
        claim.check()


def test_a_catalog_that_fails_at_the_end_does_not_undo_the_work(lake: Lake) -> None:
    table = lake.new_table()
    lake.catalog.fails = lambda method, _: (
        CatalogUnavailableError("no") if method == "release_maintenance_lease" else None
    )
    with maintenance_lease(table, KIND):
        pass


def test_a_rule_can_be_taken_back(lake: Lake) -> None:
    table = lake.new_table()
    lake.catalog.set_maintenance_rule(MaintenanceRule(scope="main", kind=KIND, allowed=True))
    lake.catalog.remove_maintenance_rule("main", KIND)
    with pytest.raises(MaintenanceNotPermittedError):
        require_permission(table, KIND)
