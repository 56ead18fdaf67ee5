"""Opens the catalog of ``--catalog`` for commands of ``cm-delta``; the catalog must exist."""

import click

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.cli.options import CommandOptions


def open_catalog(warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE) -> SqlCatalog:
    """The catalog, which is closed with its ``with`` block. Raises click.UsageError without ``--catalog``."""
    options = options_of_command()
    if not options.url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    return SqlCatalog(options.url, warehouse=warehouse, if_missing=if_missing, principal=options.principal)


def options_of_command() -> CommandOptions:
    """The options before the command that runs."""
    options: CommandOptions = click.get_current_context().obj
    return options
