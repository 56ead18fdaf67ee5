"""Delta tables whose commits a catalog ratifies, for PySpark and Dagster. This module is the public API.

``connect`` opens a catalog from scripts and notebooks; ``cm_delta_dagster.orchestration`` holds what Dagster needs. The module
exports everything that the methods of ``Connection``, ``DeltaTable``, ``PathDeltaTable`` and ``DeltaClient`` take, and everything
that the methods of exported classes return and raise. A name is imported on first use, so that importing one module of the
package loads neither Spark nor Dagster; ``__init__.pyi`` lists the names, and where each is defined.

``SqlCatalog`` and ``Stores`` are exported to construct a ``DeltaClient``, ``Table`` as the type of what it opens. Their methods
are for the operations of this package: they are not part of the public API, return values that are not exported, and can change
in any release.
"""

from importlib import import_module

from cm_delta_dagster.remedies import EntryPoint, register_words

_STUB = __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
_IMPORTS = [statement.replace("(", " ").split() for statement in f"\n{_STUB}".split("\nfrom ")[1:]]
_MODULES = {name: module for module, _, name, *_ in _IMPORTS}
"""The module of each exported name, from the stub, whose statements are ``from <module> import <name> as <name>``."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
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
