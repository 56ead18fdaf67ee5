"""Methods of a connection for catalogs and schemas."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.tables.namespaces import create_namespace, drop_namespace, schemas_of


class NamespaceMethods:
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`."""

    client: DeltaClient

    def catalogs(self) -> tuple[Namespace, ...]:
        """Return the catalogs, sorted by name."""
        return self.client.namespaces.list_catalogs()

    def schemas(self, catalog: str = "") -> tuple[Namespace, ...]:
        """Return the schemas of a catalog, or of all catalogs, sorted by name.

        Raises NamespaceNotFoundError for a catalog that does not exist.
        """
        return schemas_of(self.client, catalog)

    def create_catalog(
        self,
        name: str,
        *,
        comment: str = "",
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Create a catalog without schemas. The creation of a table or a schema creates its catalog, too.

        Args:
            name: letters, digits, ``_`` and ``-``.
            comment: a description.
            properties: texts by name, which this package stores and does not interpret.
            if_not_exists: do nothing if the catalog exists.

        Raises:
            NamespaceAlreadyExistsError: the catalog exists.
            InvalidArgumentError: an unusable name, or a comment or property that is no text.
        """
        create_namespace(
            self.client, name, levels=1, comment=comment, properties=properties, if_not_exists=if_not_exists
        )

    def create_schema(
        self,
        name: str,
        *,
        comment: str = "",
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Create the schema ``catalog.schema`` without tables. The creation of a table creates its schema, too.

        Args:
            name: ``catalog.schema``; a missing catalog is created.
            comment: a description.
            properties: texts by name, which this package stores and does not interpret.
            if_not_exists: do nothing if the schema exists.

        Raises:
            NamespaceAlreadyExistsError: the schema exists.
            InvalidArgumentError: an unusable name, or a comment or property that is no text.
        """
        create_namespace(
            self.client, name, levels=2, comment=comment, properties=properties, if_not_exists=if_not_exists
        )

    def drop_catalog(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a catalog that has no schemas; with ``if_exists`` do nothing if there is no such catalog.

        Raises NamespaceNotFoundError, NamespaceNotEmptyError.
        """
        drop_namespace(self.client, name, levels=1, if_exists=if_exists)

    def drop_schema(self, name: str, *, if_exists: bool = False) -> None:
        """Drop the schema ``catalog.schema``, which must have no tables and no registered paths.

        Dropped tables of the schema can still be restored, which creates it again. Grants and rules of the name stay. With
        ``if_exists`` a schema that does not exist is no error.

        Raises NamespaceNotFoundError, NamespaceNotEmptyError.
        """
        drop_namespace(self.client, name, levels=2, if_exists=if_exists)
