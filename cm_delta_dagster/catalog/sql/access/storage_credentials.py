"""The part of the catalog that gives credentials for files, to those whom its grants permit to read or write the table."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.parts import Part, reads
from cm_delta_dagster.catalog.sql.database.schema import STAGING, identifier_of
from cm_delta_dagster.catalog.sql.rows.locations import table_of_files
from cm_delta_dagster.catalog.storage_credentials import CredentialIssuer, FileAccess, LocationCredentials
from cm_delta_dagster.errors import TableNotFoundError

_OPERATIONS = {FileAccess.READ: Operation.READ, FileAccess.READ_WRITE: Operation.WRITE_FILES}


class SqlStorageCredentials(Part):
    """Implements :class:`~cm_delta_dagster.catalog.storage_credentials.StorageCredentials`.

    Args:
        issuer: None for a catalog that gives no credentials.
    """

    def __init__(self, database: CallerDatabase, *, issuer: CredentialIssuer | None) -> None:
        super().__init__(database)
        self._issuer = issuer

    def read_credentials(self, location: str) -> LocationCredentials | None:
        """Credentials to read. Raises TableNotFoundError, OperationRefusedError, StorageError."""
        return self._issued(location, FileAccess.READ)

    def write_credentials(self, location: str) -> LocationCredentials | None:
        """Credentials to write. Raises TableNotFoundError, OperationRefusedError, StorageError."""
        return self._issued(location, FileAccess.READ_WRITE)

    def _issued(self, location: str, access: FileAccess) -> LocationCredentials | None:
        permitted = self._permitted(location, access)
        # No connection is open while the store answers.
        return None if permitted is None or self._issuer is None else self._issuer.issue(permitted, access)

    @reads
    def _permitted(self, connection: sa.Connection, location: str, access: FileAccess) -> str | None:
        """The location of the table, for a caller that may access its files.

        None for a table that is being created at a location of the caller's choice: its files may be those of others. To write
        version 0 there, the caller must have credentials of its own.
        """
        table = table_of_files(connection, location)
        if table is None:
            raise TableNotFoundError(f"No table has files at {location}; nothing was given. Check the location.")
        if table.state == STAGING:
            guard.require(connection, Operation.CREATE, identifier_of(table))
            if table.is_external:
                return None
        else:
            guard.require_on_table(connection, _OPERATIONS[access], table.table_id)
        return str(table.location)
