"""What ``dg scaffold defs`` writes: a ``defs.yaml`` whose attributes are examples to edit."""

from collections.abc import Mapping
from typing import Any, ClassVar

import dagster as dg
from pydantic import BaseModel, Field


class NoParameters(BaseModel):
    """A component that is scaffolded without options."""


class CatalogParameters(BaseModel):
    """Options of ``dg scaffold defs`` for components that open a catalog."""

    url: str = Field(default="sqlite:///catalog.db", description="Database of the catalog.")
    warehouse: str = Field(default="warehouse", description="Directory or URI of the locations of new tables.")


class ExampleScaffolder(dg.Scaffolder[Any]):
    """Writes ``defs.yaml`` with the example attributes of a component."""

    attributes: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def get_scaffold_params(cls) -> type[BaseModel]:
        return NoParameters

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        dg.scaffold_component(request, self.example(request.params))

    def example(self, parameters: Any) -> Mapping[str, Any]:
        """The attributes. ``parameters`` is an instance of the class that ``get_scaffold_params`` returns."""
        return self.attributes


class CatalogScaffolder(ExampleScaffolder):
    """As ``ExampleScaffolder``, with the catalog of the options."""

    @classmethod
    def get_scaffold_params(cls) -> type[BaseModel]:
        return CatalogParameters

    def example(self, parameters: Any) -> Mapping[str, Any]:
        catalog = {"url": parameters.url, "warehouse": parameters.warehouse}
        return {"catalog": catalog, **self.attributes}
