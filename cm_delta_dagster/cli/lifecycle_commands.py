"""Commands that drop, bring back, rename and purge tables, and that list files without a table."""

from itertools import repeat

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.days import DAYS, days_in_ms, days_of
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.cli.times import utc_second
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.orphan_files import find_orphan_files, is_empty
from cm_delta_dagster.operations.tables.purge import DROPPED_RETENTION_MS, plan_purge
from cm_delta_dagster.operations.tables.purge import purge as apply_purge
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.undrop import undrop_table


@click.command()
@click.argument("name")
@click.pass_context
def drop(context: click.Context, name: str) -> None:
    """Free the name of the table NAME; its files stay until it is purged."""
    with open_client(context) as client:
        drop_table(client, identifier=name)
    say(f"Dropped {name}. `cm-delta undrop {name}` brings it back.")


@click.command()
@click.argument("name")
@click.option("--id", "table_id", default=None, help="Table id, if several tables of that name were dropped.")
@click.pass_context
def undrop(context: click.Context, name: str, table_id: str | None) -> None:
    """Bring back the dropped table NAME."""
    with open_client(context) as client:
        table = undrop_table(client, identifier=name, table_id=table_id)
    say(f"{table.identifier} is restored (table id {table.table_id}).")


@click.command()
@click.argument("name")
@click.argument("to")
@click.pass_context
def rename(context: click.Context, name: str, to: str) -> None:
    """Rename the table NAME to TO; of the rules for NAME only denials move along."""
    with open_client(context) as client:
        rename_table(client, identifier=name, to=to)
    say(f"{name} is renamed to {to}.")


@click.command()
@click.argument("scope", default="")
@click.option("--warehouse", help="With --apply: warehouse of the catalog; files outside of it are never deleted.")
@click.option(
    "--days",
    type=DAYS,
    default=days_of(DROPPED_RETENTION_MS),
    show_default=True,
    help="Keep tables dropped less than that many days ago. Unfinished creations count as abandoned after 7 days.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Delete; without it, only show what would be deleted.")
@click.pass_context
def purge(context: click.Context, scope: str, warehouse: str | None, days: float, apply_it: bool) -> None:
    """Delete the files of dropped tables and abandoned creations permanently, after a retention."""
    if apply_it and warehouse is None:
        raise click.UsageError("--apply needs --warehouse: files outside of the warehouse are never deleted.")
    with open_client(context, warehouse) as client:
        plan = plan_purge(client, scope=scope, retention_ms=days_in_ms(days))
        verdicts = [*zip(plan.candidates, repeat("delete")), *zip(plan.denied, repeat("denied"))]
        for found, verdict in verdicts:
            say(
                f"{verdict}  {found.table.identifier}  {found.table.state} {utc_second(found.table.since_ms)}  "
                f"{counted(found.num_files, 'file')}, {size_text(found.num_bytes)}  {found.table.location}"
            )
        if not apply_it:
            advice = " --apply --warehouse WAREHOUSE purges." if plan.candidates else ""
            say(f"{counted(len(plan.candidates), 'table')} would be purged; nothing was deleted.{advice}")
            return
        result = apply_purge(client, plan)
    say(
        f"Purged {counted(len(result.purged), 'table')}: {counted(result.num_files, 'file')}, {size_text(result.num_bytes)}."
    )


@click.command("orphan-files")
@click.option("--warehouse", required=True, help="Warehouse to list.")
@click.pass_context
def orphan_files(context: click.Context, warehouse: str) -> None:
    """List files of the warehouse that belong to no table of the catalog; nothing is deleted."""
    with open_client(context, warehouse) as client:
        found = find_orphan_files(client, warehouse=warehouse)
        if not found and is_empty(client, warehouse=warehouse):
            raise click.ClickException(
                f"There is no object at {absolute_location(warehouse)}. Check the spelling, and the scheme of an object store."
            )
    for orphan in found:
        say(
            f"{orphan.location}  {counted(orphan.num_files, 'file')}, {size_text(orphan.num_bytes)}  "
            f"last written {utc_second(orphan.last_written_ms)}"
        )
    say(f"{counted(len(found), 'location')} without a table in this catalog.")
