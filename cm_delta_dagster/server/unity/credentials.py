"""Credentials for the files of tables: local ones need none, and others are not given."""

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.server.request_errors import NotServedError


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


def require_local(location: str) -> None:
    """Raise NotServedError for a location that needs credentials."""
    if not location.startswith("file:"):
        raise NotServedError(f"The server gives no credentials for {location}; a client needs credentials of its own.")
