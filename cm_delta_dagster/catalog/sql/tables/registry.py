"""The part of the catalog that maps names to tables."""

from collections.abc import Iterable
from itertools import starmap

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.parts import reads, writes
from cm_delta_dagster.catalog.sql.database.schema import IDENTITY, NAME_COLUMNS
from cm_delta_dagster.catalog.sql.rows import definitions, locked_heads, table_names
from cm_delta_dagster.catalog.sql.tables import loading
from cm_delta_dagster.catalog.sql.tables.clones import CloneReferences
from cm_delta_dagster.catalog.sql.tables.creation import TableCreation
from cm_delta_dagster.catalog.sql.tables.lifecycle import TableLifecycle
from cm_delta_dagster.catalog.sql.tables.registered_paths import RegisteredPaths
from cm_delta_dagster.catalog.tables import CatalogIdentity, TableEntry, TableIdentifier, TablePage
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol

_CATALOG_ID = sa.select(IDENTITY.c.catalog_id).where(IDENTITY.c.row_id == 1)


class SqlTableRegistry(TableCreation, TableLifecycle, CloneReferences, RegisteredPaths):
    """Implements :class:`~cm_delta_dagster.catalog.table_registry.TableRegistry`. No method touches a file."""

    @reads
    def identity(self, connection: sa.Connection) -> CatalogIdentity:
        """Id and warehouse of the catalog, in one statement."""
        catalog_id = str(connection.execute(_CATALOG_ID).scalar_one())
        return CatalogIdentity(catalog_id=catalog_id, warehouse=self._warehouse)

    @reads
    def load_table(self, connection: sa.Connection, identifier: TableIdentifier) -> TableEntry:
        """Resolve a name, in one statement. Raises TableNotFoundError."""
        return loading.load_table(connection, identifier, requires=Operation.READ)

    @reads
    def load_tables(self, connection: sa.Connection, identifiers: Iterable[TableIdentifier]) -> tuple[TableEntry, ...]:
        """Resolve several names, in one statement."""
        return loading.load_tables(connection, identifiers, requires=Operation.READ)

    @reads
    def load_table_by_id(self, connection: sa.Connection, table_id: str) -> TableEntry:
        """Load a table by id, in one statement. Raises TableNotFoundError."""
        return loading.load_table_by_id(connection, table_id, requires=Operation.READ)

    @reads
    def list_tables(
        self,
        connection: sa.Connection,
        scope: str = "",
        *,
        after: TableIdentifier | None = None,
        limit: int | None = None,
    ) -> tuple[TableIdentifier, ...]:
        """Names under ``scope``, sorted. Raises InvalidArgumentError for a malformed scope, or an impossible name or limit."""
        names = table_names.in_order(connection, sa.select(*NAME_COLUMNS), scope=scope, after=after, limit=limit)
        return tuple(starmap(TableIdentifier, connection.execute(names).all()))

    @reads
    def readable_tables(
        self,
        connection: sa.Connection,
        scope: str = "",
        *,
        after: TableIdentifier | None = None,
        limit: int | None = None,
    ) -> TablePage:
        """The tables of a part of the names that the caller may read, in one statement. Raises as :meth:`list_tables`."""
        return loading.readable_tables(connection, scope, after=after, limit=limit)

    @writes
    def set_definition(
        self, connection: sa.Connection, table_id: str, *, version: int, metadata: Metadata, protocol: Protocol
    ) -> bool:
        """Store the definition at ``version``, under the lock of the table's row, which excludes commits.

        Raises TableNotFoundError.
        """
        head = locked_heads.required_head(connection, table_id)
        guard.require_on_table(connection, Operation.REPAIR, table_id)
        if head.latest_version != version:
            return False
        definitions.record(
            connection,
            table_id,
            metadata=metadata,
            protocol=protocol,
            version=version,
            in_commit_timestamp=head.latest_in_commit_timestamp,
            changed_by_commit=False,
        )
        return True
