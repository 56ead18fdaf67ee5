"""Writes the checksums of versions that this client committed (protocol heading "Version Checksum File").

A checksum is computed from an older one and the commits since, so that the table's files need not be replayed. Small commits
of other writers are cached for that as they are read during a rebase or a refresh. While writers contend, a checksum whose
version is followed by another commit of this client before it is written is left out.
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checksum
from cm_delta_dagster.client.post_commit.scheduler import log_failures, register_fork_reset
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import version_checksum
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True)
class ChecksumRequest:
    """A version whose checksum is to be written, and the commit that made it."""

    snapshot: Snapshot
    commit: CommitActions
    contended: bool


_MAX_REQUESTS = 256
"""Beyond that the oldest requests are dropped."""

_MAX_CACHED_COMMITS = 256
_MAX_CACHED_FILE_ACTIONS = 100
"""Number of cached commits, and of file actions in each of them."""


class Checksums:
    """Checksums of one table. Only one thread at a time may call ``write``; every other method is thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Guarded by the lock: pending requests, and cached commits, by version, whose checksums are not requested.
        self._requests: list[ChecksumRequest] = []
        self._cached_commits: dict[int, CommitActions] = {}
        self._newest: tuple[int, VersionChecksum] | None = None
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent process may hold."""
        self._lock = threading.Lock()

    def request(self, snapshot: Snapshot, commit: CommitActions, *, contended: bool = False) -> None:
        """Request the checksum of ``snapshot``, which ``commit`` made.

        Args:
            contended: whether the next request may replace this one.
        """
        with self._lock:
            if self._requests and self._requests[-1].contended:
                self._cache(self._requests.pop().commit)
            self._requests.append(ChecksumRequest(snapshot, commit, contended))
            del self._requests[:-_MAX_REQUESTS]

    def note_winners(self, commits: Sequence[CommitActions]) -> None:
        """Cache commits of other writers that follow a version committed by this client."""
        with self._lock:
            if self._requests or self._newest is not None:
                for commit in commits:
                    self._cache(commit)

    def newest_requested(self) -> Snapshot | None:
        """The newest version whose checksum is requested."""
        with self._lock:
            return self._requests[-1].snapshot if self._requests else None

    def take(self) -> Sequence[ChecksumRequest]:
        """Remove and return all requests."""
        with self._lock:
            taken, self._requests = self._requests, []
            return taken

    def write(self, requests: Sequence[ChecksumRequest]) -> None:
        """Write checksums, oldest first; a failure is logged, and the remaining ones are written."""
        for request in requests:
            what = f"Checksum of {request.snapshot.identifier} version {request.snapshot.version}"
            log_failures(what, functools.partial(self._write, request.snapshot, request.commit))
        with self._lock:
            newest = -1 if self._newest is None else self._newest[0]
            for version in [version for version in self._cached_commits if version <= newest]:
                del self._cached_commits[version]

    def _cache(self, commit: CommitActions) -> None:
        """Cache a small commit whose checksum is not requested. The caller holds the lock."""
        if len(self._cached_commits) >= _MAX_CACHED_COMMITS:
            self._cached_commits.clear()
        if commit.adds.num_rows + commit.removes.num_rows <= _MAX_CACHED_FILE_ACTIONS:
            self._cached_commits[commit.version] = commit

    def _write(self, snapshot: Snapshot, commit: CommitActions) -> None:
        before, commits = self._before(snapshot, commit)
        value = (
            None if before is None else version_checksum.advance_checksum(before, commits, location=snapshot.location)
        )
        if value is None:
            txn_id = None if commit.commit_info is None else commit.commit_info.txn_id
            value = version_checksum.build_checksum(
                snapshot.state, txn_id=txn_id, in_commit_timestamp=snapshot.timestamp_ms
            )
        write_checksum(self._store, snapshot.location, snapshot.version, value)
        self._newest = snapshot.version, value

    def _before(
        self, snapshot: Snapshot, commit: CommitActions
    ) -> tuple[VersionChecksum | None, Sequence[CommitActions]]:
        """An older checksum, from memory or else from storage, and all commits from there to ``snapshot``."""
        if self._newest is not None:
            version, value = self._newest
            with self._lock:
                others = [self._cached_commits.get(between) for between in range(version + 1, snapshot.version)]
            known = [other for other in others if other is not None]
            if version < snapshot.version and len(known) == len(others):
                return value, (*known, commit)
        if snapshot.version == 0:
            return None, (commit,)
        return read_checksum(self._store, snapshot.location, snapshot.version - 1), (commit,)
