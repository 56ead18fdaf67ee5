"""Clients for the handlers: one for each caller, which share the caches and threads of the process, and access to storage."""

from dataclasses import dataclass

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.client.client import DeltaClient, client_through
from cm_delta_dagster.server.background import PublicationCatchUp
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.storage_access import StorageAccess
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAccess:
    """What handlers use besides the catalog of their caller.

    Attributes:
        server_client: client with the identity of the server itself, for background work.
    """

    server_client: DeltaClient
    storage: StorageAccess
    publication: PublicationCatchUp

    @classmethod
    def open(cls, settings: ServerSettings, catalog: Catalog) -> "TableAccess":
        """For one process. Raises InvalidArgumentError, StoreNotSupportedError."""
        stores = Stores(
            storage_options=StorageOptions.of(settings.storage_options or None, warehouse=settings.warehouse)
        )
        client = DeltaClient(catalog, stores=stores)
        storage = StorageAccess(stores, settings.roots)
        return cls(server_client=client, storage=storage, publication=PublicationCatchUp(client, storage))

    def client_of(self, catalog: Catalog) -> DeltaClient:
        """A client for the calls of one caller."""
        return client_through(self.server_client, catalog)

    def close(self) -> None:
        """End the background work; what is not published stays for the next process. The catalog stays open."""
        self.publication.stop()
        self.server_client.background.close()
