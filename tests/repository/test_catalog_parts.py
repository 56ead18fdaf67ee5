"""Code above the catalog names the interface that it needs, and not the whole catalog."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.syntax_trees import parse

PACKAGE = Path(__file__).parents[2] / "cm_delta_dagster"
CLIENTS_OF_THE_CATALOG = ("client", "operations", "orchestration", "api", "cli")
CONSTRUCTS_CLIENTS = PACKAGE / "client" / "client.py"

OTHER_ATTRIBUTES = frozenset(
    {
        "orchestration/checks/table_checks.py: self.catalog",
        "orchestration/components/catalog_managed_delta.py: self.catalog",
        "orchestration/components/delta_tables.py: self.catalog",
        "orchestration/components/discovery.py: identifier.catalog",
        "orchestration/definitions.py: manager.catalog",
        "orchestration/assets/io_manager.py: self.catalog",
        "orchestration/sensor/sensors.py: self.catalog",
        "orchestration/metadata/write_contract.py: names.catalog",
        "operations/sql/listings.py: table.catalog",
        "operations/sql/merge_statements.py: own.catalog",
        "operations/tables/scopes.py: table.catalog",
        "operations/sql/qualifiers.py: identifier.catalog",
        "operations/sql/queries.py: name.catalog",
        "operations/sql/queries.py: self.spark.catalog",
    }
)
"""Attributes ``catalog`` that are not a catalog: Dagster's resource or its name, that of a Spark session, and the first part of a
table's name."""


def whole_catalogs(source: str) -> Iterator[str]:
    """Where ``source`` imports the module of the type ``Catalog``, or takes an attribute ``catalog`` of any object."""
    for node in ast.walk(parse(source)):
        match node:
            case ast.ImportFrom(module=module, names=names):
                if module == "cm_delta_dagster.catalog.catalog" or any(
                    (module, name.name) == ("cm_delta_dagster.catalog", "catalog") for name in names
                ):
                    yield ast.unparse(node)
            case ast.Import(names=names):
                if any(name.name == "cm_delta_dagster.catalog.catalog" for name in names):
                    yield ast.unparse(node)
            case ast.Attribute(attr="catalog"):
                yield ast.unparse(node)
            case _:
                pass


def test_only_the_module_of_the_client_names_the_whole_catalog() -> None:
    found = {
        f"{file.relative_to(PACKAGE)}: {place}"
        for package in CLIENTS_OF_THE_CATALOG
        for file in sorted((PACKAGE / package).rglob("*.py"))
        if file != CONSTRUCTS_CLIENTS
        for place in whole_catalogs(file.read_text())
    }
    assert found == OTHER_ATTRIBUTES


def test_each_way_to_take_the_whole_catalog_is_found() -> None:
    source = """
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog import catalog
import cm_delta_dagster.catalog.catalog
client.catalog.load_table(name)
self._table.services.catalog.identity()
client.spec().catalog.close()
passed_on(specs[0].catalog)
client.registry.load_table(name)
"""
    assert set(whole_catalogs(source)) == {
        "from cm_delta_dagster.catalog.catalog import Catalog",
        "from cm_delta_dagster.catalog import catalog",
        "import cm_delta_dagster.catalog.catalog",
        "client.catalog",
        "self._table.services.catalog",
        "client.spec().catalog",
        "specs[0].catalog",
    }
