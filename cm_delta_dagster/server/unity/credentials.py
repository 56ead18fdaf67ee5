"""Credentials for the files of tables and staging tables, in the form of each generation of the API. Local files need none."""

from typing import Any

from cm_delta_dagster.catalog.storage_credentials import FileAccess, LocationCredentials
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.server.request_errors import NotServedError

_KEY, _SECRET, _TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
_NEVER_MS = 253_402_300_799_000
"""The end of the year 9999. Unity Catalog 0.6.0 answers null here, which the client of 0.7.0 does not parse."""


def staging_location(client: DeltaClient, table_id: str) -> str:
    """The location of a staging table, for its writer.

    Raises:
        TableNotFoundError: no staging table has the id.
        OperationRefusedError: the caller may not create tables there.
    """
    reserved = (table for table in client.registry.inactive_tables() if table.table_id == table_id)
    staging = next((table for table in reserved if not table.registered), None)
    if staging is None:
        raise TableNotFoundError(f"Staging table not found: {table_id}")
    # Requires what the creation does.
    client.recovery.check_adoption(staging.identifier, location=staging.location)
    return staging.location


def location_of(client: DeltaClient, table_id: str) -> str:
    """The location of a table, or of a staging table, by its id. Raises as :func:`staging_location`."""
    try:
        return client.registry.load_table_by_id(table_id).location
    except TableNotFoundError:
        return staging_location(client, table_id)


def delta_credentials(client: DeltaClient, location: str, access: FileAccess) -> list[dict[str, Any]]:
    """The answer of the Delta API. Raises as :func:`_issued`."""
    issued = _issued(client, location, access)
    return [
        {
            "prefix": issued.prefix,
            "operation": access.value,
            "config": {name: value for name, value in issued.config.items() if name in (_KEY, _SECRET, _TOKEN)},
            "expiration-time-ms": _NEVER_MS if issued.expires_ms is None else issued.expires_ms,
        }
    ]


def older_credentials(client: DeltaClient, location: str, access: FileAccess) -> dict[str, Any]:
    """The answer of the older API. Raises as :func:`_issued`."""
    issued = _issued(client, location, access)
    keys = {
        "access_key_id": issued.config.get(_KEY),
        "secret_access_key": issued.config.get(_SECRET),
        "session_token": issued.config.get(_TOKEN),
    }
    return {
        "aws_temp_credentials": keys if issued.config else None,
        "azure_user_delegation_sas": None,
        "gcp_oauth_token": None,
        "expiration_time": issued.expires_ms,
        "url": issued.prefix,
    }


def _issued(client: DeltaClient, location: str, access: FileAccess) -> LocationCredentials:
    """Credentials for the files at the location of a table.

    Raises:
        OperationRefusedError: the caller may not read, or write, the table.
        NotServedError: the server has none for the location.
        StorageError: the store gave none.
    """
    catalog = client.storage_credentials
    read_or_write = catalog.read_credentials if access is FileAccess.READ else catalog.write_credentials
    issued = read_or_write(location)
    if issued is not None:
        return issued
    if location.startswith("file:"):
        return LocationCredentials(prefix=location, access=access, config={})
    raise NotServedError(f"The server gives no credentials for {location}; a client needs credentials of its own.")
