"""Interface to the leases that prevent concurrent maintenance runs on a table. The values are in ``maintenance``."""

import typing
from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseHeldByAnother, LeaseLost, MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease, as ``Leases.leases`` shows it. Times are epoch milliseconds by the catalog's clock.

    Attributes:
        identifier: the current name of the table.
        expired: whether another run can take the lease.
    """

    identifier: TableIdentifier
    table_id: str
    kind: MaintenanceKind
    owner: str
    token: int
    acquired_ms: int
    expires_ms: int
    expired: bool


class Leases(typing.Protocol):
    """Maintenance leases, at most one for each table.

    Each lease has a fencing token, which grows with each lease of the table. A commit that carries a token is refused unless its
    lease is still held, see ``CommitProposal.lease_token``.
    """

    def acquire_maintenance_lease(
        self, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int
    ) -> LeaseGranted | LeaseHeldByAnother:
        """Acquire the lease of the table, or renew it for the same owner. An expired lease is free, and a new one has a new token.

        A table that is being purged can be leased too. Raises TableNotFoundError for an unknown or dropped table.
        """
        ...

    def renew_lease(self, table_id: str, *, token: int, duration_ms: int) -> LeaseGranted | LeaseLost:
        """Extend a lease that has not expired. LeaseLost: it expired, ended, or belongs to another; nothing was changed."""
        ...

    def check_lease(self, table_id: str, *, token: int) -> LeaseGranted | LeaseLost:
        """Whether the lease with this token is held now."""
        ...

    def release_maintenance_lease(self, table_id: str, *, owner: str) -> None:
        """Release the lease; no error if ``owner`` does not hold it."""
        ...

    def expire_lease(self, table_id: str, *, owner: str, reason: str = "") -> None:
        """End the lease of ``owner``, which is another run: it can neither commit nor delete any more.

        Raises LeaseNotHeldError if ``owner`` does not hold the lease; nothing was changed.
        """
        ...

    def leases(self) -> Sequence[Lease]:
        """Every lease that was not released, by table, also if it has expired."""
        ...
