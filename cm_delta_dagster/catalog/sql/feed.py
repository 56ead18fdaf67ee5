"""The commit feed of the whole catalog. Functions over an open connection, one statement each."""

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_feed import FeedEntry, FeedPage
from cm_delta_dagster.catalog.ratification import CommitSummary
from cm_delta_dagster.catalog.sql.schema import COMMITS, FEED_COUNTER, IDENTITY, NAME_COLUMNS, TABLES, identifier_of
from cm_delta_dagster.catalog.tables import TableIdentifier

_FEED: sa.Select[Any] = (
    sa.select(*(column for column in COMMITS.c if column.name != "content"), *NAME_COLUMNS)
    .select_from(COMMITS.join(TABLES, TABLES.c.table_id == COMMITS.c.table_id))
    .where(COMMITS.c.position > sa.bindparam("after"))
    .order_by(COMMITS.c.position)
    .limit(sa.bindparam("at_most"))
)
_FEED_OF_NAMES = _FEED.where(sa.tuple_(*NAME_COLUMNS).in_(sa.bindparam("names", expanding=True)))
_HEAD = sa.select(IDENTITY.c.catalog_id, FEED_COUNTER.c.position.label("latest_position")).select_from(
    IDENTITY.join(FEED_COUNTER, sa.and_(IDENTITY.c.row_id == 1, FEED_COUNTER.c.counter_id == 1))
)
_LATEST = sa.select(FEED_COUNTER.c.position).where(FEED_COUNTER.c.counter_id == 1)


def feed(
    connection: sa.Connection, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None
) -> tuple[FeedEntry, ...]:
    """Entries in order of position; the entries of dropped tables stay."""
    parameters: dict[str, Any] = {"after": after, "at_most": limit}
    statement = _FEED
    if identifiers is not None:
        names = sorted({(name.catalog, name.schema, name.table) for name in identifiers})
        if not names:
            return ()
        parameters["names"] = names
        statement = _FEED_OF_NAMES
    return tuple(_entry(row) for row in connection.execute(statement, parameters))


def feed_page(
    connection: sa.Connection, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None
) -> FeedPage:
    """The same entries with the id of the catalog and the latest position, which are returned without entries too."""
    parameters: dict[str, Any] = {"after": after, "at_most": limit}
    entries: sa.Select[Any] | None = _FEED
    if identifiers is not None:
        names = sorted({(name.catalog, name.schema, name.table) for name in identifiers})
        parameters["names"] = names
        entries = _FEED_OF_NAMES if names else None
    if entries is None:
        head = connection.execute(_HEAD).one()
        return FeedPage(catalog_id=head.catalog_id, latest_position=head.latest_position, entries=())
    rows = connection.execute(_page(entries), parameters).all()
    return FeedPage(
        catalog_id=rows[0].catalog_id,
        latest_position=rows[0].latest_position,
        entries=tuple(_entry(row) for row in rows if row.position is not None),
    )


def _page(entries: sa.Select[Any]) -> sa.Select[Any]:
    head, found = _HEAD.subquery("head"), entries.subquery("entries")
    return (
        sa.select(head.c.catalog_id, head.c.latest_position, found)
        .select_from(head.outerjoin(found, sa.true()))
        .order_by(found.c.position)
    )


def latest_position(connection: sa.Connection) -> int:
    """The position of the newest commit."""
    return int(connection.execute(_LATEST).scalar_one())


def _entry(row: sa.Row[Any]) -> FeedEntry:
    return FeedEntry(
        position=row.position,
        identifier=identifier_of(row),
        table_id=row.table_id,
        version=row.version,
        data_version=row.data_version,
        ratified_ms=row.ratified_ms,
        summary=CommitSummary(
            txn_id=row.txn_id,
            in_commit_timestamp=row.in_commit_timestamp,
            operation=row.operation,
            data_change=row.data_change,
            metrics=json.loads(row.metrics),
            tags=json.loads(row.tags),
        ),
    )
