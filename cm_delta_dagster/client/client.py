"""The Delta client: a catalog, the stores of its tables, and the caches and threads that its tables share."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from cm_delta_dagster.catalog.access_control import AccessControl
from cm_delta_dagster.catalog.application_ids import ApplicationIds
from cm_delta_dagster.catalog.audit import AuditLog
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_feed import CommitFeed
from cm_delta_dagster.catalog.commit_policies import CommitPolicies
from cm_delta_dagster.catalog.commit_rule_registry import CommitRuleRegistry
from cm_delta_dagster.catalog.durations import milliseconds_of
from cm_delta_dagster.catalog.event_feed import EventFeed
from cm_delta_dagster.catalog.held_commits import HeldCommits
from cm_delta_dagster.catalog.leases import Leases
from cm_delta_dagster.catalog.maintenance_policies import MaintenancePolicies
from cm_delta_dagster.catalog.namespaces import NamespaceRegistry
from cm_delta_dagster.catalog.recovery import RecoverableCatalog
from cm_delta_dagster.catalog.storage_credentials import StorageCredentials
from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.catalog.tokens import Tokens
from cm_delta_dagster.catalog.version_pins import VersionPins
from cm_delta_dagster.client.clock import CheckedClock
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.post_commit.scheduler import BackgroundWork
from cm_delta_dagster.client.read_pins import ReadPins
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.snapshots.storage_check import TablesBehind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import WarehouseGuard
from cm_delta_dagster.storage.store import StoreRegistry


def wall_clock_ms() -> int:
    """Epoch milliseconds of this machine."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, kw_only=True)
