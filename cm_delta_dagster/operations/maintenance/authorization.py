"""Permission and lease of maintenance runs (protocol heading "Maintenance Operations on Catalog-managed Tables").

"Delta clients must consult the catalog before running any maintenance job": an operation changes nothing before
:func:`require_permission` returns. :func:`maintenance_lease` prevents two maintenance runs on one table at the same time. The
lease avoids duplicate work. It is not needed for safety: commits detect conflicts, and a deletion plan protects live files.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from cm_delta_dagster.catalog.maintenance import LeaseHeldByAnother, MaintenanceDecision, MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogUnavailableError,
    MaintenanceInProgressError,
    MaintenanceNotPermittedError,
    RetentionTooShortError,
)
from cm_delta_dagster.operations.maintenance.sizes import span_text
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

_log = logging.getLogger(__name__)

LEASE_DURATION_MS = 10 * 60 * 1000
"""Milliseconds after which the lease of a crashed run expires. A run renews its lease after a third of this time."""

_DEFAULT = "default"


def require_permission(table: Table, kind: MaintenanceKind) -> MaintenanceDecision:
    """Ask the catalog whether the operation is allowed, and return its decision, which the audit of the catalog has.

    Raises:
        MaintenanceNotPermittedError: the policy denies the operation; the message names the rule and how to change it.
        CatalogUnavailableError: the catalog did not answer, which counts as a denial.
    """
    decision = table.services.maintenance_policies.authorize_maintenance(
        table.identifier, kind, table_id=table.table_id
    )
    if decision.kind is kind and decision.allowed is True:
        return decision
    because = f" ({decision.reason})" if decision.reason else ""
    if decision.decided_by == _DEFAULT:
        rule = f"no rule allows it, and by default {kind.value} is denied on catalog-managed tables{because}"
    else:
        rule = f"the rule for {decision.decided_by!r} denies it{because}"
    raise MaintenanceNotPermittedError(
        f"{kind.value} on {table.identifier} is not permitted: {rule}. Nothing was done. The owner of the policy can "
        f"allow it with `cm-delta policy allow {table.identifier} {kind.value} --reason ...`, for this table, or with "
        "its schema or catalog in place of the table's name."
    )


def check_retention(table: Table, decision: MaintenanceDecision, retention_ms: int) -> None:
    """Refuse a run whose retention is shorter than the rules of the catalog demand. Raises RetentionTooShortError."""
    least_ms = decision.min_retention_ms
    if least_ms is not None and retention_ms < least_ms:
        raise RetentionTooShortError(
            f"{decision.kind.value} on {table.identifier} with a retention of {span_text(retention_ms)} was refused: the rules of "
            f"the catalog demand at least {span_text(least_ms)} ({decision.reason}; rule for {decision.decided_by!r}). Nothing was "
            "deleted. Use a longer retention, or ask the owner of the rule to change it."
        )


def check_size(table: Table, decision: MaintenanceDecision, *, num_files: int, num_bytes: int) -> None:
    """Refuse a run that deletes or rewrites more than the rules of the catalog permit. Raises MaintenanceNotPermittedError."""
    for limit, found, unit in ((decision.max_files, num_files, "files"), (decision.max_bytes, num_bytes, "bytes")):
        if limit is not None and found > limit:
            raise MaintenanceNotPermittedError(
                f"{decision.kind.value} on {table.identifier} is not permitted for {found} {unit}: the rules of the catalog permit "
                f"at most {limit} in one run ({decision.reason}; rule for {decision.decided_by!r}). Nothing was done. Check the "
                "plan, and ask the owner of the rule."
            )


class MaintenanceLease:
    """The lease of one maintenance run on a table, renewed in the background until the ``with`` block ends.

    Invariant: :meth:`check` returns only if no other run can hold a lease on the table.
    """

    def __init__(self, table: Table, kind: MaintenanceKind, *, owner: str, duration_ms: int) -> None:
        self.owner = owner
        self.kind = kind
        self._table = table
        self._duration_ms = duration_ms
        self._deadline = 0.0
        self._holder: LeaseHeldByAnother | None = None
        self._ended = threading.Event()

    def check(self) -> None:
        """Call before each step that deletes or commits. Raises MaintenanceInProgressError if the lease expired or was lost."""
        if self._holder is not None:
            raise _held_error(self._table, self._holder)
        if time.monotonic() >= self._deadline:
            raise MaintenanceInProgressError(
                f"The lease on {self._table.identifier} for {self.kind.value} expired, because the catalog could not "
                "be reached to renew it; another run may hold a lease now. The run stops here; start it again when "
                "the catalog is available."
            )

    def acquire(self) -> None:
        """Acquire or renew the lease. Raises MaintenanceInProgressError if another run holds a lease on the table."""
        # The catalog starts to count later than this, so the deadline is not later than the catalog's.
        requested = time.monotonic()
        answer = self._table.services.leases.acquire_maintenance_lease(
            self._table.table_id, self.kind, owner=self.owner, duration_ms=self._duration_ms
        )
        if isinstance(answer, LeaseHeldByAnother):
            self._holder = answer
            raise _held_error(self._table, answer)
        self._deadline = requested + self._duration_ms / 1000

    def renew_until_end(self) -> None:
        """Renew the lease until :meth:`end`; runs in its own thread."""
        interval = self._duration_ms / 3000
        while not self._ended.wait(interval):
            if time.monotonic() >= self._deadline:
                return  # An expired lease is not renewed: another run may have held one in between.
            try:
                self.acquire()
            except MaintenanceInProgressError:
                return
            except CatalogError:  # Retried until the lease expires; then check() stops the run.
                _log.warning("The maintenance lease on %s was not renewed", self._table.identifier, exc_info=True)
                interval = min(interval, 5.0)

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()


@contextmanager
def maintenance_lease(
    table: Table, kind: MaintenanceKind, *, owner: str | None = None, duration_ms: int = LEASE_DURATION_MS
) -> Iterator[MaintenanceLease]:
    """Hold a lease on ``table`` for one run of ``kind`` while the block runs.

    Args:
        owner: unique name of the run, generated by default. Runs with the same owner share the lease.
        duration_ms: milliseconds after which the lease of a crashed run expires.

    Raises:
        MaintenanceInProgressError: another run holds a lease on the table.
    """
    lease = MaintenanceLease(table, kind, owner=owner or _default_owner(), duration_ms=duration_ms)
    try:
        lease.acquire()
    except CatalogUnavailableError:  # The catalog may have granted the lease; other runs must not wait for it.
        _release(table, lease)
        raise
    renewer = threading.Thread(target=lease.renew_until_end, name="cm-delta-maintenance-lease", daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        lease.end()
        renewer.join()
        _release(table, lease)


def _release(table: Table, lease: MaintenanceLease) -> None:
    try:
        table.services.leases.release_maintenance_lease(table.table_id, owner=lease.owner)
    except CatalogError:  # The lease expires, and the run has ended.
        _log.warning("The maintenance lease on %s was not released", table.identifier, exc_info=True)


def _default_owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4()}"


def _held_error(table: Table, holder: LeaseHeldByAnother) -> MaintenanceInProgressError:
    return MaintenanceInProgressError(
        f"{holder.owner} holds the maintenance lease on {table.identifier} for {holder.kind.value}, until "
        f"{utc_text(holder.expires_ms)}. Nothing was done. Wait for that run to end; the lease of a crashed run expires at "
        "that time."
    )
