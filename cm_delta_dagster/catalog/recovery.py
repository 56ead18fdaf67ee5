"""Interface that backup, recovery and relocation use, with its values: records of commits and tables that the catalog has lost.

``operations.recovery`` decides which commits are recorded; the catalog checks that its own state is the one of the plan.
"""

import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cm_delta_dagster.catalog.ratification import CommitProposal, RatifiedCommit
from cm_delta_dagster.catalog.tables import RecordedDefinition, RelatedTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError

FEED_GAP = 2**32
"""Feed positions that are skipped before recovered commits: more than a catalog can assign after a backup of it was made."""


class HistoryStart(StrEnum):
    """Where a recovered history begins.

    NEXT_VERSION: with the version after the catalog's newest one. AFTER_CLEANUP: later, because log cleanup has deleted the
    commits in between; their versions get no record.
    """

    NEXT_VERSION = "next_version"
    AFTER_CLEANUP = "after_cleanup"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHistory:
    """Consecutive commits of one table that are recorded together.

    Attributes:
        proposals: at least one, ascending, without a gap; only inline commits have ``content``.
        start: whether versions may be missing before the first commit.
        published_version: ``_delta_log`` holds every version up to this one.
        definition: metadata and protocol after the last commit.
        row_id_mark: the highest row id that was assigned up to the last commit; None if it is not known.
    """

    proposals: tuple[CommitProposal, ...]
    published_version: int
    definition: RecordedDefinition
    start: HistoryStart = HistoryStart.NEXT_VERSION
    row_id_mark: int | None = None

    def __post_init__(self) -> None:
        if not self.proposals:
            raise InvalidArgumentError("A history of a table has at least one commit.")


class AdoptedState(StrEnum):
    """State of an adopted table: ACTIVE under its name, or DROPPED and restorable by ``undrop_table``."""

    ACTIVE = "active"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTable:
    """A table that storage has and the catalog does not. ``history`` begins with the oldest commit that the catalog records.

    Attributes:
        is_external: the files are not the catalog's own. A purge never deletes them.
        sources: locations of other tables whose files it may read, as a shallow clone does; others are ignored.
    """

    table_id: str
    identifier: TableIdentifier
    location: str
    state: AdoptedState
    history: CommitHistory
    is_external: bool = False
    sources: frozenset[str] = frozenset()


class RecoverableCatalog(typing.Protocol):
    """Copies the catalog, and records commits and tables that storage has and the catalog does not."""

    def back_up(self, target: Path) -> int:
        """Copy the catalog, which may be in use, to the new file ``target``, and verify the copy.

        Returns:
            Bytes of the copy.

        Raises:
            InvalidArgumentError: the file exists, or its directory does not.
            CatalogError: the copy failed, or the catalog cannot be copied to a file; the message then says how to back it up.
        """
        ...

    def take_in_commits(
        self, table_id: str, history: CommitHistory, *, after: int, replaces: Sequence[str] = ()
    ) -> bool:
        """Record ``history`` as the versions after ``after``, for every commit mode, in one transaction.

        With ``HistoryStart.AFTER_CLEANUP`` the versions between ``after`` and the first commit get no record, and the newest
        data version is at least the first commit.

        The feed shows the commits at positions above those of every feed reader, also if the database was restored from a
        backup. If commits are replaced, pins of versions above ``after`` are deleted.

        Args:
            after: the newest version that the catalog keeps; the first commit follows it.
            replaces: ``txnId`` of each commit that the catalog has above ``after``, ascending. These are deleted.

        Returns:
            False if the same commits are already recorded; nothing was changed.

        Raises:
            RecoveryError: the catalog's commits above ``after`` are not those of ``replaces``, or the commits contradict
                each other or their predecessor. Nothing was changed.
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def replace_commit(
        self, table_id: str, proposal: CommitProposal, *, replaces: RatifiedCommit, data_change: bool, reason: str
    ) -> bool:
        """Record other content of a ratified version, which no reader can use; the audit gets an entry.

        Version, ``txnId``, in-commit timestamp and the position in the feed stay. The new content is in the staged file that
        ``proposal`` names. Only an owner of the table may do that.

        Args:
            replaces: the catalog's record of the version before the call.
            data_change: whether the new content changes rows or metadata.
            reason: what is taken back, for the audit.

        Returns:
            False if the record names this content already; nothing was changed.

        Raises:
            RecoveryError: the record is not ``replaces``. Nothing was changed.
            PermissionDeniedError: the caller does not own the table.
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def check_adoption(self, identifier: TableIdentifier, *, location: str) -> None:
        """Return if the caller may adopt the table at ``location`` under this name; changes nothing.

        Raises:
            PermissionDeniedError: the caller may not.
            OperationRefusedError: the server of the catalog could not read the commits of a table there.
            InvalidArgumentError: the name is malformed.
        """
        ...

    def adopt_table(self, table: AdoptedTable) -> TableEntry | None:
        """Create the entry of a table of a lost catalog, with its id and location. A repeated call has no effect.

        Returns:
            The entry; None if ``table`` is a dropped table.

        Raises:
            TableAlreadyExistsError: another table has the name.
            RecoveryError: another table has the location, or the id is known with another location or history.
            InvalidArgumentError: the name is malformed.
        """
        ...

    def overlapping_tables(self, location: str) -> tuple[RelatedTable, ...]:
        """The tables at, above or below ``location``, by id; purged and released ones are left out.

        Raises OperationRefusedError: grants are enforced, and the caller has no privilege on any table.
        """
        ...

    def tables_with_files_elsewhere(self) -> tuple[RelatedTable, ...]:
        """The tables that may name files outside of their location, by id, with their head and served commits.

        These are the active and dropped ones that have a location of their creator's choice, that became a clone by a commit, or
        whose first commits are not recorded. The content of commits is left out for a table that the caller may not read.

        Raises OperationRefusedError: grants are enforced, and the caller may not adopt tables anywhere.
        """
        ...

    def check_release(self, table_id: str) -> None:
        """Return if the caller may release the table; changes nothing. Raises PermissionDeniedError."""
        ...

    def release_table(self, table_id: str) -> None:
        """Remove the entry of a table that no catalog manages any more. A repeated call has no effect.

        Its commits stay in the feed. The table cannot be restored or purged afterwards, and another table can take its name and its
        location.

        Raises:
            TableNotFoundError: unknown or dropped table.
            RecoveryError: shallow clones name the files of the table.
        """
        ...

    def record_sources(self, table_id: str, locations: Collection[str]) -> tuple[RelatedTable, ...]:
        """Record that the table may read files of the tables at ``locations``, as a shallow clone. A repeated call has no effect.

        Returns:
            The tables that the catalog has at these locations, without the table itself.

        Raises:
            OperationRefusedError: the caller may not write to the table, or may neither read a source nor a clone of it that is
                among the sources.
            TableNotFoundError: unknown id.
        """
        ...

    def relocate_table(self, table_id: str, *, location: str, moved_from: str) -> None:
        """Change the location of a table in any state. A repeated call has no effect.

        Raises:
            RecoveryError: another table is at, above or below ``location``, this table is not at ``moved_from``, or shallow
                clones name its files there.
            TableNotFoundError: the id is unknown or purged.
        """
        ...
