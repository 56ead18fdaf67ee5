"""Interface to lists for people: tables with their sizes, and commits, the newest first, in pages.

Each list has only tables that the caller may read, and one page of it is one query, whatever the number of tables.
"""

import typing
from dataclasses import dataclass

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.ratification import CommitSummary, TableCounts
from cm_delta_dagster.catalog.tables import TableIdentifier


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOverview:
    """A table as its newest commit describes it.

    Attributes:
        published_version: the log has every version up to this one.
        operation: of the newest commit; None if the catalog has no record of it, as the next two.
        ratified_ms: when the catalog ratified it, epoch milliseconds.
        counts: rows, files and bytes after it; None if the writer did not report them.
        principal: who proposed it; None if it stated no name.
    """

    identifier: TableIdentifier
    table_id: str
    version: int
    published_version: int
    operation: str | None = None
    ratified_ms: int | None = None
    counts: TableCounts | None = None
    principal: str | None = None

    @property
    def unpublished_commits(self) -> int:
        """Number of ratified commits that the log does not have yet."""
        return self.version - self.published_version


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCommit:
    """The catalog's description of a commit of a table.

    Attributes:
        ratified_ms: when the catalog ratified it, epoch milliseconds.
        principal: who proposed it; None if it stated no name, or if it was recovered from storage.
    """

    version: int
    ratified_ms: int
    summary: CommitSummary
    principal: str | None = None


class CatalogOverview(typing.Protocol):
    """What the catalog has, in pages of at most ``limit`` entries. The last entry of a page is where the next one begins."""

    def table_overviews(
        self, scope: str = "", *, after: TableIdentifier | None = None, limit: int = 100
    ) -> tuple[TableOverview, ...]:
        """Tables at or below ``scope`` that the caller may read, by name in the order of the database.

        Args:
            after: the last name of the page before.

        Raises InvalidArgumentError for a malformed scope or limit.
        """
        ...

    def newest_commits(self, scope: str = "", *, before: int | None = None, limit: int = 100) -> tuple[FeedEntry, ...]:
        """Commits of the feed to tables at or below ``scope`` that the caller may read, the newest first; also to dropped ones.

        Args:
            before: the smallest position of the page before.

        Raises InvalidArgumentError for a malformed scope, position or limit.
        """
        ...

    def table_commits(
        self, table_id: str, *, before: int | None = None, limit: int = 100
    ) -> tuple[RecordedCommit, ...]:
        """The commits of a table that the caller may read, the newest first, also those that the feed does not have any more.

        Args:
            before: the smallest version of the page before.

        Raises:
            TableNotFoundError: unknown or dropped table.
            OperationRefusedError: the caller may not read it.
            InvalidArgumentError: a malformed version or limit.
        """
        ...
