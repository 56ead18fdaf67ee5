"""Interface to the feed: the commits of all tables in the order in which they become visible."""

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cm_delta_dagster.catalog.ratification import CommitSummary
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.protocol.actions.actions import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEntry:
    """One commit in the feed of the whole catalog.

    Attributes:
        position: grows strictly over all tables. After a reader has seen a position, no commit appears at a smaller one.
        data_version: the newest data-changing version of the table at this commit.
        ratified_ms: when the catalog ratified the commit, epoch milliseconds.
        principal: who proposed the commit; None if it stated no name, or if the commit was recovered from storage.
    """

    position: int
    identifier: TableIdentifier
    table_id: str
    version: int
    data_version: int
    ratified_ms: int
    summary: CommitSummary
    principal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTable:
    """What the catalog knows of a table of a feed page, at the time of the query.

    Attributes:
        metadata: the newest metaData action; None if it was never reported to the catalog.
    """

    location: str
    latest_version: int
    published_version: int
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """A part of the feed, with the catalog that it belongs to.

    Attributes:
        catalog_id: never changes in the life of a catalog.
        latest_position: position of the newest entry of the feed, of any kind, 0 without one.
        tables: the tables of the entries, by table id.
        deleted_up_to: entries up to this position were deleted after their retention.
    """

    catalog_id: str
    latest_position: int
    entries: tuple[FeedEntry, ...]
    deleted_up_to: int = 0
    tables: Mapping[str, FeedTable] = field(default_factory=dict)


class CommitFeed(typing.Protocol):
    """The ratified commits of all tables, by position."""

    def feed(
        self,
        *,
        after: int,
        limit: int,
        identifiers: Iterable[TableIdentifier] | None = None,
    ) -> Sequence[FeedEntry]:
        """At most ``limit`` commits at positions above ``after``, in order of position, in one query.

        Args:
            identifiers: only the commits of the tables with these names; None for all tables.
        """
        ...

    def feed_page(
        self,
        *,
        after: int,
        limit: int,
        identifiers: Iterable[TableIdentifier] | None = None,
    ) -> FeedPage:
        """Same as ``feed``, with the id of the catalog, the latest position and the tables, from the same query."""
        ...

    def latest_feed_position(self) -> int:
        """Position of the newest entry, of any kind, 0 without one."""
        ...

    def newest_deleted_commits(self, identifiers: Iterable[TableIdentifier]) -> Sequence[FeedEntry]:
        """The newest commit of each of these tables whose entry was deleted after its retention.

        Their position is that up to which the feed was deleted.
        """
        ...
