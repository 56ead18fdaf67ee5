"""The commands ``cm-delta position``, which show and set how far an asset has read the changes of its inputs."""

import click

from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.cli.rows import Rows, echo_rows, output_options
from cm_delta_dagster.operations.tables.change_positions import change_positions, set_change_position

_asset = click.option(
    "--asset", default=None, metavar="KEY", help="Key of the asset, a/b. Default: the only one recorded."
)


@click.group()
def position() -> None:
    """Show and set how far an asset stored in a table has read the changes of its inputs."""


@position.command()
@click.argument("name")
@output_options
@click.pass_context
def show(context: click.Context, /, name: str, **output: bool) -> None:
    """Print the positions that the table NAME (catalog.schema.table) records, one for each asset and input."""
    with open_client(context) as client:
        found = change_positions(client, client.table(name))
    if not found and not any(output.values()):
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
        for item in found
    )
    columns = ("asset", "input", "read_up_to", "latest", "unread_versions")
    echo_rows(Rows(columns=columns, rows=rows), limit=max(1, len(rows)), **output)


@position.command("set")
@click.argument("name")
@click.argument("upstream", metavar="INPUT")
@click.argument("version", type=click.IntRange(min=0))
@_asset
@click.pass_context
def set_(context: click.Context, name: str, upstream: str, version: int, asset: str | None) -> None:
    """Let the asset in the table NAME continue after VERSION of the table INPUT.

    A lower version makes it read changes again, a higher one skip changes.
    """
    _set(context, name, upstream, version, asset)


@position.command()
@click.argument("name")
@click.argument("upstream", metavar="INPUT")
@_asset
@click.pass_context
def skip(context: click.Context, name: str, upstream: str, asset: str | None) -> None:
    """Skip all changes of the table INPUT that the asset in the table NAME has not read."""
    _set(context, name, upstream, None, asset)


def _set(context: click.Context, name: str, upstream: str, version: int | None, asset: str | None) -> None:
    with open_client(context) as client:
        found = set_change_position(client, client.table(name), upstream=upstream, version=version, consumer=asset)
    say(f"{found.read.consumer} continues after version {found.version} of {found.table}.")
