"""Which commits keep their content in the catalog.

Unpublished content is always kept. Of the published commits, the cached range (from ``content_from`` of the table on) keeps it.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CACHED_COMMITS, CACHED_CONTENT_BYTES, CommitProposal
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.database.schema import COMMITS, TABLES

SLIDES_BY = 16
"""The range moves by this many commits at a time, so that few commits delete content."""

_UNNEEDED = (
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
_DELETE_CONTENT = Prepared(_UNNEEDED)
_DELETE_CONTENT_NOT_INLINE = Prepared(_UNNEEDED.where(COMMITS.c.mode != CommitMode.INLINE.value))


def deletion(table_id: str, published_version: int, *, keeps_inline: bool = False) -> Call:
    """The statement that deletes the content of commits up to ``published_version`` that are below the cached range.

    Args:
        keeps_inline: the content of inline commits stays, which may be the only copy.
    """
    statement = _DELETE_CONTENT_NOT_INLINE if keeps_inline else _DELETE_CONTENT
    return statement, {"of_table": table_id, "published": published_version}


def deletions(
    table_id: str, *, published: tuple[int, int], content_from: tuple[int, int], keeps_inline: bool
) -> list[Call]:
    """The deletion after a commit, if the commit can have moved content out of the cached range.

    Args:
        published, content_from: the values before and after the commit.
        keeps_inline: as :func:`deletion`.
    """
    has_moved = published[1] > published[0] and published[0] + 1 < content_from[1]
    if has_moved or content_from[1] - content_from[0] > 1:  # A move by one: no content was cached before.
        return [deletion(table_id, published[1], keeps_inline=keeps_inline)]
    return []


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
