"""The part of the catalog that reads all events of the feed, and deletes old ones."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.event_feed import ALL_EVENTS, EventFilter, EventPage, FeedEvent
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.database.parts import writes
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMITS,
    FEED,
    FEED_COUNTER,
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
# Entries are in the order of their positions, not of their times: the first one that is too young keeps all after it.
_YOUNG = FEED.alias("young")
_FIRST_YOUNG = (
    sa.select(sa.func.min(_YOUNG.c.position)).where(_YOUNG.c.at_ms >= sa.bindparam("before_ms")).scalar_subquery()
)
_UP_TO = sa.select(sa.func.max(FEED.c.position)).where(sa.or_(FEED.c.position < _FIRST_YOUNG, _FIRST_YOUNG.is_(None)))
_FORGET = (
    sa.update(FEED_COUNTER)
    .where(FEED_COUNTER.c.counter_id == 1, FEED_COUNTER.c.deleted_up_to < sa.bindparam("up_to"))
    .values(deleted_up_to=sa.bindparam("up_to"))
)
_DELETE = sa.delete(FEED).where(FEED.c.position <= sa.bindparam("up_to"))


class SqlEventFeed(FeedPart):
    """Implements :class:`~cm_delta_dagster.catalog.event_feed.EventFeed`."""

    @reads_placed
    def events(
        self, connection: sa.Connection, *, after: int, limit: int, matching: EventFilter = ALL_EVENTS
    ) -> tuple[EventPage, bool]:
        """Events after a position, in order. Raises InvalidArgumentError for a malformed scope."""
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
        """Wait until the feed has an entry above ``after``; False if there was none for ``seconds``."""
        return waiting.wait(self._database.shared, lambda: self._head().latest_position > after, seconds=seconds)

    def delete_old_entries(self, *, before_ms: int) -> int:
        """Delete the entries before the first one that was recorded at ``before_ms`` or later."""
        self._head()  # Places all entries.
        return self._delete_placed(before_ms)

    @writes
    def _delete_placed(self, connection: sa.Connection, before_ms: int) -> int:
        up_to = connection.execute(_UP_TO, {"before_ms": before_ms}).scalar_one()
        if up_to is None:
            return 0
        connection.execute(_FORGET, {"up_to": up_to})
        return int(connection.execute(_DELETE, {"up_to": up_to}).rowcount)


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
