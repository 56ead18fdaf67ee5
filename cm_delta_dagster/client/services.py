"""Interface of the client that a table belongs to: parts of the catalog, and the settings, caches and threads of its tables."""

import typing
from collections.abc import Callable

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policies import CommitPolicies
from cm_delta_dagster.catalog.held_commits import HeldCommits
from cm_delta_dagster.catalog.leases import Leases
from cm_delta_dagster.catalog.maintenance_policies import MaintenancePolicies
from cm_delta_dagster.catalog.recovery import RecoverableCatalog
from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.version_pins import VersionPins
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork
from cm_delta_dagster.client.read_pins import ReadPins
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.snapshots.storage_check import TablesBehind
from cm_delta_dagster.client.warehouse import WarehouseGuard
from cm_delta_dagster.storage.store import StoreRegistry


class Services(typing.Protocol):
    """What a table, and the operations on one table, need of its client. The first eight are interfaces of the catalog."""

    @property
    def registry(self) -> TableRegistry: ...
    @property
    def coordinator(self) -> CommitCoordinator: ...
    @property
    def holds(self) -> HeldCommits: ...
    @property
    def commit_policies(self) -> CommitPolicies: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def maintenance_policies(self) -> MaintenancePolicies: ...
    @property
    def pins(self) -> VersionPins: ...
    @property
    def recovery(self) -> RecoverableCatalog: ...
    @property
    def settings(self) -> ClientSettings: ...
    @property
    def context(self) -> CommitProperties:
        """What commits record unless an operation says otherwise."""
        ...

    @property
    def now_ms(self) -> Callable[[], int]: ...
    @property
    def compact(self) -> Callable[[TableIdentifier], None] | None:
        """Compacts the table of that name, in the background after a write; None if the client cannot."""
        ...

    @property
    def read_pins(self) -> ReadPins | None:
        """The versions that reads see that name none; None for the latest ones."""
        ...

    @property
    def background(self) -> BackgroundWork: ...
    @property
    def warehouse(self) -> WarehouseGuard: ...
    @property
    def stores(self) -> StoreRegistry: ...
    @property
    def tables_behind(self) -> TablesBehind: ...

    def cached_snapshot(self, table_id: str) -> Snapshot | None: ...
    def remember_snapshot(self, snapshot: Snapshot) -> None: ...
    def note_commit(self, snapshot: Snapshot) -> None: ...
    def forget(self, table_id: str) -> None: ...
    def replace_snapshot(self, snapshot: Snapshot) -> None: ...
