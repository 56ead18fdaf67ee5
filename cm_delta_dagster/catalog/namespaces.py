"""Values and interface for namespaces: catalogs and schemas, the first two levels of the names of tables."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A catalog or a schema.

    Attributes:
        name: ``catalog``, or ``catalog.schema``.
        comment: a description; empty if there is none.
        properties: texts by name, which this package stores and does not interpret.
        created_by: the principal that created it, by a statement or with its first table; None if it stated no name.
        created_ms: epoch milliseconds; None if it came to be before the catalog recorded namespaces.
    """

    name: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    created_by: str | None = None
    created_ms: int | None = None


class NamespaceRegistry(typing.Protocol):
    """Catalogs and schemas.

    Guarantee: every table and every registered path that has a name is in a schema of :meth:`list_schemas`, also while clients
    create tables and drop schemas concurrently. What gives a table its name creates the schema and the catalog that are missing.
    """

    def create_namespace(
        self, name: str, *, comment: str = "", properties: Mapping[str, str] | None = None
    ) -> Namespace:
        """Create the catalog ``catalog``, or the schema ``catalog.schema`` and its catalog if that is missing.

        Raises:
            NamespaceAlreadyExistsError: it exists; nothing was changed.
            InvalidArgumentError: the name is malformed, or comment or properties are not texts.
            OperationRefusedError: grants are enforced, and the caller has no ``alter`` on it.
        """
        ...

    def drop_namespace(self, name: str) -> None:
        """Delete an empty catalog or schema. Grants and rules of the name stay, and apply when it is created again.

        Dropped tables are no obstacle: to restore one creates its schema again.

        Raises:
            NamespaceNotFoundError: it does not exist.
            NamespaceNotEmptyError: a catalog has a schema, or a schema a table or a registered path.
            InvalidArgumentError: the name is malformed.
            OperationRefusedError: grants are enforced, and the caller has no ``own`` on it.
        """
        ...

    def list_catalogs(self, *, after: str = "", limit: int | None = None) -> tuple[Namespace, ...]:
        """The catalogs, sorted by the code points of their names.

        Args:
            after: leave out the names up to this one, which no catalog need have; empty for none.
            limit: the greatest number of catalogs; None for all.

        Raises:
            InvalidArgumentError: ``limit`` is not positive.
        """
        ...

    def list_schemas(self, catalog: str = "", *, after: str = "", limit: int | None = None) -> tuple[Namespace, ...]:
        """The schemas of a catalog, or of all catalogs, sorted by the code points of catalog and schema.

        Args:
            after: as for :meth:`list_catalogs`, with the name ``catalog.schema``.
            limit: as for :meth:`list_catalogs`.

        Raises:
            InvalidArgumentError: ``catalog`` or ``after`` is malformed, or ``limit`` is not positive.
        """
        ...
