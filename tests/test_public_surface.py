"""The names that users rely on, and what importing them costs."""

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib import resources
from types import GenericAlias

import pytest

import cm_delta_dagster
from cm_delta_dagster import errors
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.predicates.predicates import Predicate

_PUBLIC_CLASSES = (
    cm_delta_dagster.Connection,
    cm_delta_dagster.DeltaTable,
    cm_delta_dagster.PathDeltaTable,
    cm_delta_dagster.DeltaClient,
)
_FOR_CLIENTS = (cm_delta_dagster.SqlCatalog, cm_delta_dagster.Stores, cm_delta_dagster.Table)
"""Exported to construct a client and to name what it opens; their methods are not part of the public API."""

_PREDICATES = frozenset(typing.get_args(Predicate))
"""Nodes of a parsed condition; users write conditions as SQL text, as a Column, or with ``raw_sql``."""


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


def test_type_checkers_take_each_name_of_the_stub_for_exported() -> None:
    """They do so for ``import <name> as <name>``, the only form that the package reads."""
    stub = ast.parse((resources.files("cm_delta_dagster") / "__init__.pyi").read_text())
    names = [
        (alias.name, alias.asname) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert len(names) == len(stub.body)
    assert sorted(names) == [(name, name) for name in cm_delta_dagster.__all__]


def test_a_star_import_has_every_name() -> None:
    namespace: dict[str, object] = {}
    exec("from cm_delta_dagster import *", namespace)
    assert set(cm_delta_dagster.__all__) <= set(namespace)


@pytest.mark.parametrize(
    "module", ["cm_delta_dagster", "cm_delta_dagster.protocol.schema.types", "cm_delta_dagster.client.client"]
)
def test_the_lower_layers_load_neither_spark_nor_dagster(module: str) -> None:
    """A sensor or a shell command starts without the engine."""
    importlib.import_module(module)
    code = f"import sys, {module}; sys.exit(sum(name in sys.modules for name in ('pyspark', 'dagster')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=500).returncode == 0


def test_every_public_method_is_documented() -> None:
    for kind in _PUBLIC_CLASSES:
        for name, value in _public_members(kind):
            assert value.__doc__, f"{kind.__name__}.{name}"


def test_every_error_is_exported() -> None:
    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, CmDeltaError)}
    assert tree - set(cm_delta_dagster.__all__) == set()


def test_what_public_methods_take_and_return_is_exported() -> None:
    missing = {
        f"{found.__name__} ({kind.__name__}.{name})"
        for kind in _PUBLIC_CLASSES
        for name, function in _public_functions(kind)
        for hint in typing.get_type_hints(function).values()
        for found in _classes_in(hint)
        if not _is_exported(found)
    }
    assert missing == set()


@pytest.mark.parametrize("name", cm_delta_dagster.__all__)
def test_what_methods_of_an_exported_class_return_is_exported(name: str) -> None:
    kind = getattr(cm_delta_dagster, name)
    if not isinstance(kind, type) or kind in _FOR_CLIENTS:
        return
    missing = {
        f"{found.__name__} ({name}.{method})"
        for method, function in _public_functions(kind)
        for found in _classes_in(typing.get_type_hints(function).get("return"))
        if not _is_exported(found)
    }
    assert missing == set()


def test_the_documentation_names_the_classes_whose_methods_are_not_public() -> None:
    documentation = cm_delta_dagster.__doc__ or ""
    assert all(f"``{kind.__name__}``" in documentation for kind in _FOR_CLIENTS)


def test_what_exported_results_and_plans_consist_of_is_exported() -> None:
    missing = {
        f"{found.__name__} ({name}.{field})"
        for name in cm_delta_dagster.__all__
        if dataclasses.is_dataclass(kind := getattr(cm_delta_dagster, name))
        for field, hint in typing.get_type_hints(kind).items()
        for found in _classes_in(hint)
        if found.__module__.startswith("cm_delta_dagster.operations")
        if not field.startswith("_") and found.__name__ not in cm_delta_dagster.__all__
    }
    assert missing == set()


def _public_members(kind: type) -> Iterator[tuple[str, typing.Any]]:
    """Methods and properties of ``kind`` and its bases."""
    for name in dir(kind):
        if not name.startswith("_"):
            yield name, inspect.getattr_static(kind, name)


def _public_functions(kind: type) -> Iterator[tuple[str, typing.Any]]:
    """Functions of the methods and properties of ``kind``."""
    for name, value in _public_members(kind):
        function = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(function):
            yield name, function


def _is_exported(kind: type) -> bool:
    return kind.__name__ in cm_delta_dagster.__all__ and getattr(cm_delta_dagster, kind.__name__) is kind


def _classes_in(hint: object) -> Iterator[type]:
    """Classes of this package in a type annotation; those of predicates are left out."""
    is_class = isinstance(hint, type) and not isinstance(hint, GenericAlias)
    if is_class and hint.__module__.startswith("cm_delta_dagster.") and hint not in _PREDICATES:
        yield hint
    for argument in typing.get_args(hint):
        yield from _classes_in(argument)
