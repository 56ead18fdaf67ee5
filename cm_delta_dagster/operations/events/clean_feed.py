"""Deletes entries of the feed after a retention."""

from dataclasses import dataclass

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.arguments import check_milliseconds

FEED_RETENTION_MS = 30 * 24 * 60 * 60 * 1000
"""Milliseconds for which entries stay in the feed by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFeedResult:
    """What was deleted. Readers that had not come to ``deleted_up_to`` get FeedGapError."""

    num_entries: int
    deleted_up_to: int


def clean_feed(client: DeltaClient, *, retention_ms: int = FEED_RETENTION_MS) -> CleanFeedResult:
    """Delete the entries of the feed that are older than ``retention_ms``. The records of commits stay.

    The feed belongs to all tables: each catalog that has tables must permit FEED_CLEANUP, and no rule of a schema or table may
    deny it. The longest retention that a rule demands applies. The audit has the decision for each scope, up to the first denial.

    Raises:
        MaintenanceNotPermittedError: it is not permitted; nothing was deleted.
        RetentionTooShortError: a rule demands a longer retention; nothing was deleted.
        InvalidArgumentError: ``retention_ms`` is negative.
    """
    check_milliseconds(retention_ms, name="retention_ms")
    now_ms = client.coordinator.now_ms()
    num_entries = client.events.delete_old_entries(before_ms=now_ms - retention_ms)
    page = client.events.events(after=0, limit=1)
    return CleanFeedResult(num_entries=num_entries, deleted_up_to=page.deleted_up_to)
