"""The waits of a writer before an attempt to commit: for the commit lock of its table, or a backoff.

If writers propose the same version, all but one must repeat their commit. So a writer that has seen commits of other writers
recently takes the advisory commit lock before its next attempt. The lock is never required: a writer whose wait times out
proposes without it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.client.backoff import back_off
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot

_CONTENDED_SECONDS = 1.0
"""A table counts as contended this long after a commit of another writer was seen."""

_MAX_HALVINGS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What one handle knows of other writers of its table.

    Attributes:
        until: monotonic time, in seconds, up to which the table counts as contended.
        own_version: version of the last commit of this handle, None without one, or if another writer's commit was seen since.
        timeouts: waits for the commit lock in a row that timed out.
    """

    until: float = 0.0
    own_version: int | None = None
    timeouts: int = 0

    @property
    def is_contended(self) -> bool:
        """Whether other writers committed recently."""
        return time.monotonic() < self.until

    def after_winners(self) -> "Contention":
        """State after commits of other writers were read."""
        return replace(self, own_version=None, until=time.monotonic() + _CONTENDED_SECONDS)

    def at_snapshot(self, version: int) -> "Contention":
        """State before a commit on ``version``, which is of another writer if it is newer than the last own one."""
        return self.after_winners() if self.own_version is not None and self.own_version < version else self

    def after_success(self, version: int) -> "Contention":
        """State after this handle committed ``version``."""
        return replace(self, own_version=version)

    def after_wait(self, *, acquired: bool) -> "Contention":
        """State after a wait for the commit lock."""
        return replace(self, timeouts=0 if acquired else self.timeouts + 1)

    def lock_timeout(self, policy: CommitPolicy, settings: ClientSettings) -> float:
        """Seconds to wait for the commit lock; 0 to propose without it.

        Each wait that times out halves the next one, since the lock holder may be suspended. While the commit mode is being
        switched no proposal can succeed, so that writers do not queue for the lock.
        """
        if policy.kind is CommitPolicyKind.SWITCHING or not self.is_contended:
            return 0.0
        return settings.commit_lock_timeout.total_seconds() * 0.5 ** min(self.timeouts, _MAX_HALVINGS)


class CommitLock:
    """The commit lock of one table, as one handle of the table uses it. Safe to share between threads."""

    def __init__(self, coordinator: CommitCoordinator, settings: ClientSettings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._contention = Contention()
        self._state_lock = threading.Lock()

    @property
    def is_contended(self) -> bool:
        """Whether other writers committed recently."""
        return self._contention.is_contended

    def note_snapshot(self, version: int) -> None:
        """Note the version on which a commit of this handle builds."""
        self._update(partial(Contention.at_snapshot, version=version))

    def note_winners(self) -> None:
        """Note that commits of other writers were read."""
        self._update(Contention.after_winners)

    def note_success(self, version: int) -> None:
        """Note that this handle committed ``version``."""
        self._update(partial(Contention.after_success, version=version))

    @contextmanager
    def attempt(self, base: Snapshot, number: int) -> Iterator[bool]:
        """Hold the commit lock of a contended table during one attempt; without the lock, back off before a repetition.

        Args:
            number: of the attempt, from 0.

        Yields:
            Whether other writers may have committed during the wait.
        """
        with self._taken(base) as acquired:
            yield acquired or (number > 0 and back_off(self._settings, number))

    @contextmanager
    def _taken(self, base: Snapshot) -> Iterator[bool]:
        """Hold the lock if the table is contended and the lock is free in time; yield whether it is held."""
        seconds = self._contention.lock_timeout(base.commit_policy, self._settings)
        if seconds <= 0:
            yield False
            return
        with self._coordinator.commit_lock(base.table_id, seconds=seconds) as acquired:
            self._update(partial(Contention.after_wait, acquired=acquired))
            yield acquired

    def _update(self, change: Callable[[Contention], Contention]) -> None:
        with self._state_lock:
            self._contention = change(self._contention)
