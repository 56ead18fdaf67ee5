"""Commands that clone a table, restore an older version of it, and rewrite its files."""

import datetime
import importlib

import click

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableIdentifier
from cm_delta_dagster.cli.catalog import is_served, open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import PROPERTY
from cm_delta_dagster.cli.printer import output, show, warn
from cm_delta_dagster.operations.arguments import epoch_milliseconds
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, open_source
from cm_delta_dagster.operations.tables.clone import clone as create_clone
from cm_delta_dagster.operations.tables.restore import RestoreOutcome, RestorePlan, plan_restore
from cm_delta_dagster.operations.tables.restore import restore as restore_table

_ENGINES = "cm_delta_dagster.api.command_engines"
_timestamp = click.option(
    "--timestamp", metavar="TIME", help="In its place: the version of that time, in UTC unless it names a zone."
)


@click.command()
@click.argument("source")
@click.argument("name")
@click.option("--deep", is_flag=True, help="Copy the data files; without it, the clone names those of SOURCE.")
@click.option("--version", type=click.IntRange(min=0), help="The version to clone; by default the latest.")
@_timestamp
@click.option(
    "--property",
    "properties",
    multiple=True,
    type=PROPERTY,
    metavar="KEY=VALUE",
    help="Table property; may be repeated.",
)
@click.option(
    "--warehouse",
    help="Warehouse in which the clone gets its location; by default that of a SOURCE of the catalog. A server names its own.",
)
@output("an object with the attributes of CloneResult")
def clone(
    source: str,
    name: str,
    deep: bool,
    version: int | None,
    timestamp: str | None,
    properties: tuple[tuple[str, str], ...],
    warehouse: str | None,
) -> None:
    """Create the table NAME as a clone of SOURCE: a table of the catalog, or the path of a table of another writer."""
    if version is not None and timestamp is not None:
        raise click.UsageError("Give one of --version and --timestamp.")
    request = CloneRequest(
        mode=CloneMode.DEEP if deep else CloneMode.SHALLOW,
        version=version,
        timestamp_ms=_milliseconds(timestamp),
        properties=dict(properties),
    )
    with open_client(warehouse or _warehouse_of(source)) as client:
        result = create_clone(client, open_source(client, source), identifier=name, request=request)
    copied = f", {counted(result.num_copied_files, 'file')} copied" if deep else ""
    show(
        result,
        f"{result.name} is a {result.mode} clone of version {result.source_version} of {result.source}: "
        f"{counted(result.num_files, 'data file')} ({size_text(result.num_bytes)}){copied}.",
    )
    if result.warning is not None:
        warn(result.warning)


def _milliseconds(timestamp: str | None) -> int | None:
    return None if timestamp is None else epoch_milliseconds(timestamp, zone=lambda: datetime.UTC)


def _warehouse_of(source: str) -> str | None:
    """The warehouse of the clone; None if the server of the catalog names it."""
    if is_served():
        return None
    if "/" in source:
        raise click.UsageError(
            "The clone of a path needs --warehouse: the directory or URI in which it gets its location."
        )
    with open_catalog() as catalog:
        return catalog.registry.load_table(TableIdentifier.of(source)).location.rsplit("/", LEVELS_BELOW_WAREHOUSE)[0]


@click.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=0), help="The version to restore.")
@_timestamp
@click.option(
    "--force",
    is_flag=True,
    help="Restore the other files if storage no longer holds all files of that version; the rows of the missing ones are lost.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Commit; without it, only show what would change.")
@output(
    "an object: version, restored_version, num_restored_files, num_removed_files, missing; with --apply the attributes of "
    "RestoreResult"
)
def restore(name: str, version: int | None, timestamp: str | None, force: bool, apply_it: bool) -> None:
    """Make an older version of the table NAME its next version; the history stays."""
    if (version is None) == (timestamp is None):
        raise click.UsageError("Give one of --version and --timestamp.")
    with open_client() as client:
        table, time_ms = client.table(name), _milliseconds(timestamp)
        if not apply_it:
            _show_restoration(plan_restore(table, version=version, timestamp_ms=time_ms))
            return
        result = restore_table(table, version=version, timestamp_ms=time_ms, force=force)
    done = (
        f"Version {result.version} of {name} restores version {result.restored_version}: "
        f"{counted(result.num_restored_files, 'file')} added ({size_text(result.restored_bytes)}), "
        f"{counted(result.num_removed_files, 'file')} removed ({size_text(result.removed_bytes)})."
    )
    if result.outcome is RestoreOutcome.NOTHING_TO_DO:
        done = f"Version {result.version} is the latest version of {name}; nothing was committed."
    show(result, done)


def _show_restoration(plan: RestorePlan) -> None:
    current, target = plan.current, plan.target
    lines = [
        f"Version {target.version} of {current.identifier} would become version {current.version + 1}: "
        f"{counted(plan.num_restored_files, 'file')} added, {counted(plan.num_removed_files, 'file')} removed.",
        *(f"missing  {location}" for location in plan.missing),
    ]
    if plan.missing:
        lines.append(
            f"Storage no longer holds {counted(len(plan.missing), 'file')} of that version. --apply refuses to commit, unless "
            "--force gives up their rows."
        )
    value = {
        "version": current.version,
        "restored_version": target.version,
        "num_restored_files": plan.num_restored_files,
        "num_removed_files": plan.num_removed_files,
        "missing": list(plan.missing),
    }
    show(value, *lines, "Nothing was committed. --apply restores.")


@click.command()
@click.argument("name")
@click.option("--zorder", "columns", multiple=True, metavar="COLUMN", help="Order rows by it; may be repeated.")
@click.option("--where", default=None, help="Condition on partition columns that limits the files.")
@click.option("--full", is_flag=True, help="On a table with clustering columns, cluster all files again.")
@click.option("--apply", "apply_it", is_flag=True, help="Rewrite; without it, only show what would be rewritten.")
@output("an object: num_files, num_bytes, is_permitted; with --apply the attributes of OptimizeResult")
def optimize(name: str, columns: tuple[str, ...], where: str | None, full: bool, apply_it: bool) -> None:
    """Rewrite small files of the table NAME into fewer large files, or order its rows; rows do not change.

    Spark starts only if the table has columns that Arrow does not write. `cm-delta maintenance set-policy NAME
    DATA_REORGANIZATION` permits it.
    """
    with open_client() as client:
        # Imported here: other commands start faster without it.
        engines = importlib.import_module(_ENGINES)
        if not apply_it:
            plan = engines.planned(client, name, where=where, z_order_by=columns, full=full)
            decision = client.table(name).maintenance_decision(MaintenanceKind.DATA_REORGANIZATION)
            value = {"num_files": plan.num_files, "num_bytes": plan.num_bytes, "is_permitted": decision.allowed}
            then = "--apply rewrites." if decision.allowed else f"--apply would be refused: {decision.reason}."
            files = f"{counted(plan.num_files, 'file')} ({size_text(plan.num_bytes)})"
            show(value, f"{files} of {name} would be rewritten; nothing was changed. {then}")
            return
        result = engines.optimized(client, name, where=where, z_order_by=columns, full=full)
    done = (
        f"Version {result.version} of {name}: {counted(result.num_removed_files, 'file')} "
        f"({size_text(result.removed_bytes)}) rewritten into {counted(result.num_added_files, 'file')} "
        f"({size_text(result.added_bytes)})."
    )
    show(result, done if result.num_removed_files else f"No file of {name} needs a rewrite; nothing was committed.")
