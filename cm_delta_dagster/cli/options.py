"""Types of options, and the options before the command."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import click

from cm_delta_dagster.catalog.durations import parse_duration
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options before the command."""

    url: str | None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    principal: str | None = None
    context: CommitProperties = NO_PROPERTIES


class _Duration(click.ParamType):  # type: ignore[type-arg]  # Generic since a recent click only.
    """A duration from 0 to a hundred years, such as ``7 days`` or ``P7D``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(
                value, name=f"--{param.name.replace('_', '-')}" if param and param.name else self.name
            )
        except InvalidArgumentError as error:
            self.fail(error.message, param, ctx)


DURATION = _Duration()


def renamed_option(old: str, new: str) -> Callable[[Any], Any]:
    """An option of an earlier release, which is an error that names the new one."""

    def refuse(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"The option {old} is now {new}, e.g. {new} '7 days'.", ctx)

    return click.option(old, hidden=True, expose_value=False, callback=refuse)


class Pair(click.ParamType):  # type: ignore[type-arg]  # Generic since a recent click only.
    """A text of two parts, which are not empty.

    Args:
        form: how the text is written, e.g. ``KEY=VALUE``.
        example: a text that is right.
        is_last: the last ``=`` separates the parts, since the first part can have some.
        may_be_empty: the second part may be empty.
    """

    name = "pair"

    def __init__(self, form: str, example: str = "", *, is_last: bool = False, may_be_empty: bool = False) -> None:
        self.name = form
        self._advice = f", e.g. {example}" if example else ""
        self._is_last = is_last
        self._may_be_empty = may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, separator, rest = value.rpartition("=") if self._is_last else value.partition("=")
        if not separator or not key or not (rest or self._may_be_empty):
            self.fail(f"{value!r} is not {self.name}{self._advice}.", param, ctx)
        return key, rest


future_option = click.option("--future", is_flag=True, help="Also if the scope has no table yet.")

PROPERTY = Pair("KEY=VALUE", may_be_empty=True)


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