class SharedState:
    """What clients of one catalog share: a clock, caches and threads.

    Attributes:
        now_ms: the checked clock.
        snapshots: the latest snapshots by table id; the lock guards them.
    """

    now_ms: Callable[[], int]
    warehouse: WarehouseGuard
    background: BackgroundWork = field(default_factory=BackgroundWork)
    tables_behind: TablesBehind = field(default_factory=TablesBehind)
    snapshots: OrderedDict[str, Snapshot] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class DeltaClient:
    """Opens tables of one catalog.

    Safe to share between threads. Latest snapshots are cached by table id, so that a refresh reads only newer commits. ``close``
    waits for asynchronous work and closes the catalog.

    Other attributes, such as ``registry`` and ``coordinator``, are the parts of the catalog, each with the type of its interface.
    Code that uses a client names the part that it needs.

    Attributes:
        catalog: the whole catalog, for those who create another client of it.
        context: what commits record unless an operation says otherwise.
        now_ms: clock of the client and its operations, epoch milliseconds: the one that is passed, or the catalog's if the two
            differ too much (``ClientSettings.max_clock_difference``).
        compact: compacts the table of that name, in the background after a write; None if the client cannot.
        read_pins: the versions that reads see that name none; None for the latest ones. Writes build on the latest version.

    Args:
        shared: the state of a client of the same catalog; None for one with its own, for which ``now_ms`` counts.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        stores: StoreRegistry,
        settings: ClientSettings | None = None,
        context: CommitProperties = NO_PROPERTIES,
        now_ms: Callable[[], int] = wall_clock_ms,
        compact: Callable[[TableIdentifier], None] | None = None,
        shared: SharedState | None = None,
        read_pins: ReadPins | None = None,
    ) -> None:
        self.catalog = catalog
        self.registry: TableRegistry = catalog.registry
        self.namespaces: NamespaceRegistry = catalog.namespaces
        self.coordinator: CommitCoordinator = catalog.coordinator
        self.feed: CommitFeed = catalog.feed
        self.events: EventFeed = catalog.events
        self.leases: Leases = catalog.leases
        self.pins: VersionPins = catalog.pins
        self.commit_policies: CommitPolicies = catalog.commit_policies
        self.commit_rules: CommitRuleRegistry = catalog.commit_rules
        self.holds: HeldCommits = catalog.holds
        self.maintenance_policies: MaintenancePolicies = catalog.maintenance_policies
        self.recovery: RecoverableCatalog = catalog.recovery
        self.access: AccessControl = catalog.access
        self.tokens: Tokens = catalog.tokens
        self.application_ids: ApplicationIds = catalog.application_ids
        self.storage_credentials: StorageCredentials = catalog.storage_credentials
        self.audit_log: AuditLog = catalog.audit_log
        self.stores = stores
        self.settings = settings or ClientSettings()
        self.context = context
        self.compact = compact
        self.read_pins = read_pins
        self._shared = shared or SharedState(
            now_ms=CheckedClock(
                now_ms,
                coordinator=catalog.coordinator,
                max_difference_ms=milliseconds_of(self.settings.max_clock_difference),
            ),
            warehouse=WarehouseGuard(catalog.registry, stores),
        )
        self.now_ms = self._shared.now_ms
        self.background = self._shared.background
        self.warehouse = self._shared.warehouse
        self.tables_behind = self._shared.tables_behind

    def with_compaction(self, compact: Callable[[TableIdentifier], None]) -> "DeltaClient":
        """This client, with the same catalog, caches and threads, whose tables are compacted by ``compact`` after writes."""
        return self._like(self.context, compact, self.read_pins)

    def recording(self, context: CommitProperties) -> "DeltaClient":
        """This client, with the same catalog, caches and threads, whose commits record ``context``."""
        return self._like(context, self.compact, self.read_pins)

    def of_run(self, context: CommitProperties, *, run_id: str | None) -> "DeltaClient":
        """This client, with the same catalog, caches and threads, for one run: its commits record ``context``.

        Args:
            run_id: owner of the pinned versions that reads see; None for reads of the latest versions.
        """
        return self._like(context, self.compact, None if run_id is None else ReadPins(self.pins, owner=run_id))

    def _like(
        self, context: CommitProperties, compact: Callable[[TableIdentifier], None] | None, read_pins: ReadPins | None
    ) -> "DeltaClient":
        return DeltaClient(
            self.catalog,
            stores=self.stores,
            settings=self.settings,
            context=context.with_defaults(self.context),
            compact=compact,
            shared=self._shared,
            read_pins=read_pins,
        )

    def table(self, identifier: TableIdentifier | str) -> Table:
        """Resolve a name through the catalog. Raises TableNotFoundError, InvalidArgumentError."""
        name = TableIdentifier.of(identifier)
        return self.open(self.registry.load_table(name))

    def open(self, entry: TableEntry) -> Table:
        """A handle for an entry that the catalog returned."""
        return Table(
            services=self,
            identifier=entry.identifier,
            table_id=entry.table_id,
            location=entry.location,
            store=self.stores.store_for(entry.location),
        )

    def cached_snapshot(self, table_id: str) -> Snapshot | None:
        """The cached snapshot, which may be behind the catalog."""
        with self._shared.lock:
            return self._shared.snapshots.get(table_id)

    def remember_snapshot(self, snapshot: Snapshot) -> None:
        """Cache ``snapshot`` unless a newer one is cached."""
        with self._shared.lock:
            known = self._shared.snapshots.get(snapshot.table_id)
            if known is None or (snapshot.version, snapshot.published_version) >= (
                known.version,
                known.published_version,
            ):
                self._shared.snapshots[snapshot.table_id] = snapshot
            self._shared.snapshots.move_to_end(snapshot.table_id)
            while len(self._shared.snapshots) > self.settings.snapshot_cache_size:
                self._shared.snapshots.popitem(last=False)

    def note_commit(self, snapshot: Snapshot) -> None:
        """Cache the snapshot of a commit of this client, and let its later reads see the commit."""
        self.remember_snapshot(snapshot)
        if self.read_pins is not None:
            self.read_pins.note_commit(snapshot.table_id, snapshot.version)

    def replace_snapshot(self, snapshot: Snapshot) -> None:
        """Cache ``snapshot`` in place of the cached one, even if that is newer."""
        with self._shared.lock:
            self._shared.snapshots.pop(snapshot.table_id, None)
        self.remember_snapshot(snapshot)

    def forget(self, table_id: str) -> None:
        """Drop all cached state of the table, for example after its history was recovered."""
        self.tables_behind.note(table_id, None)
        with self._shared.lock:
            self._shared.snapshots.pop(table_id, None)

    def spec(self) -> "ClientSpec":
        """What another process needs to open a client of the same catalog."""
        return ClientSpec(catalog=self.catalog, settings=self.settings)

    def wait_for_background(self) -> None:
        """Return when every publication, checksum and checkpoint scheduled so far is done or has failed."""
        self.background.wait()

    def close(self) -> None:
        """Wait for asynchronous work and close the catalog."""
        self.background.close()
        self.catalog.close()


def client_through(client: DeltaClient, catalog: Catalog) -> DeltaClient:
    """The client, with the same caches and threads, whose calls go through another handle of the same catalog."""
    return DeltaClient(
        catalog,
        stores=client.stores,
        settings=client.settings,
        context=client.context,
        compact=client.compact,
        shared=client._shared,
        read_pins=client.read_pins,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSpec:
    """A catalog and the settings of its clients. It can be pickled if the catalog can be."""

    catalog: Catalog
    settings: ClientSettings

    def open(self, stores: StoreRegistry) -> DeltaClient:
        """Open a client with the clock of this machine."""
        return DeltaClient(self.catalog, stores=stores, settings=self.settings)
