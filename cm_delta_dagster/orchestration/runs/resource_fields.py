"""Errors for fields and attributes that a resource does not have; they say what to write.

Dagster ignores an unknown field, and the run then fails elsewhere or uses a default.
"""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.similar_names import similar_names
from cm_delta_dagster.errors import InvalidArgumentError


def check_fields(resource: type, names: Collection[str], *, hints: Mapping[str, str]) -> None:
    """Refuse fields that a resource does not have.

    Args:
        resource: the class, with the fields of a pydantic model.
        hints: for names that mean something else elsewhere, what to write.

    Raises:
        InvalidArgumentError: a name is no field. The message has no values, which may be secrets.
    """
    fields = tuple(name for name in getattr(resource, "model_fields", {}) if not name.startswith("_"))
    for name in names:
        if name in fields:
            continue
        similar = similar_names(name, fields)
        hint = hints.get(name) or (f"{similar[0]}=..." if similar else None)
        raise InvalidArgumentError(
            f"{resource.__name__} has no field {name!r}"
            + (f"; write {hint}" if hint else "")
            + f". Its fields are {', '.join(fields)}."
        )


def check_catalog(catalog: Any, *, user: str) -> None:
    """Refuse what cannot be the resource of a catalog, such as its URL.

    Args:
        user: the class of the resource that needs the catalog.

    Raises:
        InvalidArgumentError: ``catalog`` is absent, or has no client and is no resource that Dagster makes one of.
    """
    is_made_by_dagster = isinstance(catalog, dg.ResourceDefinition) or hasattr(type(catalog), "get_resource_definition")
    is_resource = isinstance(catalog, dg.ConfigurableResource)
    if inspect.getattr_static(catalog, "client", None) is not None or (is_made_by_dagster and not is_resource):
        return
    problem = "is missing" if catalog is None else f"is a {type(catalog).__name__}"
    raise InvalidArgumentError(
        f"The field 'catalog' of {user} {problem}; it must be a CatalogResource. Write "
        f"{user}(catalog=CatalogResource(url=..., warehouse=...), spark=SparkResource())."
    )
