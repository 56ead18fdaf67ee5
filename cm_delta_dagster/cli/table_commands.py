"""Commands that list tables and commits; they read the catalog alone."""

from collections import deque
from collections.abc import Iterator

import click

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.cli.policy_commands import nothing_in
from cm_delta_dagster.cli.times import utc_second

_PAGE = 1000


@click.command()
@click.argument("scope", default="")
@click.pass_context
def tables(context: click.Context, scope: str) -> None:
    """List the tables of the catalog, or of SCOPE (catalog or catalog.schema)."""
    with open_catalog(context) as catalog:
        found = catalog.list_tables(scope)
        if scope and not found:
            raise click.ClickException(nothing_in(catalog, scope))
        for identifier in found:
            say(str(identifier))


@click.command()
@click.argument("name")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many to show.")
@click.pass_context
def commits(context: click.Context, name: str, limit: int) -> None:
    """List the newest commits of the table NAME (catalog.schema.table), newest first."""
    with open_catalog(context) as catalog:
        identifier = TableIdentifier.parse(name)
        entry = catalog.load_table(identifier)
        newest = deque(
            (item for item in _feed_of(catalog, identifier) if item.table_id == entry.table_id), maxlen=limit
        )
        say("VERSION  RATIFIED              STATE      DATA  OPERATION")
        for item in reversed(newest):
            state = "published" if item.version <= entry.ratified.published_version else "ratified"
            data = "yes" if item.summary.data_change else "no"
            say(f"{item.version:>7}  {utc_second(item.ratified_ms)}  {state:<9}  {data:<4}  {item.summary.operation}")


def _feed_of(catalog: SqlCatalog, identifier: TableIdentifier) -> Iterator[FeedEntry]:
    after = 0
    while page := catalog.feed(after=after, limit=_PAGE, identifiers=(identifier,)):
        yield from page
        after = page[-1].position
