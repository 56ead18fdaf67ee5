"""The command ``cm-delta restore``."""

import datetime

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.results import echo_result, json_option
from cm_delta_dagster.operations.arguments import epoch_milliseconds
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.restore import MissingFiles, RestoreOutcome, RestorePlan, plan_restore
from cm_delta_dagster.operations.tables.restore import restore as apply_restore


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="The version to restore.")
@click.option(
    "--timestamp", metavar="TIME", help="In its place: the version of that time, in UTC unless it names a zone."
)
@click.option(
    "--missing-files",
    type=click.Choice([choice.value for choice in MissingFiles]),
    default=MissingFiles.REFUSE.value,
    show_default=True,
    help="What to do if storage no longer holds all files of that version; with ignore, their rows are lost.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Commit; without it, only show what would change.")
@json_option
@click.pass_context
def restore(
    context: click.Context, name: str, version: int | None, timestamp: str | None, missing_files: str, apply_it: bool
) -> None:
    """Make an older version of the table NAME its next version; the history stays."""
    if (version is None) == (timestamp is None):
        raise click.UsageError("Give one of --version and --timestamp.")
    with open_client(context) as client:
        table = client.table(name)
        time_ms = None if timestamp is None else epoch_milliseconds(timestamp, zone=lambda: datetime.UTC)
        if not apply_it:
            _show(plan_restore(table, version=version, timestamp_ms=time_ms))
            return
        result = apply_restore(table, version=version, timestamp_ms=time_ms, missing_files=MissingFiles(missing_files))
    if result.outcome is RestoreOutcome.NOTHING_TO_DO:
        echo_result(result, [f"Version {result.version} is the latest version of {name}; nothing was committed."])
        return
    done = (
        f"Version {result.version} of {name} restores version {result.restored_version}: "
        f"{counted(result.num_restored_files, 'file')} added ({size_text(result.restored_bytes)}), "
        f"{counted(result.num_removed_files, 'file')} removed ({size_text(result.removed_bytes)})."
    )
    echo_result(result, [done])


def _show(plan: RestorePlan) -> None:
    current, target = plan.current, plan.target
    lines = [
        f"Version {target.version} of {current.identifier} would become version {current.version + 1}: "
        f"{counted(plan.num_restored_files, 'file')} added, {counted(plan.num_removed_files, 'file')} removed."
    ]
    lines += [f"missing  {location}" for location in plan.missing]
    if plan.missing:
        lines.append(
            f"Storage no longer holds {counted(len(plan.missing), 'file')} of that version. --apply refuses to commit, unless "
            "--missing-files ignore gives up their rows."
        )
    value = {
        "version": current.version,
        "restored_version": target.version,
        "num_restored_files": plan.num_restored_files,
        "num_removed_files": plan.num_removed_files,
        "missing": list(plan.missing),
    }
    echo_result(value, lines, footer="Nothing was committed. --apply restores.")
