"""Commands that drop, bring back, rename and purge tables, and that list files without a table."""

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import DAYS, days_of
from cm_delta_dagster.cli.printer import aligned, output, show
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.orphan_files import find_orphan_files, is_empty
from cm_delta_dagster.operations.tables.purge import DROPPED_RETENTION_MS, PurgePlan, plan_purge
from cm_delta_dagster.operations.tables.purge import purge as apply_purge
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table


@click.command()
@click.argument("name")
@output("an object: name")
def drop(name: str) -> None:
    """Free the name of the table NAME; its files stay until it is purged."""
    with open_client() as client:
        drop_table(client, identifier=name)
    show({"name": name}, f"Dropped {name}. `cm-delta undrop {name}` brings it back.")


@click.command()
@click.argument("name")
@click.option("--id", "table_id", default=None, help="Table id, if several tables of that name were dropped.")
@output("an object: name, table_id")
def undrop(name: str, table_id: str | None) -> None:
    """Bring back the dropped table NAME."""
    with open_client() as client:
        table = undrop_table(client, identifier=name, table_id=table_id)
    value = {"name": table.identifier, "table_id": table.table_id}
    show(value, f"{table.identifier} is restored (table id {table.table_id}).")


@click.command()
@click.argument("name")
@click.argument("to")
@output("an object: name, former_name")
def rename(name: str, to: str) -> None:
    """Rename the table NAME to TO; of the rules for NAME only denials move along."""
    with open_client() as client:
        rename_table(client, identifier=name, to=to)
    show({"name": to, "former_name": name}, f"{name} is renamed to {to}.")


@click.command()
@click.argument("scope", default="")
@click.option("--warehouse", help="With --apply: warehouse of the catalog; files outside of it are never deleted.")
@click.option(
    "--days",
    "retention_ms",
    type=DAYS,
    default=days_of(DROPPED_RETENTION_MS),
    show_default=True,
    help="Keep tables dropped less than that many days ago. Unfinished creations count as abandoned after 7 days.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Delete; without it, only show what would be deleted.")
@output("an object with the attributes of PurgePlan, or with --apply of PurgeResult")
def purge(scope: str, warehouse: str | None, retention_ms: int, apply_it: bool) -> None:
    """Delete the files of dropped tables and abandoned creations permanently, after a retention."""
    if apply_it and warehouse is None:
        raise click.UsageError("--apply needs --warehouse: files outside of the warehouse are never deleted.")
    with open_client(warehouse) as client:
        plan = plan_purge(client, scope=scope, retention_ms=retention_ms)
        if not apply_it:
            advice = " --apply --warehouse WAREHOUSE purges." if plan.candidates else ""
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
    return aligned(records, "verdict table state since_ms files size location") if records else []


@click.command("orphan-files")
@click.option("--warehouse", required=True, help="Warehouse to list.")
@output("an array with an object for each location: location, num_files, num_bytes, last_written_ms")
def orphan_files(warehouse: str) -> None:
    """List files of the warehouse that belong to no table of the catalog; nothing is deleted."""
    with open_client(warehouse) as client:
        orphans = find_orphan_files(client, warehouse=warehouse)
        if not orphans and is_empty(client, warehouse=warehouse):
            raise click.ClickException(
                f"There is no object at {absolute_location(warehouse)}. Check the spelling, and the scheme of an object store."
            )
    columns = "location num_files size last_written_ms"
    lines = aligned(orphans, columns, size=lambda orphan: size_text(orphan.num_bytes)) if orphans else []
    show(list(orphans), *lines, f"{counted(len(orphans), 'location')} without a table in this catalog.")
