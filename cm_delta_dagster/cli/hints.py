"""Hints for command lines that ``cm-delta`` cannot parse."""

from typing import Any

import click

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


class HintingGroup(click.Group):
    """The group of all commands. It says where an option or a command belongs that is not known where it is given."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name in _METHODS:
            ctx.fail(
                f"There is no command {name!r}. In Python, call {_METHODS[name]}() of a table: "
                f"connect(...).table(NAME).{_METHODS[name]}(). In Dagster, use the jobs that docs/maintenance.md describes. "
                "`cm-delta sql` runs VACUUM and OPTIMIZE; `cm-delta policy` says what maintenance is allowed."
            )
        ctx.fail(f"There is no command {name!r}. The commands are {', '.join(sorted(self.commands))}.")

    def invoke(self, ctx: click.Context) -> Any:
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
