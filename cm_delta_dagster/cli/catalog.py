"""Opens the catalog of ``--catalog`` for commands of ``cm-delta``; the catalog must exist."""

import click

from cm_delta_dagster.catalog import opening
from cm_delta_dagster.catalog.opening import OpenedCatalog
from cm_delta_dagster.catalog.server_urls import is_server_url
from cm_delta_dagster.catalog.sql import IfMissing
from cm_delta_dagster.cli.options import CommandOptions


def open_catalog(warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE) -> OpenedCatalog:
    """The catalog, which is closed with its ``with`` block. Raises click.UsageError without ``--catalog``."""
    options = options_of_command()
    if not options.url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    return opening.open_catalog(options.url, warehouse=warehouse, if_missing=if_missing, principal=options.principal)


def is_served() -> bool:
    """Whether ``--catalog`` is the URL of a server, whose configuration names the warehouse."""
    return is_server_url(options_of_command().url)


def options_of_command() -> CommandOptions:
    """The options before the command that runs."""
    options: CommandOptions = click.get_current_context().obj
    return options
