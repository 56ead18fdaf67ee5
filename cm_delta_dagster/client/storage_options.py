"""Options of object stores with the credentials that a catalog gives, for clients that have none of their own."""

import typing

from cm_delta_dagster.catalog.storage_credentials import LocationCredentials, StorageCredentials
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores
from cm_delta_dagster.storage.temporary_store import TemporaryOptions

_OPTIONS = {
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "s3.endpoint": "endpoint_url",
}
_REGION = "client.region"


class HasCredentials(typing.Protocol):
    """A catalog, which can be pickled."""

    @property
    def storage_credentials(self) -> StorageCredentials:
        """Credentials for the files of tables."""
        ...


def stores_of(catalog: HasCredentials, storage_options: StorageOptions, *, is_served: bool) -> Stores:
    """The stores of a client.

    Args:
        storage_options: of the client, which come before what the catalog gives.
        is_served: whether the catalog is that of a server. One that the client opens itself gives no credentials.
    """
    return Stores(storage_options=storage_options, source=CatalogOptions(catalog) if is_served else None)


class CatalogOptions:
    """Implements :class:`~cm_delta_dagster.storage.temporary_store.OptionSource` by the credentials of a catalog."""

    def __init__(self, catalog: HasCredentials) -> None:
        self._catalog = catalog

    def options_for(self, location: str, *, writes: bool) -> TemporaryOptions | None:
        """Options for the files of the table at or above the location; None for a location without a table.

        Raises OperationRefusedError, CatalogError, StorageError.
        """
        credentials = self._catalog.storage_credentials
        try:
            issued = credentials.write_credentials(location) if writes else credentials.read_credentials(location)
        except TableNotFoundError:
            return None
        return None if issued is None else _options_of(issued)


def _options_of(issued: LocationCredentials) -> TemporaryOptions:
    options: dict[str, object] = {_OPTIONS[name]: value for name, value in issued.config.items() if name in _OPTIONS}
    if _REGION in issued.config:
        options["client_kwargs"] = {"region_name": issued.config[_REGION]}
    return TemporaryOptions(prefix=issued.prefix, options=options, expires_ms=issued.expires_ms)
