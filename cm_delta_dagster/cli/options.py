"""The options before the command."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click

from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options before the command."""

    url: str | None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    principal: str | None = None
    context: CommitContext = NO_CONTEXT


def parse_storage_options(pairs: Iterable[str], environment: str | None) -> dict[str, Any]:
    """Storage options of the JSON text in the environment and of ``KEY=VALUE`` pairs, which have precedence.

    A value that is a JSON object, list, true or false is decoded; any other value is text.

    Raises:
        click.UsageError: a pair without ``=``, or text that is not JSON. The message has no value, which may be a secret.
    """
    options = _decoded_environment(environment) if environment else {}
    for pair in pairs:
        # A prefix of locations may contain "=" too, but a JSON object follows it.
        key, separator, value = pair.partition("={") if "://" in pair.partition("=")[0] else pair.partition("=")
        if not separator or not key:
            raise click.UsageError("--storage-option takes KEY=VALUE, e.g. endpoint_url=https://host.")
        options[key] = _decoded(separator[1:] + value, key)
    return options


def parse_tags(pairs: Iterable[str]) -> dict[str, str]:
    """Tags of ``KEY=VALUE`` pairs. Raises click.UsageError for a pair without ``=``."""
    tags: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--tag takes KEY=VALUE, e.g. owner=etl; given was {pair!r}.")
        tags[key] = value
    return tags


def _decoded_environment(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        options = json.loads(text)
        if isinstance(options, dict):
            return options
    raise click.UsageError('CM_DELTA_STORAGE_OPTIONS is not a JSON object such as {"key": "...", "secret": "..."}.')


def _decoded(text: str, key: str) -> Any:
    if not text.startswith(("{", "[")) and text not in ("true", "false"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise click.UsageError(f"The value of --storage-option {key} begins like JSON and is not JSON.") from None
