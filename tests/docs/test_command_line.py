"""The page of the command line: it has each command that prints JSON, with the sentence of its help."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cm_delta_dagster.cli.command_table import PLACES
from cm_delta_dagster.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
_PREFIX = "Print JSON: "


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command that does something by itself, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from _commands(command, words)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield words, command


COMMANDS = {words: command for words, command in _commands(main) if words != "serve"}
"""All but the server, which has no result."""


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_each_command_prints_json_as_the_page_says(words: str) -> None:
    (option,) = (
        option for option in COMMANDS[words].params if isinstance(option, click.Option) and option.name == "json"
    )
    assert option.help is not None and option.help.startswith(_PREFIX)
    content = option.help.removeprefix(_PREFIX).removesuffix(".")
    assert f"| `{words}` | {content} |" in PAGE.read_text().splitlines()


def test_the_page_has_no_other_commands() -> None:
    rows = [line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == sorted(COMMANDS)
    assert all(any(f"{row} ".startswith(f"{words} ") for words in PLACES) for row in rows)
