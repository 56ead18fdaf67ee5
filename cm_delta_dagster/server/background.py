"""Publication of commits whose writers do not publish, such as DuckDB (protocol heading "Publishing Commits").

A process publishes what it has ratified after its answer, in the background. In addition each process looks from time to time for
tables with commits that stay unpublished, because a process ended or a store failed: it reads the commit feed since its last
look. The maintenance lease of such a table keeps processes from doing the same work. Publication itself needs no lease: the files
are created put-if-absent.
"""

import logging
import threading
import uuid

from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError, PermissionDeniedError
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.server.storage_access import StorageAccess

_log = logging.getLogger(__name__)

_GROUP_KEY = "publication by the server"
_DELAY_SECONDS = 0.01
_TRIES = 6
_LOOK_SECONDS = 30.0
_LEASE_MS = 60_000
_PAGE = 500
_NEEDS = (
    "Other clients read such commits by the catalog alone until a client of this package publishes them. Name the principal of the "
    "server, cm-delta serve --principal NAME, and have an owner run: cm-delta access grant maintain '*' NAME"
)


class PublicationCatchUp:
    """Publishes commits in the background. Thread-safe.

    Args:
        client: of the server itself; its principal must have the privilege to publish if grants are enforced.
        look_seconds: time between two looks at the feed.
    """

    def __init__(self, client: DeltaClient, storage: StorageAccess, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self._client, self._storage = client, storage
        self._look_seconds = look_seconds
        self._owner = f"cm-delta serve {uuid.uuid4()}"
        self._position: int | None = None
        self._due: frozenset[TableIdentifier] = frozenset()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._refusal_lock = threading.Lock()
        self._is_refused = False

    def start(self) -> None:
        """Begin to look at the feed, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="cm-delta-publication", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the looks; return when a look that runs has ended."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def schedule(self, client: DeltaClient, entry: TableEntry) -> None:
        """Publish the commits of a table in the background, with the privileges of ``client``. A failure is logged."""
        self._client.background.schedule(
            entry.table_id,
            _GROUP_KEY,
            f"the publication of {entry.identifier}",
            lambda: self._publish_permitted(client, entry),
            seconds=_DELAY_SECONDS,
            tries=_TRIES,
        )

    def look(self) -> None:
        """Publish what was ratified before the last look and is not published yet. Raises CatalogUnavailableError."""
        due = self._due
        self._due = self._committed_since()
        if not due:
            return
        for entry in self._client.registry.load_tables(sorted(due)):
            if entry.ratified.unpublished and entry.ratified.commit_policy.through_catalog:
                self._publish_leased(entry)

    def _run(self) -> None:
        self._check_principal()
        while not self._stopped.wait(self._look_seconds):
            try:
                self.look()
            except PermissionDeniedError as error:
                self._note_refusal(error)
            except CmDeltaError as error:
                _log.warning("The server could not look for unpublished commits: %s", error)

    def _check_principal(self) -> None:
        """Say what to grant if grants are enforced and the server has no principal, before anything is to be published."""
        try:
            caller = self._client.access.whoami()
        except CmDeltaError as error:
            _log.warning("The server could not look whether grants are enforced: %s", error)
            return
        if caller.grants_enabled and caller.principal is None:
            self._note_refusal("the catalog enforces grants, and the server has no principal.")

    def _note_refusal(self, cause: object) -> None:
        """Say once in each process that the server may not publish, and what to grant."""
        with self._refusal_lock:
            is_noted, self._is_refused = self._is_refused, True
        if not is_noted:
            _log.warning("The server does not publish commits of clients that do not publish: %s %s", cause, _NEEDS)

    def _committed_since(self) -> frozenset[TableIdentifier]:
        """Tables with unpublished commits since the last look; in the first one, of all tables."""
        if self._position is None:
            self._position = self._client.feed.latest_feed_position()
            return frozenset(self._client.registry.list_tables())
        names: set[TableIdentifier] = set()
        while True:
            page = self._client.feed.feed_page(after=self._position, limit=_PAGE)
            unpublished = {key for key, table in page.tables.items() if table.published_version < table.latest_version}
            names |= {entry.identifier for entry in page.entries if entry.table_id in unpublished}
            if page.entries:
                self._position = page.entries[-1].position
            if len(page.entries) < _PAGE:
                return frozenset(names)

    def _publish_leased(self, entry: TableEntry) -> None:
        leases = self._client.leases
        try:
            lease = leases.acquire_maintenance_lease(
                entry.table_id, MaintenanceKind.CHECKPOINT, owner=self._owner, duration_ms=_LEASE_MS
            )
            if not isinstance(lease, LeaseGranted):
                return  # Another process publishes them, or a maintenance run does.
            try:
                self._publish(self._client, entry)
            finally:
                leases.release_maintenance_lease(entry.table_id, owner=self._owner)
        except PermissionDeniedError as error:
            self._note_refusal(error)
        except CmDeltaError as error:
            _log.warning("%s has unpublished commits that the server could not publish: %s", entry.identifier, error)

    def _publish_permitted(self, client: DeltaClient, entry: TableEntry) -> None:
        """Publish, unless the catalog refuses that: another try would be refused too."""
        try:
            self._publish(client, entry)
        except PermissionDeniedError as error:
            self._note_refusal(error)

    def _publish(self, client: DeltaClient, entry: TableEntry) -> None:
        self._storage.store_for(entry.location)
        publish(client.open(entry))
