"""An attribute that says where the catalog is: by its own settings, or by the component that has them."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.components.connection import CatalogSettings


def _settings(context: dg.ResolutionContext, given: Any) -> CatalogSettings:
    """The settings; for a text, those of the component of that path below the directory of components.

    Raises:
        InvalidArgumentError: there is no such component, or it has no catalog.
    """
    if isinstance(given, CatalogSettings):
        return given  # Of an expression, e.g. context.load_component("lake").catalog.
    if not isinstance(given, str):
        settings: CatalogSettings = CatalogSettings.resolve_from_model(context.at_path("catalog"), given)
        return settings
    try:
        component = context.scope["context"].load_component(Path(given))
    except Exception as error:
        raise InvalidArgumentError(
            f"The attribute 'catalog' is {given!r}, and no component can be loaded from that path: {error}. Give the path of a "
            "CatalogManagedDelta below the directory of components, or url and warehouse of the catalog."
        ) from error
    found = getattr(component, "catalog", None)
    if not isinstance(found, CatalogSettings):
        raise InvalidArgumentError(
            f"The attribute 'catalog' is {given!r}, which is a {type(component).__name__} without a catalog. Give the path of a "
            "CatalogManagedDelta."
        )
    return found


CatalogReference: TypeAlias = Annotated[
    CatalogSettings, dg.Resolver(_settings, model_field_type=CatalogSettings.model() | str)
]
"""Settings of a catalog, or the path of the component that has them."""
