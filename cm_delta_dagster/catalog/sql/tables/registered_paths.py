"""Names of Delta tables that clients read by path."""

from collections.abc import Mapping

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import REGISTERED_PATHS, identifier_of
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.sql.rows.errors import name_taken
from cm_delta_dagster.catalog.sql.rows.table_names import HOLDER, in_scope, name_parameters
from cm_delta_dagster.catalog.sql.tables import namespaces
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import TableAlreadyExistsError, TableNotFoundError

_NAME = (REGISTERED_PATHS.c.catalog_name, REGISTERED_PATHS.c.schema_name, REGISTERED_PATHS.c.table_name)
_OF_NAME = sa.and_(
    REGISTERED_PATHS.c.catalog_name == sa.bindparam("of_catalog"),
    REGISTERED_PATHS.c.schema_name == sa.bindparam("of_schema"),
    REGISTERED_PATHS.c.table_name == sa.bindparam("of_name"),
)
_LOCATION = sa.select(REGISTERED_PATHS.c.location).where(_OF_NAME)
_DELETE = sa.delete(REGISTERED_PATHS).where(_OF_NAME)


class RegisteredPaths(Part):
    """The methods of the registry for names of paths."""

    @writes
    def register_path(self, connection: sa.Connection, identifier: TableIdentifier, location: str) -> None:
        """Name a table that is read by path. Raises TableAlreadyExistsError, InvalidArgumentError."""
        names.check_identifier(identifier)
        guard.require(connection, Operation.REGISTER_PATH, identifier)
        known = find(connection, identifier)
        if known == location:
            return
        if known is not None:
            raise TableAlreadyExistsError(
                f"{identifier} was not registered: the name stands for the path {known}. Choose another name, or unregister it "
                "first."
            )
        if connection.execute(HOLDER, name_parameters(identifier)).first() is not None:
            raise name_taken(identifier)
        namespaces.ensure_schema(connection, identifier)
        values = {"catalog_name": identifier.catalog, "schema_name": identifier.schema, "table_name": identifier.table}
        try:
            connection.execute(sa.insert(REGISTERED_PATHS), {**values, "location": location})
        except sa.exc.IntegrityError as error:  # Another client registered the name concurrently.
            raise name_taken(identifier) from error

    @writes
    def unregister_path(self, connection: sa.Connection, identifier: TableIdentifier) -> None:
        """Delete the name of a path. Raises TableNotFoundError."""
        guard.require(connection, Operation.REGISTER_PATH, identifier)
        if not connection.execute(_DELETE, name_parameters(identifier)).rowcount:
            raise TableNotFoundError(
                f"No path is registered as {identifier}: check the name. Names are case-sensitive."
            )

    @reads
    def registered_path(self, connection: sa.Connection, identifier: TableIdentifier) -> str | None:
        """The location that the name stands for; None for another name."""
        return find(connection, identifier)

    @reads
    def registered_paths(self, connection: sa.Connection, scope: str = "") -> Mapping[TableIdentifier, str]:
        """Locations of the registered names under ``scope``, sorted. Raises InvalidArgumentError for a malformed scope."""
        rows = connection.execute(sa.select(REGISTERED_PATHS).where(in_scope(scope, _NAME))).all()
        return dict(sorted((identifier_of(row), str(row.location)) for row in rows))


def find(connection: sa.Connection, identifier: TableIdentifier) -> str | None:
    """The location of the name; None for a name that is not registered."""
    location = connection.execute(_LOCATION, name_parameters(identifier)).scalar_one_or_none()
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
        connection.execute(_DELETE, name_parameters(identifier))
    refuse_registered(connection, identifier)
