"""The parts of a catalog, for objects that stand in its place."""

from cm_delta_dagster.catalog.catalog import Catalog

PARTS = frozenset(name for name, member in vars(Catalog).items() if isinstance(member, property))
"""The attributes of a catalog that are its parts."""
