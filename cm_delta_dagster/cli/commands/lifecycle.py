"""Commands that drop, bring back and rename tables."""

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.printer import output, show
from cm_delta_dagster.operations.tables.drop import drop_table
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
