"""Permission and exclusivity of maintenance (protocol "Maintenance operations on catalog-managed tables"). Room:
operations.

The catalog decides, and it decides first: no verb touches storage before :func:`require_permission` has answered
(CM-M6). :func:`maintenance_lease` keeps two maintenance runs off one table; it protects work from being done twice,
never the data: a commit is safe without it, and a deletion is safe because of what its plan protects. The work itself
is not here.
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
)

_log = logging.getLogger(__name__)

CLAIM_DURATION_MS = 10 * 60 * 1000
"""How long a claim outlives a run that died; a living run renews it three times as often."""

_DEFAULT = "default"


def require_permission(table: Table, kind: MaintenanceKind) -> MaintenanceDecision:
    """Ask the catalog for permission and return its answer, which is a yes.

    Raises:
        MaintenanceNotPermittedError: the policy says no; the message names the rule and how to change it (CM-M6).
        CatalogUnavailableError: the catalog did not answer; that counts as no (CM-M7), and nothing was done.
    """
    decision = table.maintenance_decision(kind)
    if decision.kind is kind and decision.allowed is True:
        return decision
    because = f" ({decision.reason})" if decision.reason else ""
    if decision.decided_by == _DEFAULT:
        rule = f"no rule allows it, and by default {kind.value} is denied on catalog-managed tables{because}"
    else:
        rule = f"the rule for {decision.decided_by!r} denies it{because}"
    raise MaintenanceNotPermittedError(
        f"{kind.value} on {table.identifier} is not permitted: {rule}. Nothing was done. Whoever owns the policy can "
        f"allow it with `cm-delta policy allow {table.identifier} {kind.value} --reason ...`, for this table, or with "
        "its schema or catalog in place of the table's name."
    )


class MaintenanceLease:
    """A table held for one maintenance run, renewed in the background until the ``with`` block ends.

    Invariant: ``check`` passes only while no other run can have been given the table.
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
        """Call before each step that deletes or commits. Raises MaintenanceInProgressError if the claim was lost."""
        if self._holder is not None:
            raise _held(self._table, self._holder)
        if time.monotonic() >= self._deadline:
            raise MaintenanceInProgressError(
                f"The claim on {self._table.identifier} for {self.kind.value} ran out, because the catalog could not "
                "be reached to renew it; another run may hold the table now. The run stops here; start it again once "
                "the catalog answers."
            )

    def acquire(self) -> None:
        """Take the table, or hold it for longer. Raises MaintenanceInProgressError."""
        # Counted from before the question: the catalog's own clock starts no earlier than that.
        asked = time.monotonic()
        answer = self._table.catalog.acquire_maintenance_lease(
            self._table.table_id, self.kind, owner=self.owner, duration_ms=self._duration_ms
        )
        if isinstance(answer, LeaseHeldByAnother):
            self._holder = answer
            raise _held(self._table, answer)
        self._deadline = asked + self._duration_ms / 1000

    def keep(self) -> None:
        """Renew until :meth:`end`; runs in a thread of its own."""
        pause = self._duration_ms / 3000
        while not self._ended.wait(pause):
            if time.monotonic() >= self._deadline:
                return  # Never renewed once it ran out: another run may have come and gone in between.
            try:
                self.acquire()
            except MaintenanceInProgressError:
                return
            except CatalogError:  # Tried again until the claim runs out; check() then stops the run.
                _log.warning("The maintenance claim on %s was not renewed", self._table.identifier, exc_info=True)
                pause = min(pause, 5.0)

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()


@contextmanager
def maintenance_lease(
    table: Table, kind: MaintenanceKind, *, owner: str | None = None, duration_ms: int = CLAIM_DURATION_MS
) -> Iterator[MaintenanceLease]:
    """Hold ``table`` for one run of ``kind`` while the block runs.

    Args:
        owner: name of the run, unique; another run of the same owner shares the claim. By default made up.
        duration_ms: milliseconds after which the claim of a run that died is free.

    Raises:
        MaintenanceInProgressError: another run holds the table.
    """
    claim = MaintenanceLease(table, kind, owner=owner or _default_owner(), duration_ms=duration_ms)
    try:
        claim.acquire()
    except CatalogUnavailableError:  # Perhaps only the answer was lost; nobody is to wait for a run that never was.
        _give_back(table, claim)
        raise
    keeper = threading.Thread(target=claim.keep, name="cm-delta-maintenance-claim", daemon=True)
    keeper.start()
    try:
        yield claim
    finally:
        claim.end()
        keeper.join()
        _give_back(table, claim)


def _give_back(table: Table, claim: MaintenanceLease) -> None:
    try:
        table.catalog.release_maintenance_lease(table.table_id, owner=claim.owner)
    except CatalogError:  # It expires by itself; the work that it protected is over either way.
        _log.warning("The maintenance claim on %s was not given back", table.identifier, exc_info=True)


def _default_owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4()}"


def _held(table: Table, holder: LeaseHeldByAnother) -> MaintenanceInProgressError:
    return MaintenanceInProgressError(
        f"{table.identifier} is held for {holder.kind.value} by {holder.owner} until {holder.expires_ms} ms since the "
        "epoch. Nothing was done. Wait for that run to end; the claim of a run that died is free after that time."
    )
