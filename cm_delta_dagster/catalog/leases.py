"""Interface to the leases that prevent concurrent maintenance runs on a table. The values are in ``maintenance``."""

import typing

from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, MaintenanceKind


class Leases(typing.Protocol):
    """Maintenance leases, at most one for each table."""

    def acquire_maintenance_lease(
        self, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
    ) -> LeaseGranted | LeaseHeldByAnother:
        """Acquire the lease of the table, or renew it for the same owner. An expired lease is free.

        Raises TableNotFoundError for an unknown or dropped table.
        """
        ...

    def release_maintenance_lease(self, table_id: str, *, owner: str) -> None:
        """Release the lease; no error if ``owner`` does not hold it."""
        ...
