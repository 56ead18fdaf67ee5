"""Interface to the names of tables: creation, resolution, rename, drop and purge.

Protocol heading "Creating and Dropping Catalog-managed Tables". The values are in ``tables`` and ``ratification``.
"""

import typing
from collections.abc import Iterable, Mapping

from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.tables import (
    CatalogIdentity,
    InactiveTable,
    RelatedTable,
    StagingTable,
    TableEntry,
    TableIdentifier,
    TablePage,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol


class TableRegistry(typing.Protocol):
    """Maps names to tables.

    Guarantee: after a name is resolved, tables are addressed by id, so that a client of a dropped table never reaches the
    table that was created under the same name later.
    """

    def identity(self) -> CatalogIdentity:
        """Which catalog this is, and where it places new tables. Raises CatalogUnavailableError."""
        ...

    def create_staging_table(
        self, identifier: TableIdentifier, *, clone_of: str | None = None, location: str | None = None
    ) -> StagingTable:
        """Reserve an id and a unique location. The name does not resolve yet.

        Args:
            clone_of: id of the table of which the new one is a shallow clone. The catalog records that the new table may read
                files of that table, and of the tables whose files that one may read, until the new table is purged.
            location: absolute location of the new table, whose files a purge never deletes; None for one in the warehouse. Not
                with ``clone_of``.

        Raises:
            TableAlreadyExistsError: another table has the name, or is at, above or below ``location``.
            TableNotFoundError: ``clone_of`` is unknown or dropped.
            InvalidArgumentError: the name cannot be part of a path.
        """
        ...

    def register_table(
        self,
        table_id: str,
        identifier: TableIdentifier,
        *,
        summary: CommitSummary,
        initial: InitialCommit | None = None,
    ) -> TableEntry:
        """Give the staging table its name atomically, with version 0 ratified and published.

        A repeated call with the same id and name returns the entry.

        Raises:
            TableAlreadyExistsError: another table has the name.
            TableNotFoundError: the id was never reserved.
            CommitRejectedError: the in-commit timestamp is too far ahead of the catalog's clock.
        """
        ...

    def load_table(self, identifier: TableIdentifier) -> TableEntry:
        """Resolve a name: id, location, ratified commits and definition in one call. Raises TableNotFoundError."""
        ...

    def load_tables(self, identifiers: Iterable[TableIdentifier]) -> tuple[TableEntry, ...]:
        """Same as ``load_table`` for several names, from one query: the latest versions are those of one moment.

        Entries are in no particular order. A name that no table has is left out.
        """
        ...

    def load_table_by_id(self, table_id: str) -> TableEntry:
        """Same as ``load_table``, for the table with this id. Raises TableNotFoundError."""
        ...

    def list_tables(
        self, scope: str = "", *, after: TableIdentifier | None = None, limit: int | None = None
    ) -> tuple[TableIdentifier, ...]:
        """Names under ``scope`` (``""``, ``catalog`` or ``catalog.schema``), sorted by code points.

        Args:
            after: leave out the names up to this one, which no table need have.
            limit: the greatest number of names; None for all.

        Raises:
            InvalidArgumentError: ``scope`` is malformed, or ``limit`` is not positive.
        """
        ...

    def readable_tables(
        self, scope: str = "", *, after: TableIdentifier | None = None, limit: int | None = None
    ) -> TablePage:
        """Same as ``load_table`` for the tables of ``list_tables`` that the caller may read, from one query.

        ``limit`` counts the tables that the caller may not read too. Arguments and errors are those of ``list_tables``.
        """
        ...

    def register_path(self, identifier: TableIdentifier, location: str) -> None:
        """Let ``identifier`` stand for the Delta table at ``location``, which clients read by path. A repeated call has no effect.

        The catalog ratifies none of its commits. Raises TableAlreadyExistsError if a table or another path has the name.
        """
        ...

    def unregister_path(self, identifier: TableIdentifier) -> None:
        """Delete the name of a path. Raises TableNotFoundError."""
        ...

    def registered_path(self, identifier: TableIdentifier) -> str | None:
        """The location that the name stands for; None for another name."""
        ...

    def registered_paths(self, scope: str = "") -> Mapping[TableIdentifier, str]:
        """Locations of the registered names under ``scope``, sorted by name."""
        ...

    def set_definition(self, table_id: str, *, version: int, metadata: Metadata, protocol: Protocol) -> bool:
        """Replace the definition that the catalog stores by the one that the log has at ``version``.

        Returns:
            False if the table has a later version; nothing was changed.

        Raises:
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def rename_table(self, table_id: str, identifier: TableIdentifier) -> TableEntry:
        """Give a table another name; id, location, log and feed stay.

        Maintenance rules belong to names: what a rule for the old name allowed is not allowed under the new name, what it
        denied is denied under the new name too. A repeated call returns the entry.

        Raises:
            TableNotFoundError: unknown or dropped table.
            TableAlreadyExistsError: another table has the new name.
        """
        ...

    def drop_table(self, identifier: TableIdentifier, *, table_id: str | None = None) -> None:
        """Remove the name of a table; its log and data stay.

        With ``table_id`` only that table is dropped, even if another table has the name now; a table that is already dropped
        is not an error.

        Raises:
            TableNotFoundError: no such table.
        """
        ...

    def undrop_table(self, table_id: str) -> TableEntry:
        """Give a dropped table its name back, with all of its commits. Returns the entry of a table that has its name.

        Raises:
            TableNotFoundError: the id is unknown, was never registered, or is being purged.
            TableAlreadyExistsError: another table has the name.
        """
        ...

    def clones_of(self, table_id: str) -> tuple[RelatedTable, ...]:
        """Shallow clones that may read files of the table: reserved, registered or dropped ones, by id.

        The content of commits is left out for a clone that the caller may not read.
        """
        ...

    def sources_of(self, table_id: str) -> tuple[RelatedTable, ...]:
        """Tables whose files the shallow clone may read, by id; none for another table."""
        ...

    def abandon_clones(self, table_id: str) -> None:
        """Prevent the registration of the reserved clones of the table, and leave them to the purge of abandoned creations.

        Only a client that holds the maintenance lease of the table may call this. A client that creates a clone holds it too, so
        that a clone which is still reserved then belongs to a client that has failed.
        """
        ...

    def inactive_tables(self, scope: str = "") -> tuple[InactiveTable, ...]:
        """Tables under ``scope`` that have no name and whose files may still exist, oldest first."""
        ...

    def begin_purge(self, table_id: str, *, min_age_ms: int) -> InactiveTable:
        """Make a dropped or never registered table unreachable for good, so that its files may be deleted.

        Afterwards ``undrop_table`` and ``register_table`` fail for it. A repeated call returns the same answer.

        Args:
            min_age_ms: how long the table must have been without a name, by the catalog's clock.

        Raises:
            TableNotFoundError: the id is unknown or purged.
            PurgeRefusedError: the table has a name, is too young, a shallow clone may read its files, or its location is not
                strictly inside the managed root or is shared with another table.
            MaintenanceNotPermittedError: the maintenance rules do not allow it.
            RetentionTooShortError: they demand a longer time than ``min_age_ms``.
        """
        ...

    def finish_purge(self, table_id: str) -> None:
        """Record that every file of a table being purged is deleted. A repeated call has no effect.

        The commits of a table that had a name stay in the feed. Raises PurgeRefusedError without ``begin_purge``.
        """
        ...
