"""Checks that the storage of a table exists and that the catalog is not behind it: before writes and deletions, after loads."""

from collections.abc import Callable

from cm_delta_dagster.catalog.ratification import RatifiedCommits
from cm_delta_dagster.catalog.table_registry import TableRegistry
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableIdentifier
from cm_delta_dagster.client.settings import OnCatalogBehind
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.storage_check import (
    CatalogBehind,
    TablesBehind,
    compare_with_listing,
    has_commit,
    refuse_missing,
    warn_behind,
)
from cm_delta_dagster.errors import TableStorageMissingError
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.remedies import RelocateTables
from cm_delta_dagster.storage.store import StoreRegistry


class StorageGuard:
    """Compares the storage of one table with the catalog.

    Args:
        catalog_answer: asks the catalog for the state of the table.
        stores: finds the store of the location to which a missing table may have been moved.
    """

    def __init__(
        self,
        *,
        identifier: TableIdentifier,
        table_id: str,
        reader: CommitReader,
        registry: TableRegistry,
        catalog_answer: Callable[[], RatifiedCommits],
        stores: StoreRegistry,
        tables_behind: TablesBehind,
    ) -> None:
        self._identifier = identifier
        self._table_id = table_id
        self._reader = reader
        self._registry = registry
        self._catalog_answer = catalog_answer
        self._stores = stores
        self._tables_behind = tables_behind

    def require_storage(self, published_version: int) -> None:
        """Refuse a table whose newest published commit is missing. One existence check if nothing is missing.

        Raises TableStorageMissingError, CatalogBehindStorageError.
        """
        store, location = self._reader.store, self._reader.location
        if has_commit(store, location, published_version):
            return
        self.refuse_if_behind()  # Storage continued without the catalog, and cleanup may have removed that version.
        try:
            refuse_missing(store, self._identifier, location, published_version=published_version)
        except TableStorageMissingError as error:
            warehouse = self._registry.identity().warehouse
            old, *parts = location.rsplit("/", LEVELS_BELOW_WAREHOUSE)
            moved = "/".join([warehouse or old, *parts])
            is_moved = moved != location and self._stores.store_for(moved).list_from(log_files.log_directory(moved))
            if not is_moved:
                raise
            raise TableStorageMissingError(
                f"{error.message} A log is at {moved}, in the warehouse of this client, which may be the table."
            ).with_remedy(RelocateTables(moved_from=old, moved_to=warehouse)) from error

    def refuse_if_known_behind(self) -> None:
        """Check again if this process has found that the catalog is behind the storage of this table.

        Raises CatalogBehindStorageError.
        """
        if self._tables_behind.get(self._table_id) is not None:
            self.refuse_if_behind()

    def refuse_if_behind(self) -> None:
        """Check that ``_delta_log`` has no commits that the catalog does not know. Required before every deletion.

        Raises:
            CatalogBehindStorageError: it has such commits.
        """
        behind = self.find_behind(self._catalog_answer())
        if behind is not None:
            raise behind.error(self._identifier, self._reader.location)

    def find_behind(self, ratified: RatifiedCommits) -> CatalogBehind | None:
        """Commits in ``_delta_log`` that the catalog, asked again after the listing, does not know."""
        behind = compare_with_listing(self._reader, ratified)
        if behind is not None and not behind.is_forked:
            # Commits may have been ratified since the first answer; those in the listing are in this one.
            known = self._catalog_answer()
            current = known.latest_version >= behind.last_version
            behind = None if current else compare_with_listing(self._reader, known)
        self._tables_behind.note(self._table_id, behind)
        return behind

    def check_load(self, newest_listed: int | None, ratified: RatifiedCommits, *, policy: OnCatalogBehind) -> None:
        """After a load: warn or refuse if storage holds commits above the catalog's latest version.

        Args:
            newest_listed: newest commit in the listing that the load made; None if it made none.

        Raises CatalogBehindStorageError.
        """
        if newest_listed is not None and newest_listed <= ratified.latest_version:
            return
        behind = self.find_behind(ratified)
        if behind is None:
            return
        if policy is OnCatalogBehind.REFUSE:
            raise behind.error(self._identifier, self._reader.location)
        warn_behind(self._identifier, self._reader.location, behind)
