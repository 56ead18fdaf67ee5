"""The commands of ``cm-delta`` by the module of ``cli.commands`` that defines them; it is imported when one of them runs."""

import ast
from collections.abc import Mapping
from importlib.util import find_spec

_COMMANDS: Mapping[str, str] = {
    "access": "application-ids audit grant grants owner reset-application-id revoke roles whoami",
    "alter": "alter",
    "commit_mode": "commit-mode",
    "doctor": "doctor",
    "events": "clean-feed expire-lease feed leases",
    "lifecycle": "drop orphan-files purge rename undrop",
    "namespaces": "catalogs schemas",
    "onboarding": "adopt export register release unregister",
    "policy": "policy",
    "position": "position",
    "reading": "files head history schema sql",
    "recovery": "backup recover relocate",
    "rewriting": "clone optimize restore",
    "rules": "approvals approve reject rules",
    "spark_jars": "spark-jars",
    "tables": "commits tables",
}

MODULES: Mapping[str, str] = {
    command: f"cm_delta_dagster.cli.commands.{module}"
    for module, commands in _COMMANDS.items()
    for command in commands.split()
}
"""The module of each command; its attribute is named as the command, with ``_`` for ``-``."""


def summaries() -> dict[str, str]:
    """The docstring of each command, read from the source without importing it."""
    docstrings: dict[str, str] = {}
    for module in dict.fromkeys(MODULES.values()):
        spec = find_spec(module)
        source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined]  # Loaders of files.
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and MODULES.get(name := node.name.replace("_", "-")) == module:
                docstrings[name] = ast.get_docstring(node) or ""
    return docstrings
