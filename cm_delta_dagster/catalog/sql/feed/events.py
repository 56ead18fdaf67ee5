"""The events of the feed, and the deletion of old ones. Functions over an open connection."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.event_feed import EventFilter, EventPage, FeedEvent
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMITS,
    FEED,
    FEED_COUNTER,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import commits
from cm_delta_dagster.catalog.sql.rows import names

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


def events(connection: sa.Connection, *, after: int, limit: int, wanted: EventFilter) -> tuple[EventPage, bool]:
    """Events in order of position, and whether entries wait for their position."""
    # One statement: entries that are deleted or placed meanwhile would otherwise contradict the head.
    head, found = commits.HEAD.subquery("head"), _EVENTS.where(*_conditions(wanted)).subquery("found")
    statement = sa.select(*head.c, *found.c).select_from(head.outerjoin(found, sa.true())).order_by(found.c.position)
    rows: Sequence[Any] = connection.execute(statement, {"after": after, "at_most": limit}).all()
    state = rows[0]
    of_page = tuple(_event(row) for row in rows if row.position is not None)
    page = EventPage(
        catalog_id=state.catalog_id,
        latest_position=state.latest_position,
        deleted_up_to=state.deleted_up_to,
        reached=of_page[-1].position if of_page and len(of_page) == limit else max(after, state.latest_position),
        events=of_page,
    )
    return page, bool(state.is_waiting)


def _conditions(wanted: EventFilter) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if wanted.kinds:
        found.append(FEED.c.kind.in_(sorted(kind.value for kind in wanted.kinds)))
    if wanted.scopes:
        found.append(sa.or_(*(_in_scope(scope) for scope in wanted.scopes)))
    return found


def _in_scope(scope: str) -> sa.ColumnElement[bool]:
    parts = names.scope_parts(scope)
    of_table = sa.and_(*(column == part for column, part in zip(NAME_COLUMNS, parts, strict=False)))
    inside = sa.func.substr(FEED.c.scope, 1, len(scope) + 1) == f"{scope}."
    return sa.or_(of_table, FEED.c.scope == scope, inside)


def delete_old(connection: sa.Connection, *, before_ms: int) -> int:
    """Delete the placed entries before the first one that is too young."""
    up_to = connection.execute(_UP_TO, {"before_ms": before_ms}).scalar_one()
    if up_to is None:
        return 0
    connection.execute(_FORGET, {"up_to": up_to})
    return int(connection.execute(_DELETE, {"up_to": up_to}).rowcount)


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
        summary=None if row.txn_id is None else commits.summary_of(row),
    )
