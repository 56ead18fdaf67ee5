"""``cm-delta``: list tables and commits, set policies, and check, rename, drop and purge tables from a shell.

The commands call operations and the catalog. Only ``head`` and ``sql`` read rows; only ``sql`` and ``optimize`` write rows. Only
``serve`` and ``recovery recover --warehouse --apply`` create a catalog; for others, a URL without a catalog is an error.
"""

import os
from typing import Any

import click

from cm_delta_dagster.advice import EntryPoint, process_entry_point
from cm_delta_dagster.cli.command_group import CommandGroup
from cm_delta_dagster.cli.options import PROPERTY, CommandOptions, parse_storage_options
from cm_delta_dagster.cli.printer import make_warnings_printable
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.version import __version__


@click.group(name="cm-delta", cls=CommandGroup)
@click.option(
    "--catalog",
    "url",
    envvar="CM_DELTA_CATALOG_URL",
    help="URL: sqlite:////data/catalog.db, http://host:port. Default: CM_DELTA_CATALOG_URL.",
)
@click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the object store, or PREFIX={JSON} for the locations below a prefix; may be repeated. Other users of the "
    "machine can see arguments: put secrets as JSON into the variable CM_DELTA_STORAGE_OPTIONS.",
)
@click.option(
    "--principal",
    envvar="CM_DELTA_PRINCIPAL",
    help="Who runs the command: a user or a pipeline. Default: CM_DELTA_PRINCIPAL, or on PostgreSQL the role that logs in.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    type=PROPERTY,
    metavar="KEY=VALUE",
    help="Tag of the command's commits; may be repeated.",
)
@click.option("--user-metadata", help="User metadata of the commits of the command.")
@click.version_option(__version__, prog_name="cm-delta")
@click.pass_context
def main(context: click.Context, /, **values: Any) -> None:
    """Catalog-managed Delta tables."""
    context.with_resource(process_entry_point(EntryPoint.SHELL))
    make_warnings_printable()
    options = parse_storage_options(values["storage_options"], os.environ.get("CM_DELTA_STORAGE_OPTIONS"))
    recorded = CommitProperties(tags=dict(values["tags"]), user_metadata=values["user_metadata"])
    context.obj = CommandOptions(
        url=values["url"], storage_options=options, principal=values["principal"], context=recorded
    )


if __name__ == "__main__":
    main()
