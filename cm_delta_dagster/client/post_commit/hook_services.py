"""What the post-commit hooks of one table share: store, catalog, clock, and the scheduling of delayed work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.maintenance_policies import MaintenancePolicies
from cm_delta_dagster.catalog.ratification import Ratified, RatifiedCommit
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.snapshots.storage_check import TablesBehind
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.storage.store import Store

DERIVED_FILE_DELAYS = 4
"""Checksums, checkpoints and reports of the published version, which no reader waits for, wait this many delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedWrite:
    """A commit of this client, right after the catalog ratified it.

    Attributes:
        snapshot: the table at the version of the commit.
        actions: ``data``, parsed.
        data: bytes of the commit.
        outcome: the catalog's answer.
        winners: commits before it by version, as far as the catalog returned them during the rebase.
        contended: whether other writers committed to the table recently.
    """

    snapshot: Snapshot
    actions: CommitActions
    data: bytes
    mode: CommitMode
    outcome: Ratified
    winners: Mapping[int, RatifiedCommit]
    contended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HookServices:
    """What the hooks of one table need of its client.

    Attributes:
        delay_seconds: delay of asynchronous work (``ClientSettings.publish_delay``); 0 for none.
        compact: compacts the table of that name; None if the client cannot.
    """

    store: Store
    coordinator: CommitCoordinator
    maintenance_policies: MaintenancePolicies
    background: BackgroundWork
    now_ms: Callable[[], int]
    delay_seconds: float
    tables_behind: TablesBehind
    compact: Callable[[TableIdentifier], None] | None = None

    @property
    def delays(self) -> bool:
        """Whether asynchronous work is delayed and combined."""
        return self.delay_seconds > 0

    def is_allowed(self, snapshot: Snapshot, kind: MaintenanceKind) -> bool:
        """Ask the catalog whether it permits that maintenance of the table."""
        name = TableIdentifier.parse(snapshot.identifier)
        return self.maintenance_policies.maintenance_decision(name, kind, table_id=snapshot.table_id).allowed

    def run_in_background(self, kind: str, snapshot: Snapshot, work: Callable[[], None], *, owner: object) -> None:
        """Run ``work`` in the background thread after the delay, once for all calls of one ``owner`` until then."""
        what = f"{kind} of {snapshot.identifier} version {snapshot.version}"
        if not self.delays:
            self.background.submit(what, work)
            return

        def submit() -> None:
            self.background.submit(what, work)

        seconds = DERIVED_FILE_DELAYS * self.delay_seconds
        self.background.schedule(snapshot.table_id, id(owner), what, submit, seconds=seconds)
