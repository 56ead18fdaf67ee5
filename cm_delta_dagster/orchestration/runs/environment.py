"""References to environment variables in the configuration of resources: ``dg.EnvVar`` in Python, ``{env: NAME}`` in YAML.

Dagster stores the configuration of resources, and shows it: in its UI, in snapshots of the repository and of jobs. A reference
stays a reference there. Its value is read in the process that opens the catalog or starts Spark, and is not stored.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError

IntEnvVar = type(dg.EnvVar.int("NAME"))
"""The class of ``dg.EnvVar.int(name)``, which Dagster does not export."""


def variable_of(value: Any) -> str | None:
    """The name in ``dg.EnvVar(name)`` or ``{"env": name}``; None for another value."""
    if isinstance(value, dg.EnvVar | IntEnvVar):
        return str(value.env_var_name)
    name = value.get("env") if isinstance(value, Mapping) and len(value) == 1 else None
    return name if isinstance(name, str) else None


def as_references(value: Any) -> Any:
    """``value`` with ``{"env": name}``, at any depth of mappings and lists, as ``dg.EnvVar(name)``."""
    if isinstance(value, dg.EnvVar | IntEnvVar):
        return value
    name = variable_of(value)
    if name is not None:
        return dg.EnvVar(name)
    if isinstance(value, Mapping):
        return {key: as_references(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_references(item) for item in value]
    return value


def as_config(value: Any) -> Any:
    """A mapping for the validation of a field that holds a mapping: a reference to all of it is ``{"env": name}``."""
    name = variable_of(value)
    return value if name is None else {"env": name}


def resolved_options(value: Any, *, name: str) -> dict[str, Any]:
    """The mapping ``value`` with the values of the environment.

    Args:
        value: a mapping with references at any depth, or a reference to a JSON object with all of it.
        name: of the field, for messages.

    Raises:
        InvalidArgumentError: a variable is not set, or has no JSON object where it stands for all. The message has no value.
    """
    variable = variable_of(value)
    if variable is None:
        return {key: _resolved(item, name=name) for key, item in value.items()}
    text = _value_of(variable, name=name)
    with suppress(ValueError):
        options = json.loads(text)
        if isinstance(options, dict):
            return options
    # Without the text, which may be a secret.
    raise InvalidArgumentError(f'{variable} is not a JSON object such as {{"key": "...", "secret": "..."}}.')


def _resolved(value: Any, *, name: str) -> Any:
    variable = variable_of(value)
    if variable is not None:
        return _value_of(variable, name=name)
    if isinstance(value, Mapping):
        return {key: _resolved(item, name=name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_resolved(item, name=name) for item in value]
    return value


def _value_of(variable: str, *, name: str) -> str:
    text = os.environ.get(variable)
    if text is None:
        raise InvalidArgumentError(
            f"{name} uses the environment variable {variable}, which is not set. Set it where the run executes."
        )
    return text
