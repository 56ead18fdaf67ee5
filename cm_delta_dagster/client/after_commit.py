"""What follows a ratified commit: publication, checksum, checkpoint. Room: client.

Nothing here can fail the write, which is durable already: every failure is logged with its reason and mended by the next
writer or by a maintenance run. Publication is done before the writer goes on, since it is one small file; the checksum and the
checkpoint are made by one background thread, so that a writer never waits for them.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from cm_delta_dagster.catalog.catalog import Catalog, MaintenanceKind, Ratified, TableIdentifier
from cm_delta_dagster.client.checkpointer import write_checkpoint, write_checksum
from cm_delta_dagster.client.log_reader import read_checksum
from cm_delta_dagster.client.publisher import publish_commits, publish_one
from cm_delta_dagster.client.snapshot import Snapshot
from cm_delta_dagster.protocol import action_json, checksum
from cm_delta_dagster.protocol.checksum import VersionChecksum
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)


class BackgroundWork:
    """One thread for work that nobody waits for, and a way to wait for all of it."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cm-delta-after-commit")
        self._pending: set[Future[None]] = set()
        self._lock = threading.Lock()

    def submit(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` later; a failure is logged as a failure of ``what``."""

        def guarded() -> None:
            try:
                work()
            except Exception:  # The commit stands whatever happens here; the reason goes to the log.
                _log.warning("%s failed; the commit is not affected", what, exc_info=True)

        with self._lock:
            future = self._executor.submit(guarded)
            self._pending.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._pending.discard(future)

    def wait(self) -> None:
        """Return when everything submitted so far is done."""
        with self._lock:
            pending = set(self._pending)
        wait(pending)

    def close(self) -> None:
        self._executor.shutdown(wait=True)


class AfterCommit:
    """The hooks of one table."""

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        background: BackgroundWork,
        now_ms: Callable[[], int],
        remember: Callable[[Snapshot], None],
    ) -> None:
        self.now_ms = now_ms
        self._store = store
        self._catalog = catalog
        self._background = background
        self._remember = remember
        self._checksum: VersionChecksum | None = None
        self._checksum_version = -1

    def ratified(self, snapshot: Snapshot, *, data: bytes, outcome: Ratified) -> Snapshot:
        """Publish what is pending up to ``snapshot`` and arrange the rest; returns the snapshot as it stands then."""
        try:
            published = self._publish(snapshot, data, outcome)
        except Exception:  # Publication is repeated by whoever comes next; the commit itself is ratified (CM-P4).
            _log.warning("Publishing version %d of %s failed", snapshot.version, snapshot.identifier, exc_info=True)
            published = outcome.published_version
        current = replace(snapshot, published_version=max(min(published, snapshot.version), snapshot.published_version))
        self._remember(current)
        try:
            self._arrange(current, data)
        except Exception:  # A client being closed, an unreadable property: the commit is ratified all the same.
            _log.warning(
                "No checksum or checkpoint of version %d of %s", current.version, current.identifier, exc_info=True
            )
        return current

    def created(self, snapshot: Snapshot, *, data: bytes) -> None:
        """Arrange the checksum of version 0, which is published from the start; a checkpoint of it would save nothing."""
        self._remember(snapshot)
        try:
            name = f"{snapshot.identifier} version {snapshot.version}"
            self._background.submit(f"Checksum of {name}", lambda: self._write_checksum(snapshot, data))
        except Exception:  # A client being closed: the table exists all the same.
            _log.warning("No checksum of version 0 of %s", snapshot.identifier, exc_info=True)

    def _arrange(self, current: Snapshot, data: bytes) -> None:
        name = f"{current.identifier} version {current.version}"
        self._background.submit(f"Checksum of {name}", lambda: self._write_checksum(current, data))
        interval = current.properties.checkpoint_interval
        if current.version % interval == 0 and current.published_version == current.version:
            self._background.submit(f"Checkpoint of {name}", lambda: self._write_checkpoint(current))

    def _publish(self, snapshot: Snapshot, data: bytes, outcome: Ratified) -> int:
        if outcome.published_version >= snapshot.version:
            return outcome.published_version
        if outcome.published_version == snapshot.version - 1:
            publish_one(self._store, snapshot.location, version=snapshot.version, data=data)
            self._catalog.set_published_version(snapshot.table_id, snapshot.version)
            return snapshot.version
        pending = self._catalog.get_ratified_commits(snapshot.table_id)
        published = publish_commits(
            self._store,
            self._catalog,
            table_id=snapshot.table_id,
            location=snapshot.location,
            ratified=pending,
            contents={snapshot.version: data},
        )
        return published[-1] if published else pending.published_version

    def _permitted(self, snapshot: Snapshot, kind: MaintenanceKind) -> bool:
        name = TableIdentifier.parse(snapshot.identifier)
        decision = self._catalog.maintenance_decision(name, kind, table_id=snapshot.table_id)
        return decision.allowed

    def _write_checksum(self, snapshot: Snapshot, data: bytes) -> None:
        if not self._permitted(snapshot, MaintenanceKind.VERSION_CHECKSUM):
            return
        commit = action_json.decode_commit(data, version=snapshot.version)
        txn_id = None if commit.commit_info is None else commit.commit_info.txn_id
        before = self._checksum if self._checksum_version == snapshot.version - 1 else None
        if before is None:
            before = read_checksum(self._store, snapshot.location, snapshot.version - 1)
        value = None
        if before is not None:
            value = checksum.advance_checksum(
                before, commit, txn_id=txn_id, in_commit_timestamp=snapshot.timestamp_ms, location=snapshot.location
            )
        if value is None:
            value = checksum.build_checksum(snapshot.state, txn_id=txn_id, in_commit_timestamp=snapshot.timestamp_ms)
        write_checksum(self._store, snapshot.location, snapshot.version, value)
        self._checksum, self._checksum_version = value, snapshot.version

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        if self._permitted(snapshot, MaintenanceKind.CHECKPOINT):
            write_checkpoint(self._store, snapshot, now_ms=self.now_ms())
