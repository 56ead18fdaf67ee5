"""Entries of the feed: how they are appended, and how they get their positions.

PostgreSQL: a transaction appends entries without positions, so that commits of different tables do not wait for each other. A
reader places the entries that it finds committed, in the order of their ids, at the end of the feed: under the lock of the feed
counter, which it holds until the positions are visible. Therefore

- positions become visible in their order, and no entry appears below a position that a reader has seen;
- the entries of a table are in the order of its commits: a commit gets the id of its entry under the lock of the table's row,
  and who sees it committed sees all earlier commits of the table;
- an open transaction delays only its own entries. They get later positions when it commits.

SQLite has one writer at a time. An entry gets its position when it is appended.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.sql.database import transaction_end
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared, run_in_order
from cm_delta_dagster.catalog.sql.database.schema import FEED, FEED_COUNTER, FEED_WAITERS, IS_UNPLACED
from cm_delta_dagster.errors import CatalogError

CHANNEL = "cm_delta_feed"
"""Channel of PostgreSQL's NOTIFY."""

_log = logging.getLogger(__name__)
PLACE_LIMIT = 10_000
"""How many entries one transaction places."""

_VALUES = ("kind", "at_ms", "table_id", "version", "scope", "actor", "details")
_APPEND_PLACED = Prepared(
    sa.insert(FEED).inline().values({name: sa.bindparam(name) for name in (*_VALUES, "position")})
)
_THE_COUNTER = FEED_COUNTER.c.counter_id == 1
# No row without a counter, which gives the entries their positions.
_APPEND_UNPLACED = Prepared(
    sa.insert(FEED)
    .from_select(
        _VALUES,
        sa.select(*(sa.bindparam(name, type_=FEED.c[name].type) for name in _VALUES)).where(
            sa.exists(sa.select(FEED_COUNTER.c.counter_id).where(_THE_COUNTER))
        ),
    )
    .returning(FEED.c.entry_id)
)
_NEXT_POSITION = Prepared(
    sa.update(FEED_COUNTER)
    .where(_THE_COUNTER)
    .values(position=FEED_COUNTER.c.position + 1)
    .returning(FEED_COUNTER.c.position)
)
IS_WAITING = sa.exists(sa.select(FEED.c.entry_id).where(IS_UNPLACED)).label("is_waiting")
"""Whether the feed has entries without a position."""

_LOCKED_POSITION = sa.select(FEED_COUNTER.c.position).where(_THE_COUNTER).with_for_update()
_OLDEST = sa.select(FEED.c.entry_id).where(IS_UNPLACED).order_by(FEED.c.entry_id).limit(PLACE_LIMIT).subquery()
_NUMBERED = sa.select(
    _OLDEST.c.entry_id, sa.func.row_number().over(order_by=_OLDEST.c.entry_id).label("number")
).subquery("numbered")
_PLACE = (
    sa.update(FEED)
    .where(FEED.c.entry_id == _NUMBERED.c.entry_id)
    .values(position=sa.bindparam("latest", type_=sa.BigInteger) + _NUMBERED.c.number)
)
_SET_POSITION = sa.update(FEED_COUNTER).where(_THE_COUNTER).values(position=sa.bindparam("latest"))
_WAITERS = Prepared(
    sa.select(FEED_WAITERS.c.waiter_id)
    .where(FEED_WAITERS.c.until_ms > sa.bindparam("now_ms", type_=sa.BigInteger))
    .limit(1)
)
# Without its own entry in the WAL: a transaction with a NOTIFY holds a lock of the whole server until it is durable.
_NOTIFY = sa.text(f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', '')")
COUNTER = Prepared(sa.select(FEED_COUNTER.c.counter_id).where(_THE_COUNTER))
"""Its rows are for :func:`require_counter`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An event to append. Attributes as in :class:`~cm_delta_dagster.catalog.event_feed.FeedEvent`."""

    kind: FeedKind
    at_ms: int
    table_id: str | None = None
    version: int | None = None
    scope: str | None = None
    actor: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)


def of_commit(connection: sa.Connection, table_id: str, version: int) -> NewEntry:
    """The entry of a commit."""
    return NewEntry(kind=kind_of_commit(version), at_ms=now_of(connection), table_id=table_id, version=version)


