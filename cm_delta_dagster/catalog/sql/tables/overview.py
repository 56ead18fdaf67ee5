"""The part of the catalog that lists tables and commits in pages, for people.

Which tables the caller may read is a condition of the statement, so that a page has as many entries as there are.
"""

from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.event_feed import checked_limit, checked_position
from cm_delta_dagster.catalog.overview import RecordedCommit, TableOverview
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.parts import reads
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, FEED, IS_ACTIVE, NAME_COLUMNS, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.feed.commits import OF_COMMITS, counts_of, feed_entry, summary_of
from cm_delta_dagster.catalog.sql.feed.feed_part import FeedPart, reads_placed
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.sql.rows.table_names import in_scope
from cm_delta_dagster.catalog.tables import TableIdentifier

_TABLES: sa.Select[Any] = (
    sa.select(
        *NAME_COLUMNS,
        TABLES.c.table_id,
        TABLES.c.latest_version,
        TABLES.c.published_version,
        COMMITS.c.operation,
        COMMITS.c.ratified_ms,
        COMMITS.c.num_rows,
        COMMITS.c.num_files,
        COMMITS.c.size_bytes,
        COMMITS.c.principal,
    )
    .select_from(
        TABLES.outerjoin(
            COMMITS, sa.and_(COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version == TABLES.c.latest_version)
        )
    )
    .where(IS_ACTIVE, guard.permits(Operation.READ))
    .order_by(*NAME_COLUMNS)
)
_NEWEST: sa.Select[Any] = (
    sa.select(FEED.c.position, *OF_COMMITS)
    .select_from(
        FEED.join(COMMITS, sa.and_(COMMITS.c.table_id == FEED.c.table_id, COMMITS.c.version == FEED.c.version)).join(
            TABLES, TABLES.c.table_id == FEED.c.table_id
        )
    )
    .where(FEED.c.position.is_not(None), guard.permits(Operation.READ))
    .order_by(FEED.c.position.desc())
)
_IS_WAITING = sa.select(entries.IS_WAITING)
_IS_TABLE = sa.select(TABLES.c.table_id).where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
_OF_TABLE: sa.Select[Any] = (
    sa.select(*OF_COMMITS)
    .select_from(COMMITS.join(TABLES, TABLES.c.table_id == COMMITS.c.table_id))
    .where(COMMITS.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
    .order_by(COMMITS.c.version.desc())
)


class SqlOverview(FeedPart):
    """Implements :class:`~cm_delta_dagster.catalog.overview.CatalogOverview`."""

    @reads
    def table_overviews(
        self, connection: sa.Connection, scope: str = "", *, after: TableIdentifier | None = None, limit: int = 100
    ) -> tuple[TableOverview, ...]:
        """Tables that the caller may read, by name. Raises InvalidArgumentError."""
        page = _TABLES.where(in_scope(scope)).limit(checked_limit(limit))
        if after is not None:
            page = page.where(sa.tuple_(*NAME_COLUMNS) > sa.tuple_(after.catalog, after.schema, after.table))
        return tuple(map(_overview, connection.execute(page, guard.caller_parameters(connection))))

    def newest_commits(self, scope: str = "", *, before: int | None = None, limit: int = 100) -> tuple[FeedEntry, ...]:
        """Commits of the feed, the newest first. Raises InvalidArgumentError."""
        page = _NEWEST.where(in_scope(scope)).limit(checked_limit(limit))
        if before is not None:
            page = page.where(FEED.c.position < checked_position(before, name="before"))
        return self._newest(page)

    @reads_placed
    def _newest(self, connection: sa.Connection, page: sa.Select[Any]) -> tuple[tuple[FeedEntry, ...], bool]:
        is_waiting = bool(connection.execute(_IS_WAITING).scalar())
        rows = connection.execute(page, guard.caller_parameters(connection))
        return tuple(map(feed_entry, rows)), is_waiting

    @reads
    def table_commits(
        self, connection: sa.Connection, table_id: str, *, before: int | None = None, limit: int = 100
    ) -> tuple[RecordedCommit, ...]:
        """Commits of a table, the newest first. Raises TableNotFoundError, OperationRefusedError, InvalidArgumentError."""
        page = _OF_TABLE.limit(checked_limit(limit))
        if before is not None:
            page = page.where(COMMITS.c.version < checked_position(before, name="before"))
        guard.require_on_table(connection, Operation.READ, table_id)
        rows = connection.execute(page, {"of_table": table_id}).all()
        if not rows and connection.execute(_IS_TABLE, {"of_table": table_id}).first() is None:
            raise unknown_table(table_id)
        return tuple(
            RecordedCommit(
                version=row.version, ratified_ms=row.ratified_ms, summary=summary_of(row), principal=row.principal
            )
            for row in rows
        )


def _overview(row: sa.Row[Any]) -> TableOverview:
    return TableOverview(
        identifier=identifier_of(row),
        table_id=row.table_id,
        version=row.latest_version,
        published_version=row.published_version,
        operation=row.operation,
        ratified_ms=row.ratified_ms,
        counts=counts_of(row),
        principal=row.principal,
    )
