"""Methods of a connection for the feed of the catalog's events and maintenance leases."""

from collections.abc import Iterable
from datetime import timedelta

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.leases import Lease
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.arguments import duration_ms
from cm_delta_dagster.operations.events.clean_feed import FEED_RETENTION_MS, CleanFeedResult, clean_feed
from cm_delta_dagster.operations.events.event_reader import EventReader, event_filter


class EventMethods:
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`."""

    client: DeltaClient

    def feed(self, after: int = 0, *, kinds: Iterable[FeedKind | str] = (), scopes: Iterable[str] = ()) -> EventReader:
        """Return a reader of the events of the catalog: commits, changes of tables and policies, refusals, leases.

        ``for event in lake.feed(after)`` reads what there is, ``lake.feed(after).wait(30)`` waits for the next events.

        Args:
            after: position of the last event that was read; 0 for the oldest event that the feed still has.
            kinds: only these kinds, e.g. ``["COMMIT", "TABLE_CREATED"]``.
            scopes: only events of these catalogs, schemas and tables.

        Raises:
            InvalidArgumentError: an unknown kind, or a position that is not a number.
        """
        return EventReader(self.client.events, after=after, event_filter=event_filter(kinds, scopes))

    def clean_feed(self, retention: timedelta = timedelta(milliseconds=FEED_RETENTION_MS)) -> CleanFeedResult:
        """Delete the events that are older than ``retention`` from the feed; the records of commits stay.

        Raises:
            MaintenanceNotPermittedError: a rule of a catalog, schema or table denies FEED_CLEANUP, or a catalog has no rule that
                allows it; nothing was deleted.
            RetentionTooShortError: a rule demands a longer retention; nothing was deleted.
        """
        return clean_feed(self.client, retention_ms=duration_ms(retention, name="retention"))

    def leases(self) -> tuple[Lease, ...]:
        """Return the maintenance leases that were not released, also those that have expired."""
        return tuple(self.client.leases.leases())

    def expire_lease(self, name: TableIdentifier | str, *, owner: str, reason: str = "") -> None:
        """End the maintenance lease of another run on a table: it can neither commit nor delete any more.

        Args:
            owner: who holds the lease, as :meth:`leases` shows it.
            reason: for the audit.

        Raises:
            TableNotFoundError: there is no such table.
            LeaseNotHeldError: ``owner`` does not hold the lease; nothing was changed.
            OperationRefusedError: grants are enabled, and the caller must not maintain the table.
        """
        table = self.client.table(name)
        self.client.leases.expire_lease(table.table_id, owner=owner, reason=reason)
