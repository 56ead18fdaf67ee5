"""The group of all commands: it imports a command when it runs, and gives hints for command lines that it cannot parse."""

import importlib
from typing import Any

import click

from cm_delta_dagster.cli.command_table import MODULES, summaries
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.recovery.display_text import printable
from cm_delta_dagster.remedies import EntryPoint, RunMaintenance, advice, process_entry_point

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


class CommandGroup(click.Group):
    """The commands of the table. It turns errors of this package into messages and makes them printable, and says where an option
    or a command belongs that is not known where it is given.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        command: click.Command = getattr(importlib.import_module(MODULES[cmd_name]), cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, MODULES))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _shortened(text, limit)) for name, text in sorted(summaries().items())])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in MODULES or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name in _TASKS:
            with process_entry_point(EntryPoint.SHELL):  # The options of the program are not read yet.
                where = advice(RunMaintenance(task=_TASKS[name]))
            ctx.fail(
                f"There is no command {name!r}. {where} docs/maintenance.md describes the jobs; `cm-delta policy` says what "
                "maintenance is allowed."
            )
        ctx.fail(f"There is no command {name!r}. The commands are {', '.join(sorted(MODULES))}.")

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
        command = error.ctx.info_name if error.ctx is not None else ""
        return f"{error.option_name} belongs before the command: cm-delta {error.option_name} ... {command} ..."
    return error.message


def _shortened(summary: str, limit: int) -> str:
    """The summary as click shortens the help of commands to one line."""
    return click.Command(None, help=summary).get_short_help_str(limit)
