"""Contract of ``Leases``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, LeaseLost, MaintenanceKind
from cm_delta_dagster.catalog.ratification import (
    Ratified,
)
from cm_delta_dagster.errors import CommitRefusedError, InvalidArgumentError, LeaseNotHeldError
from tests.contracts.catalog_bench import Bench, Rule, create, proposal


@pytest.mark.requirements("CM-M5")
def a_lease_excludes_others_until_it_expires_or_is_released(bench: Bench) -> None:
    optimize, vacuum = MaintenanceKind.DATA_REORGANIZATION, MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog, bench.client() as other:
        table = create(catalog).table_id
        start = bench.clock.now
        assert catalog.leases.acquire_maintenance_lease(table, optimize, owner="a", duration_ms=100) == LeaseGranted(
            expires_ms=start + 100, token=1
        )
        held = LeaseHeldByAnother(owner="a", kind=optimize, expires_ms=start + 100)
        assert other.leases.acquire_maintenance_lease(table, vacuum, owner="b", duration_ms=100) == held
        bench.clock.now += 50
        assert catalog.leases.acquire_maintenance_lease(table, vacuum, owner="a", duration_ms=100) == LeaseGranted(
            expires_ms=start + 150, token=1
        )
        other.leases.release_maintenance_lease(table, owner="b")
        bench.clock.now = start + 149
        assert isinstance(
            other.leases.acquire_maintenance_lease(table, vacuum, owner="b", duration_ms=1), LeaseHeldByAnother
        )
        bench.clock.now = start + 150
        assert isinstance(
            other.leases.acquire_maintenance_lease(table, vacuum, owner="b", duration_ms=1000), LeaseGranted
        )
        catalog.leases.release_maintenance_lease(table, owner="a")
        assert isinstance(
            catalog.leases.acquire_maintenance_lease(table, vacuum, owner="a", duration_ms=1), LeaseHeldByAnother
        )
        other.leases.release_maintenance_lease(table, owner="b")
        assert isinstance(
            catalog.leases.acquire_maintenance_lease(table, vacuum, owner="a", duration_ms=1), LeaseGranted
        )
        assert isinstance(catalog.coordinator.commit(table, proposal(1)), Ratified)


@pytest.mark.requirements("CM-M5")
def one_of_concurrent_runs_gets_the_lease(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog).table_id

        def attempt(number: int) -> LeaseGranted | LeaseHeldByAnother:
            return catalog.leases.acquire_maintenance_lease(
                table, MaintenanceKind.DATA_CLEANUP, owner=str(number), duration_ms=1000
            )

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(attempt, range(8)))
        assert sum(isinstance(answer, LeaseGranted) for answer in answers) == 1


def the_token_grows_with_each_lease_and_fences_commits_of_earlier_ones(bench: Bench) -> None:
    """A holder whose lease expired or was ended cannot commit, even if no other run has taken the lease since."""
    kind = MaintenanceKind.DATA_REORGANIZATION
    with bench.client() as catalog:
        table = create(catalog).table_id
        first = catalog.leases.acquire_maintenance_lease(table, kind, owner="a", duration_ms=100)
        assert isinstance(first, LeaseGranted)
        assert isinstance(catalog.coordinator.commit(table, replace(proposal(1), lease_token=first.token)), Ratified)
        bench.clock.now += 100
        with pytest.raises(CommitRefusedError, match=r"lease \(token 1\) expired or was ended"):
            catalog.coordinator.commit(table, replace(proposal(2), lease_token=first.token))
        again = catalog.leases.acquire_maintenance_lease(table, kind, owner="a", duration_ms=100)
        assert isinstance(again, LeaseGranted) and again.token > first.token
        with pytest.raises(CommitRefusedError):
            catalog.coordinator.commit_together({table: replace(proposal(2), lease_token=first.token)})
        assert isinstance(catalog.coordinator.commit(table, replace(proposal(2), lease_token=again.token)), Ratified)
        catalog.leases.release_maintenance_lease(table, owner="a")
        other = catalog.leases.acquire_maintenance_lease(table, kind, owner="b", duration_ms=100)
        assert isinstance(other, LeaseGranted) and other.token > again.token
        with pytest.raises(CommitRefusedError, match="b holds the lease"):
            catalog.coordinator.commit(table, replace(proposal(3), lease_token=again.token))
        assert catalog.coordinator.get_ratified_commits(table).latest_version == 2


def a_lease_is_renewed_and_checked_by_its_token_alone(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog:
        table = create(catalog).table_id
        held = catalog.leases.acquire_maintenance_lease(table, kind, owner="a", duration_ms=100)
        assert isinstance(held, LeaseGranted)
        bench.clock.now += 60
        renewed = LeaseGranted(expires_ms=bench.clock.now + 100, token=held.token)
        assert catalog.leases.renew_lease(table, token=held.token, duration_ms=100) == renewed
        assert catalog.leases.check_lease(table, token=held.token) == renewed
        before = catalog.leases.leases()
        lost = LeaseLost(token=7, holder=LeaseHeldByAnother(owner="a", kind=kind, expires_ms=renewed.expires_ms))
        assert (
            catalog.leases.renew_lease(table, token=7, duration_ms=9999)
            == lost
            == catalog.leases.check_lease(table, token=7)
        )
        assert catalog.leases.leases() == before
        bench.clock.now += 100
        assert catalog.leases.renew_lease(table, token=held.token, duration_ms=100) == LeaseLost(token=held.token)
        assert [(lease.owner, lease.expired, str(lease.identifier)) for lease in catalog.leases.leases()] == [
            ("a", True, "main.sales.orders")
        ]


def ending_the_lease_of_another_is_audited_and_fences_it(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_CLEANUP
    with bench.client() as catalog:
        table = create(catalog).table_id
        held = catalog.leases.acquire_maintenance_lease(table, kind, owner="a", duration_ms=10_000)
        assert isinstance(held, LeaseGranted)
        with pytest.raises(LeaseNotHeldError, match="a holds it"):
            catalog.leases.expire_lease(table, owner="b")
        assert catalog.leases.check_lease(table, token=held.token) == held
        catalog.leases.expire_lease(table, owner="a", reason="its machine is gone")
        assert catalog.leases.leases() == () and catalog.leases.check_lease(table, token=held.token) == LeaseLost(
            token=held.token
        )
        with pytest.raises(CommitRefusedError):
            catalog.coordinator.commit(table, replace(proposal(1), lease_token=held.token))
        entry = next(one for one in catalog.audit_log.audit() if one.action == "expire lease")
        assert (entry.before, entry.reason) == ("a for DATA_CLEANUP, token 1", "its machine is gone")
        kinds = [event.kind for event in catalog.events.events(after=0, limit=99).events]
        assert kinds.count(FeedKind.LEASE_CHANGED) == 2 and kinds[-1] is FeedKind.PROPOSAL_REFUSED
        with pytest.raises(LeaseNotHeldError, match="no run holds one"):
            catalog.leases.expire_lease(table, owner="a")


def a_lease_without_a_name_or_a_duration_is_refused(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_CLEANUP
    owners, durations = ("", "a\0b", "x" * 501), (0, -1, 10**30)
    with bench.client() as catalog:
        table = create(catalog).table_id
        for owner, duration in (*((owner, 1) for owner in owners), *(("a", duration) for duration in durations)):
            with pytest.raises(InvalidArgumentError, match="requires an owner"):
                catalog.leases.acquire_maintenance_lease(table, kind, owner=owner, duration_ms=duration)
        for duration in durations:
            with pytest.raises(InvalidArgumentError, match="a positive duration"):
                catalog.leases.renew_lease(table, token=1, duration_ms=duration)
        assert catalog.leases.leases() == ()


def a_lease_with_values_of_other_types_is_refused(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_CLEANUP
    owners: tuple[Any, ...] = (None, 5, "\udc80")
    durations: tuple[Any, ...] = (1.5, "5", None, float("nan"))
    with bench.client() as catalog:
        table = create(catalog).table_id
        for owner, duration in (*((owner, 1) for owner in owners), *(("a", duration) for duration in durations)):
            with pytest.raises(InvalidArgumentError):
                catalog.leases.acquire_maintenance_lease(table, kind, owner=owner, duration_ms=duration)
        for duration in durations:
            with pytest.raises(InvalidArgumentError):
                catalog.leases.renew_lease(table, token=1, duration_ms=duration)
        assert catalog.leases.leases() == ()


LEASES_CONTRACT: tuple[Rule, ...] = (
    a_lease_excludes_others_until_it_expires_or_is_released,
    one_of_concurrent_runs_gets_the_lease,
    the_token_grows_with_each_lease_and_fences_commits_of_earlier_ones,
    a_lease_is_renewed_and_checked_by_its_token_alone,
    ending_the_lease_of_another_is_audited_and_fences_it,
    a_lease_without_a_name_or_a_duration_is_refused,
    a_lease_with_values_of_other_types_is_refused,
)
