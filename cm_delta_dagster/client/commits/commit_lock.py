"""Decides whether a writer waits for the commit lock of a table, and how long.

If writers propose the same version, all but one must repeat their commit. So a writer that has seen commits of other writers
recently takes the advisory commit lock before its next attempt. The lock is never required: a writer whose wait times out
proposes without it.
"""

import time
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.client.settings import ClientSettings

_CONTENDED_SECONDS = 1.0
"""A table counts as contended this long after a commit of another writer was seen."""

_MAX_HALVINGS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What one handle knows of other writers of its table.

    Attributes:
        until: monotonic time, in seconds, up to which the table counts as contended.
        own_version: version of the last commit of this handle, -1 if another writer's commit was seen since.
        timeouts: waits for the commit lock in a row that timed out.
    """

    until: float = 0.0
    own_version: int = -1
    timeouts: int = 0

    @property
    def is_contended(self) -> bool:
        """Whether other writers committed recently."""
        return time.monotonic() < self.until

    def after_winners(self) -> "Contention":
        """State after commits of other writers were read."""
        return replace(self, own_version=-1, until=time.monotonic() + _CONTENDED_SECONDS)

    def at_snapshot(self, version: int) -> "Contention":
        """State before a commit on ``version``, which is of another writer if it is newer than the last own one."""
        return self.after_winners() if 0 <= self.own_version < version else self

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
        return settings.commit_lock_seconds * 0.5 ** min(self.timeouts, _MAX_HALVINGS)
