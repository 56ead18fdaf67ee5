"""Permission and lease of maintenance runs (protocol heading "Maintenance Operations on Catalog-managed Tables").

"Delta clients must consult the catalog before running any maintenance job": an operation changes nothing before
:func:`require_permission` returns. :func:`maintenance_lease` prevents two maintenance runs on one table at the same time. The
lease avoids duplicate work, and its fencing token prevents that a run which lost its lease, e.g. because its process was stopped,
commits or deletes later.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.catalog.leases import Leases
from cm_delta_dagster.catalog.maintenance import (
    BY_DEFAULT,
    BY_GRANTS,
    LeaseHeldByAnother,
    LeaseLost,
    MaintenanceDecision,
    MaintenanceKind,
)
from cm_delta_dagster.catalog.maintenance_decisions import verdict_text
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.clock import seconds_since_boot
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogUnavailableError,
    MaintenanceError,
    MaintenanceInProgressError,
    MaintenanceNotPermittedError,
    RetentionTooShortError,
)
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.remedies import AllowMaintenance

_log = logging.getLogger(__name__)

CONFIRM_EVERY_S = 2.0
"""Seconds for which a run deletes files without asking the catalog whether it still holds its lease."""

_CLOCK_MARGIN = 0.1


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
    if decision.decided_by == BY_GRANTS:
        raise MaintenanceNotPermittedError(
            f"{kind.value} on {table.identifier} is not permitted, whatever the maintenance rules say: {decision.reason}"
        )
    has_reason = decision.reason not in ("", verdict_text(decision.decided_by, allowed=False))
    because = f" ({decision.reason})" if has_reason else ""
    if decision.decided_by == BY_DEFAULT:
        rule = f"no rule allows it, and by default {kind.value} is denied on catalog-managed tables{because}"
    else:
        rule = f"the rule for {decision.decided_by!r} denies it{because}"
    raise MaintenanceNotPermittedError(
        f"{kind.value} on {table.identifier} is not permitted: {rule}. Nothing was done."
    ).with_remedy(AllowMaintenance(scope=str(table.identifier), kind=kind.value))


def check_retention(table: Table, decision: MaintenanceDecision, retention_ms: int) -> None:
    """Refuse a run whose retention is shorter than the rules of the catalog demand. Raises RetentionTooShortError."""
    least_ms = None if decision.min_retention is None else milliseconds_of(decision.min_retention)
    if least_ms is not None and retention_ms < least_ms:
        raise RetentionTooShortError(
            f"{decision.kind.value} on {table.identifier} with a retention of {span_text(retention_ms)} was refused: the rules of "
            f"the catalog demand at least {span_text(least_ms)} ({decision.reason}; rule for {decision.decided_by!r}). Nothing was "
            "deleted. Use a longer retention, or ask the owner of the rule to change it."
        )


def check_size(table: Table, decision: MaintenanceDecision, *, num_files: int, num_bytes: int) -> None:
    """Refuse a run that deletes or rewrites more than the rules of the catalog permit. Raises MaintenanceNotPermittedError."""
    for limit, number, unit in ((decision.max_files, num_files, "files"), (decision.max_bytes, num_bytes, "bytes")):
        if limit is not None and number > limit:
            raise MaintenanceNotPermittedError(
                f"{decision.kind.value} on {table.identifier} is not permitted for {number} {unit}: the rules of the catalog "
                f"permit at most {limit} in one run ({decision.reason}; rule for {decision.decided_by!r}). Nothing was done. Check "
                "the plan, and ask the owner of the rule."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTarget:
    """What is leased: a table, or a dropped table that is being purged. ``duration_ms`` is the default for its leases."""

    identifier: TableIdentifier
    table_id: str
    leases: Leases
    duration_ms: int


class MaintenanceLease:
    """The lease of one maintenance run on a table, renewed in the background until the ``with`` block ends.

    Guarantees, of a run that calls :meth:`check` before each deletion and whose commits carry :attr:`token`:

    - A commit under the lease is refused by the catalog if the lease expired, or was ended or taken over, at whatever time.
    - No deletion starts after the lease expired: the run counts the time from before it asked the catalog, with a tenth of the
      duration as a margin for clocks that run at different speeds.
    - If the lease is ended before its expiry, no deletion starts later than ``CONFIRM_EVERY_S`` after it: so often the run asks
      the catalog.

    A deletion that has started, at most one for each thread, can take effect later, for example in a process that is stopped just
    then.

    Attributes:
        token: fencing token of the lease, for :attr:`Transaction.lease_token`.
    """

    def __init__(self, target: LeaseTarget, kind: MaintenanceKind, *, owner: str, duration_ms: int) -> None:
        self.owner = owner
        self.kind = kind
        self.token = 0
        self._target = target
        self._duration_ms = duration_ms
        self._deadline = 0.0
        self._confirmed = 0.0
        self._confirming = threading.Lock()
        self._lost: LeaseHeldByAnother | LeaseLost | None = None
        self._ended = threading.Event()

    def check(self) -> None:
        """Call before each step that deletes or commits, from any thread. Most calls do not ask the catalog.

        Raises:
            MaintenanceInProgressError: the lease expired, or was lost.
            CatalogUnavailableError: the catalog could not be asked whether the lease is held.
        """
        self._refuse_if_lost()
        if seconds_since_boot() - self._confirmed < CONFIRM_EVERY_S:
            return
        with self._confirming:
            self._refuse_if_lost()
            asked = seconds_since_boot()
            if asked - self._confirmed < CONFIRM_EVERY_S:
                return
            answer = self._target.leases.check_lease(self._target.table_id, token=self.token)
            if isinstance(answer, LeaseLost):
                self._lost = answer
            else:
                self._confirmed = asked
            self._refuse_if_lost()

    def fence(self, transaction: Transaction) -> None:
        """Let the catalog refuse the commit of ``transaction`` unless the lease is still held."""
        transaction.lease_token = self.token

    def acquire(self) -> None:
        """Acquire the lease. Raises MaintenanceInProgressError if another run holds a lease on the table."""
        requested = seconds_since_boot()
        answer = self._target.leases.acquire_maintenance_lease(
            self._target.table_id, self.kind, owner=self.owner, duration_ms=self._duration_ms
        )
        if isinstance(answer, LeaseHeldByAnother):
            self._lost = answer
            raise _held_error(self._target, answer)
        self.token = answer.token
        self._held_since(requested)

    def renew(self) -> None:
        """Extend the lease. Raises MaintenanceInProgressError if it expired or was lost."""
        self._refuse_if_lost()
        requested = seconds_since_boot()
        answer = self._target.leases.renew_lease(self._target.table_id, token=self.token, duration_ms=self._duration_ms)
        if isinstance(answer, LeaseLost):
            self._lost = answer
            self._refuse_if_lost()
        self._held_since(requested)

    def renew_until_end(self) -> None:
        """Renew the lease until :meth:`end`; runs in its own thread."""
        interval = self._duration_ms / 3000
        while not self._ended.wait(interval):
            try:
                self.renew()
            except MaintenanceError:
                return
            except CatalogError:  # Retried until the lease expires; then check() stops the run.
                _log.warning("The maintenance lease on %s was not renewed", self._target.identifier, exc_info=True)
                interval = min(interval, 5.0)

    def _held_since(self, requested: float) -> None:
        # The catalog starts to count later than this, so the deadline is before the catalog's.
        self._confirmed = requested
        self._deadline = requested + self._duration_ms / 1000 * (1 - _CLOCK_MARGIN)

    def _refuse_if_lost(self) -> None:
        lost = self._lost
        if isinstance(lost, LeaseHeldByAnother):
            raise _held_error(self._target, lost)
        if lost is not None:
            holder = "" if lost.holder is None else f"; {lost.holder.owner} holds one for {lost.holder.kind.value} now"
            raise MaintenanceInProgressError(
                f"The lease on {self._target.identifier} for {self.kind.value} expired or was ended{holder}. The run stops here; "
                "what it did before stays. Start it again."
            )
        if seconds_since_boot() >= self._deadline:
            raise MaintenanceInProgressError(
                f"The lease on {self._target.identifier} for {self.kind.value} expired, because it could not be renewed in time: "
                "the catalog was not reached, or this process was stopped. Another run may hold a lease now. The run stops here; "
                "what it did before stays. Start it again."
            )

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()


@contextmanager
def maintenance_lease(
    table: Table, kind: MaintenanceKind, *, owner: str | None = None, duration_ms: int | None = None
) -> Iterator[MaintenanceLease]:
    """Hold a lease on ``table`` for one run of ``kind`` while the block runs.

    Args:
        owner: unique name of the run, generated by default. Runs with the same owner share the lease.
        duration_ms: milliseconds after which the lease of a crashed run expires; by default those of the client's settings.

    Raises:
        MaintenanceInProgressError: another run holds a lease on the table.
    """
    target = LeaseTarget(
        identifier=table.identifier,
        table_id=table.table_id,
        leases=table.services.leases,
        duration_ms=milliseconds_of(table.services.settings.maintenance_lease),
    )
    with held_lease(target, kind, owner=owner, duration_ms=duration_ms) as lease:
        yield lease


@contextmanager
def held_lease(
    target: LeaseTarget, kind: MaintenanceKind, *, owner: str | None = None, duration_ms: int | None = None
) -> Iterator[MaintenanceLease]:
    """As :func:`maintenance_lease`, for a table that has no client handle."""
    lease = MaintenanceLease(
        target,
        kind,
        owner=owner or _default_owner(),
        duration_ms=target.duration_ms if duration_ms is None else duration_ms,
    )
    try:
        lease.acquire()
    except CatalogUnavailableError:  # The catalog may have granted the lease; other runs must not wait for it.
        _release(target, lease)
        raise
    renewer = threading.Thread(target=lease.renew_until_end, name="cm-delta-maintenance-lease", daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        lease.end()
        renewer.join()
        _release(target, lease)


def _release(target: LeaseTarget, lease: MaintenanceLease) -> None:
    try:
        target.leases.release_maintenance_lease(target.table_id, owner=lease.owner)
    except CatalogError:  # The lease expires, and the run has ended.
        _log.warning("The maintenance lease on %s was not released", target.identifier, exc_info=True)


def _default_owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4()}"


def _held_error(target: LeaseTarget, holder: LeaseHeldByAnother) -> MaintenanceInProgressError:
    return MaintenanceInProgressError(
        f"{holder.owner} holds the maintenance lease on {target.identifier} for {holder.kind.value}, until "
        f"{utc_text(holder.expires_ms)}. Nothing was done. Wait for that run to end; the lease of a crashed run expires at "
        "that time."
    )
