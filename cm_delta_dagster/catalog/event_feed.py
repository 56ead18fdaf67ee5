"""Interface to the feed of all events of the catalog: commits, changes of tables and policies, refusals, leases."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.ratification import CommitSummary
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError

_LARGEST_POSITION = 2**63 - 1
_LONGEST_WAIT_S = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent:
    """One entry of the feed.

    Attributes:
        position: grows strictly. After a reader has seen a position, no entry appears at a smaller one.
        at_ms: when the catalog recorded the event, epoch milliseconds.
        identifier: the current name of the table; None for an event that concerns no single table.
        version: of a commit; None for other kinds.
        scope: catalog or schema of an event that concerns no single table.
        actor: who caused the event; None if the catalog does not know.
        details: facts of the kind, e.g. ``from`` and ``to`` of TABLE_RENAMED.
        summary: of a commit.
    """

    position: int
    kind: FeedKind
    at_ms: int
    identifier: TableIdentifier | None = None
    table_id: str | None = None
    version: int | None = None
    scope: str | None = None
    actor: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    summary: CommitSummary | None = None

    def as_json(self) -> dict[str, Any]:
        """The event as a JSON object, without what is not known."""
        members: dict[str, Any] = {
            "position": self.position,
            "kind": self.kind.value,
            "at_ms": self.at_ms,
            "table": None if self.identifier is None else str(self.identifier),
            "table_id": self.table_id,
            "version": self.version,
            "scope": self.scope,
            "actor": self.actor,
            "details": dict(self.details) or None,
        }
        if self.summary is not None:
            members |= {
                "operation": self.summary.operation,
                "data_change": self.summary.data_change,
                "in_commit_timestamp": self.summary.in_commit_timestamp,
                "txn_id": self.summary.txn_id,
                "metrics": dict(self.summary.metrics),
                "tags": dict(self.summary.tags),
            }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events are read. Empty: all.

    Attributes:
        scopes: ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; events of these and of what is in them.
    """

    kinds: frozenset[FeedKind] = frozenset()
    scopes: tuple[str, ...] = ()


ALL_EVENTS = EventFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """A part of the feed.

    Attributes:
        latest_position: position of the newest entry of the feed, whatever the filter; 0 without one.
        deleted_up_to: entries up to this position were deleted after their retention. A reader that stopped before it may
            have missed entries.
        reached: position up to which the page shows all events of the filter.
    """

    catalog_id: str
    latest_position: int
    deleted_up_to: int
    reached: int
    events: tuple[FeedEvent, ...]


def checked_position(value: object, *, name: str) -> int:
    """The position after which a reader begins. Raises InvalidArgumentError, which names the argument ``name``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_POSITION:
        raise InvalidArgumentError(
            f"{name} is {value!r}; give the position of the last event that was read, or 0 for the oldest one."
        )
    return value


def checked_limit(value: object) -> int:
    """How many entries a reader wants at most. Raises InvalidArgumentError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_POSITION:
        raise InvalidArgumentError(f"limit is {value!r}; give a number of entries from 0 on.")
    return value


def checked_wait(value: float) -> float:
    """How many seconds a reader waits. Raises InvalidArgumentError."""
    if not abs(value) <= _LONGEST_WAIT_S:  # False for NaN.
        raise InvalidArgumentError(f"seconds is {value!r}; give a number of seconds up to {_LONGEST_WAIT_S}.")
    return value


class EventFeed(typing.Protocol):
    """All events of the catalog, by position."""

    def events(self, *, after: int, limit: int, matching: EventFilter = ALL_EVENTS) -> EventPage:
        """At most ``limit`` events at positions above ``after``, in order of position.

        Raises InvalidArgumentError for a malformed scope, position or limit.
        """
        ...

    def wait_for_events(self, *, after: int, seconds: float) -> bool:
        """Wait until the feed has an entry, of any kind, above ``after``. False if there was none for ``seconds``.

        Raises InvalidArgumentError for an impossible position or number of seconds.
        """
        ...

    def delete_old_entries(self, *, before_ms: int) -> int:
        """Delete the placed entries before the first one that was recorded at ``before_ms`` or later; the number of entries.

        The records of commits stay: only the feed forgets them. Each catalog that has tables must permit FEED_CLEANUP, and no rule
        of a schema or table may deny it. The audit has the decision for each scope, up to the first denial.

        Raises:
            MaintenanceNotPermittedError: it is not permitted, or the caller lacks the privilege; nothing was deleted.
            RetentionTooShortError: a rule demands a longer retention; nothing was deleted.
            InvalidArgumentError: ``before_ms`` is after the catalog's clock.
        """
        ...
