"""Commands of ``cm-delta maintenance`` that delete the files of dropped tables, and list files without a table."""

from datetime import timedelta

import click

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.cli.catalog import is_served
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import DURATION, renamed_option
from cm_delta_dagster.cli.printer import aligned, output, show
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.orphan_files import find_orphan_files, is_empty
from cm_delta_dagster.operations.tables.purge import DROPPED_RETENTION_MS, PurgePlan, plan_purge
from cm_delta_dagster.operations.tables.purge import purge as apply_purge


@click.command()
@click.argument("scope", default="")
@click.option(
    "--warehouse",
    help="With --apply: warehouse of the catalog; files outside of it are never deleted. A server names its own.",
)
@click.option(
    "--retention",
    type=DURATION,
    default=span_text(DROPPED_RETENTION_MS),
    show_default=True,
    help="Keep tables dropped less than that long ago. Unfinished creations count as abandoned after 7 days.",
)
@renamed_option("--days", "--retention")
@click.option("--apply", "apply_it", is_flag=True, help="Delete; without it, only show what would be deleted.")
@output("an object with the attributes of PurgePlan, or with --apply of PurgeResult")
def purge(scope: str, warehouse: str | None, retention: timedelta, apply_it: bool) -> None:
    """Delete the files of dropped tables and abandoned creations permanently, after a retention."""
    if apply_it and warehouse is None and not is_served():
        raise click.UsageError("--apply needs --warehouse: files outside of the warehouse are never deleted.")
    with open_client(warehouse) as client:
        plan = plan_purge(client, scope=scope, retention_ms=milliseconds_of(retention))
        if not apply_it:
            options = "--apply" if is_served() else "--apply --warehouse WAREHOUSE"
            advice = f" {options} purges." if plan.candidates else ""
            done = f"{counted(len(plan.candidates), 'table')} would be purged; nothing was deleted.{advice}"
            show(plan, *_listed(plan), done)
            return
        result = apply_purge(client, plan)
    files = f"{counted(result.num_files, 'file')}, {size_text(result.num_bytes)}"
    show(result, *_listed(plan), f"Purged {counted(len(result.purged), 'table')}: {files}.")


def _listed(plan: PurgePlan) -> list[str]:
    records = [
        {
            "verdict": "delete" if candidate.decision.allowed else "denied",
            "table": candidate.table.identifier,
            "state": candidate.table.state,
            "since_ms": candidate.table.since_ms,
            "files": candidate.num_files,
            "size": size_text(candidate.num_bytes),
            "location": candidate.table.location,
        }
        for candidate in (*plan.candidates, *plan.denied)
    ]
    lines = aligned(records, "verdict table state since_ms files size location") if records else []
    return [
        *lines,
        *(f"{entry.table.identifier} is kept until {entry.until:%Y-%m-%d %H:%M:%S} UTC." for entry in plan.retained),
    ]


@click.command("orphan-files")
@click.option("--warehouse", help="Warehouse to list; with a server, its own.")
@output("an array with an object for each location: location, num_files, num_bytes, last_written_ms")
def orphan_files(warehouse: str | None) -> None:
    """List files of the warehouse that belong to no table of the catalog; nothing is deleted."""
    if warehouse is None and not is_served():
        raise click.UsageError("orphan-files needs --warehouse: the directory or URI to list.")
    with open_client(warehouse) as client:
        warehouse = warehouse or client.registry.identity().warehouse
        if warehouse is None:
            raise click.ClickException("The server has no warehouse in its configuration; there is nothing to list.")
        orphans = find_orphan_files(client, warehouse=warehouse)
        if not orphans and is_empty(client, warehouse=warehouse):
            raise click.ClickException(
                f"There is no object at {absolute_location(warehouse)}. Check the spelling, and the scheme of an object store."
            )
    columns = "location num_files size last_written_ms"
    lines = aligned(orphans, columns, size=lambda orphan: size_text(orphan.num_bytes)) if orphans else []
    show(list(orphans), *lines, f"{counted(len(orphans), 'location')} without a table in this catalog.")
