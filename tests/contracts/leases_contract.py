"""Contract of ``Leases``.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from concurrent.futures import ThreadPoolExecutor

from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, MaintenanceKind
from cm_delta_dagster.catalog.ratification import (
    Ratified,
)
from tests.contracts.catalog_bench import Bench, Rule, create, proposal


def a_lease_excludes_others_until_it_expires_or_is_released(bench: Bench) -> None:
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


def one_of_concurrent_runs_gets_the_lease(bench: Bench) -> None:
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


LEASES_CONTRACT: tuple[Rule, ...] = (
    a_lease_excludes_others_until_it_expires_or_is_released,
    one_of_concurrent_runs_gets_the_lease,
)
