"""The parts of a catalog, for objects that stand in its place."""

from typing import Any

from cm_delta_dagster.catalog.catalog import Catalog

PARTS = frozenset(name for name, member in vars(Catalog).items() if isinstance(member, property))
"""The attributes of a catalog that are its parts."""


class CatalogWith:
    """The real catalog with other parts."""

    def __init__(self, catalog: Any, **parts: Any) -> None:
        self._catalog = catalog
        vars(self).update(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)
