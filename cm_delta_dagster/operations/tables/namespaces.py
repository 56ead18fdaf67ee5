"""Creation and drop of catalogs and schemas, with errors that name what could be meant."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.similar_names import did_you_mean, similar_names
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError, NamespaceAlreadyExistsError, NamespaceNotFoundError

_FORMS = ("catalog", "catalog.schema")


def create_namespace(
    client: DeltaClient,
    name: str,
    *,
    levels: int,
    comment: str = "",
    properties: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
) -> None:
    """Create a catalog (``levels`` 1) or a schema (2).

    Raises:
        NamespaceAlreadyExistsError: it exists, and ``if_not_exists`` is False.
        InvalidArgumentError: the name does not have so many parts, or a text cannot be stored.
    """
    _check(name, levels)
    try:
        client.namespaces.create_namespace(name, comment=comment, properties=properties)
    except NamespaceAlreadyExistsError:
        if not if_not_exists:
            raise


def drop_namespace(client: DeltaClient, name: str, *, levels: int, if_exists: bool = False) -> None:
    """Delete an empty catalog (``levels`` 1) or schema (2).

    Raises:
        NamespaceNotFoundError: it does not exist, and ``if_exists`` is False.
        NamespaceNotEmptyError: it has schemas or tables.
        InvalidArgumentError: the name does not have so many parts.
    """
    _check(name, levels)
    try:
        client.namespaces.drop_namespace(name)
    except NamespaceNotFoundError as error:
        if not if_exists:
            raise NamespaceNotFoundError(f"{error}{_similar(client, name, levels)}") from error


def schemas_of(client: DeltaClient, catalog: str = "") -> tuple[Namespace, ...]:
    """The schemas of a catalog, or of all. Raises NamespaceNotFoundError for a catalog that does not exist."""
    schemas = client.namespaces.list_schemas(catalog)
    if catalog and not schemas and catalog not in names_of(client, levels=1):
        raise NamespaceNotFoundError(
            f"There is no catalog {catalog}; names are case-sensitive.{_similar(client, catalog, 1)}"
        )
    return schemas


def names_of(client: DeltaClient, *, levels: int) -> tuple[str, ...]:
    """The names of all catalogs (``levels`` 1) or schemas (2), sorted."""
    registry = client.namespaces
    return tuple(namespace.name for namespace in (registry.list_catalogs() if levels == 1 else registry.list_schemas()))


def _check(name: str, levels: int) -> None:
    if not isinstance(name, str) or len(name.split(".")) != levels:
        raise InvalidArgumentError(
            f"{name!r} is not the name of a {'catalog' if levels == 1 else 'schema'}: write {_FORMS[levels - 1]}. Nothing was "
            "changed."
        )


def _similar(client: DeltaClient, name: str, levels: int) -> str:
    return did_you_mean(similar_names(name, names_of(client, levels=levels)))
