"""The part of the catalog that reads the commits of the feed."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_feed import FeedEntry, FeedPage, FeedTable
from cm_delta_dagster.catalog.event_feed import checked_limit, checked_position
from cm_delta_dagster.catalog.ratification import CommitSummary, TableCounts
from cm_delta_dagster.catalog.sql.database.json_texts import texts, texts_of
from cm_delta_dagster.catalog.sql.database.parts import reads
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMITS,
    DEFINITIONS,
    FEED,
    FEED_COUNTER,
    IS_ACTIVE,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed.feed_part import HEAD, FeedPart, reads_placed
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata

_FEW_NAMES = 200
"""Up to so many names of tables are given to the database with each read of a page."""

_KEY = NAME_COLUMNS[0] + "." + NAME_COLUMNS[1] + "." + NAME_COLUMNS[2]
OF_COMMITS = (
    *(column for column in COMMITS.c if column.name != "content"),
    *NAME_COLUMNS,
)
"""The columns of :func:`feed_entry`, without the position."""

_FEED: sa.Select[Any] = (
    sa.select(FEED.c.position, *OF_COMMITS)
    .select_from(
        FEED.join(COMMITS, sa.and_(COMMITS.c.table_id == FEED.c.table_id, COMMITS.c.version == FEED.c.version)).join(
            TABLES, TABLES.c.table_id == FEED.c.table_id
        )
    )
    .where(FEED.c.position > sa.bindparam("after"))
    .order_by(FEED.c.position)
    .limit(sa.bindparam("at_most"))
)
_NEWEST_DELETED = (
    sa.select(FEED_COUNTER.c.deleted_up_to.label("position"), *OF_COMMITS)
    .select_from(
        TABLES.join(
            COMMITS, sa.and_(COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version == TABLES.c.latest_version)
        ).join(FEED_COUNTER, FEED_COUNTER.c.counter_id == 1)
    )
    .where(
        IS_ACTIVE,
        ~sa.exists(
            sa.select(FEED.c.entry_id).where(FEED.c.table_id == COMMITS.c.table_id, FEED.c.version == COMMITS.c.version)
        ),
    )
    .order_by(COMMITS.c.ratified_ms)
)


class SqlCommitFeed(FeedPart):
    """Implements :class:`~cm_delta_dagster.catalog.commit_feed.CommitFeed`."""

    def feed(
        self, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None = None
    ) -> Sequence[FeedEntry]:
        """Commits after a position, in order; those of dropped tables stay."""
        return self.feed_page(after=after, limit=limit, identifiers=identifiers).entries

    def feed_page(self, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None = None) -> FeedPage:
        """Commits after a position, the state of the feed, and the tables, from one statement. Raises InvalidArgumentError."""
        after, limit = checked_position(after, name="after"), checked_limit(limit)
        tables = identifiers if identifiers is None or isinstance(identifiers, frozenset) else tuple(identifiers)
        return self._feed_page(after, limit, tables)

    @reads_placed
    def _feed_page(
        self, connection: sa.Connection, after: int, limit: int, identifiers: Collection[TableIdentifier] | None
    ) -> tuple[FeedPage, bool]:
        """For many tables it reads the entries of all, and those of the others again only if there are as many as the limit.

        Few entries are new, and the names of thousands of tables take longer than they do.
        """
        if identifiers is None or len(identifiers) <= _FEW_NAMES or not limit:
            return _read_page(connection, after=after, limit=limit, identifiers=identifiers)
        page, is_waiting = _read_page(connection, after=after, limit=limit, identifiers=None)
        if len(page.entries) == limit:
            return _read_page(connection, after=after, limit=limit, identifiers=identifiers)
        entries = tuple(entry for entry in page.entries if entry.identifier in identifiers)
        tables = {entry.table_id: page.tables[entry.table_id] for entry in entries}
        return replace(page, entries=entries, tables=tables), is_waiting

    def latest_feed_position(self) -> int:
        """Position of the newest entry, 0 without one."""
        return int(self._head().latest_position)

    def newest_deleted_commits(self, identifiers: Iterable[TableIdentifier]) -> Sequence[FeedEntry]:
        """The newest commit of each table whose entry was deleted after its retention."""
        return self._newest_deleted_commits(_names_text(identifiers))

    @reads
    def _newest_deleted_commits(self, connection: sa.Connection, names: str) -> Sequence[FeedEntry]:
        rows = connection.execute(_named(_NEWEST_DELETED), {"names": names})
        return tuple(feed_entry(row) for row in rows)


def _named(statement: sa.Select[Any]) -> sa.Select[Any]:
    """The statement for the tables whose names are in the JSON array ``names``: one parameter for thousands of names."""
    return statement.where(_KEY.in_(sa.select(texts_of("names").c.value)))


def _names_text(identifiers: Iterable[TableIdentifier]) -> str:
    """The value of ``names``."""
    return texts(map(str, identifiers))


def _read_page(
    connection: sa.Connection, *, after: int, limit: int, identifiers: Iterable[TableIdentifier] | None
) -> tuple[FeedPage, bool]:
    parameters: dict[str, Any] = {"after": after, "at_most": limit}
    entries: sa.Select[Any] = _FEED
    if identifiers is not None:
        parameters["names"] = _names_text(identifiers)
        entries = _named(_FEED)
    rows = connection.execute(_page(entries), parameters).all()
    page = FeedPage(
        catalog_id=rows[0].catalog_id,
        latest_position=rows[0].latest_position,
        entries=tuple(feed_entry(row) for row in rows if row.position is not None),
        tables=_tables(rows),
        deleted_up_to=rows[0].deleted_up_to,
    )
    return page, bool(rows[0].is_waiting)


def _page(entries: sa.Select[Any]) -> sa.Select[Any]:
    head, commits = HEAD.subquery("head"), entries.subquery("entries")
    # Every row has the location; the metadata, which may be large, is in the last row of its table.
    is_last = sa.func.row_number().over(partition_by=commits.c.table_id, order_by=commits.c.position.desc()) == 1
    return (
        sa.select(
            head.c.catalog_id,
            head.c.latest_position,
            head.c.deleted_up_to,
            head.c.is_waiting,
            commits,
            TABLES.c.location,
            TABLES.c.latest_version,
            TABLES.c.published_version,
            sa.case((is_last, DEFINITIONS.c.metadata)).label("table_metadata"),
        )
        .select_from(
            head.outerjoin(commits, sa.true())
            .outerjoin(TABLES, TABLES.c.table_id == commits.c.table_id)
            .outerjoin(DEFINITIONS, DEFINITIONS.c.table_id == commits.c.table_id)
        )
        .order_by(commits.c.position)
    )


def _tables(rows: Sequence[Any]) -> dict[str, FeedTable]:
    tables: dict[str, FeedTable] = {}
    for row in rows:
        if row.position is None:
            continue
        # The rows are in order of position, so that the last one of a table counts.
        tables[row.table_id] = FeedTable(
            location=row.location,
            latest_version=row.latest_version,
            published_version=row.published_version,
            metadata=None if row.table_metadata is None else _metadata(row.table_metadata),
        )
    return tables


def _metadata(line: str) -> Metadata | None:
    try:
        return commit_json.decode_commit(f"{line}\n".encode(), version=0).metadata
    except CorruptLogError:
        return None  # Clients read it from the log; the doctor reports it.


def feed_entry(row: sa.Row[Any]) -> FeedEntry:
    """The entry in a row with the position and :data:`OF_COMMITS`."""
    return FeedEntry(
        position=row.position,
        identifier=identifier_of(row),
        table_id=row.table_id,
        version=row.version,
        data_version=row.data_version,
        ratified_ms=row.ratified_ms,
        summary=summary_of(row),
        principal=row.principal,
    )


def summary_of(row: sa.Row[Any]) -> CommitSummary:
    """The summary in a row with the columns of ``COMMITS``."""
    return CommitSummary(
        txn_id=row.txn_id,
        in_commit_timestamp=row.in_commit_timestamp,
        operation=row.operation,
        data_change=row.data_change,
        metrics=json.loads(row.metrics),
        tags=json.loads(row.tags),
        engine_info=row.engine_info,
        user_metadata=row.user_metadata,
        counts=counts_of(row),
    )


def counts_of(row: sa.Row[Any]) -> TableCounts | None:
    """Rows, files and bytes of a table in a row with the columns of ``COMMITS``; None if they are not known."""
    if row.num_files is None or row.size_bytes is None:
        return None
    return TableCounts(num_rows=row.num_rows, num_files=row.num_files, size_bytes=row.size_bytes)
