"""The names that users rely on, and what importing them costs."""

import ast
import importlib
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from importlib import resources
from types import GenericAlias

import pytest

import cm_delta_dagster
from cm_delta_dagster import errors
from cm_delta_dagster.api.table.table_maintenance import DeltaTableMaintenance
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from tests.support.public_classes import NAMESPACES
from tests.support.syntax_trees import parse

_PUBLIC_CLASSES = (
    cm_delta_dagster.Connection,
    *NAMESPACES.values(),
    cm_delta_dagster.DeltaTable,
    DeltaTableMaintenance,
    cm_delta_dagster.PathDeltaTable,
    cm_delta_dagster.DeltaClient,
)
_MAX_EXPORTED = 120
_MAX_NAMES: Mapping[type, int] = {cm_delta_dagster.Connection: 26, cm_delta_dagster.DeltaTable: 30}
"""A class has its public names on one screen."""

_PREDICATES = frozenset(typing.get_args(Predicate))
"""Nodes of a parsed condition; users write conditions as SQL text, as a Column, or with ``raw_sql``."""


def test_the_list_of_names_is_sorted_short_and_without_repetition() -> None:
    names = cm_delta_dagster.__all__
    assert names == sorted(set(names)) and len(names) <= _MAX_EXPORTED


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
    stub = parse((resources.files("cm_delta_dagster") / "__init__.pyi").read_text())
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


@pytest.mark.parametrize("kind", _MAX_NAMES)
def test_a_class_fits_on_one_screen(kind: type) -> None:
    assert len([name for name, _ in _public_members(kind)]) <= _MAX_NAMES[kind]


def test_every_error_is_exported() -> None:
    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, CmDeltaError)}
    assert tree - set(cm_delta_dagster.__all__) == set()


def test_what_public_methods_take_is_exported() -> None:
    """A user constructs it. What they return has attributes and methods, and is exported if users annotate it."""
    missing = {
        f"{found.__name__} ({kind.__name__}.{name})"
        for kind in _PUBLIC_CLASSES
        for name, function in _public_functions(kind)
        for argument, hint in typing.get_type_hints(function).items()
        if argument != "return"
        for found in _classes_in(hint)
        if not _is_exported(found) and not _is_structural(found)
    }
    assert missing == set()


def _is_structural(kind: type) -> bool:
    """Whether objects of other libraries are of the type by their methods, so that users construct none of this package."""
    return bool(getattr(kind, "_is_protocol", False))


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
    """Whether users can import the class; they reach a namespace through the connection, and get a plan from its method."""
    name = kind.__name__
    is_reached = kind in NAMESPACES.values() or name.endswith("Plan")
    return is_reached or (name in cm_delta_dagster.__all__ and getattr(cm_delta_dagster, name) is kind)


def _classes_in(hint: object) -> Iterator[type]:
    """Classes of this package in a type annotation; those of predicates are left out."""
    is_class = isinstance(hint, type) and not isinstance(hint, GenericAlias)
    if is_class and hint.__module__.startswith("cm_delta_dagster.") and hint not in _PREDICATES:
        yield hint
    for argument in typing.get_args(hint):
        yield from _classes_in(argument)
