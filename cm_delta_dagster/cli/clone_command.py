"""The command ``cm-delta clone``."""

import datetime

import click

from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.cli.results import echo_result, json_option
from cm_delta_dagster.operations.arguments import epoch_milliseconds
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, open_source
from cm_delta_dagster.operations.tables.clone import clone as create_clone


@click.command()
@click.argument("source")
@click.argument("name")
@click.option("--deep", is_flag=True, help="Copy the data files; without it, the clone names those of SOURCE.")
@click.option("--version", type=click.IntRange(min=0), help="The version to clone; by default the latest.")
@click.option(
    "--timestamp", metavar="TIME", help="In its place: the version of that time, in UTC unless it names a zone."
)
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="Table property; may be repeated.")
@click.option(
    "--warehouse", help="Warehouse in which the clone gets its location; by default that of a SOURCE of the catalog."
)
@json_option
@click.pass_context
def clone(
    context: click.Context,
    source: str,
    name: str,
    deep: bool,
    version: int | None,
    timestamp: str | None,
    properties: tuple[str, ...],
    warehouse: str | None,
) -> None:
    """Create the table NAME as a clone of SOURCE: a table of the catalog, or the path of a table of another writer."""
    if version is not None and timestamp is not None:
        raise click.UsageError("Give one of --version and --timestamp.")
    request = CloneRequest(
        mode=CloneMode.DEEP if deep else CloneMode.SHALLOW,
        version=version,
        timestamp_ms=None if timestamp is None else epoch_milliseconds(timestamp, zone=lambda: datetime.UTC),
        properties=dict(_pair(text) for text in properties),
    )
    with open_client(context, warehouse=warehouse or _warehouse_of(context, source)) as client:
        result = create_clone(client, open_source(client, source), identifier=name, request=request)
    copied = f", {counted(result.num_copied_files, 'file')} copied" if deep else ""
    done = (
        f"{result.name} is a {result.mode} clone of version {result.source_version} of {result.source}: "
        f"{counted(result.num_files, 'data file')} ({size_text(result.num_bytes)}){copied}."
    )
    echo_result(result, [done])
    if result.warning is not None:
        say(f"Warning: {result.warning}", err=True)


def _warehouse_of(context: click.Context, source: str) -> str:
    if "/" in source:
        raise click.UsageError(
            "The clone of a path needs --warehouse: the directory or URI in which it gets its location."
        )
    with open_catalog(context) as catalog:
        return catalog.load_table(TableIdentifier.of(source)).location.rsplit("/", LEVELS_BELOW_WAREHOUSE)[0]


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.UsageError(f"{text!r} is not KEY=VALUE.")
    return key, value
