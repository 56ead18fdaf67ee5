"""The part of the catalog that reads all events of the feed."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.event_feed import (
    ALL_EVENTS,
    EventFilter,
    EventPage,
    FeedEvent,
    checked_limit,
    checked_position,
    checked_wait,
)
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMITS,
    FEED,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import waiting
from cm_delta_dagster.catalog.sql.feed.commits import summary_of
from cm_delta_dagster.catalog.sql.feed.feed_part import HEAD, FeedPart, reads_placed
from cm_delta_dagster.catalog.sql.rows.names import scope_parts
from cm_delta_dagster.catalog.sql.rows.table_names import in_scope

_OF_FEED = (
    FEED.c.position,
    FEED.c.kind,
    FEED.c.at_ms,
    FEED.c.table_id,
    FEED.c.version,
    FEED.c.scope,
    FEED.c.actor,
    FEED.c.details,
)
_OF_COMMIT = tuple(
    column
    for column in COMMITS.c
    if column.name not in ("table_id", "version", "content", "mode", "file_name", "file_size", "sha256")
)
_EVENTS = (
    sa.select(*_OF_FEED, *_OF_COMMIT, *NAME_COLUMNS)
    .select_from(
        FEED.outerjoin(TABLES, TABLES.c.table_id == FEED.c.table_id).outerjoin(
            COMMITS, sa.and_(COMMITS.c.table_id == FEED.c.table_id, COMMITS.c.version == FEED.c.version)
        )
    )
    .where(FEED.c.position > sa.bindparam("after"))
    .order_by(FEED.c.position)
    .limit(sa.bindparam("at_most"))
)


class EventReads(FeedPart):
    """The methods of :class:`~cm_delta_dagster.catalog.event_feed.EventFeed` that read."""

    @reads_placed
    def events(
        self, connection: sa.Connection, *, after: int, limit: int, matching: EventFilter = ALL_EVENTS
    ) -> tuple[EventPage, bool]:
        """Events after a position, in order. Raises InvalidArgumentError for a malformed scope, position or limit."""
        after, limit = checked_position(after, name="after"), checked_limit(limit)
        # One statement: entries that are deleted or placed meanwhile would otherwise contradict the head.
        head, entries = HEAD.subquery("head"), _EVENTS.where(*_conditions(matching)).subquery("entries")
        joined = head.outerjoin(entries, sa.true())
        statement = sa.select(*head.c, *entries.c).select_from(joined).order_by(entries.c.position)
        rows: Sequence[Any] = connection.execute(statement, {"after": after, "at_most": limit}).all()
        state = rows[0]
        events = tuple(_event(row) for row in rows if row.position is not None)
        page = EventPage(
            catalog_id=state.catalog_id,
            latest_position=state.latest_position,
            deleted_up_to=state.deleted_up_to,
            reached=events[-1].position if events and len(events) == limit else max(after, state.latest_position),
            events=events,
        )
        return page, bool(state.is_waiting)

    def wait_for_events(self, *, after: int, seconds: float) -> bool:
        """Wait until the feed has an entry above ``after``; False if there was none for ``seconds``.

        Raises InvalidArgumentError.
        """
        after, seconds = checked_position(after, name="after"), checked_wait(seconds)
        return waiting.wait(self._database.shared, lambda: self._head().latest_position > after, seconds=seconds)


def _conditions(matching: EventFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if matching.kinds:
        conditions.append(FEED.c.kind.in_(sorted(kind.value for kind in matching.kinds)))
    if matching.scopes:
        conditions.append(sa.or_(*(_in_scope(scope) for scope in matching.scopes)))
    return conditions


def _in_scope(scope: str) -> sa.ColumnElement[bool]:
    scope_parts(scope)  # Unlike those of in_scope, the scope of a filter is not empty.
    inside = sa.func.substr(FEED.c.scope, 1, len(scope) + 1) == f"{scope}."
    return sa.or_(in_scope(scope), FEED.c.scope == scope, inside)


def _event(row: sa.Row[Any]) -> FeedEvent:
    return FeedEvent(
        position=row.position,
        kind=FeedKind(row.kind),
        at_ms=row.at_ms,
        identifier=None if row.catalog_name is None else identifier_of(row),
        table_id=row.table_id,
        version=row.version,
        scope=row.scope,
        actor=row.actor or row.principal,
        details={} if row.details is None else json.loads(row.details),
        summary=None if row.txn_id is None else summary_of(row),
    )
