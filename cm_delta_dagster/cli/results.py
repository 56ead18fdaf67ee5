"""The result of a command, as lines for people or as one JSON object."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import click

from cm_delta_dagster.cli.output import say, say_json

_AS_JSON = "cm_delta_dagster.as_json"


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_AS_JSON] = context.meta.get(_AS_JSON, False) or value


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--json``, which :func:`echo_result` obeys."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print the result, or the plan, as a JSON object.",
    )(command)


def echo_result(value: Any, lines: Iterable[str], *, footer: str = "") -> None:
    """Print the lines and the footer, or with ``--json`` the value: a dict or a dataclass."""
    if click.get_current_context().meta.get(_AS_JSON, False):
        say_json(value if isinstance(value, dict) else asdict(value))
        return
    for line in [*lines, *([footer] if footer else [])]:
        say(line)


def is_json() -> bool:
    """Whether the command has the option ``--json``."""
    return bool(click.get_current_context().meta.get(_AS_JSON, False))