def kind_of_commit(version: int) -> FeedKind:
    """Version 0 creates its table."""
    return FeedKind.TABLE_CREATED if version == 0 else FeedKind.COMMIT


def append(connection: sa.Connection, entry: NewEntry) -> None:
    """Append an entry inside of the caller's transaction. An event of a table is appended under the lock of its row."""
    row = _row_of(entry)
    if connection.dialect.name == "sqlite":
        _APPEND_PLACED.run(connection, {**row, "position": next_position(connection)})
        return
    if not _APPEND_UNPLACED.rows(connection, row):
        raise lost_counter()
    _notify_after(connection, at_ms=entry.at_ms)


def append_at_end(connection: sa.Connection, entry: NewEntry, *, after: Sequence[Call]) -> None:
    """Append an entry at the end of the transaction, after other statements, whose rows are not read.

    The transaction has called :func:`require_counter`: without a counter no entry is appended.
    """
    if connection.dialect.name == "sqlite":
        run_in_order(connection, after)
        append(connection, entry)
        return
    transaction_end.defer(connection, [*after, (_APPEND_UNPLACED, _row_of(entry))])
    _notify_after(connection, at_ms=entry.at_ms)


def _row_of(entry: NewEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind.value,
        "at_ms": entry.at_ms,
        "table_id": entry.table_id,
        "version": entry.version,
        "scope": entry.scope,
        "actor": entry.actor,
        "details": json.dumps(dict(entry.details)) if entry.details else None,
    }


def append_event(
    connection: sa.Connection,
    kind: FeedKind,
    table_id: str,
    *,
    details: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Append an event of a table, whose row the caller has locked, that the user of the connection causes."""
    event = NewEntry(
        kind=kind, at_ms=now_of(connection), table_id=table_id, actor=caller_of(connection), details=details
    )
    append(connection, event)


def next_position(connection: sa.Connection) -> int:
    """Advance the feed counter. Its row stays locked until the transaction ends."""
    for row in _NEXT_POSITION.rows(connection, {}):
        return int(row.position)
    raise lost_counter()


def place(connection: sa.Connection) -> bool:
    """Give committed entries of a PostgreSQL catalog their positions, inside of the caller's transaction.

    Each statement must see what was committed before it began, as at the isolation level READ COMMITTED: the second one then
    sees the entries that the former holder of the lock has placed.

    Returns:
        Whether more entries may wait.
    """
    latest = connection.execute(_LOCKED_POSITION).scalar_one_or_none()
    if latest is None:
        raise lost_counter()
    placed = connection.execute(_PLACE, {"latest": latest}).rowcount
    connection.execute(_SET_POSITION, {"latest": latest + placed})
    return placed == PLACE_LIMIT


def skip_positions(connection: sa.Connection, count: int) -> None:
    """Advance the feed counter; committed entries get positions before the gap. Its row stays locked until the transaction ends."""
    while connection.dialect.name != "sqlite" and place(connection):
        pass
    skipped = sa.update(FEED_COUNTER).where(_THE_COUNTER).values(position=FEED_COUNTER.c.position + count)
    if not connection.execute(skipped).rowcount:
        raise lost_counter()


def _notify_after(connection: sa.Connection, *, at_ms: int) -> None:
    """Wake waiting readers after the transaction. Raises nothing: they also look by themselves."""
    transaction_end.follow(connection, (_WAITERS, {"now_ms": at_ms}), _notify)


def _notify(connection: sa.Connection, waiters: Sequence[Any]) -> None:
    if not waiters:
        return
    try:
        # A transaction of its own, without requests that begin and end it.
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(_NOTIFY)
    except sa.exc.SQLAlchemyError:
        _log.debug("Readers of the feed were not notified", exc_info=True)


def require_counter(rows: Sequence[Any]) -> None:
    """Refuse a feed without its counter, given the rows of :data:`COUNTER`. Raises CatalogError."""
    if not rows:
        raise lost_counter()


def lost_counter() -> CatalogError:
    """The error of a database without the row of the counter."""
    return CatalogError("The catalog's feed has lost its counter; restore the database from a backup.")
