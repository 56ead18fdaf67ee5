"""The commit feed of the whole catalog. Functions over an open connection, one statement each."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_feed import FeedEntry, FeedPage, FeedTable
from cm_delta_dagster.catalog.ratification import CommitSummary, TableCounts
from cm_delta_dagster.catalog.sql.schema import (
    COMMITS,
    DEFINITIONS,
    FEED_COUNTER,
    IDENTITY,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata

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
    """The same entries with the id of the catalog, the latest position and the tables; the first two also without entries."""
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
        tables=_tables(rows),
    )


def _page(entries: sa.Select[Any]) -> sa.Select[Any]:
    head, found = _HEAD.subquery("head"), entries.subquery("entries")
    # Every row has the location; the metadata, which may be large, is in the last row of its table.
    is_last = sa.func.row_number().over(partition_by=found.c.table_id, order_by=found.c.position.desc()) == 1
    return (
        sa.select(
            head.c.catalog_id,
            head.c.latest_position,
            found,
            TABLES.c.location,
            TABLES.c.latest_version,
            TABLES.c.published_version,
            sa.case((is_last, DEFINITIONS.c.metadata)).label("table_metadata"),
        )
        .select_from(
            head.outerjoin(found, sa.true())
            .outerjoin(TABLES, TABLES.c.table_id == found.c.table_id)
            .outerjoin(DEFINITIONS, DEFINITIONS.c.table_id == found.c.table_id)
        )
        .order_by(found.c.position)
    )


def _tables(rows: Sequence[Any]) -> dict[str, FeedTable]:
    found: dict[str, FeedTable] = {}
    for row in rows:
        if row.position is None:
            continue
        # The rows are in order of position, so that the last one of a table counts.
        found[row.table_id] = FeedTable(
            location=row.location,
            latest_version=row.latest_version,
            published_version=row.published_version,
            metadata=None if row.table_metadata is None else _metadata(row.table_metadata),
        )
    return found


def _metadata(line: str) -> Metadata | None:
    try:
        return commit_json.decode_commit(f"{line}\n".encode(), version=0).metadata
    except CorruptLogError:
        return None  # Clients read it from the log; the doctor reports it.


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
            engine_info=row.engine_info,
            user_metadata=row.user_metadata,
            counts=None
            if row.num_files is None or row.size_bytes is None
            else TableCounts(num_rows=row.num_rows, num_files=row.num_files, size_bytes=row.size_bytes),
        ),
        principal=row.principal,
    )
