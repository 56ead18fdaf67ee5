"""The command ``cm-delta doctor``."""

from collections.abc import Iterator
from functools import partial

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.printer import output, progress, say, show
from cm_delta_dagster.cli.values import plain
from cm_delta_dagster.operations.doctor import Depth, DoctorReport, RepairPlan, repair_table
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
@output("an object with the attributes of DoctorReport")
@click.pass_context
def doctor(context: click.Context, name: str, repair: bool, take_back: tuple[int, ...], deep: bool) -> None:
    """Compare catalog and storage of the table NAME; the exit code is 1 if a finding is an error.

    Without --repair nothing is changed. Repairs copy the files that they replace to _delta_log/_set_aside.
    """
    if take_back and not repair:
        raise click.UsageError("--take-back is a repair, and goes with --repair.")
    check = check_table
    if repair:
        check = partial(repair_table, take_back=take_back, on_plan=lambda plan: say(*explained(plan)))
    with open_client() as client, progress("Reading data files") as advance:
        report = check(client.table(name), depth=Depth.FOOTERS if deep else Depth.LISTING, progress=advance)
    show(plain(report) | {"healthy": report.healthy}, *_lines(report, deep=deep, is_check=not repair))
    if not report.healthy:
        context.exit(1)


def _lines(report: DoctorReport, *, deep: bool, is_check: bool) -> Iterator[str]:
    yield (
        f"{report.identifier}: version {report.version}, published to {report.published_version}; compared "
        f"{counted(report.num_commits, 'commit')} and looked for {counted(report.num_files, 'file')} at {report.location}."
    )
    if deep:
        yield (
            f"Read {counted(report.num_files_read, 'data file')}; {report.num_files_without_row_count} without a row count "
            "in the log."
        )
    yield from (f"repaired {finding.problem}: {finding.where}" for finding in report.repaired)
    yield from (f"not repaired: {failure}" for failure in report.failed)
    for finding in report.findings:
        hint = " [repaired by --repair]" if is_check and finding in report.repairable else ""
        yield f"{finding.severity:<8} {finding.problem}: {finding.where}: {finding.message}{hint}"
    if is_check and report.plan.steps:
        yield from explained(report.plan)
    if report.healthy:
        yield "Healthy."


def explained(plan: RepairPlan) -> Iterator[str]:
    """The lines that show a plan of repairs."""
    if not plan.steps:
        yield "No finding can be repaired." if plan.untouched else "Nothing to repair."
        return
    yield f"Plan of repairs of {plan.identifier} at version {plan.version}:"
    for number, step in enumerate(plan.steps, 1):
        yield f"{number:>3}. {step.repair}: {step.description}"
        yield from (f"       copied to _set_aside first: {location}" for location in step.sets_aside)
    for finding in plan.untouched:
        yield f"     no repair: {finding.problem}: {finding.where}: {finding.message}"
