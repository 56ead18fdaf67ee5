"""The part of the catalog that has the feed."""

from collections.abc import Iterable, Sequence
from typing import Any

from cm_delta_dagster.catalog.commit_feed import FeedEntry, FeedPage
from cm_delta_dagster.catalog.event_feed import ALL_EVENTS, EventFilter, EventPage
from cm_delta_dagster.catalog.sql.database.parts import Part
from cm_delta_dagster.catalog.sql.feed import commits, entries, events, waiting
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import PermissionDeniedError


class SqlFeed(Part):
    """Implements :class:`~cm_delta_dagster.catalog.commit_feed.CommitFeed` and
    :class:`~cm_delta_dagster.catalog.event_feed.EventFeed`.

    A read takes one statement, and a second one after a transaction that places new entries of PostgreSQL.
    """

    def feed(
        self, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None = None
    ) -> Sequence[FeedEntry]:
        """Commits after a position, in order."""
        return self.feed_page(after=after, limit=limit, identifiers=identifiers).entries

    def feed_page(self, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None = None) -> FeedPage:
        """Commits after a position with the catalog's id and the latest position, from one statement."""
        wanted = identifiers if identifiers is None or isinstance(identifiers, frozenset) else tuple(identifiers)

        def read() -> tuple[FeedPage, bool]:
            return self._database.read(
                lambda connection: commits.feed_page(connection, after=after, limit=limit, identifiers=wanted)
            )

        page, is_waiting = read()
        return read()[0] if is_waiting and self._place() else page

    def latest_feed_position(self) -> int:
        """Position of the newest entry, 0 without one."""
        return int(self._head().latest_position)

    def newest_deleted_commits(self, identifiers: Iterable[TableIdentifier]) -> Sequence[FeedEntry]:
        """The newest commit of each table whose entry was deleted after its retention."""
        wanted = tuple(identifiers)
        return self._database.read(lambda connection: commits.newest_deleted_commits(connection, wanted))

    def events(self, *, after: int, limit: int, wanted: EventFilter = ALL_EVENTS) -> EventPage:
        """Events after a position, in order. Raises InvalidArgumentError for a malformed scope."""

        def read() -> tuple[EventPage, bool]:
            return self._database.read(
                lambda connection: events.events(connection, after=after, limit=limit, wanted=wanted)
            )

        page, is_waiting = read()
        return read()[0] if is_waiting and self._place() else page

    def wait_for_events(self, *, after: int, seconds: float) -> bool:
        """Wait until the feed has an entry above ``after``; False if there was none for ``seconds``."""
        return waiting.wait(self._database.shared, lambda: self.latest_feed_position() > after, seconds=seconds)

    def delete_old_entries(self, *, before_ms: int) -> int:
        """Delete the entries before the first one that was recorded at ``before_ms`` or later."""
        self._head()  # Places all entries.
        return self._database.write(lambda connection: events.delete_old(connection, before_ms=before_ms))

    def _head(self) -> Any:
        found = self._database.read(commits.head)
        return self._database.read(commits.head) if found.is_waiting and self._place() else found

    def _place(self) -> bool:
        """Place entries. A database role that may only read sees the entries that other clients have placed."""
        try:
            while self._database.write(entries.place):
                pass
            return True
        except PermissionDeniedError:
            return False
