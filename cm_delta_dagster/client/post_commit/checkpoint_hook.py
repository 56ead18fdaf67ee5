"""Post-commit hook that writes checkpoints in the background.

A version that is a multiple of ``delta.checkpointInterval`` gets a checkpoint. Of checkpoints that become due in quick succession
only some are written.
"""

import threading
from dataclasses import replace

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checkpoint
from cm_delta_dagster.client.post_commit.hook_services import HookServices
from cm_delta_dagster.client.post_commit.publication_hook import PublicationHook
from cm_delta_dagster.client.post_commit.scheduler import register_fork_reset
from cm_delta_dagster.client.snapshots.log_reader import hinted_version
from cm_delta_dagster.client.snapshots.snapshot import Snapshot

_MAX_SKIPPED_INTERVALS = 10
"""A due checkpoint is skipped in favour of a later one, unless the newest checkpoint is this many intervals old."""


class CheckpointHook:
    """Writes the checkpoints of one table. Safe to share between threads."""

    def __init__(self, services: HookServices, *, publication: PublicationHook) -> None:
        self._services = services
        self._publication = publication
        self.reset_after_fork()
        # Guarded by the lock: the version whose checkpoint is due, and the newest version that is known.
        self._due: Snapshot | None = None
        self._newest = -1
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may hold."""
        self._lock = threading.Lock()

    def run(self, snapshot: Snapshot) -> None:
        """Schedule the checkpoint of ``snapshot`` if one is due."""
        self.note_version(snapshot.version)
        if snapshot.version % snapshot.properties.checkpoint_interval:
            return
        if not self._services.delays:
            self._services.run_in_background("Checkpoint", snapshot, lambda: self._write(snapshot), owner=self)
            return
        with self._lock:
            self._due = snapshot
        self._services.run_in_background("Checkpoint", snapshot, self._write_due, owner=self)

    def note_version(self, version: int) -> None:
        """Record that ``version`` of the table exists."""
        with self._lock:
            self._newest = max(self._newest, version)

    def _write_due(self) -> None:
        with self._lock:
            snapshot, self._due = self._due, None
        if snapshot is not None and not self._can_skip(snapshot):
            self._write(snapshot)

    def _can_skip(self, snapshot: Snapshot) -> bool:
        """Whether a checkpoint of this version or a later one exists, or a later one is due and an existing one is recent."""
        written = hinted_version(self._services.store, snapshot.location)
        interval = snapshot.properties.checkpoint_interval
        with self._lock:
            is_followed = self._newest >= snapshot.version + interval
        is_recent = written + _MAX_SKIPPED_INTERVALS * interval > snapshot.version
        return written >= snapshot.version or (is_followed and is_recent)

    def _write(self, snapshot: Snapshot) -> None:
        if not self._services.is_allowed(snapshot, MaintenanceKind.CHECKPOINT):
            return
        self._publication.flush()
        if self._publication.published_version >= snapshot.version:
            current = replace(snapshot, published_version=snapshot.version)
            write_checkpoint(self._services.store, current, now_ms=self._services.now_ms())
