"""Commands of ``cm-delta maintenance`` for leases."""

import click

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.printer import output, show, show_records


@click.command()
@output("an array with the attributes of each Lease")
def leases() -> None:
    """List the maintenance leases."""
    with open_catalog() as catalog:
        show_records(
            catalog.leases.leases(), "identifier kind token expires_ms expired owner", empty="No lease is held."
        )


@click.command("expire-lease")
@click.argument("name")
@click.option("--owner", required=True, help="The holder, as `cm-delta maintenance leases` shows it.")
@click.option("--reason", default="", help="For the audit.")
@output("an object: name, owner")
def expire_lease(name: str, owner: str, reason: str) -> None:
    """End the maintenance lease of another run on the table NAME: it can neither commit nor delete any more."""
    with open_catalog() as catalog:
        table = catalog.registry.load_table(TableIdentifier.parse(name))
        catalog.leases.expire_lease(table.table_id, owner=owner, reason=reason)
    show({"name": name, "owner": owner}, f"The lease of {owner} on {name} is ended.")
