"""Delta tables whose commits a catalog ratifies, for PySpark and Dagster. This module is the public API.

``connect`` opens a catalog from scripts and notebooks; ``cm_delta_dagster.orchestration`` holds what Dagster needs. The module
exports what users construct, catch or annotate: everything that the methods of ``Connection``, ``DeltaTable``,
``PathDeltaTable`` and ``DeltaClient`` take, the errors, and results that are handed on. Parts of results, and the namespaces of a
connection or table, are not exported: they are reached by attributes. A name is imported on first use, so that importing one
module of the package loads neither Spark nor Dagster; ``__init__.pyi`` lists the names, and where each is defined.

``DeltaClient`` is what ``Connection.client`` gives. What its methods return is for the operations of this package and can change in
any release.
"""

from importlib import import_module

from cm_delta_dagster.advice import EntryPoint, register_words

_STUB = __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
_IMPORTS = [statement.replace("(", " ").split() for statement in f"\n{_STUB}".split("\nfrom ")[1:]]
_MODULES = {name: module for module, _, name, *_ in _IMPORTS}
"""The module of each exported name, from the stub, whose statements are ``from <module> import <name> as <name>``."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        if not name.startswith("_"):
            moved = import_module("cm_delta_dagster.api.moved_names").EXPORTED
            here = {**import_module("cm_delta_dagster.api.peer_names").PACKAGE_NAMES, **moved}.get(name)
            if (
                here is not None
            ):  # The message of an AttributeError would be lost in "from cm_delta_dagster import ...".
                raise ImportError(f"module {__name__!r} has no attribute {name!r}: write {here}", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__


_REMEDY_WORDS = {
    EntryPoint.PYTHON: "cm_delta_dagster.api.remedy_words",
    EntryPoint.SQL: "cm_delta_dagster.operations.sql.remedy_words",
    EntryPoint.SHELL: "cm_delta_dagster.cli.remedy_words",
}
"""The modules that say for each entry point how to do what the remedy of an error says; imported for the first such error."""

for _entry_point, _module in _REMEDY_WORDS.items():
    register_words(_entry_point, lambda module=_module: import_module(module).WORDS)
