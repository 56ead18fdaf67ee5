"""REGISTER: give a Delta table of other writers a name in the catalog, to read it by path.

Nothing is committed. The catalog stores the location; versions are those of the log.
"""

from dataclasses import dataclass

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPath:
    """A name of a table that is read by path, and the latest version of the table."""

    name: str
    location: str
    version: int


def check_path(client: DeltaClient, *, location: str, identifier: TableIdentifier | str) -> RegisteredPath:
    """Open the table at ``location``; changes nothing.

    Raises:
        TableNotFoundError: there is no Delta table at the location.
        CatalogManagedAccessError: a catalog manages the table.
        UnsupportedFeatureError: this client cannot read the table.
    """
    name = TableIdentifier.of(identifier)
    at = absolute_location(location).rstrip("/")
    return RegisteredPath(name=str(name), location=at, version=open_path_table(client.stores, at).snapshot().version)


def register_path(client: DeltaClient, *, location: str, identifier: TableIdentifier | str) -> RegisteredPath:
    """Let the name stand for the table at ``location``. Raises as :func:`check_path`, and TableAlreadyExistsError."""
    path = check_path(client, location=location, identifier=identifier)
    client.registry.register_path(TableIdentifier.of(identifier), path.location)
    return path


def registered_location(client: DeltaClient, text: str) -> str | None:
    """The location of a registered name; None for a text that is not one, such as a path."""
    if "/" in text:
        return None
    try:
        name = TableIdentifier.parse(text)
    except InvalidArgumentError:
        return None
    return client.registry.registered_path(name)
