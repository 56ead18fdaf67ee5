"""An attribute that says where the catalog is: by its own settings, or by the component that has them."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration.components.connection import CatalogSettings


def _settings(context: dg.ResolutionContext, value: Any) -> CatalogSettings:
    """The settings; for a text, those of the component of that path below the directory of components.

    Raises:
        InvalidArgumentError: there is no such component, or it has no catalog.
    """
    if isinstance(value, CatalogSettings):
        return value  # Of an expression, e.g. context.load_component("lake").catalog.
    if not isinstance(value, str):
        settings: CatalogSettings = CatalogSettings.resolve_from_model(context.at_path("catalog"), value)
        return settings
    try:
        component = context.scope["context"].load_component(Path(value))
    except Exception as error:
        raise InvalidArgumentError(
            f"The attribute 'catalog' is {value!r}, and no component can be loaded from that path: {error}. Give the path of a "
            "CatalogManagedDelta below the directory of components, or url and warehouse of the catalog."
        ) from error
    catalog = getattr(component, "catalog", None)
    if not isinstance(catalog, CatalogSettings):
        raise InvalidArgumentError(
            f"The attribute 'catalog' is {value!r}, which is a {type(component).__name__} without a catalog. Give the path of a "
            "CatalogManagedDelta."
        )
    return catalog


CatalogReference: TypeAlias = Annotated[
    CatalogSettings, dg.Resolver(_settings, model_field_type=CatalogSettings.model() | str)
]
"""Settings of a catalog, or the path of the component that has them."""
