"""Methods of :class:`~cm_delta_dagster.catalog.sql.catalog.SqlCatalog` for maintenance leases."""

from collections.abc import Callable

import sqlalchemy as sa

from cm_delta_dagster.catalog.leases import Lease
from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, LeaseLost, MaintenanceKind
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.policies import leases


class LeaseMethods:
    """A base of the catalog. Each method opens the connection or transaction of one operation."""

    _database: CallerDatabase
    _now_ms: Callable[[], int]

    def acquire_maintenance_lease(
        self, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
    ) -> LeaseGranted | LeaseHeldByAnother:
        """Acquire or renew the lease. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: leases.acquire(
                connection, table_id, kind, owner=owner, duration_ms=duration_ms, now_ms=now_ms
            )
        )

    def renew_lease(self, table_id: str, *, token: int, duration_ms: int) -> LeaseGranted | LeaseLost:
        """Extend the lease with this token. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: leases.renew(connection, table_id, token=token, duration_ms=duration_ms, now_ms=now_ms)
        )

    def check_lease(self, table_id: str, *, token: int) -> LeaseGranted | LeaseLost:
        """Whether the lease with this token is held, in one statement."""
        now_ms = self._now_ms()
        return self._database.read(lambda connection: leases.check(connection, table_id, token=token, now_ms=now_ms))

    def release_maintenance_lease(self, table_id: str, *, owner: str) -> None:
        """Release the lease of ``owner``."""
        now_ms = self._now_ms()
        self._database.write(lambda connection: leases.release(connection, table_id, owner=owner, now_ms=now_ms))

    def expire_lease(self, table_id: str, *, owner: str, reason: str = "") -> None:
        """End the lease of another run. Raises LeaseNotHeldError, TableNotFoundError, OperationRefusedError."""
        now_ms = self._now_ms()

        def expire(connection: sa.Connection) -> None:
            guard.require_on_table(connection, guard.Operation.EXPIRE_LEASE, table_id)
            leases.expire(connection, table_id, owner=owner, reason=reason, now_ms=now_ms)

        self._database.write(expire)

    def leases(self) -> tuple[Lease, ...]:
        """Every lease that was not released, in one statement."""
        now_ms = self._now_ms()
        return self._database.read(lambda connection: leases.leases(connection, now_ms=now_ms))
