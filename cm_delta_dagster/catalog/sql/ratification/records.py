"""Queries of the catalog's records of commits.

Protocol heading "Getting Ratified Commits from the Catalog". Functions over an open connection.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import RatifiedCommit, RatifiedCommits
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.prepared import Prepared
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, IS_ACTIVE, TABLES
from cm_delta_dagster.catalog.sql.rows.commits import (
    COMMIT_COLUMNS,
    HEAD_COLUMNS,
    THE_TABLE,
    ratified_commit,
    ratified_commits_of,
)
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table

_CONTENT_FROM = sa.bindparam("content_from_version", type_=sa.BigInteger)
_FIRST_CACHED = sa.case((TABLES.c.content_from > _CONTENT_FROM, TABLES.c.content_from), else_=_CONTENT_FROM)
# One lower bound, so that the database can use the index.
_FIRST_SERVED = sa.case(
    (TABLES.c.published_version >= _FIRST_CACHED, _FIRST_CACHED), else_=TABLES.c.published_version + 1
)
_SERVED_CONTENT = sa.case(
    (sa.or_(COMMITS.c.mode == CommitMode.INLINE.value, COMMITS.c.version >= _CONTENT_FROM), COMMITS.c.content)
).label("content")
_PRECEDING = COMMITS.alias("preceding")
# Read only if a newer version exists: a client that has the latest version compares the timestamp of that one.
_PRECEDING_TIMESTAMP = sa.case(
    (
        TABLES.c.latest_version >= _CONTENT_FROM,
        sa.select(_PRECEDING.c.in_commit_timestamp)
        .where(_PRECEDING.c.table_id == TABLES.c.table_id, _PRECEDING.c.version == _CONTENT_FROM - 1)
        .scalar_subquery(),
    )
).label("preceding_timestamp")
# One statement reads one state of the database: head and commits are consistent without a transaction.
_RATIFIED = Prepared(
    sa.select(*HEAD_COLUMNS, guard.IS_ENABLED, _PRECEDING_TIMESTAMP, *COMMIT_COLUMNS[:-1], _SERVED_CONTENT)
    .select_from(
        TABLES.outerjoin(
            COMMITS,
            sa.and_(
                COMMITS.c.table_id == TABLES.c.table_id,
                COMMITS.c.version >= _FIRST_SERVED,
                COMMITS.c.version >= sa.bindparam("first"),
                COMMITS.c.version <= sa.bindparam("last"),
            ),
        )
    )
    .where(THE_TABLE)
    .order_by(COMMITS.c.version)
)
_FIRST_VERSION, _LAST_VERSION = 0, 2**63 - 1
_RECORDS = (
    sa.select(*COMMIT_COLUMNS, guard.IS_ENABLED)
    .select_from(
        TABLES.join(
            COMMITS,
            sa.and_(
                COMMITS.c.table_id == TABLES.c.table_id,
                COMMITS.c.version >= sa.bindparam("first"),
                COMMITS.c.version <= sa.bindparam("last"),
            ),
        )
    )
    .where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
    .order_by(COMMITS.c.version)
)
_DIGESTS = (
    sa.select(COMMITS.c.version, COMMITS.c.sha256, guard.IS_ENABLED)
    .where(
        COMMITS.c.table_id == sa.bindparam("of_table"),
        COMMITS.c.version >= sa.bindparam("first"),
        COMMITS.c.version <= sa.bindparam("last"),
        COMMITS.c.sha256.is_not(None),
    )
    .order_by(COMMITS.c.version)
)
_KNOWN = sa.select(TABLES.c.table_id).where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)


def get_ratified_commits(
    connection: sa.Connection, table_id: str, *, start: int | None, end: int | None, content_from_version: int | None
) -> RatifiedCommits:
    """The served commits in the range and the head of the table, in one statement."""
    parameters = {
        "of_table": table_id,
        "content_from_version": _LAST_VERSION if content_from_version is None else content_from_version,
        "first": _FIRST_VERSION if start is None else start,
        "last": _LAST_VERSION if end is None else end,
    }
    rows = _RATIFIED.rows(connection, parameters)
    if not rows:
        raise unknown_table(table_id)
    if rows[0].grants_enabled:
        guard.require_on_table(connection, guard.Operation.READ, table_id)
    return ratified_commits_of(rows[0], rows, preceding_timestamp=rows[0].preceding_timestamp)


def commit_records(connection: sa.Connection, table_id: str, *, start: int, end: int) -> tuple[RatifiedCommit, ...]:
    """The records of ``start..end``, ascending."""
    rows = connection.execute(_RECORDS, {"of_table": table_id, "first": start, "last": end}).all()
    if not rows and connection.execute(_KNOWN, {"of_table": table_id}).first() is None:
        raise unknown_table(table_id)
    if not rows or rows[0].grants_enabled:
        guard.require_on_table(connection, guard.Operation.READ, table_id)
    return tuple(ratified_commit(row) for row in rows)


def commit_digests(connection: sa.Connection, table_id: str, *, start: int, end: int) -> dict[int, str]:
    """The digests of ``start..end`` by version; versions without one are left out."""
    rows = connection.execute(_DIGESTS, {"of_table": table_id, "first": start, "last": end}).all()
    if not rows or rows[0].grants_enabled:
        guard.require_on_table(connection, guard.Operation.READ, table_id)
    return {row.version: row.sha256 for row in rows}
