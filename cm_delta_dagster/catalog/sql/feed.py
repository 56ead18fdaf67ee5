"""The commit feed of the whole catalog, for sensors.

Room: catalog.sql. Functions over an open connection, one statement each.
"""

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.catalog import CommitSummary, FeedEntry, TableIdentifier
from cm_delta_dagster.catalog.sql.schema import COMMITS, FEED_COUNTER, TABLES

_NAME = (TABLES.c.catalog_name, TABLES.c.schema_name, TABLES.c.table_name)
_FEED = (
    sa.select(COMMITS, *_NAME)
    .select_from(COMMITS.join(TABLES, TABLES.c.table_id == COMMITS.c.table_id))
    .where(COMMITS.c.position > sa.bindparam("after"))
    .order_by(COMMITS.c.position)
    .limit(sa.bindparam("at_most"))
)
_FEED_OF_NAMES = _FEED.where(sa.tuple_(*_NAME).in_(sa.bindparam("names", expanding=True)))
_LATEST = sa.select(FEED_COUNTER.c.position).where(FEED_COUNTER.c.counter_id == 1)


def feed(
    connection: sa.Connection, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None
) -> tuple[FeedEntry, ...]:
    """Entries in order of position; tables dropped since keep their entries."""
    parameters: dict[str, Any] = {"after": after, "at_most": limit}
    statement = _FEED
    if identifiers is not None:
        names = sorted({(name.catalog, name.schema, name.table) for name in identifiers})
        if not names:
            return ()
        parameters["names"] = names
        statement = _FEED_OF_NAMES
    return tuple(_entry(row) for row in connection.execute(statement, parameters))


def latest_position(connection: sa.Connection) -> int:
    """The counter, which moves with each commit."""
    return int(connection.execute(_LATEST).scalar_one())


def _entry(row: sa.Row[Any]) -> FeedEntry:
    return FeedEntry(
        position=row.position,
        identifier=TableIdentifier(row.catalog_name, row.schema_name, row.table_name),
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
