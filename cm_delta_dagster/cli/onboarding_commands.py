"""Commands of ``cm-delta`` that bring tables under the catalog and let them go, or read them by path."""

from collections.abc import Callable
from typing import Any

import click

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.cli.results import echo_result, is_json, json_option
from cm_delta_dagster.operations.onboarding import export as exporting
from cm_delta_dagster.operations.onboarding import release as releasing
from cm_delta_dagster.operations.onboarding.adopt import adopt as adopt_table
from cm_delta_dagster.operations.onboarding.adopt_plan import explain, plan_adopt
from cm_delta_dagster.operations.onboarding.parquet_folder import FolderOptions
from cm_delta_dagster.operations.onboarding.register import check_path, register_path

_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    return _dry_run(json_option(command))


@click.command()
@click.argument("path")
@click.argument("name")
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN=TYPE",
    help="Of Parquet files: the type of a partition column, e.g. day=date; may be repeated, in the order of the directories.",
)
@_options
@click.pass_context
def adopt(context: click.Context, path: str, name: str, partition_by: tuple[str, ...], dry_run: bool) -> None:
    """Bring the Delta table or the Parquet files at PATH under the catalog as NAME, without copying data files."""
    options = FolderOptions(
        partition_by=dict(map(_column_and_type, partition_by)), progress=None if is_json() else _show_progress
    )
    with open_client(context) as client:
        if dry_run:
            plan = plan_adopt(client, location=path, identifier=name, folder=options)
            echo_result(plan, explain(plan), footer="Nothing was changed.")
            return
        table = adopt_table(client, location=path, identifier=name, folder=options)
        result = {"name": str(table.identifier), "location": table.location, "version": table.latest_version()}
    done = f"{result['location']} is the table {result['name']} of the catalog, with version {result['version']}."
    echo_result(result, [done])


def _column_and_type(text: str) -> tuple[str, str]:
    column, separator, kind = text.partition("=")
    if not separator or not column or not kind:
        raise click.UsageError(f"{text!r} is not COLUMN=TYPE.")
    return column, kind


def _show_progress(done: int, total: int) -> None:
    say(f"{done} of {total} files read", err=True)


@click.command()
@click.argument("name")
@_options
@click.pass_context
def release(context: click.Context, name: str, dry_run: bool) -> None:
    """Make the table NAME a Delta table of its path again; the catalog forgets it."""
    with open_client(context) as client:
        if dry_run:
            plan = releasing.plan_release(client, identifier=name)
            echo_result(plan, releasing.explain(plan), footer="Nothing was changed.")
            return
        result = releasing.release(client, identifier=name)
    done = f"{result.name} is released: a Delta table at {result.location}, with version {result.version}."
    echo_result(result, [done])


@click.command()
@click.argument("name")
@click.argument("target")
@_options
@click.pass_context
def export(context: click.Context, name: str, target: str, dry_run: bool) -> None:
    """Write a log of the table NAME to TARGET for engines that cannot read tables of a catalog; data files are shared."""
    with open_client(context) as client:
        table = client.table(name)
        make = exporting.plan_export if dry_run else exporting.export
        plan = make(client, table, target=target)
    echo_result(plan, exporting.explain(plan), footer="Nothing was written." if dry_run else "")


@click.command()
@click.argument("path")
@click.argument("name")
@_options
@click.pass_context
def register(context: click.Context, path: str, name: str, dry_run: bool) -> None:
    """Let NAME stand for the Delta table at PATH, to read it; its writers stay the same."""
    with open_client(context) as client:
        act = check_path if dry_run else register_path
        found = act(client, location=path, identifier=name)
    done = (
        f"{found.name} {'would stand' if dry_run else 'stands'} for {found.location}, now at version {found.version}."
    )
    echo_result(found, [done], footer="Nothing was changed." if dry_run else "")


@click.command()
@click.argument("name")
@click.pass_context
def unregister(context: click.Context, name: str) -> None:
    """Remove the registered NAME; the table at its path stays as it is."""
    with open_client(context) as client:
        client.registry.unregister_path(TableIdentifier.of(name))
    say(f"{name} is not registered any more.")
