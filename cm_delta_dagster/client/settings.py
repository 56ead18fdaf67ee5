"""Settings of the Delta client."""

from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.ratification import KEPT_CONTENT_BYTES, MAX_CLOCK_DIFFERENCE_MS


class OnCatalogBehind(StrEnum):
    """What a read does when storage holds commits above the catalog's latest version."""

    WARN = "warn"
    REFUSE = "refuse"


_DOUBLINGS = 40
"""After so many no setting is reached any more, and no float is exceeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How hard the client tries, and what it does after a commit.

    Attributes:
        max_commit_attempts: proposals per transaction before CommitRetriesExceededError (OCC-15).
        retry_initial_seconds: longest first pause after a lost race; see :meth:`longest_pause_seconds`.
        retry_max_seconds: longest pause between two proposals.
        commit_lock_seconds: longest wait for one's turn among writers of a table who have met; 0 has them race each time.
        max_resolve_attempts: questions to the catalog about a proposal whose answer was lost (CM-W4).
        incremental_refresh_limit: commits that a cached snapshot may lag behind before it is rebuilt from a checkpoint.
        snapshot_cache_size: tables whose latest snapshot is kept in memory.
        read_threads: commits and checkpoint parts read at once.
        max_unpublished_commits: ratified commits that a writer finds unpublished before it publishes them first.
        copied_content_bytes: a commit up to this size is copied to the catalog too, which serves it to readers; 0 for none.
        publish_delay_seconds: for so long publications of inline commits, and the catalog's published mark, wait to be
            carried out together after a commit; 0 has each commit wait for them.
        on_catalog_behind_storage: WARN has reads of a table whose catalog is behind its storage give the catalog's latest
            version, with one warning for each table and process; REFUSE makes them fail as writes do.
        max_clock_difference_ms: while the clock of this machine is further away from the catalog's than that, the client
            warns once and goes by the catalog's clock.
    """

    max_commit_attempts: int = 30
    retry_initial_seconds: float = 0.01
    retry_max_seconds: float = 2.0
    commit_lock_seconds: float = 2.0
    max_resolve_attempts: int = 6
    incremental_refresh_limit: int = 200
    snapshot_cache_size: int = 64
    read_threads: int = 8
    max_unpublished_commits: int = 50
    copied_content_bytes: int = KEPT_CONTENT_BYTES
    publish_delay_seconds: float = 0.05
    on_catalog_behind_storage: OnCatalogBehind = OnCatalogBehind.WARN
    max_clock_difference_ms: int = MAX_CLOCK_DIFFERENCE_MS

    def longest_pause_seconds(self, retry: int) -> float:
        """Bound of the pause before the ``retry``-th repetition, which doubles with each. How long it is is drawn at random,
        so that writers who met once do not meet again.
        """
        return min(self.retry_max_seconds, self.retry_initial_seconds * 2.0 ** min(retry - 1, _DOUBLINGS))
