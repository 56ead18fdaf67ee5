"""Fields and attributes that a resource does not have are errors that say what to write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from tests.orchestration.log_tables import resource_at

_URL = "sqlite:///secret.db"


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (
            lambda: CatalogManagedDeltaIOManager(url=_URL),
            r"Manager has no field 'url'; write catalog=CatalogResource\(url=\.\.\.\)\. Its fields are catalog, spark, ",
        ),
        (lambda: CatalogManagedDeltaIOManager(remote="sc://x"), r"write spark=SparkResource\(remote=\.\.\.\)"),
        (lambda: CatalogManagedDeltaIOManager(schema="s"), r"'schema'; write default_schema=\.\.\."),
        (lambda: CatalogManagedDeltaIOManager(catlog=None), r"'catlog'; write catalog=\.\.\."),
        (
            lambda: CatalogResource(catalog=_URL),
            r"CatalogResource has no field 'catalog'; write url=\.\.\.\. Its fields are url, ",
        ),
        (lambda: CatalogResource(url=_URL, location="w"), r"'location'; write warehouse=\.\.\."),
        (lambda: CatalogResource(url=_URL, warehose="w"), r"'warehose'; write warehouse=\.\.\."),
        (lambda: CatalogResource(url=_URL, zzz="w"), r"has no field 'zzz'\. Its fields are url, warehouse"),
        (lambda: SparkResource(mastr="local"), r"SparkResource has no field 'mastr'; write master=\.\.\."),
    ],
)
def test_an_unknown_field_is_an_error_that_names_the_right_one(construct: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        construct()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("catalog", [_URL, Path("x.db"), {"url": _URL}, SparkResource(), None], ids=repr)
def test_an_io_manager_needs_a_catalog_resource(catalog: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"must be a CatalogResource\. Write .*CatalogResource\(url"
    ) as refused:
        CatalogManagedDeltaIOManager(catalog=catalog, spark=SparkResource())
    assert "secret" not in str(refused.value)


def test_an_io_manager_without_a_catalog_says_that_it_is_missing() -> None:
    with pytest.raises(InvalidArgumentError, match="'catalog' of CatalogManagedDeltaIOManager is missing"):
        CatalogManagedDeltaIOManager()


def test_a_catalog_that_is_configured_at_launch_is_accepted(tmp_path: Path) -> None:
    urls = []

    @dg.asset(required_resource_keys={"io_manager"})
    def looks(context: dg.AssetExecutionContext) -> None:
        urls.append(context.resources.io_manager.catalog.url)

    catalog = CatalogResource.configure_at_launch()
    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=SparkResource())
    config = {"url": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    dg.materialize(
        [looks],
        resources={"catalog": catalog, "io_manager": manager},
        run_config={"resources": {"catalog": {"config": config}}},
    )
    assert urls == [config["url"]]


@pytest.mark.parametrize("name", ["sql", "table", "create_table", "access"])
def test_a_name_of_the_python_api_on_the_resource_names_the_lake(tmp_path: Path, name: str) -> None:
    resource = resource_at(tmp_path)
    with pytest.raises(
        AttributeError, match=rf"CatalogResource has no attribute '{name}': write catalog\.lake\.{name}$"
    ):
        getattr(resource, name)


def test_other_absent_attributes_of_the_resource_have_no_hint(tmp_path: Path) -> None:
    resource = resource_at(tmp_path)
    for name in ("nothing", "_nothing"):
        with pytest.raises(AttributeError, match=f"'CatalogResource' object has no attribute '{name}'$"):
            getattr(resource, name)
