"""Queries of the catalog's records of commits, published or not. Functions over an open connection."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.sql import guard
from cm_delta_dagster.catalog.sql.commit_rows import COMMIT_COLUMNS, ratified_commit, unknown_table
from cm_delta_dagster.catalog.sql.schema import COMMITS, IS_ACTIVE, TABLES

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
    sa.select(COMMITS.c.version, COMMITS.c.sha256)
    .where(
        COMMITS.c.table_id == sa.bindparam("of_table"),
        COMMITS.c.version >= sa.bindparam("first"),
        COMMITS.c.version <= sa.bindparam("last"),
        COMMITS.c.sha256.is_not(None),
    )
    .order_by(COMMITS.c.version)
)
_KNOWN = sa.select(TABLES.c.table_id).where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)


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
    return {row.version: row.sha256 for row in rows}
