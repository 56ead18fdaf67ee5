"""What a catalog offers to recovery: its identity, and records of commits and tables that it does not know (any more).

Values, and the interface :class:`RecoverableCatalog`. Which commits may be recorded is decided in ``operations``; a catalog
only checks that its own state is still the one that was looked at.
"""

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.tables import TableDefinition, TableEntry, TableIdentifier

FEED_GAP = 2**32
"""Feed positions that are skipped before commits are taken in: more than the catalog can have given out after it was copied."""


class HistoryStart(StrEnum):
    """What a history follows that is taken in.

    NEXT_VERSION: its first commit is the version after the one that it follows. AFTER_CLEANUP: log cleanup has removed the
    commits in between, so that their versions get no record.
    """

    NEXT_VERSION = "next_version"
    AFTER_CLEANUP = "after_cleanup"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHistory:
    """Consecutive commits of one table that are recorded together.

    Attributes:
        proposals: at least one, ascending, without a gap; ``content`` only of inline commits.
        start: whether versions may be missing between the first commit and the one that it follows.
        published_version: ``_delta_log`` holds every version up to this one.
        definition: metadata and protocol after the last commit.
    """

    proposals: tuple[CommitProposal, ...]
    published_version: int
    definition: TableDefinition
    start: HistoryStart = HistoryStart.NEXT_VERSION


class AdoptedState(StrEnum):
    """What a table becomes that is adopted: ACTIVE under its name, or DROPPED so that ``undrop_table`` brings it back."""

    ACTIVE = "active"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTable:
    """A table of a catalog that was lost. ``history`` begins with the oldest commit that the log still holds."""

    table_id: str
    identifier: TableIdentifier
    location: str
    state: AdoptedState
    history: CommitHistory


class RecoverableCatalog(typing.Protocol):
    """The part of :class:`~cm_delta_dagster.catalog.catalog.Catalog` that recovery and relocation use."""

    def take_in_commits(
        self, table_id: str, history: CommitHistory, *, after: int, replaces: Sequence[str] = ()
    ) -> bool:
        """Record ``history`` as the versions after ``after``, whatever the commit mode, in one transaction.

        With ``HistoryStart.AFTER_CLEANUP`` the versions between ``after`` and the first commit get no record, and a reader of
        the newest data version looks no further back than to the first commit.

        The feed shows the commits at positions that no reader of the feed has come to, also if the database was restored
        from a copy. Pins of versions above ``after`` are removed where commits are replaced.

        Args:
            after: the newest version that the catalog keeps, which the first commit follows.
            replaces: ``txnId`` of each commit that the catalog has above ``after``, ascending. These are removed.

        Returns:
            False if the commits were recorded before; nothing was changed.

        Raises:
            RecoveryError: the catalog's commits above ``after`` are not those of ``replaces``, or the commits contradict
                each other or their predecessor. Nothing was changed.
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def adopt_table(self, table: AdoptedTable) -> TableEntry | None:
        """Make the entry of a table of a lost catalog, with its id and location; again for the same table has no effect.

        Returns:
            The entry, None for a dropped table.

        Raises:
            TableAlreadyExistsError: another table has the name.
            RecoveryError: another table has the location, or the id is known with another location or history.
            InvalidArgumentError: a name that cannot be.
        """
        ...

    def relocate_table(self, table_id: str, *, location: str, moved_from: str) -> None:
        """Change where the files of a table are, whatever its state; again has no effect.

        Raises:
            RecoveryError: another table lies at, above or below ``location``, or this one is at neither location.
            TableNotFoundError: the id is unknown or purged.
        """
        ...
