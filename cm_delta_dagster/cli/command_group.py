"""The group of all commands: it imports a command when it runs, and gives hints for command lines that it cannot parse."""

import importlib
from typing import Any

import click

from cm_delta_dagster.cli.commands import COMMANDS
from cm_delta_dagster.operations.recovery.display_text import printable

_BEFORE = ("--catalog", "--storage-option")
_METHODS = {
    "vacuum": "vacuum",
    "compact": "optimize",
    "checkpoint": "checkpoint",
    "publish": "publish",
    "clean-log": "clean_log",
    "clean-staged-commits": "clean_staged_commits",
}
"""Maintenance that is not a command, and the method of a table."""


class CommandGroup(click.Group):
    """The commands of ``COMMANDS``. It makes errors printable, and says where an option or a command belongs that is not known
    where it is given.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"cm_delta_dagster.cli.{entry.module}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, COMMANDS))
        limit = formatter.width - 6 - longest
        with formatter.section("Commands"):
            formatter.write_dl([(name, _shortened(COMMANDS[name].summary, limit)) for name in sorted(COMMANDS)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name in _METHODS:
            ctx.fail(
                f"There is no command {name!r}. In Python, call {_METHODS[name]}() of a table: "
                f"connect(...).table(NAME).{_METHODS[name]}(). In Dagster, use the jobs that docs/maintenance.md describes. "
                "`cm-delta sql` runs VACUUM and OPTIMIZE; `cm-delta policy` says what maintenance is allowed."
            )
        ctx.fail(f"There is no command {name!r}. The commands are {', '.join(sorted(COMMANDS))}.")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            error.message = printable(error.message)  # type: ignore[misc]  # Final in the annotations of click only.
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name in _BEFORE and error.ctx is not ctx:
                raise click.UsageError(
                    f"{error.option_name} belongs before the command: cm-delta {error.option_name} ... "
                    f"{error.ctx.info_name if error.ctx is not None else 'COMMAND'} ...",
                    error.ctx,
                ) from error
            raise


def _shortened(summary: str, limit: int) -> str:
    """The summary as click shortens the help of commands to one line."""
    return click.Command(None, help=summary).get_short_help_str(limit)
