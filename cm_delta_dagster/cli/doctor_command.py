"""The command ``cm-delta doctor``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.operations.doctor import Depth, RepairPlan
from cm_delta_dagster.operations.doctor import doctor as check_table
from cm_delta_dagster.operations.recovery.display_text import counted


@click.command()
@click.argument("name")
@click.option("--repair", is_flag=True, help="Show the plan of repairs and carry it out; only provably safe repairs.")
@click.option(
    "--take-back",
    multiple=True,
    type=click.IntRange(min=1),
    help="With --repair: consent to take back the commit of this version, which no reader can use. Repeatable.",
)
@click.option("--deep", is_flag=True, help="Also read the footers and deletion vectors of all data files.")
@click.pass_context
def doctor(context: click.Context, name: str, repair: bool, take_back: tuple[int, ...], deep: bool) -> None:
    """Compare catalog and storage of the table NAME; the exit code is 1 if a finding is an error.

    Without --repair nothing is changed. Repairs copy the files that they replace to _delta_log/_set_aside.
    """
    with open_client(context) as client, _progress() as progress:
        report = check_table(
            client.table(name),
            repair=repair,
            take_back=take_back,
            depth=Depth.FOOTERS if deep else Depth.LISTING,
            progress=progress,
            on_plan=show_plan,
        )
    say(
        f"{report.identifier}: version {report.version}, published to {report.published_version}; compared "
        f"{counted(report.num_commits, 'commit')} and looked for {counted(report.num_files, 'file')} at {report.location}."
    )
    if deep:
        say(
            f"Read {counted(report.num_files_read, 'data file')}; {report.num_files_without_row_count} without a row count "
            "in the log."
        )
    for finding in report.repaired:
        say(f"repaired {finding.problem}: {finding.where}")
    for failure in report.failed:
        say(f"not repaired: {failure}")
    for finding in report.findings:
        hint = " [repaired by --repair]" if finding in report.repairable and not repair else ""
        say(f"{finding.severity:<8} {finding.problem}: {finding.where}: {finding.message}{hint}")
    if not repair and report.plan.steps:
        show_plan(report.plan)
    if not report.healthy:
        context.exit(1)
    say("Healthy.")


def show_plan(plan: RepairPlan) -> None:
    """Print a plan of repairs."""
    if plan.steps:
        say(f"Plan of repairs of {plan.identifier} at version {plan.version}:")
    else:
        say("No finding can be repaired." if plan.untouched else "Nothing to repair.")
    for number, step in enumerate(plan.steps, 1):
        say(f"{number:>3}. {step.repair}: {step.description}")
        for location in step.sets_aside:
            say(f"       copied to _set_aside first: {location}")
    if plan.steps:
        for finding in plan.untouched:
            say(f"     no repair: {finding.problem}: {finding.where}: {finding.message}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows a progress bar on standard error."""
    with ExitStack() as stack:
        bars: list[Any] = []

        def show(done: int, total: int) -> None:
            if not bars:
                bar = click.progressbar(length=total, label="Reading data files", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            bars[0].update(done - bars[0].pos)

        yield show
