"""Values and interfaces for credentials to the files of tables, which a catalog gives to those who may read or write the table."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FileAccess(StrEnum):
    """What credentials permit with files. The values are those of Unity Catalog's API."""

    READ = "READ"
    READ_WRITE = "READ_WRITE"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LocationCredentials:
    """Credentials for the files below a location. ``repr`` and ``str`` show no secret.

    Attributes:
        prefix: the location.
        config: the credentials by the names of Unity Catalog's API, such as ``s3.access-key-id``, and how the store is reached
            by the names of Iceberg's REST API: ``s3.endpoint``, ``client.region``.
        expires_ms: epoch milliseconds; None for credentials that do not expire.
    """

    prefix: str
    access: FileAccess
    config: Mapping[str, str]
    expires_ms: int | None = None

    def __repr__(self) -> str:
        return f"LocationCredentials(prefix={self.prefix!r}, access={self.access.value}, expires_ms={self.expires_ms})"


class StorageCredentials(typing.Protocol):
    """Credentials for the files of one table, or of a table that is being created.

    None: the catalog gives none for the location, and callers use credentials of their own. A database gives none: who opens it
    has the server's own.
    """

    def read_credentials(self, location: str) -> LocationCredentials | None:
        """Credentials to read the files of the table that is at or above ``location``.

        Raises:
            TableNotFoundError: no table is there, or a dropped one.
            OperationRefusedError: the caller may not read the table.
            StorageError: the store gave no credentials.
        """
        ...

    def write_credentials(self, location: str) -> LocationCredentials | None:
        """Same as :meth:`read_credentials`, to write and delete files too, for who may write to the table or is creating it."""
        ...


class CredentialIssuer(typing.Protocol):
    """Gets credentials from the store. The catalog decides before whether the caller may have them."""

    def issue(self, location: str, access: FileAccess) -> LocationCredentials | None:
        """Credentials for the files below ``location``, and for no others; None if none are configured for it.

        Raises StorageError.
        """
        ...
