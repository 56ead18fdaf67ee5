"""The command ``cm-delta optimize``."""

import importlib

import click

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.results import echo_result, json_option
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted

_ENGINES = "cm_delta_dagster.api.command_engines"


@click.command()
@click.argument("name")
@click.option("--zorder", "columns", multiple=True, metavar="COLUMN", help="Order rows by it; may be repeated.")
@click.option("--where", default=None, help="Condition on partition columns that limits the files.")
@click.option("--full", is_flag=True, help="On a table with clustering columns, cluster all files again.")
@click.option("--apply", "apply_it", is_flag=True, help="Rewrite; without it, only show what would be rewritten.")
@json_option
@click.pass_context
def optimize(
    context: click.Context, name: str, columns: tuple[str, ...], where: str | None, full: bool, apply_it: bool
) -> None:
    """Rewrite small files of the table NAME into fewer large files, or order its rows; rows do not change.

    Spark rewrites the files. `cm-delta policy allow NAME DATA_REORGANIZATION` permits it.
    """
    with open_client(context) as client:
        # Imported here: the command line starts without pyspark.
        engines = importlib.import_module(_ENGINES)
        if not apply_it:
            plan = engines.planned(client, name, where=where, z_order_by=columns, full=full)
            text = f"{counted(plan.num_files, 'file')} ({size_text(plan.num_bytes)}) of {name} would be rewritten; nothing was "
            decision = client.table(name).maintenance_decision(MaintenanceKind.DATA_REORGANIZATION)
            value = {"num_files": plan.num_files, "num_bytes": plan.num_bytes, "is_permitted": decision.allowed}
            then = "--apply rewrites." if decision.allowed else f"--apply would be refused: {decision.reason}."
            echo_result(value, [f"{text}changed. {then}"])
            return
        result = engines.optimized(client, name, where=where, z_order_by=columns, full=full)
    if not result.num_removed_files:
        echo_result(result, [f"No file of {name} needs a rewrite; nothing was committed."])
        return
    done = (
        f"Version {result.version} of {name}: {counted(result.num_removed_files, 'file')} "
        f"({size_text(result.removed_bytes)}) rewritten into {counted(result.num_added_files, 'file')} "
        f"({size_text(result.added_bytes)})."
    )
    echo_result(result, [done])
