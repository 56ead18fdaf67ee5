"""The commands of ``cm-delta`` by group, with the function that each runs; its module is imported when the command runs."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

GROUPS: Mapping[str, str] = {
    "access": "Grants, roles, owners, application ids, and the audit.",
    "rules": "Rules for commits, and commits that wait for an approval.",
    "maintenance": "Policies, leases, and the purge of dropped tables.",
    "settings": "Commit modes and catalogs.",
    "events": "The feed of the catalog's events.",
    "recovery": "Recovery, relocation, and the backup of the catalog.",
    "onboarding": "Adoption, release, export, and names for tables by path.",
}
"""The groups, with their help. They are the namespaces of a connection of Python."""

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "": {
        "alter": "alter",
        "doctor": "doctor",
        "lifecycle": "drop rename undrop",
        "namespaces": "schemas",
        "position": "position",
        "reading": "files head history schema sql",
        "rewriting": "clone optimize restore",
        "serve": "serve",
        "spark_jars": "spark-jars",
        "tables": "commits tables",
        "tokens": "token",
    },
    "access": {
        "access": "whoami grant revoke list-grants enable-grants disable-grants owner set-owner list-application-ids "
        "reset-application-id audit",
        "roles": "add-to-role remove-from-role drop-role list-roles",
    },
    "rules": {"rules": "set=set_rule remove=remove_rule list=list_rules approvals approve reject held ratify discard"},
    "maintenance": {
        "policies": "set-policy remove-policy list-policies",
        "leases": "leases expire-lease",
        "purging": "purge orphan-files",
    },
    "settings": {
        "commit_modes": "set-commit-mode remove-commit-mode list-commit-modes",
        "namespaces": "list-catalogs create-catalog drop-catalog",
    },
    "events": {"events": "feed clean-feed"},
    "recovery": {"recovery": "recover relocate backup"},
    "onboarding": {"onboarding": "adopt release export register unregister"},
}
"""The commands of each group by module of ``cli.commands``; those of the program itself are in no group."""


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The module of a command, and the name of its function."""

    module: str
    function: str


def _places() -> dict[str, CommandPlace]:
    places = {}
    for group, modules in _COMMANDS.items():
        for module, commands in modules.items():
            for command, _, function in (text.partition("=") for text in commands.split()):
                words = f"{group} {command}".strip()
                name = function or command.replace("-", "_")
                places[words] = CommandPlace(f"cm_delta_dagster.cli.commands.{module}", name)
    return places


PLACES: Mapping[str, CommandPlace] = _places()
"""The place of each command by its words, such as ``access grant``."""


def commands_of(group: str) -> dict[str, CommandPlace]:
    """The commands of a group, or those without a group for ``""``, by their last word."""
    words = (text.split() for text in PLACES)
    return {path[-1]: PLACES[" ".join(path)] for path in words if path[:-1] == ([group] if group else [])}


def summaries(group: str) -> dict[str, str]:
    """The docstring of each command of a group, read from the source without importing it."""
    docstrings: dict[str, str] = {}
    by_place = {place: name for name, place in commands_of(group).items()}
    for module in dict.fromkeys(place.module for place in by_place):
        spec = find_spec(module)
        source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined]  # Loaders of files.
        for node in ast.parse(source).body:
            name = by_place.get(CommandPlace(module, node.name)) if isinstance(node, ast.FunctionDef) else None
            if isinstance(node, ast.FunctionDef) and name is not None:
                docstrings[name] = ast.get_docstring(node) or ""
    return docstrings
