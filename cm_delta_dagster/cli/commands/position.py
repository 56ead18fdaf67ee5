"""The commands ``cm-delta position``, which show and set how far an asset has read the changes of its inputs."""

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.printer import Form, chosen_form, output, say, show, show_rows
from cm_delta_dagster.cli.values import Rows
from cm_delta_dagster.operations.tables.change_positions import change_positions, set_change_position

_asset = click.option(
    "--asset", default=None, metavar="KEY", help="Key of the asset, a/b. Default: the only one recorded."
)
_output = output("an object: asset, input, read_up_to")


@click.group()
def position() -> None:
    """Show and set how far an asset stored in a table has read the changes of its inputs."""


@position.command("show")
@click.argument("name")
@output("an array with an object for each: asset, input, read_up_to, latest, unread_versions", with_csv=True)
def show_positions(name: str) -> None:
    """Print the positions that the table NAME (catalog.schema.table) records, one for each asset and input."""
    with open_client() as client:
        positions = change_positions(client, client.table(name))
    if not positions and chosen_form() is Form.TEXT:
        say(f"{name} records no position: no asset that is stored in it has an input with `changes`.")
        return
    rows = tuple(
        (
            item.read.consumer,
            item.table or item.read.table_id,
            item.version,
            item.latest,
            None if item.latest is None else item.latest - item.version,
        )
        for item in positions
    )
    columns = ("asset", "input", "read_up_to", "latest", "unread_versions")
    show_rows(Rows(columns=columns, rows=rows), limit=len(rows))


@position.command("set")
@click.argument("name")
@click.argument("upstream", metavar="INPUT")
@click.argument("version", type=click.IntRange(min=0))
@_asset
@_output
def set_(name: str, upstream: str, version: int, asset: str | None) -> None:
    """Let the asset in the table NAME continue after VERSION of the table INPUT.

    A lower version makes it read changes again, a higher one skip changes.
    """
    _set(name, upstream, version, asset)


@position.command()
@click.argument("name")
@click.argument("upstream", metavar="INPUT")
@_asset
@_output
def skip(name: str, upstream: str, asset: str | None) -> None:
    """Skip all changes of the table INPUT that the asset in the table NAME has not read."""
    _set(name, upstream, None, asset)


def _set(name: str, upstream: str, version: int | None, asset: str | None) -> None:
    with open_client() as client:
        done = set_change_position(client, client.table(name), upstream=upstream, version=version, consumer=asset)
    value = {"asset": done.read.consumer, "input": done.table, "read_up_to": done.version}
    show(value, f"{done.read.consumer} continues after version {done.version} of {done.table}.")
