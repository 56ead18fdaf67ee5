"""Code above the catalog names the interface that it needs, and not the whole catalog."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "cm_delta_dagster"
CLIENTS_OF_THE_CATALOG = ("client", "operations", "orchestration", "api", "cli")
CONSTRUCTS_CLIENTS = PACKAGE / "client" / "client.py"

HAVE_A_CATALOG = frozenset({"client", "table", "services"})
"""Names of variables and attributes whose attribute ``catalog`` would be a catalog, and not the first part of a name."""


def whole_catalogs(source: str) -> Iterator[str]:
    """Places where ``source`` names the type ``Catalog``, or takes the catalog of a client or a table."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module, names=names):
                if module == "cm_delta_dagster.catalog.catalog" or any(
                    (module, name.name) == ("cm_delta_dagster.catalog", "catalog") for name in names
                ):
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Import(names=names):
                if any(name.name == "cm_delta_dagster.catalog.catalog" for name in names):
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Attribute(attr="catalog", value=ast.Name(id=owner) | ast.Attribute(attr=owner)):
                if owner.lstrip("_") in HAVE_A_CATALOG:
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case _:
                pass


def test_only_the_module_of_the_client_names_the_whole_catalog() -> None:
    found = {
        f"{file.relative_to(PACKAGE)}:{place}"
        for package in CLIENTS_OF_THE_CATALOG
        for file in sorted((PACKAGE / package).rglob("*.py"))
        if file != CONSTRUCTS_CLIENTS
        for place in whole_catalogs(file.read_text())
    }
    assert found == set()


def test_each_way_to_take_the_whole_catalog_is_found() -> None:
    source = """
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog import catalog
import cm_delta_dagster.catalog.catalog
client.catalog.load_table(name)
self._table.services.catalog.identity()
passed_on(table.catalog)
self.catalog.client.registry.load_table(identifier.catalog)
"""
    assert sorted(place.split(":")[0] for place in whole_catalogs(source)) == ["2", "3", "4", "5", "6", "7"]
