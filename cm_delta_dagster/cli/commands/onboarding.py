"""Commands of ``cm-delta`` that bring tables under the catalog and let them go, or read them by path."""

import click

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import Pair
from cm_delta_dagster.cli.printer import output, progress, show
from cm_delta_dagster.operations.onboarding import export as exporting
from cm_delta_dagster.operations.onboarding import release as releasing
from cm_delta_dagster.operations.onboarding.adopt import adopt as adopt_table
from cm_delta_dagster.operations.onboarding.adopt_plan import explain, plan_adopt
from cm_delta_dagster.operations.onboarding.parquet_folder import FolderOptions
from cm_delta_dagster.operations.onboarding.register import check_path, register_path

_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
_UNCHANGED = "Nothing was changed."


@click.command()
@click.argument("path")
@click.argument("name")
@click.option(
    "--partition-by",
    multiple=True,
    type=Pair("COLUMN=TYPE", "day=date"),
    metavar="COLUMN=TYPE",
    help="Of Parquet files: the type of a partition column, e.g. day=date; may be repeated, in the order of the directories.",
)
@_dry_run
@output("an object: name, location, version; with --dry-run the attributes of AdoptPlan")
def adopt(path: str, name: str, partition_by: tuple[tuple[str, str], ...], dry_run: bool) -> None:
    """Bring the Delta table or the Parquet files at PATH under the catalog as NAME, without copying data files."""
    with open_client() as client, progress("Reading files") as advance:
        options = FolderOptions(partition_by=dict(partition_by), progress=advance)
        if dry_run:
            plan = plan_adopt(client, location=path, identifier=name, folder=options)
        else:
            table = adopt_table(client, location=path, identifier=name, folder=options)
            result = {"name": str(table.identifier), "location": table.location, "version": table.latest_version()}
    if dry_run:
        show(plan, *explain(plan), _UNCHANGED)
        return
    show(
        result, f"{result['location']} is the table {result['name']} of the catalog, with version {result['version']}."
    )


@click.command()
@click.argument("name")
@_dry_run
@output("an object with the attributes of ReleaseResult, or with --dry-run of ReleasePlan")
def release(name: str, dry_run: bool) -> None:
    """Make the table NAME a Delta table of its path again; the catalog forgets it."""
    with open_client() as client:
        if dry_run:
            plan = releasing.plan_release(client, identifier=name)
            show(plan, *releasing.explain(plan), _UNCHANGED)
            return
        result = releasing.release(client, identifier=name)
    show(result, f"{result.name} is released: a Delta table at {result.location}, with version {result.version}.")


@click.command()
@click.argument("name")
@click.argument("target")
@_dry_run
@output("an object with the attributes of ExportPlan")
def export(name: str, target: str, dry_run: bool) -> None:
    """Write a log of the table NAME to TARGET for engines that cannot read tables of a catalog; data files are shared."""
    with open_client() as client:
        make = exporting.plan_export if dry_run else exporting.export
        plan = make(client, client.table(name), target=target)
    show(plan, *exporting.explain(plan), *(["Nothing was written."] if dry_run else []))


@click.command()
@click.argument("path")
@click.argument("name")
@_dry_run
@output("an object with the attributes of RegisteredPath")
def register(path: str, name: str, dry_run: bool) -> None:
    """Let NAME stand for the Delta table at PATH, to read it; its writers stay the same."""
    with open_client() as client:
        path_table = (check_path if dry_run else register_path)(client, location=path, identifier=name)
    verb = "would stand" if dry_run else "stands"
    done = f"{path_table.name} {verb} for {path_table.location}, now at version {path_table.version}."
    show(path_table, done, *([_UNCHANGED] if dry_run else []))


@click.command()
@click.argument("name")
@output("an object: name")
def unregister(name: str) -> None:
    """Remove the registered NAME; the table at its path stays as it is."""
    with open_client() as client:
        client.registry.unregister_path(TableIdentifier.of(name))
    show({"name": name}, f"{name} is not registered any more.")
