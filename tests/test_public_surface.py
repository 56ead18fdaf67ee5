"""The names that users rely on, and what importing them costs."""

import importlib
import subprocess
import sys
from importlib import resources

import pytest

import cm_delta_dagster
from cm_delta_dagster.errors import CmDeltaError


def test_the_list_of_names_is_sorted_and_without_repetition() -> None:
    names = cm_delta_dagster.__all__
    assert names == sorted(set(names))


@pytest.mark.parametrize("name", cm_delta_dagster.__all__)
def test_every_name_leads_to_an_object_with_documentation(name: str) -> None:
    value = getattr(cm_delta_dagster, name)
    if name == "__version__":
        assert value.count(".") >= 2
        return
    assert value.__name__ == name
    assert value.__module__.startswith("cm_delta_dagster.")
    assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="DeltaTabel"):
        _ = cm_delta_dagster.DeltaTabel
    assert set(cm_delta_dagster.__all__) <= set(dir(cm_delta_dagster))


def test_every_error_of_the_surface_belongs_to_one_tree() -> None:
    errors = [getattr(cm_delta_dagster, name) for name in cm_delta_dagster.__all__ if name.endswith("Error")]
    assert errors
    assert all(issubclass(error, CmDeltaError) for error in errors)


def test_the_package_says_that_it_is_typed() -> None:
    assert (resources.files("cm_delta_dagster") / "py.typed").is_file()


@pytest.mark.parametrize(
    "module", ["cm_delta_dagster", "cm_delta_dagster.protocol.schema.types", "cm_delta_dagster.client.client"]
)
def test_the_lower_floors_load_neither_spark_nor_dagster(module: str) -> None:
    """A sensor or a shell command starts without the engine."""
    importlib.import_module(module)
    code = f"import sys, {module}; sys.exit(sum(name in sys.modules for name in ('pyspark', 'dagster')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_every_public_method_of_the_front_door_is_documented() -> None:
    for kind in (cm_delta_dagster.Connection, cm_delta_dagster.DeltaTable):
        for name, value in vars(kind).items():
            if not name.startswith("_"):
                assert value.__doc__, f"{kind.__name__}.{name}"
