"""Settings of the Delta client. Room: client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How hard the client tries, and what it does after a commit.

    Attributes:
        max_commit_attempts: proposals per transaction before CommitRetriesExceededError (OCC-15).
        retry_initial_seconds: first pause after a lost race; doubles each time, with jitter.
        retry_max_seconds: longest pause between two proposals.
        max_resolve_attempts: questions to the catalog about a proposal whose answer was lost (CM-W4).
        incremental_refresh_limit: commits that a cached snapshot may lag behind before it is rebuilt from a checkpoint.
        snapshot_cache_size: tables whose latest snapshot is kept in memory.
        read_threads: commits and checkpoint parts read at once.
        max_unpublished_commits: ratified commits that a writer finds unpublished before it publishes them first.
    """

    max_commit_attempts: int = 30
    retry_initial_seconds: float = 0.02
    retry_max_seconds: float = 2.0
    max_resolve_attempts: int = 6
    incremental_refresh_limit: int = 200
    snapshot_cache_size: int = 64
    read_threads: int = 8
    max_unpublished_commits: int = 50
