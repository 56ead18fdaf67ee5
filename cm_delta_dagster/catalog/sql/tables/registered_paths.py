"""Names of Delta tables that clients read by path.

Functions over an open connection; the caller opens the transaction.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.schema import (
    IS_ACTIVE,
    NAME_COLUMNS,
    REGISTERED_PATHS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows.errors import name_taken
from cm_delta_dagster.catalog.sql.tables import namespaces
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import TableAlreadyExistsError, TableNotFoundError

_NAME = (REGISTERED_PATHS.c.catalog_name, REGISTERED_PATHS.c.schema_name, REGISTERED_PATHS.c.table_name)


def register(connection: sa.Connection, identifier: TableIdentifier, location: str) -> None:
    """Insert the name; see :meth:`TableRegistry.register_path`."""
    guard.require(connection, Operation.REGISTER_PATH, identifier)
    known = find(connection, identifier)
    if known == location:
        return
    if known is not None:
        raise TableAlreadyExistsError(
            f"{identifier} was not registered: the name stands for the path {known}. Choose another name, or unregister it first."
        )
    holder = sa.select(TABLES.c.table_id).where(*_of(NAME_COLUMNS, identifier), IS_ACTIVE)
    if connection.execute(holder).first() is not None:
        raise name_taken(identifier)
    namespaces.ensure_schema(connection, identifier)
    values = {"catalog_name": identifier.catalog, "schema_name": identifier.schema, "table_name": identifier.table}
    try:
        connection.execute(sa.insert(REGISTERED_PATHS), {**values, "location": location})
    except sa.exc.IntegrityError as error:  # Another client registered the name concurrently.
        raise name_taken(identifier) from error


def find(connection: sa.Connection, identifier: TableIdentifier) -> str | None:
    """The location of the name; None for a name that is not registered."""
    found = connection.execute(sa.select(REGISTERED_PATHS.c.location).where(*_of(_NAME, identifier)))
    location = found.scalar_one_or_none()
    return None if location is None else str(location)


def refuse_registered(connection: sa.Connection, identifier: TableIdentifier) -> None:
    """Refuse a name for a table that stands for a path. Raises TableAlreadyExistsError."""
    location = find(connection, identifier)
    if location is not None:
        raise TableAlreadyExistsError(
            f"{identifier} cannot be the name of a table of the catalog: it is registered for reading only, for the table at "
            f"{location}. Nothing was changed. Choose another name, unregister this one first, or adopt the table."
        )


def replace_registered(connection: sa.Connection, identifier: TableIdentifier, *, location: str) -> None:
    """Delete the name of the path that a table of the catalog gets now. Raises TableAlreadyExistsError for another path."""
    if find(connection, identifier) == location:
        connection.execute(sa.delete(REGISTERED_PATHS).where(*_of(_NAME, identifier)))
    refuse_registered(connection, identifier)


def unregister(connection: sa.Connection, identifier: TableIdentifier) -> None:
    """Delete the name."""
    guard.require(connection, Operation.REGISTER_PATH, identifier)
    if not connection.execute(sa.delete(REGISTERED_PATHS).where(*_of(_NAME, identifier))).rowcount:
        raise TableNotFoundError(f"No path is registered as {identifier}: check the name. Names are case-sensitive.")


def list_paths(connection: sa.Connection, parts: tuple[str, ...]) -> dict[TableIdentifier, str]:
    """Locations of the registered names that begin with ``parts``, sorted by name."""
    conditions = [column == part for column, part in zip(_NAME, parts, strict=False)]
    rows = connection.execute(sa.select(REGISTERED_PATHS).where(*conditions)).all()
    return dict(sorted((identifier_of(row), str(row.location)) for row in rows))


def _of(columns: tuple[sa.Column[str], ...], identifier: TableIdentifier) -> list[sa.ColumnElement[bool]]:
    parts = (identifier.catalog, identifier.schema, identifier.table)
    return [column == part for column, part in zip(columns, parts, strict=True)]
