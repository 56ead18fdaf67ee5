"""``lake.events``: the feed of the catalog's events."""

from collections.abc import Iterable
from datetime import timedelta

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.operations.arguments import duration_ms
from cm_delta_dagster.operations.events.clean_feed import FEED_RETENTION_MS, CleanFeedResult, clean_feed
from cm_delta_dagster.operations.events.event_reader import EventReader, event_filter


class ConnectionEvents(ConnectionPart):
    """What happened in the catalog: ``lake.events``."""

    def feed(self, after: int = 0, *, kinds: Iterable[FeedKind | str] = (), scopes: Iterable[str] = ()) -> EventReader:
        """Return a reader of the events of the catalog: commits, changes of tables and policies, refusals, leases.

        ``for event in lake.events.feed(after)`` reads what there is, ``lake.events.feed(after).wait(30)`` waits for more.

        Args:
            after: position of the last event that was read; 0 for the oldest event that the feed still has.
            kinds: only these kinds, e.g. ``["COMMIT", "TABLE_CREATED"]``.
            scopes: only events of these catalogs, schemas and tables.

        Raises:
            InvalidArgumentError: an unknown kind, or a position that is not a number.
        """
        return EventReader(self._client.events, after=after, event_filter=event_filter(kinds, scopes))

    def clean_feed(self, retention: timedelta = timedelta(milliseconds=FEED_RETENTION_MS)) -> CleanFeedResult:
        """Delete the events that are older than ``retention`` from the feed; the records of commits stay.

        Raises:
            MaintenanceNotPermittedError: a rule of a catalog, schema or table denies FEED_CLEANUP, or a catalog has no rule that
                allows it; nothing was deleted.
            RetentionTooShortError: a rule demands a longer retention; nothing was deleted.
        """
        return clean_feed(self._client, retention_ms=duration_ms(retention, name="retention"))
