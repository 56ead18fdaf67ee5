"""Reads the feed of the catalog's events from a position on, and waits for new ones."""

import math
import time
from collections.abc import Iterable, Iterator

from cm_delta_dagster.catalog.event_feed import ALL_EVENTS, EventFeed, EventFilter, FeedEvent, checked_position
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.errors import FeedGapError, InvalidArgumentError

PAGE = 1000
_MAX_PAGE = 1_000_000
_WAIT_S = 60.0


class EventReader:
    """A reader of the feed. It is not shared between threads.

    Iterating yields the events that the feed has, and stops. Every event is read once, in the order of the positions.

    Args:
        after: position after which it reads; 0 for the oldest event that the feed still has.
        event_filter: which events.

    Raises:
        InvalidArgumentError: ``after`` is negative or not a number, or a scope is malformed.
    """

    def __init__(self, feed: EventFeed, *, after: int = 0, event_filter: EventFilter = ALL_EVENTS) -> None:
        self._feed = feed
        self._event_filter = event_filter
        self._position = checked_position(after, name="after")

    @property
    def position(self) -> int:
        """Where a reader continues after the events read so far. Store it when they have been processed."""
        return self._position

    def read(self, limit: int = PAGE) -> tuple[FeedEvent, ...]:
        """The next events, at most ``limit``; none if the feed has no more.

        Raises:
            FeedGapError: events after the position were deleted after their retention.
            InvalidArgumentError: ``limit`` is not a number from 1 to a million; or the feed ends before the position, which is
                that of another catalog, or of a database that was replaced since.
            CatalogUnavailableError: the catalog did not answer.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_PAGE:
            raise InvalidArgumentError(f"limit is {limit!r}; give a number of events from 1 to {_MAX_PAGE}.")
        page = self._feed.events(after=self._position, limit=limit, matching=self._event_filter)
        if 0 < self._position < page.deleted_up_to:
            raise FeedGapError(
                f"The events at the positions {self._position + 1} to {page.deleted_up_to} were deleted from the feed after "
                f"their retention, before this reader at position {self._position} read them. Compare what depends on them "
                f"with the tables, and read on after position {page.deleted_up_to}.",
                after=self._position,
                resume_after=page.deleted_up_to,
            )
        if page.latest_position < self._position:
            raise InvalidArgumentError(
                f"The feed of the catalog {page.catalog_id} ends at position {page.latest_position}, and this reader is at "
                f"{self._position}: the position belongs to another catalog, or the database was replaced by an older one. Nothing "
                f"was read. Compare what depends on the events with the tables, and read on after position {page.latest_position}."
            )
        self._position = page.reached
        return page.events

    def wait(self, timeout: float, limit: int = PAGE) -> tuple[FeedEvent, ...]:
        """The next events; waits for one at most ``timeout`` seconds, and returns none after that.

        Raises as :meth:`read`, and InvalidArgumentError for a ``timeout`` that is not a number.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout):
            raise InvalidArgumentError(f"timeout is {timeout!r}; give a number of seconds.")
        deadline = time.monotonic() + timeout
        while not (events := self.read(limit)):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._feed.wait_for_events(after=self._position, seconds=min(left, _WAIT_S))
        return events

    def follow(self) -> Iterator[FeedEvent]:
        """Events without end: waits for new ones. Raises as :meth:`read`."""
        while True:
            yield from self.wait(_WAIT_S)

    def __iter__(self) -> Iterator[FeedEvent]:
        while events := self.read():
            yield from events


def event_filter(kinds: Iterable[FeedKind | str], scopes: Iterable[str]) -> EventFilter:
    """The filter of these kinds and scopes. Raises InvalidArgumentError for an unknown kind or a value that is not a list."""
    for name, value in (("kinds", kinds), ("scopes", scopes)):
        if isinstance(value, str):
            raise InvalidArgumentError(f"{name} is the text {value!r}; give a list, e.g. [{value!r}].")
        if not isinstance(value, Iterable):
            raise InvalidArgumentError(f"{name} is {value!r}; give a list of texts.")
    chosen = tuple(scopes)
    wrong = next((scope for scope in chosen if not isinstance(scope, str)), None)
    if wrong is not None:
        raise InvalidArgumentError(f"scopes has {wrong!r}; a scope is the text of a catalog, schema or table.")
    return EventFilter(kinds=frozenset(map(_kind, kinds)), scopes=chosen)


def _kind(text: FeedKind | str) -> FeedKind:
    try:
        return FeedKind(str(text).upper())
    except ValueError:
        known = ", ".join(kind.value for kind in FeedKind)
        raise InvalidArgumentError(f"{text!r} is not a kind of events; the kinds are {known}.") from None
