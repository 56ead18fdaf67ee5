"""Version checksums of one's own commits, written a while later (protocol "Version Checksum File").

Each follows from an older one and the commits since, whoever made those: of others' commits the small ones are kept that came
along anyhow, so that neither their checksums nor the table's files have to be looked at. Writers who are in each other's way
leave out what the next one of their own makes superfluous in no time.
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cm_delta_dagster.client.post_commit.checkpoint_writer import write_checksum
from cm_delta_dagster.client.post_commit.scheduler import guarded, renewed_after_fork
from cm_delta_dagster.client.snapshots.log_reader import read_checksum
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.log import version_checksum
from cm_delta_dagster.protocol.log.version_checksum import VersionChecksum
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version whose checksum is to be written, unless a newer one is before that, and the commit that made it."""

    snapshot: Snapshot
    commit: CommitActions
    in_a_crowd: bool


_MAX_WANTED = 256
"""Where more commits are made than storage can follow, the oldest go without."""

_MAX_OTHERS = 256
_MAX_FILES_OF_OTHERS = 100
"""Commits of others that are kept at most, and file actions in each of them."""


class Checksums:
    """Those of one table. They are written by one thread at a time; all else may come from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Under the lock: what waits for its checksum, and commits by version whose checksums are not.
        self._wanted: list[Wanted] = []
        self._others: dict[int, CommitActions] = {}
        self._newest: tuple[int, VersionChecksum] | None = None
        self.reset_after_fork()
        renewed_after_fork(self)

    def reset_after_fork(self) -> None:
        """Without the lock of before, which after a fork a thread of the parent may hold for ever."""
        self._lock = threading.Lock()

    def want(self, snapshot: Snapshot, commit: CommitActions, *, in_a_crowd: bool = False) -> None:
        """The checksum of ``snapshot``, which ``commit`` has made, is to be written.

        Args:
            in_a_crowd: others write to the table too, so that it may be left out for that of one's next commit.
        """
        with self._lock:
            if self._wanted and self._wanted[-1].in_a_crowd:
                self._keep(self._wanted.pop().commit)
            self._wanted.append(Wanted(snapshot, commit, in_a_crowd))
            del self._wanted[:-_MAX_WANTED]

    def note(self, commits: Sequence[CommitActions]) -> None:
        """What others have committed after a version that this process has made."""
        with self._lock:
            if self._wanted or self._newest is not None:
                for commit in commits:
                    self._keep(commit)

    def newest_wanted(self) -> Snapshot | None:
        """The newest version that waits."""
        with self._lock:
            return self._wanted[-1].snapshot if self._wanted else None

    def take(self) -> Sequence[Wanted]:
        """All that waits, which is then no longer kept here."""
        with self._lock:
            taken, self._wanted = self._wanted, []
            return taken

    def write(self, wanted: Sequence[Wanted]) -> None:
        """Write checksums, oldest first; one that fails is logged, and the others are written."""
        for one in wanted:
            what = f"Checksum of {one.snapshot.identifier} version {one.snapshot.version}"
            guarded(what, functools.partial(self._write, one.snapshot, one.commit))
        with self._lock:
            passed = -1 if self._newest is None else self._newest[0]
            for version in [version for version in self._others if version <= passed]:
                del self._others[version]

    def _keep(self, commit: CommitActions) -> None:
        """Under the lock: a commit whose checksum is not wanted here."""
        if len(self._others) >= _MAX_OTHERS:
            self._others.clear()
        if commit.adds.num_rows + commit.removes.num_rows <= _MAX_FILES_OF_OTHERS:
            self._others[commit.version] = commit

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
                others = [self._others.get(between) for between in range(version + 1, snapshot.version)]
            known = [other for other in others if other is not None]
            if version < snapshot.version and len(known) == len(others):
                return value, (*known, commit)
        if snapshot.version == 0:
            return None, (commit,)
        return read_checksum(self._store, snapshot.location, snapshot.version - 1), (commit,)
