"""Which commits keep their content in the catalog.

Unpublished content is always kept. Of the published commits, the cached range (from ``content_from`` of the table on) keeps it.
Functions over an open connection.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CACHED_COMMITS, CACHED_CONTENT_BYTES, CommitProposal
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, TABLES

SLIDES_BY = 16
"""The range moves by this many commits at a time, so that few commits delete content."""

_DELETE_CONTENT = (
    sa.update(COMMITS)
    .where(
        COMMITS.c.table_id == sa.bindparam("of_table"),
        COMMITS.c.version <= sa.bindparam("published"),
        COMMITS.c.version
        < sa.select(TABLES.c.content_from).where(TABLES.c.table_id == sa.bindparam("of_table")).scalar_subquery(),
        COMMITS.c.content.is_not(None),
    )
    .values(content=None)
)


def delete_published(
    connection: sa.Connection, table_id: str, published_version: int, *, keeps_inline: bool = False
) -> None:
    """Delete the content of commits up to ``published_version`` that are below the cached range.

    Args:
        keeps_inline: the content of inline commits stays, which may be the only copy.
    """
    statement = _DELETE_CONTENT.where(COMMITS.c.mode != CommitMode.INLINE.value) if keeps_inline else _DELETE_CONTENT
    connection.execute(statement, {"of_table": table_id, "published": published_version})


def delete_unneeded(
    connection: sa.Connection,
    table_id: str,
    *,
    published: tuple[int, int],
    content_from: tuple[int, int],
    keeps_inline: bool = False,
) -> None:
    """Delete the content of published commits outside of the cached range, if a commit can have moved any there.

    Args:
        published, content_from: the values before and after the commit.
        keeps_inline: as :func:`delete_published`.
    """
    moved = published[1] > published[0] and published[0] + 1 < content_from[1]
    if moved or content_from[1] - content_from[0] > 1:  # A move by one: no content was cached before.
        delete_published(connection, table_id, published[1], keeps_inline=keeps_inline)


def is_cached(proposal: CommitProposal) -> bool:
    """Whether the catalog keeps the content of the commit after publication."""
    return proposal.content is not None and len(proposal.content) <= CACHED_CONTENT_BYTES


def content_from_after(proposal: CommitProposal, before: int) -> int:
    """The first version of the cached range after ``proposal`` is ratified.

    A commit without content, or with a large one, ends the range, so that it has no gaps. A table keeps at most
    ``CACHED_COMMITS + SLIDES_BY`` times ``CACHED_CONTENT_BYTES``.
    """
    if not is_cached(proposal):
        return proposal.version + 1
    oldest = proposal.version - CACHED_COMMITS + 1
    return oldest if oldest - before >= SLIDES_BY else before


def content_from_after_sql(
    before: sa.ColumnElement[int], version: sa.ColumnElement[int], cached: sa.ColumnElement[bool]
) -> sa.ColumnElement[int]:
    """:func:`content_from_after` as an SQL expression."""
    oldest = version - (CACHED_COMMITS - 1)
    return sa.case((sa.not_(cached), version + 1), (oldest - before >= SLIDES_BY, oldest), else_=before)
