"""The groups of commands: they import a command when it runs, and give hints for command lines that they cannot parse."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from cm_delta_dagster.advice import EntryPoint, advice, process_entry_point
from cm_delta_dagster.cli.command_table import GROUPS, commands_of, summaries
from cm_delta_dagster.cli.moved_commands import moved_command
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.recovery.display_text import printable
from cm_delta_dagster.remedies import RunMaintenance

_BEFORE = ("--catalog", "--storage-option")
_TASKS = {
    "vacuum": "vacuum",
    "compact": "optimize",
    "checkpoint": "checkpoint",
    "publish": "publish",
    "clean-log": "clean_log",
    "clean-staged-commits": "clean_staged_commits",
}
"""Maintenance that is not a command, and its task."""


class TableGroup(click.Group):
    """A group whose commands are in the table.

    Attributes:
        words: the words of the group after ``cm-delta``; empty for the program itself.
    """

    words = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(commands_of(self.words))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = commands_of(self.words).get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(importlib.import_module(place.module), place.function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write(formatter, "Commands", summaries(self.words))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in self.list_commands(ctx) or name.startswith("-"):
            return super().resolve_command(ctx, args)
        moved = moved_command([*self.words.split(), *args])
        if moved is not None:
            ctx.fail(f"There is no command {moved[0]!r}. Write `cm-delta {moved[1]}`.")
        hint = self._hint(name) or f"The commands are {', '.join(self.list_commands(ctx))}."
        ctx.fail(f"There is no command {name!r}. {hint}")

    def _hint(self, name: str) -> str:
        """What to write in place of a command that never was; empty if that is not known."""
        return ""


class CommandGroup(TableGroup):
    """The program: the commands without a group, and the groups.

    It turns errors of this package into messages and makes them printable, and says where an option or a command belongs that is
    not known where it is given.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *GROUPS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in GROUPS:
            return super().get_command(ctx, cmd_name)
        group = TableGroup(cmd_name, help=GROUPS[cmd_name])
        group.words = cmd_name
        return group

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write(formatter, "Commands for tables", dict(sorted(summaries("").items())))
        _write(formatter, "Groups of commands (`cm-delta GROUP --help` lists them)", GROUPS)

    def _hint(self, name: str) -> str:
        if name not in _TASKS:
            return ""
        with process_entry_point(EntryPoint.SHELL):  # The options of the program are not read yet.
            where = advice(RunMaintenance(task=_TASKS[name]))
        jobs = "docs/maintenance.md describes the jobs; `cm-delta maintenance list-policies` says what maintenance is allowed."
        return f"{where} {jobs}"

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CmDeltaError as error:
            raise click.ClickException(printable(str(error))) from error
        except click.ClickException as error:
            error.message = printable(_message(error, ctx))  # type: ignore[misc]  # Final in the annotations of click only.
            raise


def _message(error: click.ClickException, group: click.Context) -> str:
    """The message of the error; for an option of the group that comes after the command, where it belongs."""
    if isinstance(error, click.NoSuchOption) and error.option_name in _BEFORE and error.ctx not in (None, group):
        command = error.ctx.command_path.removeprefix(group.command_path).strip() if error.ctx is not None else ""
        return f"{error.option_name} belongs before the command: cm-delta {error.option_name} ... {command} ..."
    return error.message


def _write(formatter: click.HelpFormatter, title: str, texts: Mapping[str, str]) -> None:
    limit = formatter.width - 6 - max(map(len, texts))
    with formatter.section(title):
        formatter.write_dl([(name, _shortened(text, limit)) for name, text in texts.items()])


def _shortened(summary: str, limit: int) -> str:
    """The summary as click shortens the help of commands to one line."""
    return click.Command(None, help=summary).get_short_help_str(limit)
